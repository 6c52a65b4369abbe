//! Cancelling a call: no gap through which a run can be left behind.

use std::sync::Arc;

use harness_testkit::workflow::StubChild;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::stage::{Stage, cancelled_by, complete, context, continuing, poll_once, report};

const BRIDGED: &str = "the call was cancelled";
const DROPPED: &str = "the call was dropped";

fn args() -> serde_json::Value {
    json!({ "objective": "Port it" })
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_run_once_and_waits_for_it() {
    let token = CancellationToken::new();
    let abort = token.clone();
    let children =
        [StubChild::value(continuing("one")), StubChild::endless().with_hook(move || abort.cancel())];
    let stage = Stage::running(json!({}), children);
    let error = stage.tool.call(&args(), cancelled_by(&token)).await.unwrap_err();

    assert_eq!(error.code(), "cancelled");
    assert!(error.to_string().contains(BRIDGED), "{error}");
    assert_eq!(error.last_report(), Some(&report(&continuing("one"))));
    assert_eq!(stage.engine.cancels(), [BRIDGED]);
    assert_eq!((stage.engine.disposals(), stage.engine.abandoned()), (1, 0));
}

#[tokio::test]
async fn a_call_that_was_cancelled_beforehand_starts_no_worker() {
    let token = CancellationToken::new();
    token.cancel();
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    let error = stage.tool.call(&args(), cancelled_by(&token)).await.unwrap_err();

    assert_eq!((error.code(), error.round()), ("cancelled", None));
    assert!(stage.engine.calls().is_empty());
    assert_eq!((stage.engine.cancels().len(), stage.engine.disposals()), (1, 1));
}

#[tokio::test]
async fn a_cancellation_during_the_start_is_bridged() {
    let token = CancellationToken::new();
    let abort = token.clone();
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    stage.engine.on_start(move || abort.cancel());
    let error = stage.tool.call(&args(), cancelled_by(&token)).await.unwrap_err();

    assert_eq!(error.code(), "cancelled");
    assert_eq!(stage.engine.cancels(), [BRIDGED]);
    assert_eq!(stage.engine.disposals(), 1);
    // The engine got the caller's own token, not another one.
    assert!(stage.engine.start_cancellations()[0].is_cancelled());
}

#[tokio::test]
async fn a_cancellation_after_the_end_cancels_nothing() {
    let token = CancellationToken::new();
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    stage.tool.call(&args(), cancelled_by(&token)).await.unwrap();
    token.cancel();
    assert!(stage.engine.cancels().is_empty());
}

#[tokio::test]
async fn a_cancellation_during_the_disposal_changes_nothing() {
    let token = CancellationToken::new();
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    stage.engine.hold_disposals();
    let args = args();
    let mut call = Box::pin(stage.tool.call(&args, cancelled_by(&token)));
    poll_once(&mut call).await;
    token.cancel();
    stage.engine.release_disposals();
    call.await.unwrap();
    assert!(stage.engine.cancels().is_empty());
    assert_eq!(stage.engine.disposals(), 1);
}

#[tokio::test]
async fn an_engine_that_ignores_the_cancel_decides_the_outcome() {
    let token = CancellationToken::new();
    let abort = token.clone();
    let child = StubChild::value(complete("done")).with_hook(move || abort.cancel()).after_cancel();
    let stage = Stage::running(json!({}), [child]);
    stage.engine.ignore_cancels();
    stage.tool.call(&args(), cancelled_by(&token)).await.unwrap();
    assert_eq!(stage.engine.cancels(), [BRIDGED]);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_the_run_starts_leaves_no_run() {
    let stage = Stage::running(json!({}), []);
    stage.engine.hold_starts();
    let args = args();
    let mut call = Box::pin(stage.tool.call(&args, context()));
    poll_once(&mut call).await;
    drop(call);
    stage.engine.release_starts();
    assert_eq!(stage.engine.starts().len(), 1);
    assert!(stage.engine.calls().is_empty());
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_cancels_the_run() {
    let stage = Stage::running(json!({}), [StubChild::endless()]);
    let args = args();
    let mut call = Box::pin(stage.tool.call(&args, context()));
    poll_once(&mut call).await;
    assert_eq!(stage.engine.calls().len(), 1);
    drop(call);
    assert_eq!(stage.engine.cancels(), [DROPPED]);
    assert_eq!(
        stage.engine.abandoned(),
        1,
        "the run itself is dropped too, which the engine takes for its end"
    );
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_disposes_leaves_the_rest_to_the_engine() {
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    stage.engine.hold_disposals();
    let args = args();
    let mut call = Box::pin(stage.tool.call(&args, context()));
    poll_once(&mut call).await;
    drop(call);
    assert_eq!((stage.engine.disposals(), stage.engine.abandoned()), (1, 0));
}

#[tokio::test]
async fn an_engine_that_panics_in_its_cancel_does_not_keep_the_run() {
    let token = CancellationToken::new();
    token.cancel();
    let stage = Stage::running(json!({}), [StubChild::endless()]);
    stage.engine.on_cancel(|| panic!("the script panics"));
    let (tool, args) = (Arc::clone(&stage.tool), args());
    let call = tokio::spawn(async move { tool.call(&args, cancelled_by(&token)).await.map(|_| ()) });
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(stage.engine.cancels().len(), 1, "it is not asked again");
    assert_eq!(stage.engine.abandoned(), 1, "the run is dropped, which ends it");
}
