//! One check for each clause of `SubagentRegistry`. The sentence over a check is the clause.

#![expect(clippy::missing_panics_doc, reason = "a check panics when its clause is broken")]

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use harness_subagent::{
    Activity, Capabilities, Error, ErrorKind, ModelChoice, Origin, OutputContract, Parent, ProviderInfo,
    Result, StartSubagent, StopReason, SubagentEvent, SubagentObserver, SubagentRegistry,
    SubagentRegistryExt, SubagentResult, SubagentRun, ToolRestriction, Usage,
};
use serde_json::json;

use super::{
    MockChild, MockProvider, MockProviderHandle, RegistryFixture, SeenEnding, SeenEvent, SubagentRecorder,
    TreeLimits,
};
use crate::wait::{poll_once, within};

const PATIENCE: Duration = Duration::from_secs(10);

/// A registered provider is available under its name, used verbatim.
pub async fn registered_provider_is_available(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let info = ProviderInfo::new(" Odd/näme ", Capabilities::NONE).with_inherited_context(true);
    let (provider, handle) = MockProvider::with_info(info.clone());
    registry.register(provider).expect("the name is free");
    let found = registry.provider(&info.name).expect("the provider is found by its name");
    assert_eq!(ProviderInfo::from(&*found), info);
    for other in ["Odd/näme", "odd/näme", ""] {
        assert!(registry.provider(other).is_none(), "{other:?} finds {:?}", info.name);
    }
    let run = within(PATIENCE, "the start", registry.start(&info.name, request())).await;
    release(started(run)).await;
    assert_eq!(handle.starts(), 1, "the provider was not asked");
}

/// A name that is taken is refused, and the first provider stays.
pub async fn taken_name_is_refused_and_the_first_stays(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let (first, handle) = MockProvider::new(Capabilities::NONE);
    let (second, other) = MockProvider::new(Capabilities::ALL);
    registry.register(first).expect("the name is free");
    match registry.register(second) {
        Ok(()) => panic!("the second provider of a name was taken"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::DuplicateProvider, "{error}"),
    }
    let run = within(PATIENCE, "the start", registry.start("mock", request())).await;
    release(started(run)).await;
    assert_eq!((handle.starts(), other.starts()), (1, 0), "the first provider did not stay");
    assert_eq!(registry.providers().len(), 1);
}

/// Unregistering returns the provider, or nothing when there is none of that name.
pub async fn unregister_returns_the_provider_or_nothing(fixture: &dyn RegistryFixture) {
    let (registry, _handle) = with_mock(fixture, Capabilities::NONE);
    assert!(registry.unregister("other").is_none(), "a provider was returned that is not there");
    let taken = registry.unregister("mock").expect("the provider is returned");
    assert_eq!(taken.name(), "mock");
    assert!(registry.unregister("mock").is_none(), "the provider was returned twice");
}

/// Further starts under the name of an unregistered provider are refused, and the name is free again.
pub async fn unregistered_name_is_refused_and_free(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    registry.unregister("mock");
    match within(PATIENCE, "the start", registry.start("mock", request())).await {
        Ok(_) => panic!("a start on an unregistered name was let through"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NoProvider, "{error}"),
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
    assert!(registry.providers().is_empty());
    let (next, _handle) = MockProvider::new(Capabilities::NONE);
    registry.register(next).expect("the name is free again");
}

/// Children of a provider live on when it is unregistered.
pub async fn children_outlive_the_unregistering(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::hanging()]);
    let run = start(&*registry, request()).await;
    registry.unregister("mock");
    assert!(poll_once(pin!(run.result())).await.is_none(), "the child ended with the unregistering");
    handle.finish(1);
    assert_eq!(ok_result(&*run).await.stop_reason, StopReason::COMPLETED);
    release(run).await;
}

/// Whoever holds an unregistered provider may still start children on it.
pub async fn unregistered_provider_can_be_started_on(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let pinned = registry.provider("mock").expect("it is registered");
    registry.unregister("mock");
    let run = within(PATIENCE, "the start", registry.start_on(pinned, request())).await;
    release(started(run)).await;
    assert_eq!(handle.starts(), 1);
}

