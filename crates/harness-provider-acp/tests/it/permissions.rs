//! Requests of an agent are answered by what is configured, and never by guess.

use harness_provider_acp::Permissions;
use harness_subagent::StopReason;
use serde_json::{Value, json};

use crate::support::{Bench, detail};

/// What was chosen, or that nobody chose.
fn chosen(answer: &Value) -> &str {
    let outcome = &answer["result"]["outcome"];
    outcome["optionId"].as_str().or(outcome["outcome"].as_str()).unwrap()
}

#[tokio::test]
async fn a_permission_is_refused_unless_it_is_configured() {
    for (permissions, expected) in [
        (None, ["id-reject_once", "cancelled"]),
        (Some(Permissions::Reject), ["id-reject_once", "cancelled"]),
        (Some(Permissions::Allow), ["id-allow_once", "cancelled"]),
    ] {
        let bench = Bench::new();
        let mut provider = bench.provider("asks for permission");
        if let Some(permissions) = permissions {
            provider = provider.with_permissions(permissions);
        }
        let result = bench.run(&provider, bench.plain_request("do it")).await;
        assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
        let answers = bench.answers();
        assert_eq!([chosen(&answers[0]), chosen(&answers[1])], expected);
        assert_eq!([&answers[0]["id"], &answers[1]["id"]], [&json!("p-0"), &json!(0)]);
    }
}

#[tokio::test]
async fn the_tool_for_handing_in_is_allowed_in_any_case() {
    let bench = Bench::new();
    let result = bench.play("asks for permission to hand in").await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })), "{result:?}");
    assert_eq!(chosen(&bench.answers()[0]), "id-allow_once");
}

#[tokio::test]
async fn a_child_without_a_value_that_was_refused_a_permission_says_so() {
    for script in ["asks for permission", "stops when it is refused"] {
        let bench = Bench::new();
        let result = bench.play(script).await;
        assert_eq!(result.stop_reason, StopReason::PERMISSION_DENIED, "{result:?}");
        assert!(detail(&result, "refused").parse::<u32>().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_request_with_a_whole_file_is_answered_and_one_without_sense_is_refused() {
    let bench = Bench::new();
    let provider =
        bench.provider("asks for permission with a whole file").with_permissions(Permissions::Allow);
    bench.run(&provider, bench.plain_request("do it")).await;
    let answers = bench.answers();
    assert_eq!(chosen(&answers[0]), "id-allow_once");
    assert_eq!(answers[1]["error"]["code"], -32602);
}

#[tokio::test]
async fn whatever_else_an_agent_asks_for_is_not_there() {
    let bench = Bench::new();
    let result = bench.run(&bench.provider("asks for everything"), bench.plain_request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    let answers = bench.answers();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(0), &json!("a-string"), &json!(7), &json!("")]);
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32601), "{answers:?}");
}
