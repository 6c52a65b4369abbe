//! Every end of a child has its stop reason, and nothing is left of it.

use std::time::{Duration, Instant};

use harness_process::Limits;
use harness_subagent::{ErrorKind, StopReason, SubagentProvider};
use serde_json::json;

use crate::support::Bench;

const HAND_IN: &str = r#"printf '{"a":1}' > "$HARNESS_VALUE_FILE""#;

#[track_caller]
fn check(script: &str, reason: &StopReason, details: &[(&str, &str)]) {
    check_with(script, Limits::default(), reason, details);
}

#[track_caller]
fn check_with(script: &str, limits: Limits, reason: &StopReason, details: &[(&str, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = Bench::new();
    let provider = bench.shell(script).with_limits(limits);
    let result = runtime.block_on(bench.run(&provider, bench.request("go")));
    assert_eq!(result.stop_reason, *reason, "{script}: {result:?}");
    assert_eq!(result.diagnostic.is_none(), reason.is_completed(), "{script}");
    for (name, value) in details {
        let found = result.diagnostic.as_ref().and_then(|diagnostic| diagnostic.details().get(*name));
        assert_eq!(found.map(String::as_str), Some(*value), "{script}: {name}");
    }
}

#[test]
fn a_status_other_than_zero_is_an_error_whatever_was_handed_in() {
    check("exit 1", &StopReason::ERROR, &[("exit-status", "1")]);
    check(&format!("{HAND_IN}; exit 255"), &StopReason::ERROR, &[("exit-status", "255")]);
    check("echo '{\"status\":\"complete\"}'; exit 2", &StopReason::ERROR, &[("exit-status", "2")]);
}

#[test]
fn a_good_exit_without_a_value_is_no_value_whatever_was_said() {
    check("true", &StopReason::NO_VALUE, &[]);
    check("echo complete", &StopReason::NO_VALUE, &[]);
    check(r#"echo '{"a":1}'"#, &StopReason::NO_VALUE, &[]);
    check(": > \"$HARNESS_VALUE_FILE\"", &StopReason::NO_VALUE, &[]);
    check("cat", &StopReason::NO_VALUE, &[]);
}

#[test]
fn what_is_not_one_document_is_unreadable() {
    for text in ["{", "{}{}", "```\\n{}\\n```", "{} trailing", r#"{"a":1,"a":2}"#, "\\357\\273\\277{}"] {
        check(&format!("printf '{text}' > \"$HARNESS_VALUE_FILE\""), &StopReason::UNREADABLE_VALUE, &[]);
    }
    check("mkdir \"$HARNESS_VALUE_FILE\"", &StopReason::UNREADABLE_VALUE, &[]);
    check("mkfifo \"$HARNESS_VALUE_FILE\"", &StopReason::UNREADABLE_VALUE, &[]);
    check("ln -s /etc/passwd \"$HARNESS_VALUE_FILE\"", &StopReason::UNREADABLE_VALUE, &[]);
    check("head -c 1100000 /dev/zero > \"$HARNESS_VALUE_FILE\"", &StopReason::UNREADABLE_VALUE, &[]);
}

#[test]
fn a_signal_that_was_not_ours_is_a_crash() {
    check("kill -SEGV $$", &StopReason::CRASHED, &[("signal", "11")]);
    check("kill -KILL $$", &StopReason::CRASHED, &[("signal", "9")]);
    check(&format!("{HAND_IN}; kill -TERM $$"), &StopReason::CRASHED, &[("signal", "15")]);
}

#[test]
fn each_time_limit_is_named() {
    let quarter = Duration::from_millis(250);
    let limits = Limits::default();
    check_with(
        "sleep 60",
        limits.with_first_byte(quarter),
        &StopReason::TIMED_OUT,
        &[("limit", "first-byte")],
    );
    check_with("echo; sleep 60", limits.with_idle(quarter), &StopReason::TIMED_OUT, &[("limit", "idle")]);
    check_with(
        "while :; do echo; sleep 0.05; done",
        limits.with_deadline(quarter),
        &StopReason::TIMED_OUT,
        &[("limit", "deadline")],
    );
}

#[test]
fn a_value_and_a_good_exit_complete() {
    check(HAND_IN, &StopReason::COMPLETED, &[]);
    check(&format!("{HAND_IN}; echo error: rate limit exceeded, 429 >&2"), &StopReason::COMPLETED, &[]);
}

#[test]
fn a_child_that_handed_in_and_never_exits_completes_after_the_grace() {
    check(&format!("{HAND_IN}; sleep 600"), &StopReason::COMPLETED, &[]);
    check(&format!("{HAND_IN}; trap '' TERM; while :; do sleep 1; done"), &StopReason::COMPLETED, &[]);
}

#[test]
fn a_child_that_leaves_others_behind_ends_at_its_own_exit() {
    let started = Instant::now();
    check(&format!("sleep 600 & {HAND_IN}"), &StopReason::COMPLETED, &[]);
    check(&format!("setsid sleep 600 & {HAND_IN}"), &StopReason::COMPLETED, &[]);
    check(&format!("(setsid sleep 600 >/dev/null 2>&1 &) ; {HAND_IN}"), &StopReason::COMPLETED, &[]);
    assert!(started.elapsed() < Duration::from_secs(60), "nobody waited for what was left behind");
}

#[tokio::test]
async fn a_cancelled_child_is_aborted_and_keeps_what_it_handed_in() {
    let bench = Bench::new();
    let provider = bench.shell(&format!("{HAND_IN}; echo ready; sleep 600"));
    let request = bench.request("go");
    let cancellation = request.cancellation.clone();
    let run = provider.start(request).await.unwrap();
    let mut activity = run.activity();
    if !bench.files().join("run/1-1/transcript.log").metadata().is_ok_and(|file| file.len() > 0) {
        activity.next().await;
    }
    cancellation.cancel();
    let result = run.result().await.unwrap();
    assert_eq!(result.stop_reason, StopReason::ABORTED);
    assert_eq!(result.structured, Some(json!({ "a": 1 })));
    run.dispose().await.unwrap();
    bench.assert_nothing_left();
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_refused_by_name_and_leaves_no_files() {
    let bench = Bench::new();
    let directory = bench.workspace();
    for program in ["no-such-program-anywhere", directory.to_str().unwrap(), "/etc/passwd"] {
        let provider = harness_provider_cli::CommandProvider::new("broken", program, bench.files());
        let error = provider.start(bench.request("go")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(program), "{cause}");
        assert!(crate::support::files_below(&bench.files()).is_empty());
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_takes_its_child_with_it() {
    let bench = Bench::new();
    let provider = bench.shell("sleep 600");
    drop(provider.start(bench.request("go")).await.unwrap());
    let patience = Instant::now() + Duration::from_secs(10);
    while !bench.alive().is_empty() {
        assert!(Instant::now() < patience, "the child outlives its run");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
