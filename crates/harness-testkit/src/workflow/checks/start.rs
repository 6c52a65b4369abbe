use std::pin::pin;

use harness_subagent::Capabilities;
use harness_workflow::{ErrorKind, RunStopReason, StartRun, WorkflowRef};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::subagent::{MockChild, MockProvider};
use crate::wait::poll_once;
use crate::workflow::bench::{
    Bench, assert_value, code_of, dispose, name_of, names, patiently, quiet, request, result_of,
    while_awaited,
};
use crate::workflow::{Ask, EngineConstructor, Step};

fn too_deep() -> serde_json::Value {
    (0..harness_workflow::value::MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]))
}

/// A workflow that is not in the catalog is refused.
pub async fn unknown_workflow_is_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let mut unknown = request(&[]);
    unknown.workflow = WorkflowRef::new("conformance-script", 2);
    assert_eq!(bench.refusal(unknown).await, ErrorKind::UnknownWorkflow);
}

/// Arguments that are not plain are refused.
pub async fn arguments_that_are_not_plain_are_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    assert_eq!(bench.refusal(request(&[]).with_args(too_deep())).await, ErrorKind::InvalidArgument);
}

/// A provider name that is empty or has blanks at an edge is refused.
pub async fn unusable_provider_name_is_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    for name in ["", " mock", "mock\t", "\u{feff}mock"] {
        let refusal = bench.refusal(request(&[]).with_provider(name)).await;
        assert_eq!(refusal, ErrorKind::InvalidArgument, "{name:?}");
    }
}

/// A provider that is not there is refused.
pub async fn absent_provider_is_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    assert_eq!(bench.refusal(request(&[]).with_provider("absent")).await, ErrorKind::Provider);
}

/// The engine's default provider is checked as one that the request names.
pub async fn default_provider_is_checked_too(constructor: &EngineConstructor) {
    for (default, expected) in [("absent", ErrorKind::Provider), ("mock ", ErrorKind::InvalidArgument)] {
        let bench =
            Bench::with(constructor, Capabilities::ALL, |fixture| fixture.default_provider = default.into())
                .await;
        assert_eq!(bench.refusal(request(&[])).await, expected, "{default:?}");
        let run = bench.start_with(request(&[]).with_provider("mock"), CancellationToken::new()).await;
        assert_value(&result_of(&*run).await, &json!([]));
        dispose(&*run).await;
    }
}

/// What a provider is capable of is not asked at the start; it shows at the first child.
pub async fn capabilities_show_at_the_first_child(constructor: &EngineConstructor) {
    let bench = Bench::with(constructor, Capabilities::NONE, |_| {}).await;
    let output = harness_subagent::OutputContract::new(json!({ "type": "object" }))
        .expect("the schema is an object's");
    let ask = Ask::new("work").with_output(output);
    let result = bench.run(&[Step::Ask(ask)]).await;
    assert_eq!(code_of(&result), "agent-start");
    assert_eq!(bench.provider.starts(), 0, "the registry refuses before the provider is called");
}

/// The most calls for a child must be at least 1 and within the ceiling.
pub async fn children_beyond_the_ceiling_are_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let ceiling = bench.engine.max_agents();
    for asked in [0, ceiling + 1, u64::MAX] {
        let refusal = bench.refusal(request(&[]).with_max_agents(asked)).await;
        assert_eq!(refusal, ErrorKind::InvalidArgument, "{asked} of {ceiling}");
    }
    for asked in [1, ceiling] {
        let run = bench.start_with(request(&[]).with_max_agents(asked), CancellationToken::new()).await;
        dispose(&*run).await;
    }
}

/// The checks of a start come in their order, and the first that fails decides.
pub async fn first_failing_check_decides(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let known = bench.start_with(request(&[]).with_run_id("known"), CancellationToken::new()).await;
    result_of(&*known).await;

    // Each row mends the fault that decided the row before.
    let everything = StartRun::new(WorkflowRef::new("no-such-workflow", 1), request(&[]).parent)
        .with_args(too_deep())
        .with_provider("absent")
        .with_max_agents(0)
        .with_run_id("known");
    assert_eq!(bench.refusal(everything.clone()).await, ErrorKind::UnknownWorkflow);
    let mut mended = everything;
    mended.workflow = request(&[]).workflow;
    assert_eq!(bench.refusal(mended.clone()).await, ErrorKind::InvalidArgument);
    mended.args = json!([]);
    assert_eq!(bench.refusal(mended.clone()).await, ErrorKind::Provider);
    mended.provider = None;
    assert_eq!(bench.refusal(mended.clone()).await, ErrorKind::InvalidArgument);
    dispose(&*known).await;
}

