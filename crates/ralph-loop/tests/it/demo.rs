//! The first thing that a newcomer types.

use crate::stage::{Stage, exists};

#[test]
fn the_demo_shows_the_real_thing_from_start_to_end() {
    let stage = Stage::new();
    let said = stage.say(&["demo"]).with_status(0);
    let said = said.with_out("round 3").with_out("reported the objective complete after 3 rounds");
    assert_eq!(said.err, "");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80 || line.contains('/')), "{}", said.out);

    // Everything is on disk.
    let run = stage.only_run();
    let id = run["run"].as_str().unwrap();
    for file in [format!("runs/{id}/journal.jsonl"), format!("calls/{id}/2-1/transcript.log")] {
        assert!(exists(&stage.state().join(&file)), "{file}");
    }
    let workspace = std::path::Path::new(run["workspace"].as_str().unwrap());
    assert!(exists(&workspace.join(".git")) && exists(&workspace.join("NOTES.md")));

    // The command at the end can be typed as it stands.
    let next = said.out.lines().last().unwrap().strip_prefix("next: ").unwrap();
    let mut words = next.split(' ');
    assert_eq!(words.next(), Some(env!("CARGO_BIN_EXE_ralph-loop")));
    let words: Vec<_> = words.collect();
    stage.say(&words).with_status(0).with_out("round 3  complete");
}

#[test]
fn the_agent_of_the_demo_says_what_it_is_when_it_is_run_alone() {
    let stage = Stage::new();
    stage.say(&["demo-agent"]).with_status(2).with_err("ralph-loop demo");
    assert!(!exists(&stage.file("NOTES.md")), "it has left the directory alone");
}
