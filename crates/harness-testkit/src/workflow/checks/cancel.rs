use std::sync::{Arc, Mutex, PoisonError};

use harness_workflow::{RunStopReason, WorkflowEvent, WorkflowObserver, WorkflowRun};
use serde_json::json;

use crate::subagent::MockChild;
use crate::workflow::bench::{
    Bench, assert_value, dispose, name_of, names, patiently, quiet, reason_of, result_of, while_awaited,
};
use crate::workflow::{Ask, EngineConstructor, Step};

/// A cancelled run ends as cancelled, and its children are cancelled.
pub async fn cancel_reaches_the_children(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging(), MockChild::hanging()]);
    let run = bench.start(&[Step::Parallel(vec![Ask::new("one"), Ask::new("two")])]).await;
    let children = async {
        bench.provider.wait_until_asked(1).await;
        bench.provider.wait_until_asked(2).await;
    };
    while_awaited(&*run, "both children", children).await;
    run.cancel("enough");
    let result = result_of(&*run).await;
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
    assert_eq!(bench.provider.cancelled(), [1, 2], "the children are asked to stop, not only dropped");
    dispose(&*run).await;
}

/// The first reason of a cancel counts, and a repeat does nothing.
pub async fn first_cancel_reason_counts(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    run.cancel("first");
    run.cancel("second");
    let result = result_of(&*run).await;
    assert_eq!(reason_of(&result), "first");
    run.cancel("third");
    dispose(&*run).await;
    assert_eq!(result_of(&*run).await, result);
}

/// A cancel by an observer that is told of the end is too late.
pub async fn cancel_by_an_observer_of_the_end_is_too_late(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let late = Arc::new(LateCanceller::default());
    bench.engine.observe(Arc::clone(&late) as _);
    bench.children([MockChild::hanging()]);
    let run: Arc<dyn WorkflowRun> = bench.start_and_wait_for_child(&[Step::ask("work")]).await.into();
    late.run.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&run));
    bench.provider.finish(1);
    let result = result_of(&*run).await;
    assert_value(&result, &json!(["finished"]));
    dispose(&*run).await;
    assert_eq!(result_of(&*run).await, result);
}

/// Cancels its run when it is told of the run's end.
#[derive(Debug, Default)]
struct LateCanceller {
    run: Mutex<Option<Arc<dyn WorkflowRun>>>,
}

impl WorkflowObserver for LateCanceller {
    fn observe(&self, event: &WorkflowEvent) {
        if name_of(&event.kind) == "ended" {
            // Taken out, so that the run and its observer do not keep each other alive.
            let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(run) = run {
                run.cancel("told of the end");
            }
        }
    }
}

/// A cancel does nothing once the run has ended.
pub async fn cancel_after_the_end_does_nothing(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::ask("work")]).await;
    let before = result_of(&*run).await;
    assert_value(&before, &json!(["done"]));
    let told = bench.events.of(run.id());
    run.cancel("too late");
    quiet().await;
    assert_eq!(result_of(&*run).await, before);
    assert_eq!(bench.events.of(run.id()), told);
    dispose(&*run).await;
}

/// After a cancellation the body narrates nothing and starts nothing any more.
pub async fn context_fails_after_a_cancel(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let late = [
        Step::Try(vec![Step::ask("work")]),
        Step::Try(vec![Step::Phase("late".into())]),
        Step::Try(vec![Step::Log("late".into())]),
        Step::Try(vec![Step::Checkpoint(json!("late"))]),
        Step::Try(vec![Step::ask("late")]),
    ];
    let run = bench.start_and_wait_for_child(&late).await;
    run.cancel("enough");
    let result = result_of(&*run).await;
    assert_eq!(result.checkpoint(), None, "a checkpoint after a cancel is refused");
    assert_eq!(bench.provider.starts(), 1, "a call after a cancel is refused");
    let events = names(&bench.events.of(run.id()));
    assert_eq!(events, ["started", "agent-started", "agent-ended", "ended"]);
    dispose(&*run).await;
}

/// A cancelled run is cancelled, also when the body returns a value after all.
pub async fn value_after_a_cancel_does_not_count(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::Try(vec![Step::ask("work")])]).await;
    run.cancel("enough");
    assert_eq!(reason_of(&result_of(&*run).await), "enough");
    dispose(&*run).await;
}

/// A body that ignores the cancellation is given up after the engine's grace.
pub async fn body_that_ignores_a_cancel_is_given_up(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::Phase("stuck".into()), Step::Hang]).await;
    let began = bench.events.wait_for(|kind| name_of(kind) == "phase");
    while_awaited(&*run, "the body's beginning", began).await;
    run.cancel("enough");
    assert_eq!(reason_of(&result_of(&*run).await), "enough");
    bench.events.wait_for_end().await;
    dispose(&*run).await;
}

/// A child that ignores the cancellation is given up after the engine's grace.
pub async fn child_that_ignores_a_cancel_is_given_up(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging().ignoring_cancellation()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    run.cancel("enough");
    assert_eq!(result_of(&*run).await.stop_reason(), RunStopReason::Cancelled);
    dispose(&*run).await;
    patiently("the release of the child", bench.provider.wait_until_none_live()).await;
}

/// A call that waits for a slot when the run is cancelled never starts its child.
pub async fn queued_call_never_starts_after_a_cancel(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.provider.set_default(MockChild::hanging());
    let asks = (0..4).map(|number| Ask::new(format!("call {number}"))).collect();
    let run = bench.start(&[Step::Parallel(asks)]).await;
    let slots = bench.provider.wait_for_child(Bench::MAX_CONCURRENT as u64);
    while_awaited(&*run, "as many children as there are slots", slots).await;
    run.cancel("enough");
    let result = result_of(&*run).await;
    assert_eq!(bench.provider.starts(), Bench::MAX_CONCURRENT as u64);
    assert_eq!(result.agents_started(), 4, "calls that wait for a slot count");
    assert_eq!(result.attempts(), Bench::MAX_CONCURRENT as u64, "but nothing was tried for them");
    dispose(&*run).await;
}

/// A child whose start is under way at a cancel is never told of, and nothing of it is left.
pub async fn start_under_way_at_a_cancel_is_never_told(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging().with_held_start()]);
    let run = bench.start(&[Step::ask("work")]).await;
    while_awaited(&*run, "the start of the child", bench.provider.wait_for_starts(1)).await;
    run.cancel("enough");
    bench.provider.release_start(1);
    let result = result_of(&*run).await;
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
    assert_eq!(names(&bench.events.of(run.id())), ["started", "ended"]);
    assert_eq!((result.agents_started(), result.attempts()), (1, 1));
    dispose(&*run).await;
    assert_eq!(bench.provider.live(), Bench::NO_CHILD);
}
