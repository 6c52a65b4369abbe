//! What people read, as it was read last. `RALPH_LOOP_UPDATE=1 cargo test` writes the files anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::stable::{self, Stable};
use crate::stage::{BLOCKED, COMPLETE, CONTINUE, Said, Stage, hand_in, three_rounds, wait_until};

/// A session: commands with all that they said.
struct Session {
    stage: Stage,
    stable: Stable,
    text: String,
}

impl Session {
    fn new() -> Self {
        let stage = Stage::of_fixed_length();
        Self { stable: Stable::new(&stage), stage, text: String::new() }
    }

    /// Runs a command and writes down what it said.
    fn say(&mut self, arguments: &[&str]) -> &mut Self {
        let said = self.stage.say(arguments);
        self.note(arguments, &said);
        self
    }

    fn note(&mut self, arguments: &[&str], said: &Said) {
        let words: Vec<_> = arguments
            .iter()
            .map(|word| match word.contains([' ', '\n']) || word.is_empty() {
                true => format!("'{word}'"),
                false => (*word).to_owned(),
            })
            .collect();
        // Any test that runs now may be the one that ends, and tells, what a killed runner has left.
        let told = said.err.lines().filter(|line| !line.starts_with("ended what a killed runner had left"));
        let err: String = told.map(|line| format!("{line}\n")).collect();
        let streams = [("", &said.out), ("--- standard error\n", &err)];
        let mut text = format!("$ ralph-loop {}\n", words.join(" "));
        for (name, stream) in streams.into_iter().filter(|(_, stream)| !stream.is_empty()) {
            write!(text, "{name}{}", with_sorted_keys(stream)).unwrap();
            if !stream.ends_with('\n') {
                text.push_str("(no end of line)\n");
            }
        }
        writeln!(text, "--- status {}\n", said.status).unwrap();
        self.text.push_str(&self.stable.text(&text));
    }

    #[track_caller]
    fn check(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
        stable::check(&folder.join(name), &self.text);
    }
}

/// Puts the keys of JSON into one order. Which one they come in depends on what else is in a build.
fn with_sorted_keys(text: &str) -> String {
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && text.lines().count() > 1
    {
        return format!("{:#}\n", sorted(value));
    }
    let line = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(value) if line.starts_with('{') => sorted(value).to_string(),
        _ => line.to_owned(),
    };
    let end = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + end
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// An agent in the workspace, declared as the only one.
fn declare(session: &Session, script: &str) {
    fs::write(session.stage.file("ralph-loop.toml"), "[agents.mine]\ncommand = [\"./agent.sh\"]\n").unwrap();
    agent(session, script);
}

fn agent(session: &Session, script: &str) {
    let path = session.stage.script("agent.sh", script);
    fs::rename(path, session.stage.file("agent.sh")).unwrap();
}

