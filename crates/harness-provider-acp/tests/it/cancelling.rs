//! A cancelled child ends as one, whatever its agent says, and nothing of it is left.

use std::time::{Duration, Instant};

use harness_subagent::{StopReason, SubagentProvider, SubagentResult, Usage};
use serde_json::{Value, json};

use crate::support::{Bench, until};

/// Has the agent play `script` until it works, and cancels it.
async fn cancelled(bench: &Bench, script: &str, prompt: &str) -> SubagentResult {
    let request = bench.request(prompt);
    let cancellation = request.cancellation.clone();
    let run = bench.provider(script).start(request).await.unwrap();
    until(&*run, "working").await;
    cancellation.cancel();
    let result = bench.see_off(&*run).await;
    assert_eq!(result.stop_reason, StopReason::ABORTED, "{result:?}");
    result
}

#[tokio::test]
async fn a_cancelled_child_is_aborted_whatever_its_agent_says() {
    for word in ["cancelled", "end_turn", "refusal", "from_the_future"] {
        let bench = Bench::new();
        let result = cancelled(&bench, "answers its cancellation", word).await;
        assert_eq!(bench.heard_as("session/cancel"), [json!({ "sessionId": "session-1" })]);
        assert_eq!(result.session_id.as_deref(), Some("session-1"));
    }
}

#[tokio::test]
async fn what_a_cancelled_child_used_is_told() {
    let result = cancelled(&Bench::new(), "answers its cancellation", "end_turn").await;
    assert_eq!(result.usage, Some(Usage::new(10, 2)));
}

#[tokio::test]
async fn an_agent_that_answers_its_cancellation_with_an_error_is_aborted() {
    cancelled(&Bench::new(), "answers its cancellation with an error", "").await;
}

#[tokio::test]
async fn an_agent_that_does_not_heed_its_cancellation_is_ended() {
    for script in
        ["does not know its cancellation", "ignores everything", "leaves orphans when it is cancelled"]
    {
        let begun = Instant::now();
        cancelled(&Bench::new(), script, "").await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{script} took {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_permission_asked_for_after_the_cancellation_is_nobodys_choice() {
    let bench = Bench::new();
    cancelled(&bench, "asks for permission when it is cancelled", "").await;
    let answers = bench.answers();
    assert_eq!(answers[0]["result"], json!({ "outcome": { "outcome": "cancelled" } }), "{answers:?}");
}

#[tokio::test]
async fn a_child_that_is_cancelled_before_its_prompt_is_aborted() {
    let bench = Bench::new();
    let request = bench.request("do it");
    let cancellation = request.cancellation.clone();
    let run = bench.provider("says nothing").start(request).await.unwrap();
    cancellation.cancel();
    let result = bench.see_off(&*run).await;
    assert_eq!(result.stop_reason, StopReason::ABORTED);
    assert_eq!(bench.heard_as("session/cancel"), [Value::Null; 0]);
}

#[tokio::test]
async fn a_disposal_asks_the_agent_to_stop_first() {
    let bench = Bench::new();
    let request = bench.request("cancelled");
    let run = bench.provider("answers its cancellation").start(request).await.unwrap();
    until(&*run, "working").await;
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::ABORTED);
    assert_eq!(bench.heard_as("session/cancel").len(), 1);
    assert_eq!(bench.alive(), [0_u32; 0]);
}

#[tokio::test]
async fn an_agent_that_never_reads_holds_nobody_up() {
    cancelled(&Bench::new(), "never reads", "").await;
}
