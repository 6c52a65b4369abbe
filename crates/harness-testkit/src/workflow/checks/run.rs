use std::pin::pin;

use harness_workflow::{RunId, RunStopReason, WorkflowEventKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::subagent::MockChild;
use crate::wait::poll_once;
use crate::workflow::bench::{
    Bench, assert_value, code_of, dispose, patiently, request, result_of, while_awaited,
};
use crate::workflow::{Ask, EngineConstructor, Step};

/// A run has the id that its request asks for, and keeps it.
pub async fn run_has_the_requested_id(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start_with(request(&[]).with_run_id("asked-for"), CancellationToken::new()).await;
    assert_eq!(run.id().as_str(), "asked-for");
    result_of(&*run).await;
    dispose(&*run).await;
    assert_eq!(run.id().as_str(), "asked-for", "an id never changes");
}

/// A run's id is not empty and is unique among all runs of an engine.
pub async fn made_ids_are_unique(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let mut ids: Vec<RunId> = Vec::new();
    for _ in 0..3 {
        let run = bench.start(&[]).await;
        assert!(!run.id().as_str().is_empty());
        assert!(!ids.contains(run.id()), "{} names two runs", run.id());
        ids.push(run.id().clone());
        dispose(&*run).await;
    }
}

/// A run and its events say of the workflow what the catalog says.
pub async fn run_and_events_carry_the_meta(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[]).await;
    let known = bench.engine.workflow(&request(&[]).workflow).expect("the catalog has the workflow");
    assert_eq!(*run.meta(), known);
    let events = bench.events.of(run.id());
    let Some(WorkflowEventKind::Started { meta }) = events.first() else {
        panic!("the first event is {:?}", events.first());
    };
    assert_eq!(meta, run.meta());
    dispose(&*run).await;
}

/// The body is given the arguments as they are, and its value is the run's.
pub async fn arguments_go_in_and_the_value_comes_out(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let output = json!({ "big": u64::MAX, "zero": -0.0, "text": "\u{0}\u{1f600}", "none": null });
    bench.children([MockChild::text("x")]);
    let steps = [Step::Checkpoint(output.clone()), Step::ask("work")];
    let result = bench.run(&steps).await;
    assert_value(&result, &json!(["x"]));
    // Integers are compared as what they are, not as floating point.
    assert_eq!(result.checkpoint().map(Value::to_string), Some(output.to_string()));
}

/// An error of the body ends the run in error, with its code and its details.
pub async fn error_of_the_body_is_the_runs(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let result = bench.run(&[Step::Fail("my-failure".into())]).await;
    assert_eq!(result.stop_reason(), RunStopReason::Error);
    assert_eq!(code_of(&result), "my-failure");
    assert_eq!(result.error().and_then(|error| error.details()), Some(&json!("kept")));
}

/// A body that panics ends its run in error, and no other.
pub async fn panic_of_the_body_ends_its_run_only(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let other = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let result = bench.run(&[Step::Panic("on purpose".into())]).await;
    assert_eq!(result.stop_reason(), RunStopReason::Error);
    assert_eq!(code_of(&result), "panic");
    bench.provider.finish(1);
    assert_value(&result_of(&*other).await, &json!(["finished"]));
    dispose(&*other).await;
}

/// A value that cannot be stored ends the run in error.
pub async fn value_that_cannot_be_stored_is_an_error(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    // The answers are a list around the value.
    let deepest = harness_workflow::value::MAX_DEPTH - 1;
    let result = bench.run(&[Step::Nest(deepest)]).await;
    assert_eq!(result.stop_reason(), RunStopReason::Completed, "{result:?}");
    let result = bench.run(&[Step::Nest(deepest + 1)]).await;
    assert_eq!(code_of(&result), "result-unserializable");
}

/// Every wait for the result gets the same answer, also at once and after the disposal.
pub async fn every_wait_gets_the_same_result(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::ask("work"), Step::Checkpoint(json!("c"))]).await;
    let at_once = async { tokio::join!(run.result(), run.result()) };
    let (first, second) = patiently("both results", at_once).await;
    assert_value(&first, &json!(["done"]));
    dispose(&*run).await;
    assert_eq!([&second, &result_of(&*run).await], [&first, &first]);
}