/// Providers are described in the order in which they were registered.
pub async fn providers_are_listed_in_their_order(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let infos = ["zebra", "ant", "mule"].map(|name| ProviderInfo::new(name, Capabilities::NONE));
    for info in &infos {
        registry.register(MockProvider::with_info(info.clone()).0).expect("the name is free");
    }
    assert_eq!(registry.providers(), infos);
    let first = registry.unregister("zebra").expect("it is registered");
    registry.register(first).expect("the name is free again");
    let [zebra, ant, mule] = infos;
    assert_eq!(registry.providers(), [ant, mule, zebra], "a provider that comes back comes last");
}

/// An observer hears of providers that come and go, once they have.
pub async fn providers_are_observed_as_they_come_and_go(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    let provider = MockProvider::new(Capabilities::NONE).0;
    registry.register(provider.clone()).expect("the name is free");
    // What becomes of the second of each is the matter of other checks.
    let _ = registry.register(provider);
    registry.unregister("mock");
    registry.unregister("mock");
    let events = recorder.events();
    let matches = matches!(
        &events[..],
        [SeenEvent::ProviderAdded(added), SeenEvent::ProviderRemoved(removed)] if added == "mock" && removed == "mock"
    );
    assert!(matches, "{events:?}");
}

/// Every observer hears of every child, as long as the registry lives.
pub async fn every_observer_hears_of_every_child(fixture: &dyn RegistryFixture) {
    let (registry, _handle) = with_mock(fixture, Capabilities::NONE);
    let recorders = [SubagentRecorder::new(), SubagentRecorder::new()];
    for recorder in &recorders {
        registry.observe(Arc::new(recorder.clone()));
    }
    for _ in 0..3 {
        release(start(&*registry, request()).await).await;
    }
    for recorder in &recorders {
        assert_eq!((recorder.started().len(), recorder.ended().len()), (3, 3), "{:?}", recorder.events());
    }
}

/// A panic in an observer reaches neither the other observers nor the children.
pub async fn panic_of_an_observer_is_contained(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(PanickingObserver));
    registry.observe(Arc::new(recorder.clone()));
    let run = start(&*registry, request()).await;
    assert_eq!(ok_result(&*run).await.output, "done");
    release(run).await;
    assert_eq!((recorder.started().len(), recorder.ended().len()), (1, 1), "{:?}", recorder.events());
    handle.assert_nothing_left();
}

/// A child's start is told before its end, also when it had ended before its start returned.
pub async fn start_is_told_before_the_end(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let run = start(&*registry, request()).await;
    assert_eq!(recorder.started().len(), 1, "the start is told before it returns");
    ok_result(&*run).await;
    let events = recorder.events();
    let ordered = matches!(&events[..], [SeenEvent::Started(_), SeenEvent::Ended(..)]);
    assert!(ordered, "{events:?}");
    release(run).await;
}

/// Every child whose start was told ends exactly once.
pub async fn every_started_child_ends_once(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let run = start(&*registry, request()).await;
    ok_result(&*run).await;
    ok_result(&*run).await;
    dispose(&*run).await;
    dispose(&*run).await;
    drop(run);
    let ended = recorder.ended();
    assert_eq!(ended.len(), 1, "{ended:?}");
}

/// A start that fails causes neither a start nor an end.
pub async fn failed_start_causes_no_event(fixture: &dyn RegistryFixture) {
    let (registry, recorder, handle) = observed(fixture);
    handle.script([MockChild::refused()]);
    let failed = within(PATIENCE, "the start", registry.start("mock", request())).await;
    assert!(failed.is_err(), "the provider's refusal was lost");
    let refused = registry.start("mock", request().with_persona("nobody"));
    assert!(within(PATIENCE, "the start", refused).await.is_err(), "a lacking capability was let through");
    assert!(recorder.events().is_empty(), "{:?}", recorder.events());
}

