use std::pin::pin;
use std::time::Duration;

use harness_workflow::RunStopReason;
use serde_json::json;
use tokio::time::timeout;

use crate::subagent::MockChild;
use crate::wait::poll_once;
use crate::workflow::bench::{Bench, assert_value, dispose, patiently, result_of, still_waits};
use crate::workflow::{EngineConstructor, Step};

/// A disposal ends a run that still runs, and its children are gone when it returns.
pub async fn dispose_ends_the_run_and_its_children(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    patiently("the disposal", run.dispose()).await.expect("nothing keeps the run from being released");
    assert_eq!(bench.provider.live(), Bench::NO_CHILD);
    assert_eq!(result_of(&*run).await.stop_reason(), RunStopReason::Cancelled);
}

/// A disposal waits until the run's children and all else it holds are gone.
pub async fn dispose_waits_for_the_children(constructor: &EngineConstructor) {
    let bench = Bench::with(constructor, harness_subagent::Capabilities::ALL, |fixture| {
        fixture.grace = Duration::from_secs(10);
    })
    .await;
    bench.children([MockChild::hanging().with_held_dispose()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let mut disposal = run.dispose();
    still_waits("the disposal", &mut disposal).await;
    bench.provider.release_dispose(1);
    patiently("the disposal", disposal).await.expect("the child was released");
    assert_eq!(bench.provider.live(), Bench::NO_CHILD);
}

/// A disposal takes as long as the engine's grace at most.
pub async fn dispose_is_bounded_by_the_grace(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging().with_held_dispose()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    dispose(&*run).await;
    assert_eq!(result_of(&*run).await.stop_reason(), RunStopReason::Cancelled);
}

/// The disposal of a run that has ended waits for no grace.
pub async fn ended_run_is_disposed_of_without_a_wait(constructor: &EngineConstructor) {
    let bench = Bench::with(constructor, harness_subagent::Capabilities::ALL, |fixture| {
        fixture.grace = Duration::from_secs(10);
    })
    .await;
    let run = bench.start(&[Step::ask("work")]).await;
    result_of(&*run).await;
    let quick = timeout(Duration::from_secs(5), run.dispose()).await;
    assert!(quick.is_ok(), "nothing is left to wait for");
}

/// A repeated or concurrent disposal waits for the first and gets the same answer.
pub async fn second_dispose_waits_for_the_first(constructor: &EngineConstructor) {
    let bench = Bench::with(constructor, harness_subagent::Capabilities::ALL, |fixture| {
        fixture.grace = Duration::from_secs(10);
    })
    .await;
    bench.children([MockChild::hanging().with_held_dispose()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let (mut first, mut second) = (run.dispose(), run.dispose());
    still_waits("the first disposal", &mut first).await;
    still_waits("the second disposal", &mut second).await;
    bench.provider.release_dispose(1);
    let (first, second) = patiently("both disposals", async { tokio::join!(first, second) }).await;
    let third = patiently("the third disposal", run.dispose()).await;
    let kinds =
        [&first, &second, &third].map(|answer| answer.as_ref().err().map(harness_workflow::Error::kind));
    assert!(kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
    assert_eq!(bench.provider.disposes().len(), 1, "the child is asked once");
}

/// After the disposal the result resolves at once.
pub async fn result_is_there_at_once_after_dispose(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::Hang]).await;
    dispose(&*run).await;
    let result = poll_once(pin!(run.result())).await;
    let result = result.expect("the result is there without a wait");
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
}

/// How the run ended is never an error of its disposal.
pub async fn how_the_run_ended_is_no_error_of_dispose(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    for step in [Step::ask("work"), Step::Fail("mine".into()), Step::Panic("on purpose".into())] {
        let run = bench.start(std::slice::from_ref(&step)).await;
        let before = result_of(&*run).await;
        patiently("the disposal", run.dispose()).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        assert_eq!(result_of(&*run).await, before);
    }
}

/// A dropped disposal is finished in the background.
pub async fn dropped_dispose_goes_on_in_the_background(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging().with_held_dispose()]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let dropped = timeout(Duration::from_millis(10), run.dispose()).await;
    assert!(dropped.is_err(), "the child is held");
    bench.provider.release_dispose(1);
    patiently("the release of the child", bench.provider.wait_until_none_live()).await;
    bench.events.wait_for_end().await;
    drop(run);
}

/// A child whose release fails changes nothing of what the run yields.
pub async fn failing_release_of_a_child_masks_nothing(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("kept").with_failing_dispose()]);
    let run = bench.start(&[Step::ask("work"), Step::ask("more")]).await;
    assert_value(&result_of(&*run).await, &json!(["kept", "done"]));
    dispose(&*run).await;
    assert_eq!(bench.provider.disposes(), [1, 2]);
}
