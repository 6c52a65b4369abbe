//! How calls end, by themselves, by limits and by request.

use std::time::{Duration, Instant};

use harness_process::{ChildSpec, Ending, Gentle, Input, Limit, Limits, Output, start};
use tokio_util::sync::CancellationToken;

use crate::call::{assert_gone, limits, run, sh, shutdown};

#[track_caller]
fn check(spec: ChildSpec, expected: Ending) -> impl Future<Output = ()> {
    let call = run(spec);
    async move {
        let report = call.await;
        assert_eq!(report.ending, expected, "{report:?}");
    }
}

fn short(limits: impl FnOnce(Limits, Duration) -> Limits) -> Limits {
    limits(self::limits(), Duration::from_millis(300))
}

#[tokio::test]
async fn an_exit_is_told_by_its_code() {
    for code in [0, 1, 7, 126, 127, 130, 143, 255] {
        check(sh(&format!("exit {code}")), Ending::Exited { code }).await;
    }
}

#[tokio::test]
async fn a_crash_is_told_by_its_signal() {
    for signal in [1, 2, 6, 9, 11, 15] {
        check(sh(&format!("kill -{signal} $$; sleep 5")), Ending::Signalled { signal }).await;
    }
}

#[tokio::test]
async fn words_about_failure_change_nothing() {
    check(
        sh("echo 'error: 429 rate limit exceeded' >&2; echo '{\"is_error\":true}'"),
        Ending::Exited { code: 0 },
    )
    .await;
}

#[tokio::test]
async fn a_silent_child_exceeds_the_first_byte_limit() {
    let limits = short(Limits::with_first_byte);
    check(sh("sleep 30").with_limits(limits), Ending::TimedOut(Limit::FirstByte)).await;
}

#[tokio::test]
async fn a_child_that_falls_silent_exceeds_the_idle_limit() {
    let limits = short(Limits::with_idle);
    let spec = sh("echo hello; sleep 30").with_limits(limits);
    let begun = Instant::now();
    check(spec, Ending::TimedOut(Limit::Idle)).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "the limit counts from the first byte");
}

#[tokio::test]
async fn a_child_that_closes_its_streams_and_stays_is_silent() {
    let limits = short(Limits::with_first_byte);
    check(sh("exec <&- >&- 2>&-; sleep 30").with_limits(limits), Ending::TimedOut(Limit::FirstByte)).await;
}

#[tokio::test]
async fn a_child_that_waits_for_an_answer_nobody_gives_is_silent() {
    let limits = short(Limits::with_idle);
    let spec = sh("printf 'really? [y/n] '; read answer").with_limits(limits).with_input(Input::Piped);
    let mut child = start(spec).unwrap();
    let _kept_open = child.take_stdin().unwrap();
    assert_eq!(child.wait().await.ending, Ending::TimedOut(Limit::Idle));
}

#[tokio::test]
async fn a_byte_on_standard_error_is_life() {
    let limits = short(|limits, time| limits.with_idle(time * 2));
    let script = "for i in 1 2 3 4 5 6 7 8; do printf . >&2; sleep 0.15; done";
    check(sh(script).with_limits(limits), Ending::Exited { code: 0 }).await;
}

#[tokio::test]
async fn a_chatty_child_exceeds_the_deadline() {
    let limits = short(Limits::with_deadline);
    check(
        sh("while :; do echo thinking; sleep 0.05; done").with_limits(limits),
        Ending::TimedOut(Limit::Deadline),
    )
    .await;
}

#[tokio::test]
async fn a_flooding_child_exceeds_the_deadline() {
    let limits = short(Limits::with_deadline);
    check(sh("exec yes").with_limits(limits), Ending::TimedOut(Limit::Deadline)).await;
}

#[tokio::test]
async fn a_stopped_child_ends_all_the_same() {
    let limits = short(Limits::with_idle);
    check(sh("echo hello; kill -STOP $$").with_limits(limits), Ending::TimedOut(Limit::Idle)).await;
}

#[tokio::test]
async fn a_child_that_ignores_every_signal_it_can_is_killed() {
    let limits = short(Limits::with_deadline);
    let spec = sh("trap '' INT TERM HUP QUIT USR1; echo $$; while :; do sleep 1; done")
        .with_limits(limits)
        .with_shutdown(shutdown().with_gentle(Gentle::Interrupt))
        .with_output(Output::Collect { max: 100 });
    let begun = Instant::now();
    let report = run(spec).await;
    assert_eq!(report.ending, Ending::TimedOut(Limit::Deadline));
    assert!(begun.elapsed() < Duration::from_secs(3), "limit and two graces are over after 900 ms");
    assert_gone(&report.collected.as_ref().unwrap().bytes, 1);
}

