//! One check for each clause of `SubagentRegistry`. The sentence over a check is the clause.

#![expect(clippy::missing_panics_doc, reason = "a check panics when its clause is broken")]

mod events;
mod limits;
mod providers;
mod results;
mod starts;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use harness_subagent::{
    Capabilities, ErrorKind, OutputContract, Parent, Result, StartSubagent, SubagentRegistry, SubagentResult,
    SubagentRun,
};
use serde_json::json;

use crate::subagent::{MockProvider, MockProviderHandle, RegistryFixture, TreeLimits};
use crate::wait::within;

pub use events::{
    child_is_told_of_with_its_circumstances, end_is_told_as_passed_on, every_observer_hears_of_every_child,
    every_started_child_ends_once, failed_start_causes_no_event, observer_may_call_the_registry,
    panic_of_an_observer_is_contained, providers_are_observed_as_they_come_and_go,
    start_is_told_before_the_end, starts_are_numbered,
};
pub use limits::{
    another_tree_has_its_own_limits, children_of_children_count_in_their_tree,
    depth_is_checked_before_the_limits, dispose_frees_the_place, drop_frees_the_place,
    exhausted_tree_is_refused, failed_start_gives_its_place_back, failed_start_stays_counted,
    full_tree_is_refused, living_children_are_checked_before_all, result_frees_the_place,
    unknown_ancestry_is_refused, without_limits_nothing_is_counted,
};
pub use providers::{
    children_outlive_the_unregistering, providers_are_listed_in_their_order,
    registered_provider_is_available, taken_name_is_refused_and_the_first_stays,
    unregister_returns_the_provider_or_nothing, unregistered_name_is_refused_and_free,
    unregistered_provider_can_be_started_on,
};
pub use results::{
    activity_is_forwarded, dispose_is_forwarded, id_is_forwarded, refused_value_is_no_success_and_stays,
    result_is_passed_on_unchanged, schemas_of_the_subset_can_be_enforced,
    success_without_a_value_is_no_success,
};
pub use starts::{
    capabilities_are_checked_before_the_depth, child_deeper_than_the_limit_is_refused,
    dropped_start_leaves_nothing, lacking_capability_is_refused,
    preferred_restriction_is_dropped_where_lacking, provider_gets_the_request_unchanged_and_once,
    providers_error_is_passed_on_unchanged, registry_needs_no_runtime,
};

const PATIENCE: Duration = Duration::from_secs(10);

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

async fn start(registry: &dyn SubagentRegistry, request: StartSubagent) -> Box<dyn SubagentRun> {
    let provider = registry.provider("mock").expect("the provider is registered");
    started(within(PATIENCE, "the start", registry.start_on(&provider, request)).await)
}

fn started(run: Result<Box<dyn SubagentRun>>) -> Box<dyn SubagentRun> {
    run.unwrap_or_else(|error| panic!("the start failed: {error} ({:?})", error.kind()))
}

async fn refused(registry: &dyn SubagentRegistry, request: StartSubagent, kind: ErrorKind) {
    let provider = registry.provider("mock").expect("the provider is registered");
    match within(PATIENCE, "the start", registry.start_on(&provider, request)).await {
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