/// A child is told of with its id, its provider, its parent, its origin and its label.
pub async fn child_is_told_of_with_its_circumstances(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let origin = Origin::new("run", 3, 2);
    let run = start(&*registry, request().with_label("third try").with_origin(origin.clone())).await;
    ok_result(&*run).await;
    let (id, parent) = (run.id().clone(), request().parent);
    release(run).await;
    let ended = recorder.events().into_iter().filter_map(|event| match event {
        SeenEvent::Ended(child, _) => Some(child),
        _ => None,
    });
    let children: Vec<_> = recorder.started().into_iter().chain(ended).collect();
    assert_eq!(children.len(), 2, "{children:?}");
    for child in children {
        assert_eq!(child.id, id);
        assert_eq!(child.provider, "mock");
        assert_eq!(child.parent, parent);
        assert_eq!(child.origin.as_ref(), Some(&origin));
        assert_eq!(child.label.as_deref(), Some("third try"));
    }
}

/// Starts are numbered from 1, and no number comes again.
pub async fn starts_are_numbered(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    for _ in 0..3 {
        release(start(&*registry, request()).await).await;
    }
    let numbers: Vec<u64> = recorder.started().iter().map(|child| child.sequence).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

/// A child's end is told with its stop reason as passed on, and with what it said last unless it said nothing.
pub async fn end_is_told_as_passed_on(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    registry.register(provider).expect("the name is free");
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    handle.script([MockChild::text("said"), MockChild::schema_refused(), MockChild::lost()]);
    for request in [request(), request().with_output(contract()), request()] {
        let run = start(&*registry, request).await;
        let _ = within(PATIENCE, "the result", run.result()).await;
        release(run).await;
    }
    let result = |stop_reason, output: Option<&str>| SeenEnding::Result {
        stop_reason,
        output: output.map(str::to_owned),
    };
    let expected = [
        (1, result(StopReason::COMPLETED, Some("said"))),
        (2, result(StopReason::SCHEMA_REFUSED, None)),
        (3, SeenEnding::Lost(ErrorKind::RunLost)),
    ];
    assert_eq!(recorder.ended(), expected);
}

/// Every method may be called at any time, also by an observer that is being told of something.
pub async fn observer_may_call_the_registry(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let caller = Arc::new(CallingObserver::default());
    registry.observe(caller.clone());
    let _ = caller.registry.set(Arc::downgrade(&registry));
    // A registry that holds a lock while it tells its observers never comes back, hence the thread.
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        registry.register(MockProvider::new(Capabilities::NONE).0).expect("the name is free");
        let run = drive(registry.start("mock", request())).expect("the provider starts a child");
        drive(run.result()).expect("the child completes");
        registry.unregister("mock");
        let _ = done.send(());
    });
    assert!(finished.recv_timeout(PATIENCE).is_ok(), "an observer that called the registry never returned");
    let heard = caller.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(heard, [true, true, true, false], "whether the provider was there at each event");
}

