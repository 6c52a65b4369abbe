//! Results and the other answers of a run.

use harness_subagent::{
    Activity, Capabilities, ErrorKind, OutputContract, ProviderInfo, StopReason, SubagentRegistryExt,
    SubagentResult, Usage,
};
use serde_json::json;

use super::{PATIENCE, contract, ok_result, release, request, start, started, with_mock};
use crate::subagent::{MockChild, MockProvider, RegistryFixture};
use crate::wait::within;

/// A schema that can be enforced is not refused: all keywords of the subset are.
pub async fn schemas_of_the_subset_can_be_enforced(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let schema = json!({
        "type": "object",
        "title": "t", "description": "d", "default": {}, "examples": [{}],
        "properties": {
            "text": { "type": "string", "enum": ["a", "b"] },
            "flag": { "type": "boolean", "const": true },
            "size": { "type": "integer", "minimum": 1, "maximum": 3 },
            "share": { "type": "number", "minimum": 0.5 },
            "list": { "type": "array", "items": { "type": "string" } },
            "either": { "oneOf": [{ "type": "null" }, { "type": "string" }] },
        },
        "required": ["text"],
        "additionalProperties": false,
    });
    let contract = OutputContract::new(schema).expect("the schema is within the subset");
    let good = json!({ "text": "a", "flag": true, "size": 3, "share": 0.5, "list": ["x"], "either": null });
    let mut values = vec![(good, StopReason::COMPLETED)];
    let bad = [
        json!({}),
        json!({ "text": "c" }),
        json!({ "text": "a", "flag": false }),
        json!({ "text": "a", "size": 4 }),
        json!({ "text": "a", "size": 1.5 }),
        json!({ "text": "a", "share": 0.25 }),
        json!({ "text": "a", "list": [1] }),
        json!({ "text": "a", "either": 1 }),
        json!({ "text": "a", "other": 1 }),
    ];
    values.extend(bad.into_iter().map(|value| (value, StopReason::SCHEMA_REFUSED)));
    for (value, stop_reason) in values {
        handle.script([MockChild::value(value.clone())]);
        let run = start(&*registry, request().with_output(contract.clone())).await;
        assert_eq!(ok_result(&*run).await.stop_reason, stop_reason, "{value}");
        release(run).await;
    }
}

/// The result is the provider's, save for a claim of success that breaks the contract.
pub async fn result_is_passed_on_unchanged(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let full = SubagentResult::completed("said")
        .with_structured(json!({ "answer": "yes" }))
        .with_usage(Usage::new(1, 2))
        .with_session_id("session");
    let mut failed = full.clone();
    failed.stop_reason = StopReason::other("of-its-own");
    failed.structured = Some(json!("what no schema admits"));
    let plain = SubagentResult::completed("no contract, no value");
    let cases = [(full.clone(), Some(contract())), (full, None), (failed, Some(contract())), (plain, None)];
    for (result, output) in cases {
        handle.script([MockChild::result(result.clone())]);
        let mut asked = request();
        asked.output = output;
        let run = start(&*registry, asked).await;
        assert_eq!(ok_result(&*run).await, result);
        release(run).await;
    }
    handle.script([MockChild::lost()]);
    let run = start(&*registry, request().with_output(contract())).await;
    match within(PATIENCE, "the result", run.result()).await {
        Ok(result) => panic!("a lost child has a result: {result:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::RunLost, "{error}"),
    }
    release(run).await;
}

/// A child that claims success under an output contract without a value has the reason `no-value` instead.
pub async fn success_without_a_value_is_no_success(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    handle.script([MockChild::text("all done").with_usage(Usage::new(1, 2))]);
    let run = start(&*registry, request().with_output(contract())).await;
    let result = ok_result(&*run).await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
    assert!(result.diagnostic.is_some(), "a diagnostic says why");
    assert_eq!((result.output.as_str(), result.usage), ("all done", Some(Usage::new(1, 2))));
    assert_eq!(ok_result(&*run).await, result, "every call gets the same answer");
    release(run).await;
}

/// A child that claims success with a value that the schema refuses has the reason `schema-refused` instead, and
/// the value stays in the result.
pub async fn refused_value_is_no_success_and_stays(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    for value in [json!({ "answer": 1 }), json!({}), json!(null), json!("text")] {
        handle.script([MockChild::value(value.clone())]);
        let run = start(&*registry, request().with_output(contract())).await;
        let result = ok_result(&*run).await;
        assert_eq!(result.stop_reason, StopReason::SCHEMA_REFUSED, "{value}");
        assert!(result.diagnostic.is_some(), "a diagnostic says why");
        assert_eq!(result.structured, Some(value), "the refused value stays");
        assert_eq!(ok_result(&*run).await, result, "every call gets the same answer");
        release(run).await;
    }
}

/// The registry wraps a run and forwards its id.
pub async fn id_is_forwarded(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let (provider, _handle) = MockProvider::with_info(ProviderInfo::new("named", Capabilities::NONE));
    registry.register(provider).expect("the name is free");
    let run = within(PATIENCE, "the start", registry.start("named", request())).await;
    let run = started(run);
    assert_eq!(run.id().as_str(), "named/1");
    release(run).await;
}

/// The registry wraps a run and forwards its disposal and what that answers.
pub async fn dispose_is_forwarded(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::hanging().with_failing_dispose()]);
    let run = start(&*registry, request()).await;
    for _ in 0..2 {
        match within(PATIENCE, "the release", run.dispose()).await {
            Ok(()) => panic!("the failed release was not told"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Release, "{error}"),
        }
    }
    handle.assert_nothing_left();
}

/// The registry wraps a run and forwards its activity.
pub async fn activity_is_forwarded(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::hanging()]);
    let run = start(&*registry, request()).await;
    let mut activity = run.activity();
    handle.send_activity(1, Activity::new("working"));
    handle.finish(1);
    let told = within(PATIENCE, "the activity", activity.next()).await;
    assert_eq!(told, Some(Activity::new("working")));
    release(run).await;
}