#[test]
fn endings() {
    let mut session = Session::new();
    declare(&session, &format!("echo working on it; {}", three_rounds()));
    session.say(&["run", "make the tests pass"]);
    agent(&session, &hand_in(BLOCKED));
    session.say(&["run", "make the tests pass"]);
    agent(&session, &hand_in(CONTINUE));
    session.say(&["run", "make the tests pass", "--max-rounds", "1"]);
    agent(&session, "echo 'no key' >&2; exit 3");
    session.say(&["run", "make the tests pass"]);
    agent(
        &session,
        &hand_in(r#"{"status":"complete","summary":"","evidence":[],"nextSteps":["x"],"blocker":""}"#),
    );
    session.say(&["run", "make the tests pass"]);
    agent(&session, "exec sleep 600");
    session.say(&["run", "make the tests pass", "--until", "2s"]);
    agent(&session, "exec sleep 600");
    session.say(&["run", "make the tests pass", "--idle-limit", "200ms"]);
    session.check("endings.txt");
}

#[test]
fn events() {
    let mut session = Session::new();
    declare(&session, &three_rounds());
    session.say(&["run", "make the tests pass", "--json"]);
    agent(&session, "exit 3");
    session.say(&["run", "make the tests pass", "--json"]);
    session.check("events.txt");
}

#[test]
fn inspection() {
    let mut session = Session::new();
    session.say(&["runs"]);
    let script = "if [ $HARNESS_CALL = 2 ]; then echo 'out of luck'; exit 1; fi; echo working";
    declare(&session, &format!("{script}; {}", hand_in(CONTINUE)));
    session.stage.say(&["run", "make the tests pass, 漢字 and all"]).with_status(12);
    let failed = session.stage.runs().remove(0);
    agent(&session, &format!("echo 'looking around'; {}", hand_in(COMPLETE)));
    session.say(&["continue", &failed[..8]]);
    let complete = session.stage.runs().remove(0);
    session.say(&["runs"]).say(&["runs", "--json"]);
    session.say(&["show", &complete]).say(&["show", &failed]).say(&["show", &failed, "--json"]);
    session.say(&["logs", &failed]).say(&["logs", &failed, "--round", "2"]);
    session.say(&["logs", &failed, "--round", "3"]);
    session.say(&["cancel", &failed]).say(&["resume", &failed]).say(&["resume", &complete]);
    session.say(&["continue", &complete]).say(&["show", "nothing"]);
    session.check("inspection.txt");
}

#[test]
fn interruption() {
    let mut session = Session::new();
    declare(
        &session,
        &format!(
            "if [ ! -e go ] && [ $HARNESS_CALL = 2 ]; then echo $$ > agent; exec sleep 600; fi; {}",
            three_rounds()
        ),
    );
    let runner = session.stage.start(&["run", "make the tests pass"]);
    let agent = session.stage.wait_for_pid("agent");
    let run = session.stage.runs().remove(0);
    session.say(&["runs"]).say(&["show", &run]).say(&["run", "me too"]).say(&["resume", &run]);
    runner.signal(rustix::process::Signal::KILL);
    runner.end();
    session.say(&["runs"]).say(&["show", &run]).say(&["continue", &run]).say(&["cancel", &run]);
    agent.wait_for_end();
    fs::write(session.stage.file("go"), "").unwrap();
    fs::write(
        session.stage.file("ralph-loop.toml"),
        "max-rounds = 3\n[agents.mine]\ncommand = [\"./agent.sh\", \"fast\"]\n",
    )
    .unwrap();
    session.say(&["resume", &run]);
    session.check("interruption.txt");
}

#[test]
fn cancellation() {
    let mut session = Session::new();
    declare(
        &session,
        &format!("if [ $HARNESS_CALL = 2 ]; then echo $$ > agent; exec sleep 600; fi; {}", hand_in(CONTINUE)),
    );
    let arguments = ["run", "make the tests pass"];
    let runner = session.stage.start(&arguments);
    session.stage.wait_for_pid("agent");
    let run = session.stage.runs().remove(0);
    session.say(&["cancel", &run[..8]]);
    let said = runner.end();
    session.note(&arguments, &said);
    session.say(&["cancel", &run[..8]]).say(&["show", &run]);
    session.check("cancellation.txt");
}

#[test]
fn forced_end() {
    let mut session = Session::new();
    declare(&session, "trap '' TERM; echo $$ > agent; while :; do sleep 0.05; done");
    let arguments = ["run", "make the tests pass"];
    let runner = session.stage.start(&arguments);
    session.stage.wait_for_pid("agent");
    runner.signal(rustix::process::Signal::INT);
    let journal = || session.stage.only_run()["cancelReason"].is_string().then_some(());
    wait_until("the cancellation in the journal", journal);
    runner.signal(rustix::process::Signal::INT);
    let said = runner.end();
    session.note(&arguments, &said);
    let run = session.stage.runs().remove(0);
    session.say(&["resume", &run]);
    session.check("forced-end.txt");
}

#[test]
fn settings() {
    let mut session = Session::new();
    session.say(&["config"]).say(&["doctor"]);
    declare(&session, "exit 0");
    fs::create_dir_all(session.stage.path(".config/ralph-loop")).unwrap();
    let theirs = "max-rounds = 7\nidle-limit = '90s'\n[agents.other]\ncommand = ['sh', '-c', 'exit 1']\npass-env = ['TOKEN']\noutput = 'stdout'\n";
    fs::write(session.stage.path(".config/ralph-loop/config.toml"), theirs).unwrap();
    session.say(&["config"]).say(&["config", "--json"]).say(&["doctor"]).say(&["doctor", "--json"]);
    session.say(&["run", "x"]).say(&["run", "x", "--agent", "mone"]);
    fs::write(session.stage.file("ralph-loop.toml"), "max-round = 3\n").unwrap();
    session.say(&["config"]).say(&["doctor"]).say(&["run", "x"]);
    session.check("settings.txt");
}

#[test]
fn reports() {
    let mut session = Session::new();
    fs::write(session.stage.file("good.json"), COMPLETE).unwrap();
    fs::write(
        session.stage.file("bad.json"),
        r#"{"status":"done","summary":"","evidence":"x","nextSteps":[1]}"#,
    )
    .unwrap();
    fs::write(session.stage.file("all.ndjson"), format!("{CONTINUE}\n\n{{\"status\"\n{BLOCKED}\n")).unwrap();
    session.say(&["validate", "good.json", "bad.json"]).say(&["validate", "bad.json", "--json"]);
    session.say(&["validate", "all.ndjson"]).say(&["validate", "all.ndjson", "--json"]);
    session.say(&["validate", "good.json", "--max-chars", "10"]).say(&["validate", "missing.json"]);
    session.say(&["schema"]).say(&["schema", "child"]);
    session.check("reports.txt");
}

#[test]
fn bad_usage() {
    let mut session = Session::new();
    for arguments in [
        [].as_slice(),
        &["rnu"],
        &["run"],
        &["run", "x"],
        &["run", ""],
        &["run", "x", "--max-round", "3", "--", "true"],
        &["run", "x", "--max-rounds", "0", "--", "true"],
        &["run", "x", "--round-limit", "1ns", "--", "true"],
        &["run", "x", "--idle-limit", "soon", "--", "true"],
        &["run", "x", "--until", "25:00", "--", "true"],
        &["run", "x", "--objective-file", "y", "--", "true"],
        &["run", "--objective-file", "missing.md", "--", "true"],
        &["run", "x", "--workspace", "missing", "--", "true"],
        &["run", "x", "--agent", "mine"],
        &["run", "x", "--agent", "mine", "--", "true"],
        &["run", "x", "--output", "smoke", "--", "true"],
        &["run", "x", "--output", "stdout"],
        &["run", "x", "--pass-env", "A=b", "--", "true"],
        &["run", "x", "--", "no-such-program-anywhere"],
        &["run", "x", "--", "./missing.sh"],
        &["show"],
        &["show", "abcd"],
        &["logs", "abcd", "--round", "0"],
        &["completions", "tcsh"],
        &["demo-agent"],
    ] {
        session.say(arguments);
    }
    let inside = session.stage.command(&["run", "x", "--", "true"]).env("HARNESS_DEPTH", "1").output();
    session.note(&["run", "x", "--", "true"], &Said::of(inside.unwrap()));
    session.check("bad-usage.txt");
}
