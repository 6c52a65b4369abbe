//! What stands on a terminal while a run goes on.

use crate::pty::Terminal;
use crate::stage::{Stage, three_rounds};

/// Runs our program with a terminal on all its streams, and returns what it wrote there.
fn on_a_terminal(stage: &Stage, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    Terminal::start(stage, arguments, variables).end().with_status(0).out
}

fn stage() -> (Stage, String) {
    let stage = Stage::new();
    // Says something that a terminal would obey, and gives the live line time to show it.
    let agent = stage.script(
        "agent.sh",
        &format!("printf 'working \\033[2J\\033]0;x\\007 hard\\n'; sleep 0.4; {}", three_rounds()),
    );
    (stage, agent)
}

#[test]
fn a_live_line_tells_of_the_round_and_each_round_settles_on_a_line() {
    let (stage, agent) = stage();
    let seen = on_a_terminal(&stage, &["run", "do it", "--", &agent], &[]);
    assert!(seen.starts_with("\u{1b}[1mrun"), "nothing is drawn before the first round: {seen:?}");
    assert!(seen.contains("round 2 of 20"), "{seen:?}");
    assert!(seen.contains("working ␛[2J␛]0;x␇ hard"), "{seen:?}");
    assert!(seen.contains("\u{1b}[33mcontinue\u{1b}[0m"), "{seen:?}");
    assert!(!seen.contains("\u{1b}]0;") && !seen.contains("\u{1b}[2J"), "{seen:?}");
    assert!(seen.contains("Nobody verified it."), "{seen:?}");
}

#[test]
fn colours_stay_away_if_asked() {
    let (stage, agent) = stage();
    let seen = on_a_terminal(&stage, &["run", "do it", "--", &agent], &[("NO_COLOR", "1")]);
    assert!(!seen.contains("\u{1b}[33m") && !seen.contains("\u{1b}[1m"), "{seen:?}");
    assert!(seen.contains("round 2 of 20"));
}

#[test]
fn a_terminal_that_cannot_clear_a_line_gets_a_line_for_each_start() {
    let (stage, agent) = stage();
    let seen = on_a_terminal(&stage, &["run", "do it", "--", &agent], &[("TERM", "dumb")]);
    assert!(seen.contains("round 1 of 20 started"), "{seen:?}");
    assert!(!seen.contains("\u{1b}[2K"), "{seen:?}");
}

#[test]
fn json_brings_no_live_line() {
    let (stage, agent) = stage();
    let seen = on_a_terminal(&stage, &["run", "do it", "--json", "--", &agent], &[]);
    assert!(seen.lines().all(|line| line.starts_with('{')), "{seen:?}");
}
