//! A child hands in its value by the capture server that its agent is told of.

use std::time::Duration;

use harness_provider_acp::AcpProvider;
use harness_subagent::{
    Capabilities, ErrorKind, OutputContract, RuleRef, StopReason, SubagentProvider, Usage,
};
use serde_json::{Value, json};

use crate::support::{Bench, any_object};

#[tokio::test]
async fn a_child_that_never_hands_in_is_reminded_and_then_has_no_value() {
    let bench = Bench::new();
    let result = bench.play("forgets to hand in").await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
    let prompts = bench.heard_as("session/prompt");
    assert_eq!(prompts.len(), 3, "one prompt and two reminders");
    let text = |prompt: &Value| prompt["prompt"][0]["text"].as_str().unwrap().to_owned();
    assert!(text(&prompts[0]).starts_with("do it\n") && text(&prompts[0]).contains("`hand_in`"));
    assert!(!text(&prompts[1]).contains("do it\n") && text(&prompts[1]).contains("`hand_in`"));
}

#[tokio::test]
async fn a_child_that_nobody_reminds_is_asked_once() {
    let bench = Bench::new();
    let provider = bench.provider("forgets to hand in").with_corrections(0);
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
    assert_eq!(bench.heard_as("session/prompt").len(), 1);
}

#[tokio::test]
async fn a_child_that_is_asked_for_no_value_is_not_reminded_of_one() {
    let bench = Bench::new();
    let provider = bench.provider("forgets to hand in");
    let result = bench.run(&provider, bench.plain_request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(bench.heard_as("session/prompt").len(), 1);
    assert_eq!(bench.heard_as("session/new")[0]["mcpServers"], json!([]));
}

#[tokio::test]
async fn a_reminded_child_can_still_hand_in() {
    let result = Bench::new().play("hands in when it is reminded").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.structured, Some(json!({ "n": 2 })));
}

#[tokio::test]
async fn the_last_refused_value_is_delivered_where_none_was_accepted() {
    let bench = Bench::new();
    let result = bench.play("hands in what is refused").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.structured, Some(json!({ "refuse": 2 })));
    assert_eq!(bench.heard_as("session/prompt").len(), 1, "the server hands a refused value back");
}

#[tokio::test]
async fn an_accepted_value_completes_an_end_that_went_wrong() {
    for script in ["hands in", "hands in and fails", "hands in and falls over"] {
        let result = Bench::new().play(script).await;
        assert_eq!(result.stop_reason, StopReason::COMPLETED, "{script}: {result:?}");
        assert_eq!(result.structured, Some(json!({ "n": 1 })), "{script}");
    }
}

#[tokio::test]
async fn an_agent_that_goes_on_after_its_value_was_accepted_is_asked_to_stop() {
    let bench = Bench::new();
    let provider = bench.provider("hands in and never settles").with_settle_grace(Duration::from_millis(100));
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
    assert_eq!(result.usage, Some(Usage::new(10, 2)));
    assert_eq!(bench.heard_as("session/cancel").len(), 1);
}

#[tokio::test]
async fn the_agent_is_told_the_server_and_everything_the_server_needs() {
    let bench = Bench::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let contract = OutputContract::new(schema.clone()).unwrap().with_rule(RuleRef::new("odd"));
    let provider = bench.provider("hands in");
    let run = provider.start(bench.plain_request("do it").with_output(contract)).await.unwrap();
    run.result().await.unwrap();

    let session = &bench.heard_as("session/new")[0];
    assert_eq!(session["cwd"], bench.workspace().to_str().unwrap());
    let server = &session["mcpServers"][0];
    assert_eq!((&server["name"], &server["command"]), (&json!("kit"), &json!("/no/such/server")));
    assert_eq!(server["args"], json!(["capture"]));
    let variable = |name: &str| {
        let found = server["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name);
        found.unwrap()["value"].as_str().unwrap().to_owned()
    };
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(variable(name)).unwrap()).unwrap()
    };
    assert_eq!(read("HARNESS_SCHEMA_FILE"), schema);
    assert_eq!(read("HARNESS_RULE_FILE"), json!({ "name": "odd" }));
    assert_eq!(variable("HARNESS_TOOL"), "hand_in");
    assert_eq!(variable("HARNESS_CORRECTIONS"), "2");
    assert_eq!(["HARNESS_RUN", "HARNESS_CALL", "HARNESS_ATTEMPT"].map(variable), ["run", "1", "1"]);
    run.dispose().await.unwrap();
}

#[tokio::test]
async fn without_a_server_no_child_can_be_asked_for_a_value() {
    let bench = Bench::new();
    let provider = AcpProvider::new("acp", "true", bench.files());
    assert_eq!(provider.capabilities(), Capabilities::NONE);
    let error = provider.start(bench.plain_request("do it").with_output(any_object())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
}

#[tokio::test]
async fn a_prompt_that_is_too_long_for_the_agent_is_refused_at_the_start() {
    let bench = Bench::new();
    let provider = bench.provider("hands in").with_max_prompt_bytes(1000);
    let error = provider.start(bench.request(&"x".repeat(1000))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
}