/// A capability that the request needs and the provider lacks is refused before the provider is called.
pub async fn lacking_capability_is_refused(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let requests = [
        ("output contract", request().with_output(contract())),
        ("depth limit", request().with_max_depth(9)),
        ("required tool restriction", request().with_tools(ToolRestriction::deny(["shell"]))),
        ("persona", request().with_persona("reviewer")),
        ("model choice", request().with_model(ModelChoice::model("small"))),
    ];
    for (needed, request) in requests {
        match within(PATIENCE, "the start", registry.start("mock", request)).await {
            Ok(_) => panic!("a provider without the capability was asked for: {needed}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnsupportedCapability, "{needed}: {error}"),
        }
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
}

/// A preferred tool restriction that the provider lacks is dropped.
pub async fn preferred_restriction_is_dropped_where_lacking(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let restricted = request().with_tools(ToolRestriction::deny(["shell"]).preferred());
    let run = within(PATIENCE, "the start", registry.start("mock", restricted)).await;
    release(started(run)).await;
    assert_eq!(handle.request(1).tools, None, "the provider got a restriction that it lacks");
}

/// The provider is called once, and gets the request unchanged.
pub async fn provider_gets_the_request_unchanged_and_once(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let asked = request()
        .with_label("label")
        .with_origin(Origin::new("run", 1, 1))
        .with_output(contract())
        .with_max_depth(3)
        .with_tools(ToolRestriction::allow_only(["read"]).preferred())
        .with_persona("reviewer")
        .with_model(ModelChoice::model("small").with_provider("vendor"));
    handle.script([MockChild::value(json!({ "answer": "yes" }))]);
    let run = start(&*registry, asked.clone()).await;
    assert_eq!(handle.starts(), 1, "the provider is called once");
    let got = handle.request(1);
    asked.cancellation.cancel();
    assert!(got.cancellation.is_cancelled(), "the provider got another cancellation token");
    assert_eq!(format!("{got:?}"), format!("{asked:?}"));
    release(run).await;
}

/// A child that would be deeper than the request's limit is refused before the provider is called.
pub async fn child_deeper_than_the_limit_is_refused(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let at = |depth, limit| {
        StartSubagent::new("work", Parent::new("deep", "workspace").with_depth(depth)).with_max_depth(limit)
    };
    for (depth, limit) in [(0, 0), (3, 3), (7, 2), (u32::MAX, u32::MAX)] {
        match within(PATIENCE, "the start", registry.start("mock", at(depth, limit))).await {
            Ok(_) => panic!("a child of a parent at depth {depth} was started under the limit {limit}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::DepthExceeded, "{error}"),
        }
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
    for (depth, limit) in [(0, 1), (3, 4), (0, u32::MAX)] {
        release(start(&*registry, at(depth, limit)).await).await;
    }
}

/// Capabilities are checked before the depth.
pub async fn capabilities_are_checked_before_the_depth(fixture: &dyn RegistryFixture) {
    let capabilities = Capabilities::NONE.with_depth_limit(true);
    let (registry, _handle) = with_mock(fixture, capabilities);
    let asked = request().with_max_depth(0).with_persona("reviewer");
    refused(&*registry, asked, ErrorKind::UnsupportedCapability).await;
}

/// The depth is checked before the limits of the tree.
pub async fn depth_is_checked_before_the_limits(fixture: &dyn RegistryFixture) {
    let Some((registry, _handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    let run = start(&*registry, request()).await;
    refused(&*registry, request().with_max_depth(0), ErrorKind::DepthExceeded).await;
    release(run).await;
}

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

/// A tree with as many children alive as it may have is refused until one has ended.
pub async fn full_tree_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(2)) else { return };
    let first = start(&*registry, request()).await;
    let second = start(&*registry, request()).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    assert_eq!(handle.starts(), 2, "the provider was called");
    release(first).await;
    release(start(&*registry, request()).await).await;
    release(second).await;
}

/// A tree that has started as many children as it may is refused for good.
pub async fn exhausted_tree_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::total(2)) else { return };
    release(start(&*registry, request()).await).await;
    release(start(&*registry, request()).await).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
    assert_eq!(handle.starts(), 2, "the provider was called");
}

/// The children alive are checked before all children ever.
pub async fn living_children_are_checked_before_all(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1).with_total(1);
    let Some((registry, _handle)) = limited(fixture, limits) else { return };
    let run = start(&*registry, request()).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    release(run).await;
}

/// A start that the provider fails gives the place of a living child back.
pub async fn failed_start_gives_its_place_back(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    handle.script([MockChild::refused()]);
    refused(&*registry, request(), ErrorKind::Provider).await;
    release(start(&*registry, request()).await).await;
}

/// A start that the provider fails stays counted among all children.
pub async fn failed_start_stays_counted(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::total(1)) else { return };
    handle.script([MockChild::refused()]);
    refused(&*registry, request(), ErrorKind::Provider).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
}

/// The limits are those of a tree: children of children count in it.
pub async fn children_of_children_count_in_their_tree(fixture: &dyn RegistryFixture) {
    let Some((registry, _handle)) = limited(fixture, TreeLimits::active(2)) else { return };
    let child = start(&*registry, request()).await;
    let below = Parent::new(child.id().clone(), "workspace").with_depth(1);
    let grandchild = start(&*registry, StartSubagent::new("work", below.clone())).await;
    refused(&*registry, StartSubagent::new("work", below), ErrorKind::Capacity).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    release(grandchild).await;
    release(child).await;
}

/// The limits are those of a tree: another tree has its own.
pub async fn another_tree_has_its_own_limits(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1).with_total(1);
    let Some((registry, _handle)) = limited(fixture, limits) else { return };
    let first = start(&*registry, request()).await;
    let other = StartSubagent::new("work", Parent::new("another root", "workspace"));
    let second = start(&*registry, other).await;
    release(first).await;
    release(second).await;
}

