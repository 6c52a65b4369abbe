//! What children leave behind, and that it is gone after the call.

use std::time::Duration;

use harness_process::{Ending, Limit, Mark, Output, start, sweep_leftovers};

use crate::call::{alone, assert_gone, bare, is_there, label, pids, run, sh};

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
    leaves("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2", 1).await;
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

#[tokio::test]
async fn daemons_that_replace_each_other_are_gone() {
    let one = "while :; do sh -c 'echo $$; exec sleep 60' & wait $!; done";
    let report = run(sh(&format!("setsid sh -c \"{one}\" & sleep 0.2").replace('$', "\\$"))
        .with_output(Output::Collect { max: 10_000 }))
    .await;
    let pids = pids(&report.collected.as_ref().unwrap().bytes);
    assert_eq!(pids.len(), 1, "it has been replaced");
    assert!(!is_there(pids[0]));
    assert!(report.wall < Duration::from_secs(2), "{report:?}");
}

#[tokio::test]
async fn a_daemon_that_hops_from_pid_to_pid_is_gone() {
    let report = run(sh("export HOP='sh -c \"$HOP\" & exit 0'; setsid sh -c \"$HOP\" & sleep 0.2")).await;
    assert!(!report.leftovers.is_empty());
    assert!(report.wall < Duration::from_secs(2), "{report:?}");
    assert_eq!(run(sh("true")).await.leftovers, [0; 0], "nothing went on");
}

#[tokio::test]
async fn a_stopped_daemon_is_gone() {
    leaves("setsid sh -c 'echo $$; kill -STOP $$' & sleep 0.2", 1).await;
}

