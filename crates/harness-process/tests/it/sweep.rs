//! What children leave behind, and that it is gone after the call.

use std::time::Duration;

use harness_process::{Ending, Output, start};

use crate::call::{assert_gone, run, sh};

/// Runs a script that prints the pids of what it leaves behind on standard output.
async fn leaves(script: &str, count: usize) {
    let report = run(sh(script).with_output(Output::Collect { max: 1000 })).await;
    assert_eq!(report.ending, Ending::Exited { code: 0 }, "{report:?}");
    assert_gone(&report.collected.as_ref().unwrap().bytes, count);
}

#[tokio::test]
async fn a_background_process_is_gone() {
    leaves("sleep 60 & echo $!", 1).await;
}

#[tokio::test]
async fn a_daemon_in_a_session_of_its_own_is_gone() {
    leaves("setsid sh -c 'echo $$; exec sleep 60' & wait_for() { sleep 0.2; }; wait_for", 1).await;
}

#[tokio::test]
async fn a_daemon_that_forked_twice_is_gone() {
    leaves("setsid sh -c '(sleep 60 & echo $!) & exit 0'; sleep 0.2", 1).await;
}

#[tokio::test]
async fn a_daemon_that_ignores_signals_is_gone() {
    leaves("setsid sh -c 'trap \"\" TERM INT HUP; echo $$; while :; do sleep 1; done' & sleep 0.2", 1).await;
}

#[tokio::test]
async fn a_process_group_of_its_own_is_gone() {
    leaves("set -m; sleep 60 & echo $!; sleep 61 & echo $!", 2).await;
}

#[tokio::test]
async fn a_deep_tree_is_gone() {
    leaves("f() { [ $1 -gt 0 ] && { setsid sh -c 'echo $$; exec sleep 60' & (f $(($1-1))) & }; }; f 5; sleep 0.5", 5)
        .await;
}

#[tokio::test]
async fn zombies_that_the_child_never_took_leave_of_are_gone() {
    leaves("(sleep 0.05 & echo $!; exec sleep 0.2) ; exec sleep 0.1", 1).await;
}

#[tokio::test]
async fn a_cancelled_tree_is_gone() {
    let script = "trap '' TERM; sleep 60 & echo $!; setsid sleep 61 & echo $!; echo $$; wait";
    let mut child = start(sh(script).with_output(Output::Collect { max: 1000 })).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    child.cancel();
    let report = child.wait().await;
    assert_eq!(report.ending, Ending::Cancelled);
    assert_gone(&report.collected.as_ref().unwrap().bytes, 3);
}
