//! What an agent is told before its prompt.

use harness_subagent::{Parent, StartSubagent, StopReason, SubagentProvider};
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn an_agent_is_lent_neither_files_nor_terminals() {
    let bench = Bench::new();
    bench.play("hands in").await;
    let greeting = &bench.heard_as("initialize")[0];
    assert_eq!(greeting["protocolVersion"], 1);
    let capabilities = &greeting["clientCapabilities"];
    assert_eq!(capabilities["fs"], json!({ "readTextFile": false, "writeTextFile": false }));
    assert_eq!(capabilities["terminal"], false);
}

#[tokio::test]
async fn a_mode_is_set_where_the_agent_offers_it() {
    let bench = Bench::new();
    bench.run(&bench.provider("hands in").with_mode("bold"), bench.request("do it")).await;
    assert_eq!(bench.heard_as("session/set_mode"), [json!({ "sessionId": "session-1", "modeId": "bold" })]);

    let bench = Bench::new();
    bench.run(&bench.provider("hands in").with_mode("reckless"), bench.request("do it")).await;
    let option = json!({ "sessionId": "session-1", "configId": "pace", "value": "reckless" });
    assert_eq!(bench.heard_as("session/set_config_option"), [option]);
}

#[tokio::test]
async fn an_agent_without_the_mode_is_not_used_in_another_one() {
    let bench = Bench::new();
    let result = bench.run(&bench.provider("hands in").with_mode("silent"), bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::ERROR);
    let message = result.diagnostic.unwrap().message().to_owned();
    assert!(message.contains("\"silent\"") && message.contains("careful, bold, reckless"), "{message}");
    assert!(bench.heard_as("session/prompt").is_empty());

    let bench = Bench::new();
    let provider = bench.provider("refuses its mode").with_mode("bold");
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::ERROR);
    assert!(bench.heard_as("session/prompt").is_empty());
}

#[tokio::test]
async fn options_and_the_way_to_authenticate_are_told_in_their_order() {
    let bench = Bench::new();
    let provider = bench
        .provider("hands in")
        .with_authentication("key")
        .with_option("model", "big")
        .with_option("effort", "low");
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    let heard: Vec<String> =
        bench.heard().iter().map(|message| message["method"].as_str().unwrap().to_owned()).collect();
    let set = "session/set_config_option";
    assert_eq!(heard, ["initialize", "authenticate", "session/new", set, set, "session/prompt"]);
}

#[tokio::test]
async fn a_way_to_authenticate_that_is_not_offered_is_an_error() {
    let bench = Bench::new();
    let provider = bench.provider("hands in").with_authentication("password");
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::ERROR);
}

#[tokio::test]
async fn a_workspace_must_be_a_path() {
    let request = StartSubagent::new("do it", Parent::new("me", "relative"));
    assert!(Bench::new().provider("hands in").start(request).await.is_err());
}
