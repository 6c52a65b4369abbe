//! Bad input is refused with status 2, says what would be right, and leaves nothing behind.

use std::fs;

use crate::stage::{COMPLETE, Said, Stage, exists, hand_in};

#[track_caller]
fn check(arguments: &[&str], told: &str) {
    let stage = Stage::new();
    let said = stage.say(arguments).with_status(2).with_err(told);
    assert_eq!(said.out, "", "nothing is on standard output");
    assert!(!exists(&stage.state().join("runs")) || stage.runs().is_empty());
}

#[test]
fn unknown_commands_and_options_are_refused_with_a_suggestion() {
    check(&[], "Usage");
    check(&["rnu"], "run");
    check(&["run", "x", "--max-round", "3", "--", "true"], "--max-rounds");
    check(&["run", "x", "--agent"], "a value is required");
    check(&["completions", "tcsh2"], "possible values");
}

#[test]
fn numbers_out_of_range_name_the_range() {
    for number in ["0", "1001", "-1", "1.5", "many", "99999999999999999999"] {
        check(&["run", "x", &format!("--max-rounds={number}"), "--", "true"], "from 1 to 1000");
    }
    check(&["run", "x", "--round-limit", "1ms", "--", "true"], "from 100ms to 720h");
    check(&["run", "x", "--round-limit", "721h", "--", "true"], "from 100ms to 720h");
    check(&["run", "x", "--idle-limit", "0s", "--", "true"], "longer than zero");
    check(&["run", "x", "--idle-limit", "soon", "--", "true"], "such as 90s");
    check(&["run", "x", "--until", "25:00", "--", "true"], "a time of day such as 07:00");
    check(&["run", "x", "--until=-1h", "--", "true"], "a time of day such as 07:00");
    check(&["logs", "x", "--round", "0"], "give a whole number from 1");
    check(&["validate", "--max-chars", "0"], "give a whole number from 1");
}

#[test]
fn an_objective_is_one_text_that_says_something() {
    check(&["run", "--", "true"], "<OBJECTIVE>");
    check(&["run", "", "--", "true"], "the objective is empty");
    check(&["run", " \n\u{feff}", "--", "true"], "the objective is empty");
    check(&["run", "x", "--objective-file", "y", "--", "true"], "cannot be used with");
    check(&["run", "--objective-file", "missing.md", "--", "true"], "missing.md");
    check(&["run", "--objective-file", "-", "--", "true"], "the objective is empty");
    check(&["run", "--objective-file", ".", "--", "true"], "cannot read the objective");
}

#[test]
fn an_objective_that_is_not_utf8_is_refused() {
    let stage = Stage::new();
    fs::write(stage.file("objective"), b"\xff\xfe").unwrap();
    stage
        .say(&["run", "--objective-file", "objective", "--", "true"])
        .with_status(2)
        .with_err("is not UTF-8");
}

#[test]
fn a_workspace_is_a_directory_that_is_there() {
    check(&["run", "x", "--workspace", "missing", "--", "true"], "cannot be found");
    check(&["run", "x", "--workspace", "/dev/null", "--", "true"], "is no directory");
}

#[test]
fn an_agent_is_given_once() {
    check(&["run", "x", "--agent", "mine"], "no agent is named \"mine\"");
    check(&["run", "x", "--agent", "command"], "give one, as in");
    check(&["run", "x", "--agent", "mine", "--", "true"], "give one of them");
    check(&["run", "x", "--output", "stdout"], "belong to a program behind");
    check(&["run", "x", "--pass-env", "A=b", "--", "true"], "without its value");
    check(&["run", "x", "--output", "smoke", "--", "true"], "possible values");
}

#[test]
fn runs_are_named_exactly_enough() {
    for command in ["show", "logs", "resume", "continue", "cancel"] {
        check(&[command, "abcd"], "no run is named \"abcd\"");
        check(&[command, ""], "no run is named");
        check(&[command, "../locks"], "no run is named");
    }
}

#[test]
fn a_run_is_refused_inside_an_agent_with_the_reason() {
    let stage = Stage::new();
    for arguments in [["run", "x"].as_slice(), &["demo"], &["resume", "x"], &["continue", "x"]] {
        let output = stage.command(arguments).env("HARNESS_DEPTH", "1").output().unwrap();
        Said::of(output).with_status(2).with_err("a loop inside a loop is refused");
    }
}

#[test]
fn an_agent_that_starts_a_loop_is_refused_and_can_go_on() {
    let stage = Stage::new();
    let ours = env!("CARGO_BIN_EXE_ralph-loop");
    let body = format!("{ours} run nested -- true 2> refused; echo $? > status; {}", hand_in(COMPLETE));
    let agent = stage.script("agent.sh", &body);
    stage.say(&["run", "x", "--", &agent]).with_status(0);
    assert_eq!(stage.text("status"), "2\n");
    assert!(stage.text("refused").contains("HARNESS_DEPTH=1"), "{}", stage.text("refused"));
}
