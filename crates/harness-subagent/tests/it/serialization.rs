//! What is written can be read again, and what was never written is refused.

use std::fmt::Debug;

use harness_subagent::{
    Activity, AgentId, Capabilities, Diagnostic, ModelChoice, Origin, OutputContract, OutputViolation,
    Parent, ProviderInfo, RestrictionStrength, RuleRef, StopReason, SubagentResult, ToolFilter,
    ToolRestriction, Usage,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[track_caller]
fn round_trip<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: &T, wire: &Value) {
    assert_eq!(serde_json::to_value(value).unwrap(), *wire);
    assert_eq!(serde_json::from_value::<T>(wire.clone()).unwrap(), *value);
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value);
}

#[track_caller]
fn refused<T: DeserializeOwned + Debug>(wire: Value) {
    serde_json::from_value::<T>(wire).unwrap_err();
}

#[test]
fn incomplete_or_mistyped_data_is_refused() {
    refused::<SubagentResult>(json!({}));
    refused::<SubagentResult>(json!({ "stop_reason": 1 }));
    refused::<SubagentResult>(json!({ "stop_reason": "error", "diagnostic": {} }));
    refused::<Parent>(json!({ "id": "a" }));
    refused::<Parent>(json!({ "id": "a", "workspace": "/", "depth": -1 }));
    refused::<Origin>(json!({ "run": "r", "call": 1 }));
    refused::<Usage>(json!({ "input_tokens": 1 }));
    refused::<ToolRestriction>(json!({ "filter": { "only": ["a"] } }));
    refused::<ToolRestriction>(json!({ "filter": { "deny": ["a"] }, "strength": "maybe" }));
    refused::<RuleRef>(json!({ "parameters": {} }));
    refused::<Capabilities>(json!({ "persona": "yes" }));
    refused::<AgentId>(json!(7));
}

