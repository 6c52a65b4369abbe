//! What every command says of itself. `RALPH_LOOP_UPDATE=1 cargo test` writes the file anew.

use std::path::Path;

use crate::stable;
use crate::stage::Stage;

const COMMANDS: &[&str] = &[
    "run",
    "demo",
    "runs",
    "show",
    "logs",
    "resume",
    "continue",
    "cancel",
    "attach",
    "worker",
    "config",
    "doctor",
    "validate",
    "schema",
    "completions",
];

#[test]
fn the_help_is_as_it_was_read_last() {
    let stage = Stage::new();
    let mut all = stage.say(&["--help"]).with_status(0).out;
    for command in COMMANDS {
        all.push_str(&format!(
            "\n==== {command} ====\n\n{}",
            stage.say(&[command, "--help"]).with_status(0).out
        ));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots/help.txt");
    stable::check(Path::new(path), &all);
}

#[test]
fn every_command_has_an_example_or_a_sentence() {
    let stage = Stage::new();
    let help = stage.say(&["--help"]).with_status(0).out;
    for command in COMMANDS {
        assert!(help.contains(&format!("  {command} ")), "{command} is not listed");
    }
    for status in ["0 ", "2 ", "10", "11", "12", "13", "14", "15", "16", "17"] {
        assert!(help.contains(&format!("  {status} ")), "exit status {status} is not listed");
    }
    stage.say(&["--version"]).with_status(0).with_out(env!("CARGO_PKG_VERSION"));
}

#[test]
fn completions_are_there_for_the_usual_shells() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        stage.say(&["completions", shell]).with_status(0).with_out("ralph-loop");
    }
}
