use std::sync::Arc;

use harness_subagent::{Capabilities, StopReason};
use harness_workflow::{
    InvariantObserver, RunResult, RunStopReason, WorkflowEventKind, WorkflowObserver, WorkflowRun,
};
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::reference::{End, EndKind, Reference};
use super::{Action, ChildPlan, RunPlan, Schedule, schedules};
use crate::subagent::MockChild;
use crate::wait::poll_once;
use crate::workflow::bench::{Bench, dispose, patiently, quiet, result_of};
use crate::workflow::{EngineConstructor, Step};

/// Holds an engine to the model with `cases` drawn schedules, each on an engine of its own under a paused clock.
///
/// # Panics
///
/// When the engine differs from the model, with the smallest schedule on which it was found to.
pub fn hold_to_model(cases: u32, constructor: impl Fn() -> EngineConstructor) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&schedules(), |schedule| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime on the current thread needs nothing but memory")
            .block_on(check_schedule(&constructor(), &schedule));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Plays `schedule` on an engine and compares what comes of it with the model.
///
/// The invariants of the events are checked too, and that no child is left.
///
/// # Panics
///
/// When the engine differs from the model.
pub async fn check_schedule(constructor: &EngineConstructor, schedule: &Schedule) {
    let mut play = Play::begin(constructor, schedule).await;
    for &(run, action) in &schedule.actions {
        play.act(run, action).await;
    }
    play.end().await;
}

struct Play {
    bench: Bench,
    invariants: Arc<InvariantObserver>,
    runs: Vec<Player>,
}

/// A run in a play.
struct Player {
    index: usize,
    plan: RunPlan,
    reference: Reference,
    run: Option<Box<dyn WorkflowRun>>,
    started: bool,
}

impl Play {
    async fn begin(constructor: &EngineConstructor, schedule: &Schedule) -> Self {
        let bench = Bench::with(constructor, Capabilities::ALL, |_| {}).await;
        let invariants = Arc::new(InvariantObserver::new("engine under test"));
        bench.engine.observe(Arc::clone(&invariants) as Arc<dyn WorkflowObserver>);
        let plans = schedule.runs.clone();
        bench.provider.set_default_with(move |asked| child_of(&plans, &asked.prompt));
        let runs = schedule.runs.iter().enumerate().map(|(index, plan)| Player {
            index,
            plan: plan.clone(),
            reference: Reference::new(plan.clone()),
            run: None,
            started: false,
        });
        Self { runs: runs.collect(), bench, invariants }
    }

    async fn act(&mut self, run: usize, action: Action) {
        if action == Action::Settle || action == Action::Finish {
            // Ends are let go one by one, so that the model need not guess who came first.
            self.settle().await;
        }
        let Some(player) = self.runs.get_mut(run) else { return };
        if action == Action::Start && !player.started {
            player.started = true;
            player.run = Some(self.bench.start(&steps(player.index, &player.plan)).await);
            return;
        }
        let Some(run) = player.run.as_deref() else { return };
        match action {
            Action::Start | Action::Settle => {}
            Action::Finish => {
                let waiting = self.bench.provider.live().into_iter().find(|child| {
                    self.bench.provider.request(*child).prompt.starts_with(&format!("{} ", player.index))
                });
                if let Some(child) = waiting {
                    self.bench.provider.finish(child);
                }
                player.reference.finish();
            }
            Action::Cancel => {
                run.cancel("the schedule says so");
                player.reference.cancel(Some("the schedule says so"));
            }
            Action::Dispose => {
                player.reference.cancel(None);
                patiently("the disposal", run.dispose())
                    .await
                    .expect("nothing keeps the run from its release");
                player.check(&result_of(run).await);
            }
            Action::DisposeTwice => {
                player.reference.cancel(None);
                let (one, other) =
                    patiently("both disposals", async { tokio::join!(run.dispose(), run.dispose()) }).await;
                assert_eq!((one.is_ok(), other.is_ok()), (true, true), "both disposals get the same answer");
                player.check(&result_of(run).await);
            }
            Action::DropWait => {
                let mut wait = run.result();
                poll_once(wait.as_mut()).await;
            }
            Action::Drop => {
                player.reference.cancel(None);
                player.run = None;
            }
        }
    }

    async fn settle(&mut self) {
        quiet().await;
        for player in self.runs.iter_mut().filter(|player| player.started) {
            player.reference.settle();
            let Some(run) = player.run.as_deref() else { continue };
            let mut wait = run.result();
            match poll_once(wait.as_mut()).await {
                Some(result) => player.check(&result),
                None => assert_eq!(player.reference.ends, [], "run {} should have ended", player.index),
            }
        }
    }

    async fn end(mut self) {
        self.settle().await;
        for player in &mut self.runs {
            if let Some(run) = player.run.take() {
                player.reference.cancel(None);
                dispose(&*run).await;
                let result = result_of(&*run).await;
                player.check(&result);
                check_end_event(&self.bench, &*run, &result);
            }
        }
        quiet().await;
        assert_eq!(self.invariants.violations(), []);
        assert_eq!(self.invariants.open_runs(), [], "every run has ended");
        assert_eq!(self.bench.provider.live(), Bench::NO_CHILD, "no child is left");
        let released = self.bench.provider.disposes();
        let mut once = released.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(released.len(), once.len(), "each child is disposed of once");
    }
}

fn check_end_event(bench: &Bench, run: &dyn WorkflowRun, result: &RunResult) {
    let events = bench.events.of(run.id());
    match events.last() {
        Some(WorkflowEventKind::Ended { stop_reason, .. }) => assert_eq!(*stop_reason, result.stop_reason()),
        other => panic!("the last event is {other:?}"),
    }
}

impl Player {
    fn check(&self, result: &RunResult) {
        let fits = self.reference.ends.iter().any(|end| fits(end, result));
        assert!(fits, "run {} ended as {result:?}; it may end as {:?}", self.index, self.reference.ends);
    }
}

fn fits(end: &End, result: &RunResult) -> bool {
    let kind = match &end.kind {
        EndKind::Completed(value) => result.value() == Some(value),
        EndKind::Failed(code) => {
            result.stop_reason() == RunStopReason::Error
                && result.error().is_some_and(|error| error.code().as_str() == *code)
        }
        EndKind::Cancelled(reason) => {
            let expected = reason.map(|reason| json!({ "reason": reason }));
            result.stop_reason() == RunStopReason::Cancelled
                && (expected.is_none()
                    || result.error().and_then(|error| error.details()) == expected.as_ref())
        }
    };
    kind && end.calls.is_none_or(|calls| calls == result.agents_started())
        && end.checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.as_ref() == result.checkpoint())
}

fn steps(index: usize, plan: &RunPlan) -> Vec<Step> {
    let one = |number: usize| [Step::ask(format!("{index} {number}")), Step::Checkpoint(json!(number + 1))];
    (0..plan.children.len()).flat_map(one).collect()
}

/// Makes the child that a prompt asks for: the run's index and the child's.
fn child_of(plans: &[RunPlan], prompt: &str) -> MockChild {
    let numbers: Vec<usize> = prompt.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [run, child] = numbers[..] else { panic!("{prompt:?} is no prompt of a schedule") };
    match plans[run].children[child] {
        ChildPlan::Completes => MockChild::text("done"),
        ChildPlan::Fails => MockChild::failing(StopReason::REFUSAL),
        ChildPlan::IsLost => MockChild::lost(),
        ChildPlan::IsRefused => MockChild::refused(),
        ChildPlan::Waits => MockChild::text("done").until_finished(),
    }
}