#[test]
fn a_contract_with_a_schema_outside_the_subset_is_refused() {
    for schema in [
        json!({ "type": "string" }),
        json!({ "type": "object", "pattern": "x" }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#" } } }),
        json!(true),
        Value::Null,
    ] {
        let error = serde_json::from_value::<OutputContract>(json!({ "schema": schema })).unwrap_err();
        assert!(error.to_string().contains("subset"), "{error}");
    }
    refused::<OutputContract>(json!({}));
    refused::<OutputContract>(json!({ "schema": { "type": "object" }, "rule": "even" }));
}

#[test]
fn a_handed_in_null_is_not_the_same_as_no_value() {
    let null = SubagentResult::handed_in(Value::Null);
    round_trip(&null, &json!({ "stop_reason": "completed", "structured": null }));
    let none = SubagentResult::completed("");
    round_trip(&none, &json!({ "stop_reason": "completed" }));
    assert_ne!(null, none);
}

#[test]
fn a_full_result_is_read_as_it_was_written() {
    let result = SubagentResult::stopped(
        StopReason::TIMED_OUT,
        Diagnostic::new("too slow").with_detail("limit", "run"),
    )
    .with_output("so far")
    .with_structured(json!({ "n": [1, null] }))
    .with_usage(Usage::new(5, 6).with_cached_input_tokens(2).with_cost_usd_micros(9))
    .with_session_id("s-1");
    round_trip(
        &result,
        &json!({
            "stop_reason": "timed-out",
            "output": "so far",
            "structured": { "n": [1, null] },
            "diagnostic": { "message": "too slow", "details": { "limit": "run" } },
            "usage": {
                "input_tokens": 5, "output_tokens": 6, "cached_input_tokens": 2, "cost_usd_micros": 9,
            },
            "session_id": "s-1",
        }),
    );
}

#[test]
fn an_old_reader_skips_what_a_new_writer_adds() {
    let wire = json!({ "stop_reason": "completed", "output": "x", "mood": "fine" });
    assert_eq!(serde_json::from_value::<SubagentResult>(wire).unwrap(), SubagentResult::completed("x"));
    let wire = json!({ "persona": true, "telepathy": true });
    let capabilities: Capabilities = serde_json::from_value(wire).unwrap();
    assert_eq!(capabilities, Capabilities::NONE.with_persona(true));
}

#[test]
fn stop_reasons_are_open_and_known_ones_are_equal_however_they_are_made() {
    for known in StopReason::KNOWN {
        round_trip(known, &json!(known.as_str()));
        assert_eq!(StopReason::other(known.as_str()), *known);
    }
    let unknown: StopReason = serde_json::from_value(json!("vendor-quirk")).unwrap();
    assert_eq!(unknown, StopReason::other("vendor-quirk"));
    assert!(!unknown.is_completed());
    assert!(!StopReason::other("Completed").is_completed(), "names are compared byte for byte");
    assert_eq!(StopReason::KNOWN.iter().filter(|reason| reason.is_completed()).count(), 1);
}

#[test]
fn stop_reasons_are_kebab_case_and_differ() {
    let names: std::collections::BTreeSet<&str> = StopReason::KNOWN.iter().map(StopReason::as_str).collect();
    assert_eq!(names.len(), StopReason::KNOWN.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
}

#[test]
fn requests_are_made_of_plain_data() {
    round_trip(&AgentId::from("a/b"), &json!("a/b"));
    round_trip(&Parent::new("a", "/w").with_depth(2), &json!({ "id": "a", "workspace": "/w", "depth": 2 }));
    assert_eq!(
        serde_json::from_value::<Parent>(json!({ "id": "a", "workspace": "/w" })).unwrap(),
        Parent::new("a", "/w")
    );
    round_trip(&Origin::new("r", u64::MAX, 1), &json!({ "run": "r", "call": u64::MAX, "attempt": 1 }));
    round_trip(
        &ToolRestriction::deny(["shell"]).preferred(),
        &json!({ "filter": { "deny": ["shell"] }, "strength": "preferred" }),
    );
    let required: ToolRestriction =
        serde_json::from_value(json!({ "filter": { "allow-only": ["read"] } })).unwrap();
    assert_eq!(required.filter, ToolFilter::AllowOnly(vec!["read".to_owned()]));
    assert_eq!(required.strength, RestrictionStrength::Required, "what is not said is the stricter");
    round_trip(&ModelChoice::default(), &json!({}));
    round_trip(&ModelChoice::model("m").with_provider("v"), &json!({ "provider": "v", "model": "m" }));
}

#[test]
fn contracts_and_rules_are_plain_data() {
    let schema = json!({ "type": "object" });
    let contract = OutputContract::new(schema.clone()).unwrap();
    round_trip(&contract, &json!({ "schema": schema }));
    round_trip(
        &contract.with_rule(RuleRef::new("even").with_parameters(json!({ "of": 2 }))),
        &json!({ "schema": schema, "rule": { "name": "even", "parameters": { "of": 2 } } }),
    );
    round_trip(&RuleRef::new("even"), &json!({ "name": "even" }));
    round_trip(
        &OutputViolation::new("/n", "odd", "make it even"),
        &json!({ "pointer": "/n", "kind": "odd", "message": "make it even" }),
    );
}

#[test]
fn descriptions_and_activity_are_plain_data() {
    round_trip(
        &ProviderInfo::new("p", Capabilities::NONE).with_inherited_context(true),
        &json!({
            "name": "p",
            "capabilities": {
                "output_contract": false,
                "depth_limit": false,
                "tool_restriction": false,
                "persona": false,
                "model_choice": false,
            },
            "inherits_parent_context": true,
        }),
    );
    round_trip(&Activity::new("reads"), &json!({ "text": "reads" }));
    round_trip(
        &Activity::new("reads").with_usage(Usage::new(1, 2)),
        &json!({ "text": "reads", "usage": { "input_tokens": 1, "output_tokens": 2, "cached_input_tokens": 0 } }),
    );
}

#[test]
fn usages_add_up_without_overflow() {
    let some = Usage::new(1, 2).with_cached_input_tokens(1).with_cost_usd_micros(5);
    assert_eq!(
        some.plus(Usage::new(3, 4)),
        Usage::new(4, 6).with_cached_input_tokens(1).with_cost_usd_micros(5)
    );
    assert_eq!(some.plus(some).cost_usd_micros, Some(10));
    assert_eq!(Usage::new(u64::MAX, 0).plus(some).input_tokens, u64::MAX);
    assert_eq!(Usage::new(0, 0).plus(Usage::new(0, 0)).cost_usd_micros, None);
}
