//! What becomes of a child that claims success under an output contract.

use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Diagnostic, OutputContract, StartSubagent, StopReason, SubagentRegistry, SubagentResult, Usage,
};
use serde_json::{Value, json};

use crate::double::{Double, contract, request};

async fn outcome(request: StartSubagent, result: SubagentResult) -> SubagentResult {
    let provider = Double::new("p");
    let child = provider.then_child("c");
    child.ends(result);
    let run = LocalRegistry::new().start_on(&(provider.clone() as _), request).await.unwrap();
    let first = run.result().await.unwrap();
    assert_eq!(run.result().await.unwrap(), first, "every call gets the same answer");
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap(), first, "also after the disposal");
    first
}

async fn under_contract(result: SubagentResult) -> SubagentResult {
    outcome(request().with_output(contract()), result).await
}

#[tokio::test]
async fn a_completed_child_without_a_value_has_no_value() {
    let result = under_contract(SubagentResult::completed("words only")).await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
    assert_eq!(result.output, "words only");
    assert_eq!(result.structured, None);
    assert!(result.diagnostic.is_some());
}

#[tokio::test]
async fn a_refused_value_fails_the_child_and_is_kept() {
    for value in [json!({}), json!({ "n": "1" }), json!({ "n": 1, "more": 0 }), json!([1]), Value::Null] {
        let handed_in = SubagentResult::handed_in(value.clone())
            .with_output("said")
            .with_usage(Usage::new(3, 4))
            .with_session_id("s");
        let result = under_contract(handed_in.clone()).await;
        assert_eq!(result.stop_reason, StopReason::SCHEMA_REFUSED, "{value}");
        assert_eq!(result.structured, Some(value));
        let diagnostic = result.diagnostic.clone().unwrap();
        assert!(diagnostic.details().contains_key("pointer"), "{diagnostic:?}");
        let mut rest = result;
        rest.stop_reason = StopReason::COMPLETED;
        rest.diagnostic = None;
        assert_eq!(rest, handed_in, "nothing else changes");
    }
}

#[tokio::test]
async fn an_admitted_value_is_passed_on_unchanged() {
    for value in [json!({ "n": 1 }), json!({ "n": -0.0 }), json!({ "n": 2.0 })] {
        let handed_in = SubagentResult::handed_in(value).with_output("said").with_session_id("s");
        assert_eq!(under_contract(handed_in.clone()).await, handed_in);
    }
}

#[tokio::test]
async fn a_child_that_claims_no_success_is_left_as_it_is() {
    for reason in StopReason::KNOWN.iter().filter(|reason| !reason.is_completed()) {
        let stopped =
            SubagentResult::stopped(reason.clone(), Diagnostic::new("why")).with_structured(json!(7));
        assert_eq!(under_contract(stopped.clone()).await, stopped);
    }
    let unknown = SubagentResult::stopped(StopReason::other("vendor-quirk"), Diagnostic::new("why"));
    assert_eq!(under_contract(unknown.clone()).await, unknown);
}

#[tokio::test]
async fn without_a_contract_nothing_is_judged() {
    for result in [SubagentResult::completed("x"), SubagentResult::handed_in(json!("anything"))] {
        assert_eq!(outcome(request(), result.clone()).await, result);
    }
}

#[tokio::test]
async fn the_diagnostic_of_a_refusal_is_bounded_and_repeats_no_value() {
    let long = "漢".repeat(10_000);
    let result = under_contract(SubagentResult::handed_in(json!({ "n": long, &*long: 1 }))).await;
    let message = result.diagnostic.unwrap().message().to_owned();
    assert!(message.len() <= Diagnostic::MAX_MESSAGE_BYTES, "{}", message.len());

    let result = under_contract(SubagentResult::handed_in(json!({ "n": "hunter2" }))).await;
    let message = result.diagnostic.unwrap().message().to_owned();
    assert!(message.contains("/n"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn every_start_is_judged_by_its_own_contract() {
    let registry = LocalRegistry::new();
    let text = json!({ "type": "object", "properties": { "n": { "type": "string" } }, "required": ["n"] });
    for (contract, value, admitted) in [
        (contract(), json!({ "n": 1 }), true),
        (OutputContract::new(text.clone()).unwrap(), json!({ "n": 1 }), false),
        (OutputContract::new(text).unwrap(), json!({ "n": "1" }), true),
        (contract(), json!({ "n": "1" }), false),
    ] {
        let provider = Double::new("p");
        provider.then_child("c").ends(SubagentResult::handed_in(value));
        let run = registry.start_on(&(provider.clone() as _), request().with_output(contract)).await.unwrap();
        assert_eq!(run.result().await.unwrap().stop_reason.is_completed(), admitted);
    }
}
