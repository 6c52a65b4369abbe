//! Signals at every moment: no process is left, and the journal says what happened.

use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{COMPLETE, CONTINUE, Stage, hand_in, wait_until};

const HANGING: &str =
    "cat > /dev/null; setsid sleep 600 & echo $! > straggler; echo $$ > agent; exec sleep 600";
/// Does not end by TERM.
const STUBBORN: &str = "cat > /dev/null; trap '' TERM; setsid sleep 600 & echo $! > straggler; echo $$ > agent; while :; do sleep 0.05; done";

#[track_caller]
fn check(signal: Signal, reason: &str) {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", HANGING);
    let runner = stage.start(&["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    runner.signal(signal);
    runner.end().with_status(14).with_out(reason).with_err("Ctrl-C forces the end");
    for process in left {
        assert!(!process.is_alive(), "{process:?}");
    }
    let run = stage.only_run();
    assert_eq!(run["outcome"], "cancelled");
    assert!(run["cancelReason"].as_str().unwrap().contains(reason), "{run}");
}

#[test]
fn the_first_signal_cancels_and_waits_for_the_agent_to_be_gone() {
    check(Signal::INT, "SIGINT");
    check(Signal::TERM, "SIGTERM");
    check(Signal::HUP, "SIGHUP");
}

#[test]
fn the_second_interrupt_forces_the_end_and_leaves_nothing_alive() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", STUBBORN);
    let runner = stage.start(&["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    runner.signal(Signal::INT);
    let journal = || stage.only_run()["cancelReason"].is_string().then_some(());
    wait_until("the cancellation in the journal", journal);
    let begun = std::time::Instant::now();
    runner.signal(Signal::INT);
    runner.end().with_status(14).with_err("forced to end");
    assert!(begun.elapsed() < Duration::from_secs(4), "TERM alone would have been given 5 seconds");
    for process in left {
        process.wait_for_end();
    }
    let run = stage.runs().remove(0);
    stage.say(&["show", &run]).with_status(0).with_out("interrupted");
    // It was cancelled before, so it is not begun again.
    stage.say(&["resume", &run]).with_status(14).with_out("SIGINT");
    assert_eq!(stage.only_run()["outcome"], "cancelled");
}

#[test]
fn an_interrupt_before_the_first_agent_leaves_a_readable_journal_or_none() {
    let quick = hand_in(COMPLETE);
    for delay in 0..12 {
        let stage = Stage::new();
        let agent = stage.script("agent.sh", &quick);
        let runner = stage.start(&["run", "do it", "--", &agent]);
        std::thread::sleep(Duration::from_millis(delay));
        runner.signal(Signal::INT);
        let said = runner.end();
        assert!([-2, 0, 14].contains(&said.status), "{said:?}");
        let runs = stage.runs();
        for run in &runs {
            stage.say(&["show", run]).with_status(0);
        }
        let state = if runs.is_empty() { String::new() } else { stage.only_run()["state"].to_string() };
        assert!(["", "\"ended\""].contains(&state.as_str()), "{state} after {delay} ms: {said:?}");
    }
}

#[test]
fn an_interrupt_between_rounds_leaves_no_process_and_a_readable_journal() {
    for delay in [0, 3, 7, 12, 18] {
        let stage = Stage::new();
        let agent = stage.script("agent.sh", &format!("echo $$ >> pids; {}", hand_in(CONTINUE)));
        let runner = stage.start(&["run", "do it", "--max-rounds", "1000", "--", &agent]);
        wait_until("some rounds", || (stage.text("pids").lines().count() > 3).then_some(()));
        std::thread::sleep(Duration::from_millis(delay));
        runner.signal(Signal::INT);
        runner.end().with_status(14).with_out("The last accepted report:").with_out("Went on.");
        let run = stage.only_run();
        assert_eq!(run["outcome"], "cancelled");
        for pid in stage.text("pids").lines() {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} is there");
        }
        stage.script("agent.sh", &hand_in(COMPLETE));
        stage.say(&["continue", run["run"].as_str().unwrap()]).with_status(0);
    }
}

#[test]
fn an_interrupt_during_teardown_is_waited_out() {
    let stage = Stage::new();
    // Hands in its report, and leaves somebody behind who has to be ended.
    let agent = stage.script(
        "agent.sh",
        &format!("setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! > straggler; {}; echo $$ > agent", hand_in(COMPLETE)),
    );
    let runner = stage.start(&["run", "do it", "--", &agent]);
    let straggler = stage.wait_for_pid("straggler");
    stage.wait_for("agent");
    runner.signal(Signal::INT);
    let said = runner.end();
    assert!([0, 14].contains(&said.status), "{said:?}");
    assert!(!straggler.is_alive());
    assert_eq!(stage.only_run()["state"], "ended");
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let stage = Stage::new();
    let agent = stage.script(
        "agent.sh",
        &format!("echo $$ > agent; while [ ! -e go ]; do sleep 0.02; done; {}", hand_in(COMPLETE)),
    );
    let wrapper = stage.script("nohup.sh", "trap '' HUP; exec \"$@\"");
    let ours = stage.command(&["run", "do it", "--", &agent]);
    let mut command = stage.command(&[]);
    let mut wrapped = std::process::Command::new(wrapper);
    wrapped.arg(ours.get_program()).args(ours.get_args()).current_dir(&stage.workspace).env_clear();
    for (name, value) in command.stdin(std::process::Stdio::null()).get_envs() {
        wrapped.env(name, value.unwrap());
    }
    let mut child =
        wrapped.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    stage.wait_for("agent");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    std::fs::write(stage.file("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
