//! What `runs`, `show` and `logs` tell.

use crate::stage::{COMPLETE, Stage, hand_in, json, three_rounds};

#[test]
fn without_any_run_the_demo_is_offered() {
    let stage = Stage::new();
    stage.say(&["runs"]).with_status(0).with_out("There are no runs yet").with_out(" demo");
    assert_eq!(stage.say(&["runs", "--json"]).with_status(0).out, "");
}

#[test]
fn a_run_is_listed_and_shown_round_by_round() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &three_rounds());
    stage.say(&["run", "修正する 😀 all of it", "--", &agent]).with_status(0);
    let run = stage.runs().remove(0);
    let table = stage.say(&["runs"]).with_status(0).with_out("complete").with_out("修正する").out;
    assert!(table.lines().next().unwrap().starts_with("run "), "{table}");
    assert!(table.contains(&run[..8]));

    let shown = stage.say(&["show", &run[..4]]).with_status(0);
    let shown = shown.with_out("round 1  continue").with_out("round 3  complete").with_out("- make: ok").out;
    assert!(shown.contains("attempt 1: completed in "), "{shown}");
    assert!(shown.contains("process "), "{shown}");

    let whole = stage.only_run();
    assert_eq!(whole["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(whole["rounds"][2]["report"], json(COMPLETE));
    assert_eq!(whole["rounds"][0]["attempts"][0]["end"]["stop_reason"], "completed");
    assert!(whole["rounds"][0]["attempts"][0]["pid"].is_u64());
    assert_eq!(whole["launch"]["max-rounds"], 20);
    assert_eq!(whole["launch"]["origins"]["max-rounds"], "default");
}

#[test]
fn logs_are_those_of_all_rounds_or_of_one() {
    let stage = Stage::new();
    let agent =
        stage.script("agent.sh", &format!("echo said in $HARNESS_CALL; printf 'no end'; {}", three_rounds()));
    stage.say(&["run", "do it", "--", &agent]).with_status(0);
    let run = stage.runs().remove(0);
    let all = stage.say(&["logs", &run]).with_status(0).out;
    let said: Vec<_> = all.lines().filter(|line| line.starts_with("said")).collect();
    assert_eq!(said, ["said in 1", "said in 2", "said in 3"]);
    assert_eq!(all.matches("no end\n").count(), 3, "{all}");
    let one = stage.say(&["logs", &run, "--round", "2"]).with_status(0).out;
    assert!(one.contains("said in 2") && !one.contains("said in 1"), "{one}");
    stage.say(&["logs", &run, "--round", "4"]).with_status(2).with_err("there is no round 4");
    // A run that has ended has nothing more to say.
    assert_eq!(stage.say(&["logs", &run, "--follow"]).with_status(0).out, all);
}

#[test]
fn logs_follow_a_run_to_its_end() {
    let stage = Stage::new();
    let agent = stage.script(
        "agent.sh",
        &format!(
            "echo before $HARNESS_CALL; echo > here-$HARNESS_CALL\n\
             while [ ! -e go-$HARNESS_CALL ]; do sleep 0.02; done; echo after $HARNESS_CALL; {}",
            three_rounds()
        ),
    );
    let runner = stage.start(&["run", "do it", "--", &agent]);
    stage.wait_for("here-1");
    let follower = stage.start(&["logs", &stage.runs()[0], "-f"]);
    for round in 1..=3 {
        stage.wait_for(&format!("here-{round}"));
        std::fs::write(stage.file(&format!("go-{round}")), "").unwrap();
    }
    runner.end().with_status(0);
    let followed = follower.end().with_status(0).out;
    let said: Vec<_> = followed.lines().filter(|line| !line.starts_with("round")).collect();
    assert_eq!(said, ["before 1", "after 1", "before 2", "after 2", "before 3", "after 3"]);
}

#[test]
fn the_state_directory_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    std::fs::create_dir_all(stage.state()).unwrap();
    std::fs::set_permissions(stage.state(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let agent = stage.script("agent.sh", &hand_in(COMPLETE));
    stage.say(&["run", "do it", "--", &agent]).with_status(0);
    assert_eq!(std::fs::metadata(stage.state()).unwrap().permissions().mode() & 0o777, 0o700);
}
