//! How runs end that do not come to their own end.

use std::sync::Arc;
use std::time::Duration;

use harness_testkit::subagent::MockChild;
use harness_workflow::{
    AgentCall, ErrorCode, ErrorKind, RunResult, RunStopReason, WorkflowEngine, WorkflowEvent,
    WorkflowEventKind, WorkflowObserver, WorkflowRun,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bodies::{Bench, Body, GRACE, ask_in_turn, config, request};

fn reason(result: &RunResult) -> &str {
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::CANCELLED);
    error.details().unwrap()["reason"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_reason_counts_and_the_child_is_stopped() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging());
    let run = bench.start(request().with_args(json!(3))).await;
    bench.provider.wait_for_child(1).await;
    run.cancel("first");
    run.cancel("second");
    let begun = Instant::now();
    assert_eq!(reason(&run.result().await), "first");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    run.cancel("after the end");
    assert_eq!(reason(&run.result().await), "first");
    run.dispose().await.unwrap();
    bench.assert_clean();
    assert_eq!(bench.events.names(), ["started", "agent-started 1", "agent-ended 1 cancelled", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_cancelled_already_keeps_the_body_from_beginning() {
    let bench = Bench::new(Body::new(|_| async { panic!("the body must not begin") }));
    let cancellation = CancellationToken::new();
    cancellation.cancel();
    let run = bench.engine.start(request(), cancellation).await.unwrap();
    assert_eq!(bench.events.names(), ["started"]);
    assert_eq!(reason(&run.result().await), "the token given to start was cancelled");
    assert_eq!(run.result().await.agents_started(), 0);
    run.dispose().await.unwrap();
    assert_eq!(bench.events.names(), ["started", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn the_token_cancels_a_run_that_is_under_way() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging());
    let cancellation = CancellationToken::new();
    let run = bench.engine.start(request(), cancellation.child_token()).await.unwrap();
    bench.provider.wait_for_child(1).await;
    cancellation.cancel();
    run.cancel("too late to be the reason");
    assert_eq!(reason(&run.result().await), "the token given to start was cancelled");
    run.dispose().await.unwrap();
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ignores_its_cancellation_is_ended_within_the_grace_and_its_children_are_gone() {
    let bench = Bench::new(Body::new(|context| async move {
        let _ = context.checkpoint(json!("kept"));
        let _ = context.agent(AgentCall::new("hang")).await;
        std::future::pending().await
    }));
    bench.provider.set_default(MockChild::hanging().ignoring_cancellation());
    let run = bench.start(request()).await;
    bench.provider.wait_for_child(1).await;
    let begun = Instant::now();
    run.cancel("enough");
    let result = run.result().await;
    assert_eq!(begun.elapsed(), GRACE);
    assert_eq!(reason(&result), "enough");
    assert_eq!((result.agents_started(), result.checkpoint()), (1, Some(&json!("kept"))));
    bench.provider.assert_nothing_left();
    run.dispose().await.unwrap();
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn without_grace_a_run_ends_at_once() {
    let bench = Bench::with_config(
        Body::new(|_| std::future::pending()),
        config().with_cancellation_grace(Duration::ZERO),
    );
    let run = bench.start(request()).await;
    let begun = Instant::now();
    run.dispose().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(reason(&run.result().await), "the run was disposed of");
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_is_refused_without_a_start() {
    let bench = Bench::new(Body::new(|context| async move {
        let branches = (0..5).map(|_| {
            let context = context.clone();
            async move { context.agent(AgentCall::new("wait")).await.map(|_| Value::Null) }
        });
        Ok(json!(context.parallel(branches).await?))
    }));
    bench.provider.set_default(MockChild::hanging());
    let run = bench.start(request()).await;
    bench.provider.wait_for_child(2).await;
    run.cancel("enough");
    let result = run.result().await;
    assert_eq!(reason(&result), "enough");
    assert_eq!((bench.provider.starts(), result.agents_started()), (2, 5));
    run.dispose().await.unwrap();
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_start_comes_after_the_cancellation_is_disposed_of_and_not_told_of() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging().with_held_start());
    let run = bench.start(request()).await;
    bench.provider.wait_for_starts(1).await;
    run.cancel("enough");
    bench.provider.release_start(1);
    assert_eq!(reason(&run.result().await), "enough");
    run.dispose().await.unwrap();
    bench.assert_clean();
    assert_eq!(bench.events.names(), ["started", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_released_makes_the_disposal_fail_and_nothing_else() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::text("fine").with_failing_dispose());
    let run = bench.start(request()).await;
    assert_eq!(run.result().await.value(), Some(&json!(["fine"])));
    for _ in 0..2 {
        assert_eq!(run.dispose().await.unwrap_err().kind(), ErrorKind::Release);
    }
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_disposal_waits_for_slow_children_and_gives_those_up_that_outlive_the_grace() {
    for (delay, gone) in [(Duration::from_secs(4), true), (Duration::from_secs(60), false)] {
        let bench = Bench::new(Body::new(|context| async move {
            let _ = context.agent(AgentCall::new("hang")).await;
            std::future::pending().await
        }));
        bench.provider.set_default(MockChild::hanging().with_slow_dispose(delay));
        let run = bench.start(request()).await;
        bench.provider.wait_for_child(1).await;
        let begun = Instant::now();
        let (first, second) = tokio::join!(run.dispose(), run.dispose());
        assert_eq!(first.is_ok(), gone);
        assert_eq!(second.is_ok(), gone);
        assert_eq!(begun.elapsed(), GRACE, "the body never ends");
        assert_eq!(bench.provider.live().is_empty(), gone);
        assert_eq!(reason(&run.result().await), "the run was disposed of");
        assert_eq!(bench.invariants.violations(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_is_cancelled_and_released_in_the_background() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging());
    let run = bench.start(request()).await;
    bench.provider.wait_for_child(1).await;
    drop(run);
    bench.provider.wait_until_none_live().await;
    tokio::time::sleep(GRACE).await;
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_run_outlives_its_engine() {
    let bench = Bench::new(Body::new(ask_in_turn));
    let run = bench.start(request().with_args(json!(2))).await;
    let Bench { engine, provider, .. } = bench;
    drop(engine);
    assert_eq!(run.result().await.stop_reason(), RunStopReason::Completed);
    run.dispose().await.unwrap();
    provider.assert_nothing_left();
}

/// Cancels the run when it hears of its end.
#[derive(Debug, Default)]
struct CancelsAtTheEnd(std::sync::Mutex<Option<Arc<dyn WorkflowRun>>>);

impl WorkflowObserver for CancelsAtTheEnd {
    fn observe(&self, event: &WorkflowEvent) {
        if matches!(event.kind, WorkflowEventKind::Ended { .. } | WorkflowEventKind::AgentEnded { .. })
            && let Some(run) = &*self.0.lock().unwrap()
        {
            run.cancel("from within");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_cancel_from_within_an_event_and_an_end_stays_what_it_was() {
    let bench = Bench::new(Body::new(|context| async move {
        if *context.args() == json!("ask") {
            context.agent(AgentCall::new("ask")).await?;
        }
        Ok(Value::Null)
    }));
    let observer = Arc::new(CancelsAtTheEnd::default());
    bench.engine.observe(Arc::clone(&observer) as _);
    for (args, end) in [(Value::Null, RunStopReason::Completed), (json!("ask"), RunStopReason::Cancelled)] {
        let run: Arc<dyn WorkflowRun> = Arc::from(bench.start(request().with_args(args)).await);
        *observer.0.lock().unwrap() = Some(Arc::clone(&run));
        assert_eq!(run.result().await.stop_reason(), end);
        run.dispose().await.unwrap();
    }
    bench.assert_clean();
}

#[test]
fn a_body_that_never_returns_from_poll_keeps_its_thread_and_its_run_ends_all_the_same() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let grace = Duration::from_millis(200);
        let bench = Bench::with_config(
            Body::new(move |context| {
                let held = Arc::clone(&held);
                async move {
                    let mut call = Box::pin(context.agent(AgentCall::new("hang")));
                    std::future::poll_fn(|cx| {
                        let _ = call.as_mut().poll(cx);
                        std::task::Poll::Ready(())
                    })
                    .await;
                    let _ = held.lock().unwrap().recv();
                    Ok(json!("too late"))
                }
            }),
            config().with_cancellation_grace(grace),
        );
        bench.provider.set_default(MockChild::hanging().ignoring_cancellation());
        let cancellation = CancellationToken::new();
        let run = bench.engine.start(request(), cancellation.clone()).await.unwrap();
        bench.provider.wait_for_child(1).await;
        cancellation.cancel();
        let result = tokio::time::timeout(grace * 20, run.result()).await.unwrap();
        assert_eq!(reason(&result), "the token given to start was cancelled");
        assert_eq!(result.agents_started(), 1);
        run.dispose().await.unwrap();
        bench.assert_clean();
        drop(release);
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
}

#[test]
fn a_run_whose_runtime_shuts_down_is_lost_and_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (bench, runs) = runtime.block_on(async {
        let bench = Bench::new(Body::new(ask_in_turn));
        bench.provider.set_default(MockChild::hanging());
        let begun = bench.start(request()).await;
        bench.provider.wait_for_child(1).await;
        let unbegun = bench.start(request()).await;
        (bench, [begun, unbegun])
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for run in runs {
            let result = tokio::time::timeout(GRACE, run.result()).await.unwrap();
            assert_eq!(*result.error().unwrap().code(), ErrorCode::ENGINE_LOST);
            let _ = tokio::time::timeout(GRACE, run.dispose()).await.unwrap();
        }
    });
    assert_eq!(bench.invariants.violations(), []);
    assert_eq!(bench.invariants.open_runs(), []);
}
