//! The scripted provider does what its script says.

use std::sync::Arc;
use std::time::Duration;

use harness_subagent::{
    Activity, Capabilities, ErrorKind, OutputContract, OutputRuleCatalog, Parent, ProviderInfo, RuleRef,
    StartSubagent, StopReason, SubagentProvider, SubagentResult, SubagentRun, Usage,
};
use harness_testkit::subagent::{InstantProvider, MockChild, MockProvider, MockProviderHandle, MockRule};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

fn request() -> StartSubagent {
    StartSubagent::new("work", Parent::new("parent", "workspace"))
}

/// Starts one child that follows `script`.
async fn start(script: MockChild) -> (Box<dyn SubagentRun>, MockProviderHandle) {
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    handle.script([script]);
    (provider.start(request()).await.expect("the script starts a child"), handle)
}

#[tokio::test]
async fn a_scripted_refusal_is_the_error_of_the_start_and_leaves_nothing() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.script([MockChild::refused()]);
    let error = provider.start(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!((handle.starts(), handle.live()), (1, vec![]));
}

#[tokio::test]
async fn a_request_cancelled_beforehand_is_refused() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    let request = request();
    request.cancellation.cancel();
    assert_eq!(provider.start(request).await.unwrap_err().kind(), ErrorKind::Cancelled);
    handle.assert_nothing_left();
}

#[tokio::test]
async fn a_held_start_waits_for_the_handle_or_the_cancellation() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.script([MockChild::default().with_held_start(), MockChild::default().with_held_start()]);
    let cancelled = request();
    let cancellation = cancelled.cancellation.clone();
    let (first, second, ()) = tokio::join!(provider.start(request()), provider.start(cancelled), async {
        handle.wait_for_starts(2).await;
        assert_eq!(handle.live(), Vec::<u64>::new());
        handle.release_start(1);
        cancellation.cancel();
    });
    assert_eq!(first.unwrap().result().await.unwrap().output, "done");
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn a_dropped_held_start_leaves_no_child() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.script([MockChild::default().with_held_start()]);
    tokio::select! {
        biased;
        _ = provider.start(request()) => panic!("the start is held"),
        () = handle.wait_for_starts(1) => {}
    }
    handle.release_start(1);
    handle.assert_nothing_left();
}

#[tokio::test]
async fn every_ordinary_failure_is_a_result_with_a_diagnostic() {
    for reason in StopReason::KNOWN.iter().filter(|reason| !reason.is_completed()) {
        let (run, _handle) = start(MockChild::failing(reason.clone())).await;
        let result = run.result().await.unwrap();
        assert_eq!(&result.stop_reason, reason);
        assert!(result.diagnostic.is_some());
    }
}

#[tokio::test]
async fn a_lost_child_is_an_error_of_its_result_each_time_alike() {
    let (run, handle) = start(MockChild::lost()).await;
    assert_eq!(run.result().await.unwrap_err().kind(), ErrorKind::RunLost);
    assert_eq!(run.result().await.unwrap_err().kind(), ErrorKind::RunLost);
    run.dispose().await.unwrap();
    handle.assert_nothing_left();
}

#[tokio::test]
async fn children_follow_the_script_and_then_the_default() {
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    handle.script([MockChild::value(json!({ "n": 1 })), MockChild::schema_refused()]);
    handle.set_default_with(|request| MockChild::text(request.prompt.to_uppercase()));
    let mut results = Vec::new();
    for _ in 0..3 {
        results.push(provider.start(request()).await.unwrap().result().await.unwrap());
    }
    assert_eq!(results[0].structured, Some(json!({ "n": 1 })));
    assert!(results[1].structured.as_ref().is_some_and(Value::is_string));
    assert_eq!(results[2].output, "WORK");
    assert_eq!(handle.requests().len(), 3);
}

