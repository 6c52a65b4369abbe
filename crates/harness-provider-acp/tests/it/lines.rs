//! Whatever an agent prints, the conversation goes on.

use harness_subagent::StopReason;
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let bench = Bench::new();
    let result = bench.play("prints garbage").await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })), "{result:?}");
    assert!(bench.answers().is_empty(), "nobody answers garbage");
}

#[tokio::test]
async fn a_line_that_is_too_long_costs_only_itself() {
    let result = Bench::new().play("prints a giant line").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
}

#[tokio::test]
async fn a_prompt_of_megabytes_arrives_whole() {
    let bench = Bench::new();
    let prompt = format!("end_turn\n{}", "é".repeat(3_000_000));
    let result = bench.run(&bench.provider("stops"), bench.plain_request(&prompt)).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert!(bench.heard_as("session/prompt")[0]["prompt"][0]["text"] == prompt, "it was changed on its way");
}

#[tokio::test]
async fn what_an_agent_says_is_kept() {
    let bench = Bench::new();
    let result = bench.run(&bench.provider("talks"), bench.plain_request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.output, "one two\nthree");
    assert_eq!(result.session_id.as_deref(), Some("session-1"));
}