/// A refused start publishes nothing: no run, no event.
pub async fn refused_start_publishes_nothing(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let steps = [Step::Phase("never".into()), Step::ask("never")];
    let mut unknown = request(&steps);
    unknown.workflow = WorkflowRef::new("no-such-workflow", 1);
    for refused in [
        unknown,
        request(&steps).with_args(too_deep()),
        request(&steps).with_provider(" "),
        request(&steps).with_provider("absent"),
        request(&steps).with_max_agents(0),
    ] {
        bench.refusal(refused.with_run_id("refused")).await;
    }
    quiet().await;
    assert_eq!(bench.events.all(), []);
    assert_eq!(bench.provider.starts(), 0);
    // A refused id is as free as before.
    let run = bench.start_with(request(&[]).with_run_id("refused"), CancellationToken::new()).await;
    assert_value(&result_of(&*run).await, &json!([]));
    dispose(&*run).await;
}

/// A second start of a known run id returns that run or is refused, as declared.
pub async fn known_run_id_attaches_or_is_refused(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let asked = request(&[Step::ask("work")]).with_run_id("known");
    let first = bench.start_with(asked.clone(), CancellationToken::new()).await;
    if bench.engine.capabilities().attaches_to_known_run {
        let second = bench.start_with(asked, CancellationToken::new()).await;
        assert_eq!(second.id(), first.id());
        patiently("the child", bench.provider.wait_for_child(1)).await;
        bench.provider.finish(1);
        let result = result_of(&*first).await;
        assert_value(&result, &json!(["finished"]));
        assert_eq!(result_of(&*second).await, result, "it is one run");
        assert_eq!(bench.provider.starts(), 1, "it is one run");
        dispose(&*second).await;
    } else {
        assert_eq!(bench.refusal(asked).await, ErrorKind::RunExists);
    }
    dispose(&*first).await;
}

/// The provider that is found at the start is the run's to its end.
pub async fn provider_is_pinned(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("one"), Step::ask("two")]).await;
    bench.registry.unregister(Bench::PROVIDER).expect("the provider is registered");
    let (other, other_handle) = MockProvider::new(Capabilities::ALL);
    bench.registry.register(other).expect("the name is free");
    bench.provider.finish(1);
    assert_value(&result_of(&*run).await, &json!(["finished", "done"]));
    assert_eq!((bench.provider.starts(), other_handle.starts()), (2, 0));
    dispose(&*run).await;
}

/// Every child of a run is started on the provider that the request names.
pub async fn requested_provider_takes_every_child(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let info = harness_subagent::ProviderInfo::new("other", Capabilities::ALL);
    let (other, other_handle) = MockProvider::with_info(info);
    bench.registry.register(other).expect("the name is free");
    let asked = request(&[Step::ask("one"), Step::ask("two")]).with_provider("other");
    let run = bench.start_with(asked, CancellationToken::new()).await;
    assert_value(&result_of(&*run).await, &json!(["done", "done"]));
    assert_eq!((bench.provider.starts(), other_handle.starts()), (0, 2));
    dispose(&*run).await;
}

/// A run whose token is cancelled already ends as cancelled, and its body never begins.
pub async fn cancelled_token_keeps_the_body_from_beginning(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let token = CancellationToken::new();
    token.cancel();
    let steps = [Step::Phase("work".into()), Step::ask("work")];
    let run = bench.start_with(request(&steps), token).await;
    let result = result_of(&*run).await;
    if bench.engine.capabilities().heeds_cancellation_token {
        assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
        assert_eq!(names(&bench.events.of(run.id())), ["started", "ended"]);
        assert_eq!((bench.provider.starts(), result.agents_started()), (0, 0));
    } else {
        assert_value(&result, &json!(["done"]));
    }
    dispose(&*run).await;
}

/// The token cancels the run, if the engine declares that it heeds it.
pub async fn token_cancels_the_run_if_heeded(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let token = CancellationToken::new();
    let run = bench.start_with(request(&[Step::ask("work")]), token.clone()).await;
    let child = bench.provider.wait_until_asked(1);
    while_awaited(&*run, "the child", child).await;
    token.cancel();
    if !bench.engine.capabilities().heeds_cancellation_token {
        quiet().await;
        assert_eq!(bench.provider.cancelled(), Bench::NO_CHILD, "only a cancel reaches the run");
        bench.provider.finish(1);
        assert_value(&result_of(&*run).await, &json!(["finished"]));
    } else {
        assert_eq!(result_of(&*run).await.stop_reason(), RunStopReason::Cancelled);
    }
    dispose(&*run).await;
}

/// A start whose future is dropped leaves no run behind that is not cancelled.
pub async fn dropped_start_cancels_its_run(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.provider.set_default(MockChild::hanging());
    let mut start = Box::pin(bench.engine.start(request(&[Step::ask("work")]), CancellationToken::new()));
    let started = poll_once(start.as_mut()).await;
    drop(start);
    // A start that never waits hands its run over, whose drop is then what cancels it.
    drop(started);
    quiet().await;
    let begun = pin!(bench.events.wait_for(|kind| name_of(kind) == "started"));
    if poll_once(begun).await.is_some() {
        bench.events.wait_for_end().await;
        patiently("the release of the child", bench.provider.wait_until_none_live()).await;
    } else {
        assert_eq!(bench.provider.starts(), 0, "a run that nobody heard of has no child");
    }
}