/// Where the tree of the child cannot be told, its limits cannot be checked, and the start is refused.
pub async fn unknown_ancestry_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    let stranger = Parent::new("a stranger", "workspace").with_depth(1);
    refused(&*registry, StartSubagent::new("work", stranger), ErrorKind::BudgetAncestryUnavailable).await;
    assert_eq!(handle.starts(), 0, "the provider was called");
}

/// Without limits no start is refused for the number of children.
pub async fn without_limits_nothing_is_counted(fixture: &dyn RegistryFixture) {
    if !fixture.traits().limits {
        let offered = fixture.limited(TreeLimits::active(1)).is_some();
        assert!(!offered, "the fixture declares no limits, but makes a registry with them");
    }
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.set_default(MockChild::hanging());
    let stranger = Parent::new("a stranger", "workspace").with_depth(5);
    let mut runs = vec![start(&*registry, StartSubagent::new("work", stranger)).await];
    for _ in 0..100 {
        runs.push(start(&*registry, request()).await);
    }
    for run in runs {
        release(run).await;
    }
    handle.assert_nothing_left();
}

/// The provider's error is passed on unchanged.
pub async fn providers_error_is_passed_on_unchanged(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    for kind in [ErrorKind::Provider, ErrorKind::Cancelled, ErrorKind::RunLost] {
        let error = Error::new(kind, "of the provider's own making").with_source("its source");
        handle.script([MockChild::refused_with(error.clone())]);
        let Err(got) = within(PATIENCE, "the start", registry.start("mock", request())).await else {
            panic!("the provider's refusal was lost");
        };
        assert_eq!((got.kind(), got.to_string()), (error.kind(), error.to_string()));
        let source = std::error::Error::source(&got).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("its source"));
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

/// If the future of a start is dropped, no child is left behind and its place is free.
pub async fn dropped_start_leaves_nothing(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1);
    let (registry, handle) =
        limited(fixture, limits).unwrap_or_else(|| with_mock(fixture, Capabilities::NONE));
    handle.script([MockChild::default().with_held_start()]);
    {
        let mut start = pin!(registry.start("mock", request()));
        assert!(poll_once(start.as_mut()).await.is_none(), "the start is held");
        assert_eq!(handle.starts(), 1);
    }
    handle.release_start(1);
    tokio::task::yield_now().await;
    handle.assert_nothing_left();
    release(start(&*registry, request()).await).await;
}

/// A child's end is noticed, and its place freed, when its result is ready.
pub async fn result_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        ok_result(&*run).await;
        (Some(run), SeenEnding::Result { stop_reason: StopReason::COMPLETED, output: Some("done".into()) })
    })
    .await;
}

/// A child's end is noticed, and its place freed, when its run is disposed of.
pub async fn dispose_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        dispose(&*run).await;
        (Some(run), SeenEnding::Disposed)
    })
    .await;
}

/// A child's end is noticed, and its place freed, when its run is dropped.
pub async fn drop_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        drop(run);
        (None, SeenEnding::Dropped)
    })
    .await;
}

/// A registry must not start tasks or threads of its own: it works without a runtime.
pub async fn registry_needs_no_runtime(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::text("no runtime")]);
    let outside = std::thread::spawn(move || {
        let run = drive(registry.start("mock", request()))?;
        let result = drive(run.result())?;
        drive(run.dispose())?;
        Ok::<_, Error>(result.output)
    });
    match outside.join() {
        Ok(Ok(output)) => assert_eq!(output, "no runtime"),
        Ok(Err(error)) => panic!("outside a runtime the registry failed: {error}"),
        Err(_) => panic!("outside a runtime the registry panicked"),
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

fn request() -> StartSubagent {
    StartSubagent::new("work", Parent::new("root", "workspace"))
}

fn contract() -> OutputContract {
    let schema =
        json!({ "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"] });
    OutputContract::new(schema).expect("the schema is within the subset")
}

