//! A runner that is killed loses nothing, and leaves nothing alive once its run is taken up again.

use rustix::process::Signal;

use crate::stage::{COMPLETE, CONTINUE, Process, Stage};

/// An agent that hangs in round 2 until `go` is there, with a child of its own in a session of its own.
fn hanging_agent(stage: &Stage) -> String {
    stage.script(
        "agent.sh",
        &format!(
            "cat > /dev/null; echo \"$HARNESS_CALL\" >> rounds\n\
             case $HARNESS_CALL in\n\
             1) printf '%s' '{CONTINUE}' > \"$HARNESS_VALUE_FILE\";;\n\
             2) if [ ! -e go ]; then\n\
                  setsid sleep 600 & echo $! > straggler; echo $$ > agent; wait\n\
                fi\n\
                printf '%s' '{CONTINUE}' > \"$HARNESS_VALUE_FILE\";;\n\
             *) printf '%s' '{COMPLETE}' > \"$HARNESS_VALUE_FILE\";;\n\
             esac"
        ),
    )
}

fn killed_in_round_two(stage: &Stage) -> [Process; 2] {
    let agent = hanging_agent(stage);
    let runner = stage.start(&["run", "do it", "--", &agent]);
    let left = [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")];
    runner.signal(Signal::KILL);
    assert_eq!(runner.end().status, -9);
    left
}

#[test]
fn a_killed_run_is_taken_up_and_ends_as_an_unbroken_one() {
    let stage = Stage::new();
    let left = killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    stage.say(&["runs"]).with_status(0).with_out("interrupted");
    stage
        .say(&["show", &run])
        .with_status(0)
        .with_out("not ended")
        .with_out(&format!("resume {}", &run[..8]));
    stage.say(&["continue", &run]).with_status(2).with_err("has not ended");

    std::fs::write(stage.file("go"), "").unwrap();
    stage.say(&["resume", &run[..8]]).with_status(0).with_out("after 3 rounds");
    for process in left {
        assert!(!process.is_alive(), "{process:?} of the killed runner is alive");
    }
    assert_eq!(stage.text("rounds"), "1\n2\n2\n3\n", "round 1 is not done again");
    let broken = stage.only_run();
    assert_eq!(broken["resumptions"], 1);
    assert_eq!(broken["attempts"], 4);

    let unbroken = Stage::new();
    std::fs::write(unbroken.file("go"), "").unwrap();
    let agent = hanging_agent(&unbroken);
    unbroken.say(&["run", "do it", "--", &agent]).with_status(0);
    let unbroken = unbroken.only_run();
    let reports = |run: &serde_json::Value| {
        let rounds = run["rounds"].as_array().unwrap();
        rounds.iter().map(|round| round["report"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(reports(&broken), reports(&unbroken));
    assert_eq!(broken["outcome"], unbroken["outcome"]);
}

#[test]
fn cancelling_an_interrupted_run_ends_what_is_left_of_it() {
    let stage = Stage::new();
    let left = killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    for _ in 0..2 {
        stage.say(&["cancel", &run]).with_status(0).with_out("was interrupted, and nothing of it is left");
    }
    for process in left {
        assert!(!process.is_alive(), "{process:?} of the killed runner is alive");
    }
}

#[test]
fn a_new_run_in_the_workspace_of_a_killed_one_ends_what_is_left_first() {
    let stage = Stage::new();
    let left = killed_in_round_two(&stage);
    std::fs::write(stage.file("go"), "").unwrap();
    let agent = hanging_agent(&stage);
    let said = stage.say(&["run", "again", "--", &agent]).with_status(0).with_err("was interrupted here");
    assert!(said.err.contains("resume"), "{}", said.err);
    for process in left {
        assert!(!process.is_alive(), "{process:?} of the killed runner is alive");
    }
}

#[test]
fn what_changed_since_the_start_is_told_and_does_not_count() {
    let stage = Stage::new();
    std::fs::write(stage.file("ralph-loop.toml"), "max-rounds = 7\nidle-limit = '5m'\n").unwrap();
    let agent = hanging_agent(&stage);
    let runner = stage.start(&["run", "do it", "--idle-limit", "10m", "--", &agent]);
    stage.wait_for_pid("straggler");
    runner.signal(Signal::KILL);
    runner.end();
    std::fs::write(stage.file("ralph-loop.toml"), "max-rounds = 2\nidle-limit = '1m'\n").unwrap();
    std::fs::write(stage.file("go"), "").unwrap();
    let said = stage.say(&["resume", &stage.runs()[0]]).with_status(0);
    assert!(said.err.contains("max-rounds is 2 now; the run keeps 7"), "{}", said.err);
    assert!(!said.err.contains("idle-limit"), "a flag's value is not compared: {}", said.err);
    assert!(said.out.contains("limits     7 rounds; 2h a round, 10m of silence"), "{}", said.out);
}

#[test]
fn what_became_of_the_workspace_since_the_round_began_is_told() {
    let stage = Stage::new();
    stage.git(&["init", "-q", "-b", "main"]);
    std::fs::write(stage.file("a"), "a").unwrap();
    stage.git(&["add", "a"]);
    stage.git(&["commit", "-q", "-m", "a"]);
    killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    let shown = stage.only_run();
    let starts: Vec<_> =
        (0..2).map(|round| shown["rounds"][round]["attempts"][0]["workspace"].clone()).collect();
    assert_eq!((&starts[0]["changed"], &starts[1]["changed"]), (&0.into(), &1.into()), "{shown}");
    assert_eq!((&starts[0]["branch"], &starts[1]["head"]), (&"main".into(), &starts[0]["head"]));
    stage.say(&["show", &run]).with_out(" on main, 1 file changed");

    stage.git(&["commit", "-q", "-a", "-m", "nothing", "--allow-empty"]);
    std::fs::write(stage.file("go"), "").unwrap();
    let said = stage.say(&["resume", &run]).with_status(0).with_err("since then: the workspace is at ");
    assert!(said.err.contains("when round 2 began"), "{}", said.err);
    assert!(said.err.contains("files are changed and not committed"), "{}", said.err);
}

#[test]
fn a_run_whose_start_is_not_recorded_or_whose_agent_is_gone_is_refused() {
    let stage = Stage::new();
    killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    let launch = stage.state().join(format!("launches/{run}.json"));
    let text = std::fs::read_to_string(&launch).unwrap();

    std::fs::write(&launch, text.replace("\"version\"", "\"edition\"")).unwrap();
    stage.say(&["resume", &run]).with_status(16).with_err("is not as it was written");
    std::fs::remove_file(&launch).unwrap();
    stage.say(&["resume", &run]).with_status(16).with_err("what run");
    stage.say(&["show", &run]).with_status(0).with_out("not ended");
    std::fs::write(&launch, text).unwrap();
    std::fs::remove_file(stage.path("agent.sh")).unwrap();
    stage.say(&["resume", &run]).with_status(16).with_err("does not exist");
    // Ends what the killed runner has left.
    stage.say(&["cancel", &run]).with_status(0);
}

#[test]
fn a_journal_that_was_changed_is_refused_and_hides_no_other_run() {
    let stage = Stage::new();
    killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    stage.say(&["cancel", &run]).with_status(0);
    let journal = stage.state().join(format!("runs/{run}/journal.jsonl"));
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replace("Went on.", "Was done")).unwrap();
    stage.say(&["runs"]).with_status(0).with_out("unreadable");
    stage.say(&["resume", &run]).with_status(16).with_err("is not as it was written");
    stage.say(&["show", &run]).with_status(16).with_err("is not as it was written");
}

#[test]
fn a_torn_last_line_is_no_reason_to_refuse() {
    let stage = Stage::new();
    killed_in_round_two(&stage);
    let run = stage.runs().remove(0);
    let journal = stage.state().join(format!("runs/{run}/journal.jsonl"));
    let mut text = std::fs::read_to_string(&journal).unwrap();
    text.push_str("{\"v\":1,\"seq\":9,\"ti");
    std::fs::write(&journal, text).unwrap();
    std::fs::write(stage.file("go"), "").unwrap();
    stage.say(&["resume", &run]).with_status(0).with_out("after 3 rounds");
}
