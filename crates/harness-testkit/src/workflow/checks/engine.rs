use std::sync::Arc;

use harness_workflow::{WorkflowEventKind, WorkflowObserver, WorkflowRef};
use serde_json::json;

use crate::subagent::MockChild;
use crate::workflow::bench::{Bench, EventRecorder, assert_value, dispose, patiently, result_of};
use crate::workflow::{EngineConstructor, ScriptedBody, Step};

/// An engine knows the workflows of its catalog, as they are there, and no other.
pub async fn engine_knows_its_catalog(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let known = ScriptedBody::workflow_ref();
    let catalog = ScriptedBody::catalog();
    let expected = catalog.get(&known).map(harness_workflow::CatalogEntry::meta);
    assert_eq!(bench.engine.workflow(&known).as_ref(), expected);
    for (name, version) in [("conformance-script", 2), ("no-such-workflow", 1)] {
        let unknown = WorkflowRef::new(name, version);
        assert_eq!(bench.engine.workflow(&unknown), None, "{unknown} is not in the catalog");
    }
}

/// The engine's ceiling is at least 1 and never changes.
pub async fn ceiling_is_positive_and_stays(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let before = bench.engine.max_agents();
    assert!(before >= 1, "an engine lets a run have one child at least");
    bench.run(&[Step::ask("work")]).await;
    assert_eq!(bench.engine.max_agents(), before);
}

/// What differs between engines never changes in one.
pub async fn capabilities_stay(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let before = bench.engine.capabilities();
    bench.run(&[Step::ask("work")]).await;
    assert_eq!(bench.engine.capabilities(), before);
}

/// An observer hears of the runs that are started after it was added.
pub async fn observer_hears_of_later_runs(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let first = bench.start(&[Step::Phase("one".into())]).await;
    result_of(&*first).await;
    let late = Arc::new(EventRecorder::default());
    bench.engine.observe(Arc::clone(&late) as _);
    let second = bench.start(&[Step::Phase("two".into())]).await;
    result_of(&*second).await;
    assert_eq!(late.of(second.id()), bench.events.of(second.id()), "both observers hear the same");
    assert!(late.of(second.id()).iter().any(|kind| matches!(kind, WorkflowEventKind::Phase { .. })));
    dispose(&*first).await;
    dispose(&*second).await;
}

/// An observer hears of no run that was started before it was added.
pub async fn observer_hears_of_no_earlier_run(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work"), Step::Phase("late".into())]).await;
    let late = Arc::new(EventRecorder::default());
    bench.engine.observe(Arc::clone(&late) as _);
    bench.provider.finish(1);
    result_of(&*run).await;
    dispose(&*run).await;
    assert_eq!(late.all(), [], "the run was started before");
}

/// A panic in one observer reaches neither the others nor the run.
pub async fn panicking_observer_disturbs_nobody(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.engine.observe(Arc::new(Panicker));
    let after = Arc::new(EventRecorder::default());
    bench.engine.observe(Arc::clone(&after) as _);
    let run = bench.start(&[Step::Phase("work".into()), Step::ask("work")]).await;
    let result = result_of(&*run).await;
    assert_value(&result, &json!(["done"]));
    assert_eq!(after.of(run.id()), bench.events.of(run.id()), "the observers around it hear everything");
    dispose(&*run).await;
}

#[derive(Debug)]
struct Panicker;

impl WorkflowObserver for Panicker {
    fn observe(&self, _event: &harness_workflow::WorkflowEvent) {
        // Not `panic!`: the message of the hook would clutter the output of every suite.
        std::panic::resume_unwind(Box::new("an observer that panics"));
    }
}

/// Dropping the engine ends no run.
pub async fn dropped_engine_ends_no_run(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work"), Step::ask("more")]).await;
    let Bench { engine, provider, .. } = bench;
    drop(engine);
    provider.finish(1);
    let result = patiently("the result of a run without its engine", run.result()).await;
    assert_value(&result, &json!(["finished", "done"]));
    dispose(&*run).await;
}