#[tokio::test]
async fn a_child_that_delivered_and_stays_is_ended_after_the_grace() {
    let mut child = start(sh("echo done; exec sleep 30")).unwrap();
    child.delivered();
    let begun = Instant::now();
    assert_eq!(child.wait().await.ending, Ending::Delivered);
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_child_that_delivered_and_exits_has_exited() {
    let mut child = start(sh("sleep 0.1; exit 3")).unwrap();
    child.delivered();
    child.delivered();
    assert_eq!(child.wait().await.ending, Ending::Exited { code: 3 });
}

#[tokio::test]
async fn a_cancelled_child_is_asked_with_term() {
    let mut child = start(
        sh("trap 'echo bye; exit 5' TERM; echo hello; while :; do sleep 0.02; done")
            .with_output(Output::Collect { max: 100 }),
    )
    .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    child.cancel();
    child.cancel();
    let report = child.wait().await;
    assert_eq!(report.ending, Ending::Cancelled);
    assert_eq!(report.collected.as_ref().unwrap().bytes, b"hello\nbye\n", "last words are heard");
    assert_eq!(report.status.unwrap().code(), Some(5));
    child.cancel();
    assert_eq!(child.wait().await.ending, Ending::Cancelled, "a repeat returns the same report");
}

#[tokio::test]
async fn a_token_cancels_too() {
    let token = CancellationToken::new();
    let mut child = start(sh("exec sleep 30").with_cancellation(token.clone())).unwrap();
    token.cancel();
    assert_eq!(child.wait().await.ending, Ending::Cancelled);
}

#[tokio::test]
async fn a_second_request_does_not_wait_for_the_graces() {
    let mut child = start(
        sh("trap '' TERM; while :; do sleep 1; done")
            .with_shutdown(shutdown().with_graces(Duration::from_secs(15))),
    )
    .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    child.cancel();
    child.kill();
    let report = tokio::time::timeout(Duration::from_secs(3), child.wait()).await.unwrap();
    assert_eq!(report.ending, Ending::Cancelled);
}

#[tokio::test]
async fn the_gentle_step_can_be_an_interrupt() {
    let spec = sh("trap 'echo cleaned; exit 0' INT; echo hello; while :; do sleep 0.02; done")
        .with_shutdown(shutdown().with_gentle(Gentle::Interrupt))
        .with_output(Output::Collect { max: 100 });
    let mut child = start(spec).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    child.cancel();
    assert_eq!(child.wait().await.collected.as_ref().unwrap().bytes, b"hello\ncleaned\n");
}

#[tokio::test]
async fn the_gentle_step_can_be_a_message() {
    let spec = sh("read line; echo \"got $line\"")
        .with_shutdown(shutdown().with_gentle(Gentle::Write(b"interrupt\n".to_vec())))
        .with_input(Input::Piped)
        .with_output(Output::Collect { max: 100 });
    let mut child = start(spec).unwrap();
    let _open = child.take_stdin().unwrap();
    child.cancel();
    let report = child.wait().await;
    assert_eq!(report.collected.as_ref().unwrap().bytes, b"got interrupt\n");
    assert_eq!(report.ending, Ending::Cancelled);
}

#[tokio::test]
async fn the_gentle_step_can_be_the_end_of_input() {
    let spec = sh("cat; echo end")
        .with_shutdown(shutdown().with_gentle(Gentle::CloseInput))
        .with_input(Input::Piped)
        .with_output(Output::Collect { max: 100 });
    let mut child = start(spec).unwrap();
    let _open = child.take_stdin().unwrap();
    child.cancel();
    assert_eq!(child.wait().await.collected.as_ref().unwrap().bytes, b"end\n");
}

#[tokio::test]
async fn a_gentle_step_that_cannot_be_taken_is_skipped() {
    let grace = shutdown().with_graces(Duration::from_secs(15)).with_gentle(Gentle::Write(b"x".to_vec()));
    let mut child = start(sh("exec sleep 30").with_shutdown(grace)).unwrap();
    child.cancel();
    let report = tokio::time::timeout(Duration::from_secs(3), child.wait()).await.unwrap();
    assert_eq!(report.ending, Ending::Cancelled);
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_hold_the_call() {
    let begun = Instant::now();
    let report = run(sh("sleep 30 & echo hello").with_output(Output::Collect { max: 100 })).await;
    assert_eq!(report.ending, Ending::Exited { code: 0 });
    assert_eq!(report.collected.as_ref().unwrap().bytes, b"hello\n");
    assert!(begun.elapsed() < Duration::from_secs(2));
}
