//! The loop's way through any list of workers, against a model of it.

use harness_subagent::StopReason;
use harness_testkit::workflow::StubChild;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{Stage, blocked, complete, continuing};

#[derive(Clone, Copy, Debug)]
enum Worker {
    Continues,
    Completes,
    Blocks,
    Breaks,
    Fails,
    IsLost,
}

impl Worker {
    fn script(self, round: usize) -> StubChild {
        match self {
            Self::Continues => StubChild::value(continuing(&format!("round {round}"))),
            Self::Completes => StubChild::value(complete("done")),
            Self::Blocks => StubChild::value(blocked("no key")),
            Self::Breaks => StubChild::value(json!({})),
            Self::Fails => StubChild::failure(StopReason::ERROR),
            Self::IsLost => StubChild::lost(),
        }
    }
}

/// How a run ends, in which round, and which round left the last report with which the work can go on.
fn model(workers: &[Worker], max_rounds: usize) -> (&'static str, usize, Option<usize>) {
    for (round, worker) in (1..=max_rounds).zip(workers) {
        let before = (round > 1).then(|| round - 1);
        match worker {
            Worker::Continues => {}
            Worker::Completes => return ("complete", round, None),
            Worker::Blocks => return ("blocked", round, None),
            Worker::Fails => return ("round-failed", round, before),
            Worker::Breaks | Worker::IsLost => return ("workflow-failed", round, before),
        }
    }
    ("budget-limited", max_rounds, Some(max_rounds))
}

fn seen(summary: Option<&str>) -> Option<usize> {
    summary.map(|summary| summary.strip_prefix("round ").unwrap().parse().unwrap())
}

proptest! {
    #[test]
    fn the_loop_goes_as_the_model_does(
        workers in prop::collection::vec(
            prop::sample::select(
                [
                    Worker::Continues, Worker::Continues, Worker::Continues, Worker::Continues, Worker::Completes,
                    Worker::Blocks, Worker::Breaks, Worker::Fails, Worker::IsLost,
                ]
                .as_slice(),
            ),
            8,
        ),
        max_rounds in 1_usize..8,
    ) {
        let (ending, rounds, last) = model(&workers, max_rounds);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let scripts = workers.iter().zip(1..).map(|(worker, round)| worker.script(round));
        let stage = Stage::running(json!({}), scripts);
        let outcome = runtime.block_on(stage.call(json!({ "objective": "o", "maxRounds": max_rounds })));

        let found = match &outcome {
            Ok(envelope) => {
                let result = envelope.result();
                let report = result.report();
                let last = (result.status().as_str() == "budget-limited").then(|| report.summary());
                (result.status().as_str(), result.rounds_started(), seen(last))
            }
            Err(error) => {
                let last = error.last_report().map(ralph_report::RoundReport::summary);
                (error.code(), error.round().unwrap(), seen(last))
            }
        };
        prop_assert_eq!(found, (ending, rounds as u64, last));

        // Each worker is told of the round before its own, and of nothing earlier.
        let calls = stage.engine.calls();
        prop_assert_eq!(calls.len(), rounds);
        for (index, call) in calls.iter().enumerate() {
            let parts = crate::prompts::PromptParts::read(&call.prompt);
            prop_assert_eq!(parts.round, index as u64 + 1);
            let handed = parts.report.as_ref().and_then(|report| report["summary"].as_str());
            prop_assert_eq!(seen(handed), (index > 0).then_some(index));
        }
        prop_assert_eq!(stage.engine.disposals(), 1);
        prop_assert!(stage.engine.phases().len() == 1 && stage.engine.cancels().is_empty());
        prop_assert_eq!(Value::from(calls.len()), Value::from(rounds));
    }
}