/// Makes a registry that has a scripted provider named `mock`.
fn with_mock(
    fixture: &dyn RegistryFixture,
    capabilities: Capabilities,
) -> (Arc<dyn SubagentRegistry>, MockProviderHandle) {
    let registry = fixture.registry();
    let (provider, handle) = MockProvider::new(capabilities);
    registry.register(provider).expect("the name is free");
    (registry, handle)
}

/// Makes a registry with a scripted provider that can nothing, and somebody who watches from then on.
fn observed(
    fixture: &dyn RegistryFixture,
) -> (Arc<dyn SubagentRegistry>, SubagentRecorder, MockProviderHandle) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    (registry, recorder, handle)
}

/// Makes a registry with limits and a scripted provider, unless the registry under test knows no limits.
fn limited(
    fixture: &dyn RegistryFixture,
    limits: TreeLimits,
) -> Option<(Arc<dyn SubagentRegistry>, MockProviderHandle)> {
    if !fixture.traits().limits {
        return None;
    }
    let registry =
        fixture.limited(limits).expect("a fixture that declares limits makes registries with them");
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    registry.register(provider).expect("the name is free");
    Some((registry, handle))
}

/// Ends a child by `end` and checks that this was noticed, once, and that its place is free for the next.
async fn frees_the_place<F>(fixture: &dyn RegistryFixture, end: impl FnOnce(Box<dyn SubagentRun>) -> F)
where
    F: Future<Output = (Option<Box<dyn SubagentRun>>, SeenEnding)>,
{
    let limits = TreeLimits::active(1);
    let (registry, _handle) =
        limited(fixture, limits).unwrap_or_else(|| with_mock(fixture, Capabilities::NONE));
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    let run = start(&*registry, request()).await;
    assert_eq!(recorder.ended(), [], "the child has not ended yet");
    let (run, ending) = end(run).await;
    assert_eq!(recorder.ended(), [(1, ending)]);
    release(start(&*registry, request()).await).await;
    drop(run);
}

async fn start(registry: &dyn SubagentRegistry, request: StartSubagent) -> Box<dyn SubagentRun> {
    let provider = registry.provider("mock").expect("the provider is registered");
    started(within(PATIENCE, "the start", registry.start_on(provider, request)).await)
}

fn started(run: Result<Box<dyn SubagentRun>>) -> Box<dyn SubagentRun> {
    run.unwrap_or_else(|error| panic!("the start failed: {error} ({:?})", error.kind()))
}

async fn refused(registry: &dyn SubagentRegistry, request: StartSubagent, kind: ErrorKind) {
    let provider = registry.provider("mock").expect("the provider is registered");
    match within(PATIENCE, "the start", registry.start_on(provider, request)).await {
        Ok(_) => panic!("a start was let through that ought to be refused as {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

async fn ok_result(run: &dyn SubagentRun) -> SubagentResult {
    let result = within(PATIENCE, "the result", run.result()).await;
    result.unwrap_or_else(|error| panic!("the child was lost: {error} ({:?})", error.kind()))
}

async fn dispose(run: &dyn SubagentRun) {
    if let Err(error) = within(PATIENCE, "the release", run.dispose()).await {
        panic!("the release failed: {error} ({:?})", error.kind());
    }
}

async fn release(run: Box<dyn SubagentRun>) {
    dispose(&*run).await;
}

/// Polls a future to its end on this thread, without a runtime.
fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
    panic!("a future whose children have ended never became ready");
}

#[derive(Debug)]
struct PanickingObserver;

impl SubagentObserver for PanickingObserver {
    fn observe(&self, _event: &SubagentEvent<'_>) {
        panic!("this observer always panics");
    }
}

/// At each event it asks the registry whether the provider is there.
#[derive(Debug, Default)]
struct CallingObserver {
    registry: OnceLock<Weak<dyn SubagentRegistry>>,
    heard: Mutex<Vec<bool>>,
}

impl SubagentObserver for CallingObserver {
    fn observe(&self, _event: &SubagentEvent<'_>) {
        let registry = self.registry.get().and_then(Weak::upgrade);
        let there = registry.is_some_and(|registry| {
            registry.observe(Arc::new(SubagentRecorder::new()));
            registry.provider("mock").is_some() && registry.providers().len() == 1
        });
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(there);
    }
}