#[tokio::test]
async fn orphans_that_die_during_a_long_call_do_not_pile_up() {
    let script = "setsid sh -c '(sleep 0.1 & echo $!) & exit 0'; exec sleep 7";
    let mut child = start(sh(script).with_output(Output::Stream)).unwrap();
    let mut text = [0; 32];
    let mut stdout = child.take_stdout().unwrap();
    let length = tokio::io::AsyncReadExt::read(&mut stdout, &mut text).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(is_there(child.pid()), "the call goes on");
    assert_gone(&text[..length], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_calls_on_many_threads_end_well() {
    let calls = (0..24).map(|number| {
        tokio::spawn(async move {
            let script = format!("setsid sleep 60 & echo $!; exit {number}");
            let report = run(sh(&script).with_output(Output::Collect { max: 100 })).await;
            assert_eq!(report.ending, Ending::Exited { code: number });
            assert_gone(&report.collected.as_ref().unwrap().bytes, 1);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn the_report_names_what_was_killed() {
    let script = "sleep 60 & echo $!; setsid sleep 61 & echo $!; sleep 0.1";
    let report = run(sh(script).with_output(Output::Collect { max: 1000 })).await;
    let mut expected = pids(&report.collected.as_ref().unwrap().bytes);
    expected.sort_unstable();
    assert_eq!(report.leftovers, expected);
}

#[tokio::test]
async fn a_clean_child_leaves_nothing_to_name() {
    assert_eq!(run(sh("sh -c 'exit 0'; true")).await.leftovers, [0; 0]);
}

#[tokio::test]
async fn a_tree_that_is_cancelled_is_gone_without_its_marks_too() {
    let script = "env -i setsid sleep 61 & echo $!; setsid env -i sh -c 'sleep 62 & echo $!; wait' & echo $!; sleep 60";
    let mut child = start(sh(script).with_output(Output::Collect { max: 1000 })).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    child.cancel();
    assert_gone(&child.wait().await.collected.as_ref().unwrap().bytes, 3);
}

#[tokio::test]
async fn calls_at_the_same_time_do_not_touch_each_others_trees() {
    let script = "setsid sh -c 'sleep 60 & echo $!' & sleep 0.2; cat >/dev/null";
    let spec = || sh(script).with_input(harness_process::Input::Piped).with_output(Output::Stream);
    let mut stays = start(spec()).unwrap();
    let _open = stays.take_stdin().unwrap();
    let mut stdout = stays.take_stdout().unwrap();
    let mut text = [0; 32];
    let length = tokio::io::AsyncReadExt::read(&mut stdout, &mut text).await.unwrap();
    let theirs = pids(&text[..length]);
    for _ in 0..5 {
        let mut others: Vec<_> = (0..4).map(|_| start(sh("setsid sleep 61 & sleep 0.05")).unwrap()).collect();
        for other in &mut others {
            assert_eq!(other.wait().await.ending, Ending::Exited { code: 0 });
        }
        assert!(is_there(theirs[0]), "another call's sweep has killed it");
    }
    drop((_open, stdout));
    assert_eq!(stays.wait().await.ending, Ending::Exited { code: 0 });
    assert!(!is_there(theirs[0]));
}

#[tokio::test]
async fn a_dropped_child_is_killed_with_its_tree() {
    let script = "trap '' TERM; setsid sleep 60 & echo $!; echo $$; while :; do sleep 1; done";
    let mut child = start(sh(script).with_output(Output::Stream)).unwrap();
    let mut stdout = child.take_stdout().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(child);
    let mut text = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stdout, &mut text).await.unwrap();
    // The stream ends when the call does, clean-up included.
    assert_gone(&text, 2);
}

#[test]
fn a_runtime_that_shuts_down_leaves_no_tree_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let script = format!(
        "trap '' TERM; setsid sleep 60 & echo $! >>{0}; echo $$ >>{0}; while :; do sleep 1; done",
        path.display()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let child = runtime.block_on(async {
        let child = start(sh(&script)).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        child
    });
    drop(runtime);
    assert_gone(&std::fs::read(&path).unwrap(), 2);
    drop(child);
}

#[test]
fn a_wait_that_is_given_up_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut child = start(sh("sleep 0.3; exit 4")).unwrap();
        for _ in 0..3 {
            assert!(tokio::time::timeout(Duration::from_millis(20), child.wait()).await.is_err());
        }
        assert_eq!(child.wait().await.ending, Ending::Exited { code: 4 });
    });
}

#[test]
fn without_adoption_the_mark_finds_what_is_left() {
    alone("sweep::without_adoption", &[]);
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn without_adoption() {
    keep_orphans();
    let script = "sleep 60 & echo $!; setsid sleep 61 & echo $!; setsid sh -c '(env -i sleep 62 & echo $!; exec sleep 63) & exit 0'; sleep 0.3";
    let report = run(bare(script).with_output(Output::Collect { max: 1000 })).await;
    assert_eq!(report.ending, Ending::Exited { code: 0 });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let pids = pids(&report.collected.as_ref().unwrap().bytes);
    assert_eq!(pids.len(), 3);
    for pid in pids {
        assert!(!lives(pid), "{pid} is alive");
    }
}

/// Adopts orphans without telling the library, lest those of this process go to the one that runs all the
/// tests, whose calls would end them.
fn keep_orphans() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
}

/// An orphan that is dead may wait for whoever adopted it.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[test]
fn a_daemon_that_shed_its_mark_is_gone_when_no_other_call_can_own_it() {
    alone("sweep::unmarked_daemon", &[]);
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn unmarked_daemon() {
    leaves("env -i setsid sh -c '(sleep 60 & echo $!) & exit 0'; sleep 0.3", 1).await;
}

#[test]
fn strangers_are_left_alone() {
    alone("sweep::strangers", &[]);
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn strangers() {
    let mut stranger = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let mut ended = std::process::Command::new("/bin/sh").args(["-c", "exit 9"]).spawn().unwrap();
    leaves("setsid sleep 60 & echo $!; sleep 0.3", 1).await;
    assert!(stranger.try_wait().unwrap().is_none(), "it runs");
    assert_eq!(ended.wait().unwrap().code(), Some(9), "its status is ours to take");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn nothing_stays_of_many_calls() {
    alone("sweep::many_calls", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn many_calls() {
    fn entries(what: &str) -> usize {
        std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = async |number: usize| {
        let script =
            ["cat", "setsid sleep 60 & exit 3", "head -c 300000 /dev/zero", "kill -9 $$"][number % 4];
        let prompt = harness_process::Input::Bytes(vec![b'x'; 100_000]);
        run(sh(script).with_input(prompt)).await;
    };
    runtime.block_on(call(0));
    let before = (entries("fd"), entries("task"));
    runtime.block_on(async {
        for number in 0..40 {
            call(number).await;
        }
    });
    assert_eq!((entries("fd"), entries("task")), before, "descriptors and threads");
    let children =
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
    assert_eq!(children, "");
}

#[test]
fn a_host_that_ignores_sigchld_does_not_learn_the_status() {
    let script = "trap '' CHLD; exec \"$0\" --exact sweep::lost_status --ignored --nocapture";
    let output = std::process::Command::new("/bin/bash")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn lost_status() {
    const SIGCHLD: u64 = 1 << (17 - 1);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_ne!(u64::from_str_radix(ignored.trim(), 16).unwrap() & SIGCHLD, 0, "{ignored}");
    let report = run(sh("setsid sleep 60 & echo $!; exit 3").with_output(Output::Collect { max: 100 })).await;
    assert_eq!((report.ending, report.status), (Ending::Lost, None));
    assert_gone(&report.collected.as_ref().unwrap().bytes, 1);
}

#[test]
fn a_new_runner_ends_what_a_killed_one_left() {
    alone("sweep::new_runner", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn new_runner() {
    keep_orphans();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let mut runner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sweep::killed_runner", "--ignored", "--nocapture"])
        .env("PIDS", &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut left = Vec::new();
    for _ in 0..500 {
        left = pids(&std::fs::read(&path).unwrap_or_default());
        if left.len() == 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left.len(), 3);
    let still_ran = sweep_leftovers(VARIABLE).unwrap();
    assert_eq!(still_ran.killed, [0; 0], "the runner lives");
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(left.iter().all(|pid| lives(*pid)), "a killed runner cannot end its children");
    let swept = sweep_leftovers(VARIABLE).unwrap();
    assert_eq!(swept.survivors, [0; 0]);
    assert!(left.iter().all(|pid| swept.killed.contains(pid)), "{swept:?} {left:?}");
    assert!(!left.iter().any(|pid| lives(*pid)));
    assert_eq!(sweep_leftovers(VARIABLE).unwrap().killed, [0; 0], "a repeat finds nothing");
}

const VARIABLE: &str = "HARNESS_TEST_LEFTOVER";

#[tokio::test]
#[ignore = "runs in a process of its own, and is killed"]
async fn killed_runner() {
    let Some(path) = std::env::var_os("PIDS") else { return };
    let script = "echo $$ >>$0; setsid sleep 60 & echo $! >>$0; env -i sleep 61 & echo $! >>$0; wait";
    let spec = bare(script).with_arguments([path]).with_mark(Mark::new(label()).with_variable(VARIABLE));
    start(spec).unwrap().wait().await;
}

#[tokio::test]
async fn a_call_that_times_out_leaves_nothing() {
    let limits = crate::call::limits().with_deadline(Duration::from_millis(300));
    let script =
        "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & while :; do sleep 1; done";
    let report = run(sh(script).with_limits(limits).with_output(Output::Collect { max: 100 })).await;
    assert_eq!(report.ending, Ending::TimedOut(Limit::Deadline));
    assert_gone(&report.collected.as_ref().unwrap().bytes, 1);
}