#[tokio::test]
async fn tries_deliver_the_first_accepted_value_else_the_last_refused() {
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    handle.set_rules(
        OutputRuleCatalog::new().with("two", Arc::new(MockRule::accepting([json!({ "n": 2 })]))).unwrap(),
    );
    handle.script([
        MockChild::tries([json!({ "n": 1 }), json!({ "n": 2 }), json!({ "n": 3 })]),
        MockChild::tries([json!({ "n": 4 }), json!({ "n": 5 })]),
        MockChild::tries([json!({ "n": 6 }), json!({ "n": 7 })]),
    ]);
    let contract = OutputContract::new(json!({ "type": "object" })).unwrap();
    let ruled = request().with_output(contract.clone().with_rule(RuleRef::new("two")));
    let mut values = Vec::new();
    for request in [ruled.clone(), ruled, request().with_output(contract)] {
        let result = provider.start(request).await.unwrap().result().await.unwrap();
        assert!(result.stop_reason.is_completed());
        values.push(result.structured.unwrap()["n"].clone());
    }
    assert_eq!(values, [2, 5, 6]);
}

#[tokio::test]
async fn a_hanging_child_ends_by_its_cancellation() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.script([MockChild::hanging().with_usage(Usage::new(1, 2)).with_session_id("s")]);
    let request = request();
    let cancellation = request.cancellation.clone();
    let run = provider.start(request).await.unwrap();
    let (result, ()) = tokio::join!(run.result(), async {
        handle.wait_until_asked(1).await;
        cancellation.cancel();
    });
    let result = result.unwrap();
    assert_eq!(result.stop_reason, StopReason::ABORTED);
    assert_eq!((result.usage, result.session_id.as_deref()), (Some(Usage::new(1, 2)), Some("s")));
    assert_eq!(handle.cancelled(), [1]);
}

#[tokio::test]
async fn a_child_that_ignores_its_cancellation_ends_when_finished_or_disposed_of() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.set_default(MockChild::hanging().ignoring_cancellation());
    let request = request();
    let cancellation = request.cancellation.clone();
    let finished = provider.start(request.clone()).await.unwrap();
    let disposed = provider.start(request).await.unwrap();
    cancellation.cancel();
    handle.finish(1);
    assert_eq!(finished.result().await.unwrap().stop_reason, StopReason::COMPLETED);
    disposed.dispose().await.unwrap();
    assert_eq!(disposed.result().await.unwrap().stop_reason, StopReason::ABORTED);
}

#[tokio::test]
async fn a_child_that_completed_before_its_cancellation_stays_completed() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    handle.script([MockChild::default(), MockChild::hanging()]);
    let request = request();
    let cancellation = request.cancellation.clone();
    let instant = provider.start(request.clone()).await.unwrap();
    let finished = provider.start(request).await.unwrap();
    handle.finish(2);
    cancellation.cancel();
    assert!(instant.result().await.unwrap().stop_reason.is_completed());
    assert!(finished.result().await.unwrap().stop_reason.is_completed());
}

