//! One loop in a workspace at a time, and `cancel` from another terminal.

use crate::stage::{COMPLETE, Stage, hand_in};

const HANGING: &str =
    "cat > /dev/null; setsid sleep 600 & echo $! > straggler; echo $$ > agent; exec sleep 600";

#[test]
fn a_second_run_in_the_workspace_is_refused_and_cancel_ends_the_first() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", HANGING);
    let quick = stage.script("quick.sh", &hand_in(COMPLETE));
    let first = stage.start(&["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    let run = stage.runs().remove(0);

    let refused = stage.say(&["run", "me too", "--", &quick]).with_status(16).with_err(&run);
    assert!(refused.err.contains("--allow-shared-workspace"), "{}", refused.err);
    stage.say(&["run", "me too", "--allow-shared-workspace", "--", &quick]).with_status(0);
    stage.say(&["resume", &run]).with_status(2).with_err("is under way");
    stage.say(&["runs"]).with_status(0).with_out("running");

    stage.say(&["cancel", &run]).with_status(0).with_out("is cancelled, and nothing of it is left");
    for process in left {
        assert!(!process.is_alive(), "{process:?}");
    }
    stage.say(&["cancel", &run]).with_status(0).with_out("has ended already (cancelled)");
    first.end().with_status(14).with_out("asked to stop by SIGTERM");
    stage.say(&["run", "me too", "--", &quick]).with_status(0);
}

#[test]
fn cancelling_twice_at_once_does_not_force_the_end() {
    let stage = Stage::new();
    // Takes a second to clean up, and says that it did.
    let agent = stage.script(
        "agent.sh",
        "cat > /dev/null; trap 'sleep 1; echo yes > cleaned; exit 1' TERM; echo $$ > agent; while :; do sleep 0.05; done",
    );
    let first = stage.start(&["run", "do it", "--", &agent]);
    let process = stage.wait_for_pid("agent");
    let run = stage.runs().remove(0);
    let (one, two) = (stage.start(&["cancel", &run]), stage.start(&["cancel", &run]));
    one.end().with_status(0).with_out("nothing of it is left");
    two.end().with_status(0);
    first.end().with_status(14);
    assert!(!process.is_alive());
    assert_eq!(stage.text("cleaned"), "yes\n");
}

#[test]
fn those_who_share_a_workspace_keep_others_out_of_it() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", HANGING);
    let quick = stage.script("quick.sh", &hand_in(COMPLETE));
    let first = stage.start(&["run", "do it", "--allow-shared-workspace", "--", &agent]);
    stage.wait_for_pid("agent");
    stage.say(&["run", "alone", "--", &quick]).with_status(16);
    stage.say(&["run", "together", "--allow-shared-workspace", "--", &quick]).with_status(0);
    first.signal(rustix::process::Signal::TERM);
    first.end().with_status(14);
}