/// A dropped wait for the result changes nothing.
pub async fn dropped_wait_changes_nothing(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    // This waits for the result, and drops the wait, on its way.
    let run = bench.start_and_wait_for_child(&[Step::ask("one"), Step::ask("two")]).await;
    assert!(poll_once(pin!(run.result())).await.is_none(), "the child has not ended");
    bench.provider.finish(1);
    assert_value(&result_of(&*run).await, &json!(["finished", "done"]));
    dispose(&*run).await;
}

/// The first thing that ended the run decides its result.
pub async fn first_end_decides(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::Fail("first".into())]).await;
    let before = result_of(&*run).await;
    run.cancel("too late");
    dispose(&*run).await;
    assert_eq!(result_of(&*run).await, before);
    assert_eq!(code_of(&before), "first");
}

/// Before the result resolves, every child has ended or been given up, and its end was told.
pub async fn children_end_before_the_result(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging(), MockChild::hanging()]);
    let run = bench.start(&[Step::Race(vec![Ask::new("quick"), Ask::new("slow")])]).await;
    let children = async {
        bench.provider.wait_until_asked(1).await;
        bench.provider.wait_until_asked(2).await;
    };
    while_awaited(&*run, "both children", children).await;
    bench.provider.finish(1);
    result_of(&*run).await;
    assert_eq!(bench.provider.live(), Bench::NO_CHILD, "no child outlives the result");
    let events = bench.events.of(run.id());
    let ends = events.iter().filter(|kind| matches!(kind, WorkflowEventKind::AgentEnded { .. })).count();
    assert_eq!(ends, 2, "{events:?}");
    dispose(&*run).await;
}

/// The result carries the counts and the last checkpoint however the run ended.
pub async fn result_tells_counts_and_checkpoint_on_every_path(constructor: &EngineConstructor) {
    let work = || vec![Step::ask("work"), Step::Checkpoint(json!(1)), Step::Checkpoint(json!("last"))];
    for (end, code) in [
        (None, None),
        (Some(Step::Fail("mine".into())), Some("mine")),
        (Some(Step::Panic("on purpose".into())), Some("panic")),
        (Some(Step::Hang), Some("cancelled")),
    ] {
        let bench = Bench::new(constructor).await;
        let run = bench.start(&[work(), end.into_iter().collect()].concat()).await;
        if code == Some("cancelled") {
            let left = bench.events.wait_for(
                |kind| matches!(kind, WorkflowEventKind::Checkpoint { value } if *value == json!("last")),
            );
            while_awaited(&*run, "the checkpoint", left).await;
            run.cancel("enough");
        }
        let result = result_of(&*run).await;
        assert_eq!(result.error().map(|error| error.code().as_str()), code);
        assert_eq!(result.checkpoint(), Some(&json!("last")), "{result:?}");
        assert_eq!((result.agents_started(), result.attempts()), (1, 1), "{result:?}");
        dispose(&*run).await;
    }
}

/// A run that is dropped is cancelled, and what it holds is released.
pub async fn dropped_run_is_cancelled_and_released(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let id = run.id().clone();
    drop(run);
    bench.events.wait_for_end().await;
    patiently("the release of the child", bench.provider.wait_until_none_live()).await;
    let events = bench.events.of(&id);
    let Some(WorkflowEventKind::Ended { stop_reason, .. }) = events.last() else {
        panic!("the last event is {:?}", events.last());
    };
    assert_eq!(*stop_reason, RunStopReason::Cancelled);
}

/// The runs of one engine are independent.
pub async fn runs_are_independent(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let first = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let second = bench.start(&[Step::ask("work")]).await;
    assert_value(&result_of(&*second).await, &json!(["done"]));
    second.cancel("this one only");
    dispose(&*second).await;
    assert_eq!(bench.provider.cancelled().iter().filter(|child| **child == 1).count(), 0);
    bench.provider.finish(1);
    assert_value(&result_of(&*first).await, &json!(["finished"]));
    dispose(&*first).await;
}
