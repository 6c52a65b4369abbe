//! What is on standard output, and what never is.

use std::io::Read;
use std::process::Stdio;

use crate::stage::{Said, Stage, json};

/// Says and reports everything that a terminal would obey.
fn hostile_agent(stage: &Stage) -> String {
    let report = r#"{"status":"%s","summary":"red \\u001b[31m bell \\u0007 csi \\u009b2J rtl \\u202e end","evidence":["\\u001b]0;title\\u0007"],"nextSteps":[%s],"blocker":""}"#;
    stage.script(
        "agent.sh",
        &format!(
            "cat > /dev/null; printf 'loud \\033[2J\\033]0;title\\007 \\302\\2332J\\r\\n\\377\\376\\n'\n\
             if [ $HARNESS_CALL = 1 ]; then set -- continue '\"\\u001b[1mgo on\"'; else set -- complete ''; fi\n\
             printf '{report}' \"$1\" \"$2\" > \"$HARNESS_VALUE_FILE\""
        ),
    )
}

#[track_caller]
fn check_harmless(text: &str) {
    let bad = text.chars().find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || *c == '\u{202e}');
    assert_eq!(bad, None, "{text}");
}

#[test]
fn controls_of_agents_never_reach_the_terminal() {
    let stage = Stage::new();
    let agent = hostile_agent(&stage);
    let objective = "obey \u{1b}[31m \u{9b}2J \u{202e} this";
    let said = stage.say(&["run", objective, "--", &agent]).with_status(0).with_out("␛[31m");
    check_harmless(&said.out);
    check_harmless(&said.err);
    let run = stage.runs().remove(0);
    let commands = [
        ["runs"].as_slice(),
        &["runs", "--json"],
        &["show", &run],
        &["show", &run, "--json"],
        &["logs", &run],
    ];
    for arguments in commands {
        let said = stage.say(arguments).with_status(0);
        check_harmless(&said.out);
        check_harmless(&said.err);
    }
    // They are there, if one asks for the data.
    let summary = "red \u{1b}[31m bell \u{7} csi \u{9b}2J rtl \u{202e} end";
    assert_eq!(stage.only_run()["rounds"][0]["report"]["summary"], summary);
}

#[test]
fn with_json_every_line_of_standard_output_is_an_object() {
    let stage = Stage::new();
    let agent = hostile_agent(&stage);
    let said = stage.say(&["run", "do it", "--json", "--", &agent]).with_status(0);
    check_harmless(&said.out);
    let events: Vec<_> = said.out.lines().map(json).collect();
    assert!(events.iter().all(serde_json::Value::is_object));
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[names.len() - 2], names[names.len() - 1]), ("started", "ended", "outcome"));
    assert_eq!(events.last().unwrap()["result"]["result"]["status"], "complete");
    assert_eq!(said.err, "");

    let failed = stage.script("failed.sh", "exit 1");
    let said = stage.say(&["run", "do it", "--json", "--", &failed]).with_status(12);
    let last = json(said.out.lines().last().unwrap());
    assert_eq!(
        (last["exitStatus"].as_u64(), last["error"]["code"].as_str()),
        (Some(12), Some("round-failed"))
    );
    for arguments in [["config", "--json"].as_slice(), &["doctor", "--json"], &["runs", "--json"]] {
        let said = stage.say(arguments);
        assert!(said.out.lines().map(json).all(|line| line.is_object()), "{}", said.out);
    }
    assert_eq!(stage.say(&["run", "", "--json", "--", &failed]).with_status(2).out, "");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &crate::stage::three_rounds());
    // A run goes on without its reader.
    let mut child =
        stage.command(&["run", "do it", "--json", "--", &agent]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(stage.only_run()["outcome"], "complete");
    for arguments in [["schema"].as_slice(), &["runs"], &["completions", "bash"], &["logs", &stage.runs()[0]]]
    {
        let mut child =
            stage.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = Said::of(child.wait_with_output().unwrap()).with_status(0);
        assert_eq!(said.err, "");
    }
}

#[test]
fn standard_output_has_the_whole_story_in_order() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &crate::stage::three_rounds());
    let mut child = stage.command(&["run", "do it", "--", &agent]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    let places =
        ["run  ", "round 1 of 20 started", "round 1 ", "round 3 of 20", "A worker reported", "next: "]
            .map(|part| out.find(part).unwrap_or_else(|| panic!("no {part:?} in {out}")));
    assert!(places.is_sorted(), "{out}");
}
