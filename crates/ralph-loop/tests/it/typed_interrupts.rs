//! Ctrl-C, typed on the terminal that our program runs on: the kernel signals everything in the foreground.

use std::fs;
use std::time::Duration;

use crate::pty::Terminal;
use crate::stage::{COMPLETE, CONTINUE, Stage, exists, hand_in, wait_until};

/// Would write down an interrupt of its own. Ours reaches nobody else, however it is typed.
const HANGING: &str = "cat > /dev/null; trap 'echo yes > interrupted' INT; setsid sleep 600 & echo $! > straggler; \
                       echo $$ > agent; while :; do sleep 0.05; done";

#[test]
fn before_there_is_a_run_it_ends_the_program_at_once() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", "echo yes > started");
    // The objective is being read.
    let mut terminal = Terminal::start_controlled(&stage, &["run", "--objective-file", "-", "--", &agent]);
    terminal.type_in("make the te");
    terminal.wait_for("make the te");
    terminal.type_interrupt();
    terminal.end().with_status(-2);
    assert!(stage.runs().is_empty() && !exists(&stage.file("started")));
}

#[test]
fn before_the_first_agent_it_leaves_a_readable_journal_or_none() {
    for delay in 0..10 {
        let stage = Stage::new();
        let agent = stage.script("agent.sh", &hand_in(COMPLETE));
        let mut terminal = Terminal::start_controlled(&stage, &["run", "do it", "--", &agent]);
        std::thread::sleep(Duration::from_millis(delay));
        terminal.type_interrupt();
        let said = terminal.end();
        assert!([-2, 0, 14].contains(&said.status), "{said:?}");
        let runs = stage.runs();
        assert!(runs.is_empty() || stage.only_run()["state"] == "ended", "after {delay} ms: {said:?}");
    }
}

#[test]
fn during_a_round_it_cancels_and_waits_for_the_agent_to_be_gone() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", HANGING);
    let mut terminal = Terminal::start_controlled(&stage, &["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    terminal.type_interrupt();
    terminal.end().with_status(14).with_out("interrupted by SIGINT");
    for process in left {
        assert!(!process.is_alive(), "{process:?}");
    }
    assert!(!exists(&stage.file("interrupted")), "the agent is told by us alone");
    let run = stage.only_run();
    assert_eq!(
        (&run["outcome"], &run["cancelReason"]),
        (&"cancelled".into(), &"interrupted by SIGINT".into())
    );
}

#[test]
fn between_rounds_it_leaves_no_process_and_a_readable_journal() {
    for delay in [0, 4, 9, 15] {
        let stage = Stage::new();
        let agent = stage.script("agent.sh", &format!("echo $$ >> pids; {}", hand_in(CONTINUE)));
        let mut terminal =
            Terminal::start_controlled(&stage, &["run", "do it", "--max-rounds", "1000", "--", &agent]);
        wait_until("some rounds", || (stage.text("pids").lines().count() > 3).then_some(()));
        std::thread::sleep(Duration::from_millis(delay));
        terminal.type_interrupt();
        terminal.end().with_status(14).with_out("The last accepted report:");
        for pid in stage.text("pids").lines() {
            assert!(!exists(format!("/proc/{pid}").as_ref()), "{pid} is there");
        }
        assert_eq!(stage.only_run()["outcome"], "cancelled");
    }
}

#[test]
fn during_teardown_it_is_waited_out() {
    let stage = Stage::new();
    // Hands in its report, and leaves somebody behind who has to be ended.
    let agent = stage.script(
        "agent.sh",
        &format!(
            "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! > straggler; {}; echo $$ > agent",
            hand_in(COMPLETE)
        ),
    );
    let mut terminal = Terminal::start_controlled(&stage, &["run", "do it", "--", &agent]);
    let straggler = stage.wait_for_pid("straggler");
    stage.wait_for("agent");
    terminal.type_interrupt();
    let said = terminal.end();
    assert!([0, 14].contains(&said.status), "{said:?}");
    assert!(!straggler.is_alive());
    assert_eq!(stage.only_run()["state"], "ended");
}

#[test]
fn twice_it_forces_the_end_and_leaves_nothing_alive() {
    let stage = Stage::new();
    let stubborn = HANGING.replacen("trap", "trap '' TERM; trap", 1);
    let agent = stage.script("agent.sh", &stubborn);
    let mut terminal = Terminal::start_controlled(&stage, &["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    terminal.type_interrupt();
    terminal.wait_for("Ctrl-C forces the end");
    let journal = || stage.only_run()["cancelReason"].is_string().then_some(());
    wait_until("the cancellation in the journal", journal);
    terminal.type_interrupt();
    terminal.end().with_status(14).with_out("forced to end");
    for process in left {
        process.wait_for_end();
    }
    let run = stage.runs().remove(0);
    stage.say(&["show", &run]).with_status(0).with_out("interrupted");
    fs::write(stage.path("agent.sh"), "#!/bin/sh\nexit 1\n").unwrap();
    stage.say(&["resume", &run]).with_status(14);
    assert_eq!(stage.only_run()["outcome"], "cancelled");
}
