//! Every way a run can end has an exit status of its own.

use std::fs;

use crate::stage::{BLOCKED, COMPLETE, CONTINUE, Said, Stage, hand_in, three_rounds};

#[track_caller]
fn check(script: &str, arguments: &[&str], status: i32, told: &str) -> Stage {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", script);
    let mut all = vec!["run", "do it"];
    all.extend(arguments);
    all.extend(["--", &agent]);
    stage.say(&all).with_status(status).with_out(told);
    stage
}

fn outcome(stage: &Stage) -> String {
    stage.only_run()["outcome"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_that_fails_ends_with_12() {
    let stage = check("exit 3", &[], 12, "Round 1 failed");
    assert_eq!(outcome(&stage), "round-failed");
    check("cat > /dev/null", &[], 12, "no-value");
    check("kill -9 $$", &[], 12, "crashed");
}

#[test]
fn an_agent_that_says_nothing_or_takes_too_long_ends_with_12() {
    check("sleep 600", &["--idle-limit", "200ms"], 12, "timed-out");
    check("while :; do echo on; sleep 0.05; done", &["--round-limit", "500ms"], 12, "timed-out");
}

#[test]
fn an_invalid_report_ends_with_13_and_names_every_violation() {
    let report = r#"{"status":"complete","summary":"","evidence":[],"nextSteps":["x"],"blocker":""}"#;
    let stage = check(&hand_in(report), &[], 13, "summary");
    assert_eq!(outcome(&stage), "invalid-report");
    stage.say(&["show", &stage.runs()[0]]).with_status(0).with_out("an invalid report");
}

#[test]
fn a_value_that_is_no_json_ends_with_12() {
    check(&hand_in("not json"), &[], 12, "unreadable-value");
}

#[test]
fn a_blocker_ends_with_10() {
    let stage = check(&hand_in(BLOCKED), &[], 10, "No key.");
    assert_eq!(outcome(&stage), "blocked");
}

#[test]
fn the_round_limit_ends_with_11() {
    let stage = check(&hand_in(CONTINUE), &["--max-rounds", "2"], 11, "The limit of 2 rounds was reached");
    assert_eq!(outcome(&stage), "budget-limited");
}

#[test]
fn a_complete_objective_ends_with_0() {
    let stage = check(&three_rounds(), &[], 0, "reported the objective complete");
    assert_eq!(stage.text("rounds"), "1\n2\n3\n");
    assert_eq!(outcome(&stage), "complete");
}

#[test]
fn time_that_is_up_ends_with_15_and_the_journal_says_so() {
    let stage = check("exec sleep 600", &["--until", "300ms"], 15, "the time given by --until is up");
    let run = stage.only_run();
    assert_eq!(run["outcome"], "deadline");
    assert_eq!(run["cancelReason"], "the time given by --until is up");
}

#[test]
fn a_program_that_is_missing_ends_with_16_before_there_is_a_run() {
    let stage = Stage::new();
    let check = |program: &str, told: &str| {
        stage.say(&["run", "do it", "--", program]).with_status(16).with_err(told);
    };
    check("no-such-program-anywhere", "is in none of the absolute entries of PATH");
    check("./missing.sh", "does not exist");
    check("/", "is a directory");
    let path = stage.path("plain");
    fs::write(&path, "text").unwrap();
    check(path.to_str().unwrap(), "may not be executed");
    assert!(stage.runs().is_empty());
}

#[test]
fn a_state_directory_that_cannot_be_made_ends_with_16() {
    let stage = Stage::new();
    fs::create_dir(stage.path(".local")).unwrap();
    fs::write(stage.path(".local/state"), "a file").unwrap();
    stage.say(&["runs"]).with_status(16).with_err("cannot make the state directory");
    let homeless = stage.command(&["runs"]).env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
    Said::of(homeless).with_status(16).with_err("set one of them");
}

#[test]
fn an_agent_that_cannot_be_started_any_more_ends_with_17() {
    let script = format!("{}; rm \"$0\"", hand_in(CONTINUE));
    let stage = check(&script, &[], 17, "does not exist, check its path");
    assert_eq!(stage.only_run()["roundsStarted"], 2);
    stage.say(&["show", &stage.runs()[0]]).with_status(0).with_out("Went on.");
}

#[test]
fn an_agent_hands_in_by_standard_output_and_reads_a_file_if_asked() {
    let script = format!("cat \"$HARNESS_PROMPT_FILE\" > prompt; printf '%s' '{COMPLETE}'");
    let stage = check(&script, &["--output", "stdout", "--prompt", "file"], 0, "Done.");
    assert!(stage.text("prompt").contains("do it"));
}

#[test]
fn a_run_is_continued_from_its_last_report_with_new_limits() {
    let stage = Stage::new();
    let agent =
        stage.script("agent.sh", &format!("cat > prompt-$HARNESS_RUN-$HARNESS_CALL; {}", hand_in(CONTINUE)));
    stage.say(&["run", "do it", "--max-rounds", "1", "--", &agent]).with_status(11);
    let first = stage.runs().remove(0);

    stage.say(&["continue", &first, "--max-rounds", "2"]).with_status(11).with_out("The limit of 2 rounds");
    let second = stage.runs().remove(0);
    assert_ne!(first, second);
    assert!(stage.text(&format!("prompt-{second}-1")).contains("Went on."));
    stage.say(&["show", &second]).with_out(&format!("from run {first}"));

    // A run that ended before any report of its own was accepted goes on from what it was given.
    stage.script("agent.sh", "exit 1");
    stage.say(&["continue", &second]).with_status(12);
    let third = stage.runs().remove(0);
    stage.script("agent.sh", &three_rounds());
    stage.say(&["continue", &third, "--max-rounds", "3"]).with_status(0);
    let fourth = stage.runs().remove(0);
    stage.say(&["continue", &fourth]).with_status(2).with_err("ended complete");
    stage.say(&["resume", &fourth]).with_status(2).with_err("is not run again");
}

#[test]
fn a_run_without_any_report_is_not_continued() {
    let stage = check("exit 1", &[], 12, "Round 1 failed");
    stage.say(&["continue", &stage.runs()[0]]).with_status(2).with_err("nothing to go on from");
}
