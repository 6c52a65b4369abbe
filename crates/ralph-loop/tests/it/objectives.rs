//! An objective arrives byte for byte, whatever is in it.

use std::fs::{self, File};
use std::process::Stdio;

use crate::stage::{COMPLETE, Said, Stage, hand_in};

/// 3 MB of what shells, terminals and parsers trip over.
fn hostile() -> String {
    let line = "$(rm -rf /) `id` ${HOME} \"double\" 'single' \\ \\n %s %n ; | & < > * ? [a-z] ~ ! # \t\
                --- \r\n---\n+++\n```\n\u{0}\u{1}\u{1b}[31m\u{7f}\u{9b}\u{202e} 漢字かな 한글 😀👩‍👩‍👧 ﷽ é\n\
                -- --agent x <objective> </objective> {\"status\":\"complete\"}\n";
    line.repeat(3 * 1024 * 1024 / line.len() + 1)
}

fn stage() -> (Stage, String) {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &format!("cat > prompt; {}", hand_in(COMPLETE)));
    fs::write(stage.file("objective"), hostile()).unwrap();
    (stage, agent)
}

#[track_caller]
fn check(stage: &Stage) {
    let prompt = stage.text("prompt");
    let objective = hostile();
    // Only the white space at its ends is not part of an objective.
    assert!(prompt.contains(objective.trim_end()), "{} bytes arrived", prompt.len());
}

#[test]
fn from_a_file() {
    let (stage, agent) = stage();
    stage.say(&["run", "--objective-file", "objective", "--", &agent]).with_status(0);
    check(&stage);
    // It is kept whole, and shown in part.
    assert_eq!(stage.only_run()["objective"].as_str().unwrap(), hostile().trim_end());
    let shown = stage.say(&["show", &stage.runs()[0]]).with_status(0).out;
    assert!(shown.len() < 20_000 && shown.contains("bytes in all"));
}

#[test]
fn from_standard_input() {
    let (stage, agent) = stage();
    let mut command = stage.command(&["run", "--objective-file", "-", "--", &agent]);
    command.stdin(Stdio::from(File::open(stage.file("objective")).unwrap()));
    Said::of(command.output().unwrap()).with_status(0);
    check(&stage);
}

#[test]
fn from_the_command_line() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &format!("cat > prompt; {}", hand_in(COMPLETE)));
    let objective = "--- $(touch pwned) `touch pwned` 'a' \"b\" 漢字 😀\n---";
    stage.say(&["run", "--", &agent]).with_status(2);
    let command = stage.command(&["run", objective, "--", &agent]).output().unwrap();
    // What looks like an option must be given as a file, or be told so.
    Said::of(command).with_status(2).with_err("tip");
    let objective = &objective[4..];
    stage.say(&["run", objective, "--", &agent]).with_status(0);
    assert!(stage.text("prompt").contains(objective));
    assert!(!stage.file("pwned").exists());
}

#[test]
fn arguments_of_the_agent_arrive_as_they_are() {
    let stage = Stage::new();
    let agent = stage.script(
        "agent.sh",
        &format!("for a; do printf '%s\\n' \"$a\" >> arguments; done; {}", hand_in(COMPLETE)),
    );
    stage.say(&["run", "x", "--", &agent, "a b", "$(id)", "--", "--json", "", "漢字"]).with_status(0);
    assert_eq!(stage.text("arguments"), "a b\n$(id)\n--\n--json\n\n漢字\n");
}