#[tokio::test]
async fn a_hook_can_cancel_while_the_child_runs_and_the_script_still_decides_the_end() {
    let (provider, handle) = MockProvider::new(Capabilities::NONE);
    let request = request();
    let cancellation = request.cancellation.clone();
    let cancel = {
        let cancellation = cancellation.clone();
        move || cancellation.cancel()
    };
    handle.script([
        MockChild::failing(StopReason::REFUSAL).on_asked(cancel.clone()).ignoring_cancellation(),
        MockChild::default().when_cancelled(),
        MockChild::default().on_start(move |_| cancel()),
    ]);
    let refused = provider.start(request.clone()).await.unwrap();
    let completed = provider.start(request).await.unwrap();
    assert_eq!(refused.result().await.unwrap().stop_reason, StopReason::REFUSAL);
    assert!(cancellation.is_cancelled());
    assert!(completed.result().await.unwrap().stop_reason.is_completed());

    let aborted = provider.start(self::request().with_cancellation(cancellation.child_token())).await;
    assert_eq!(aborted.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn a_hook_that_cancels_at_the_start_aborts_a_child_that_heeds_it() {
    let (run, _handle) = start(MockChild::default().on_start(|request| request.cancellation.cancel())).await;
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::ABORTED);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_end_comes_without_a_waiter_and_a_later_cancellation_is_too_late() {
    let (run, handle) = start(MockChild::default().after(Duration::from_secs(60))).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    handle.request(1).cancellation.cancel();
    assert!(run.result().await.unwrap().stop_reason.is_completed());

    let (run, handle) = start(MockChild::default().after(Duration::from_secs(60))).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    handle.request(1).cancellation.cancel();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::ABORTED);
}

#[tokio::test(start_paused = true)]
async fn a_slow_release_takes_its_time_once_and_answers_everybody_alike() {
    let (run, handle) =
        start(MockChild::hanging().with_slow_dispose(Duration::from_secs(3)).with_failing_dispose()).await;
    let begun = Instant::now();
    assert!(timeout(Duration::from_secs(1), run.dispose()).await.is_err());
    assert_eq!(handle.live(), [1]);
    let (first, second) = tokio::join!(run.dispose(), run.dispose());
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Release);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Release);
    assert_eq!(handle.disposes(), [1, 1, 1]);
    handle.assert_nothing_left();
}

#[tokio::test]
async fn a_held_release_waits_for_the_handle() {
    let (run, handle) = start(MockChild::default().with_held_dispose()).await;
    let (released, ()) = tokio::join!(run.dispose(), async {
        handle.wait_for_disposes(1).await;
        assert_eq!(handle.live(), [1]);
        handle.release_dispose(1);
    });
    released.unwrap();
    handle.wait_until_none_live().await;
}

#[tokio::test]
#[should_panic(expected = "children [1] were not disposed of")]
async fn a_child_that_nobody_disposed_of_is_noticed() {
    let (_run, handle) = start(MockChild::default()).await;
    handle.assert_nothing_left();
}

#[tokio::test]
#[should_panic(expected = "the runs of children [1] were dropped undisposed")]
async fn a_run_that_was_dropped_undisposed_is_noticed() {
    let (run, handle) = start(MockChild::default()).await;
    drop(run);
    assert_eq!(handle.live(), Vec::<u64>::new());
    handle.assert_nothing_left();
}

#[tokio::test]
async fn activity_reaches_its_watcher_and_ends_with_the_child() {
    let (run, handle) = start(MockChild::hanging().with_activity(Activity::new("scripted"))).await;
    let mut stream = run.activity();
    handle.send_activity(1, Activity::new("sent"));
    handle.finish(1);
    assert_eq!(stream.next().await, Some(Activity::new("scripted")));
    assert_eq!(stream.next().await, Some(Activity::new("sent")));
    assert_eq!(stream.next().await, None);
    assert!(run.activity().is_silent());
}

#[tokio::test]
async fn it_says_of_itself_what_it_was_told() {
    let info = ProviderInfo::new("named", Capabilities::NONE).with_inherited_context(true);
    let (provider, _handle) = MockProvider::with_info(info.clone());
    assert_eq!(ProviderInfo::from(&*provider as &dyn SubagentProvider), info);
    assert!(provider.start(request()).await.unwrap().id().as_str().starts_with("named/"));
}

#[tokio::test]
async fn instant_children_all_end_alike_and_are_counted() {
    let provider = InstantProvider::new(SubagentResult::handed_in(json!({ "n": 1 })));
    let first = provider.start(request()).await.unwrap();
    let second = provider.start(request()).await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(first.result().await.unwrap(), second.result().await.unwrap());
    first.dispose().await.unwrap();
    drop(first);
    assert_eq!((provider.starts(), provider.live()), (2, 1));
}
