//! The server by which an agent hands in its report, as agents start it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::{COMPLETE, CONTINUE, Said, Stage, json as read};

const TOOL: &str = "submit_report";
/// The schema admits it, the rule does not.
const RULE_BREAKING: &str =
    r#"{"status":"continue","summary":"Went on.","evidence":[],"nextSteps":[],"blocker":""}"#;

/// An attempt's own directory, as a provider makes it.
struct Attempt {
    stage: Stage,
}

impl Attempt {
    fn new() -> Self {
        let stage = Stage::new();
        let schema = stage.say(&["schema", "child"]).with_status(0).out;
        fs::write(stage.path("schema.json"), schema).unwrap();
        let rule = json!({ "name": "ralph-report", "parameters": { "maxHandoffChars": 16384 } });
        fs::write(stage.path("rule.json"), rule.to_string()).unwrap();
        Self { stage }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.path(name)
    }

    fn command(&self) -> Command {
        let mut command = self.stage.command(&["capture"]);
        command
            .env("HARNESS_VALUE_FILE", self.path("value.json"))
            .env("HARNESS_REFUSED_FILE", self.path("refused.json"))
            .env("HARNESS_SCHEMA_FILE", self.path("schema.json"))
            .env("HARNESS_RULE_FILE", self.path("rule.json"))
            .env("HARNESS_RUN", "a-run")
            .env("HARNESS_CALL", "1")
            .env("HARNESS_ATTEMPT", "1")
            .env("HARNESS_TOOL", TOOL);
        command
    }

    fn server(&self) -> Client {
        Client::of(self.command())
    }

    fn value(&self) -> Option<Value> {
        fs::read_to_string(self.path("value.json")).ok().map(|text| read(&text))
    }

    fn refused(&self) -> Option<Value> {
        fs::read_to_string(self.path("refused.json")).ok().map(|text| read(&text))
    }

    /// What the server says that this environment is bad for.
    #[track_caller]
    fn refuses(&self, change: impl FnOnce(&mut Command), told: &str) {
        let mut command = self.command();
        change(&mut command);
        let said = Said::of(command.output().unwrap()).with_status(16).with_err(told);
        assert_eq!(said.out, "", "standard output is for the protocol");
    }
}

/// Hands in a report.
#[track_caller]
fn hand_in(server: &mut Client, report: &Value) -> Value {
    server.call(TOOL, report)
}

#[track_caller]
fn told(answer: &Value, is_error: bool, part: &str) {
    assert_eq!(answer["isError"], is_error, "{answer}");
    assert!(answer["content"][0]["text"].as_str().unwrap().contains(part), "{answer}");
}

#[test]
fn a_report_is_corrected_in_the_same_session_and_kept() {
    let attempt = Attempt::new();
    let mut server = attempt.server();
    let tools = server.ask("tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], TOOL);
    assert_eq!(
        tools["result"]["tools"][0]["inputSchema"],
        read(&fs::read_to_string(attempt.path("schema.json")).unwrap())
    );
    told(&hand_in(&mut server, &read(RULE_BREAKING)), true, "/nextSteps");
    assert_eq!(attempt.refused(), Some(read(RULE_BREAKING)));
    told(&hand_in(&mut server, &read(COMPLETE)), false, "accepted");
    told(&hand_in(&mut server, &read(CONTINUE)), true, "not taken");
    assert_eq!(attempt.value(), Some(read(COMPLETE)));
    let said = server.end().with_status(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
}

#[test]
fn without_a_rule_file_the_schema_alone_decides() {
    let attempt = Attempt::new();
    let mut command = attempt.command();
    command.env_remove("HARNESS_RULE_FILE");
    let mut server = Client::of(command);
    told(&hand_in(&mut server, &read(RULE_BREAKING)), false, "accepted");
    server.end().with_status(0);
}

#[test]
fn corrections_are_as_many_as_the_environment_says() {
    let attempt = Attempt::new();
    let mut command = attempt.command();
    command.env("HARNESS_CORRECTIONS", "0");
    let mut server = Client::of(command);
    told(&hand_in(&mut server, &read(RULE_BREAKING)), true, "This is final");
    told(&hand_in(&mut server, &read(COMPLETE)), true, "not looked at");
    assert_eq!((attempt.value(), attempt.refused()), (None, Some(read(RULE_BREAKING))));
    server.end().with_status(0);
}

#[test]
fn a_bad_environment_is_named_and_nothing_is_served() {
    let attempt = Attempt::new();
    for variable in ["HARNESS_VALUE_FILE", "HARNESS_REFUSED_FILE", "HARNESS_SCHEMA_FILE", "HARNESS_TOOL"] {
        attempt.refuses(|command| _ = command.env_remove(variable), &format!("{variable} is not set"));
    }
    attempt.refuses(|command| _ = command.env("HARNESS_VALUE_FILE", "value"), "no absolute path");
    attempt.refuses(|command| _ = command.env("HARNESS_SCHEMA_FILE", attempt.path("none")), "cannot read");
    attempt.refuses(|command| _ = command.env("HARNESS_RULE_FILE", attempt.path("none")), "cannot read");
    attempt.refuses(|command| _ = command.env("HARNESS_CORRECTIONS", "-1"), "no whole number");
    attempt.refuses(|command| _ = command.env("HARNESS_TOOL", "submit report"), "letters, digits");
    fs::write(attempt.path("bad.json"), r#"{"type":"objekt"}"#).unwrap();
    attempt.refuses(
        |command| _ = command.env("HARNESS_SCHEMA_FILE", attempt.path("bad.json")),
        "HARNESS_SCHEMA_FILE cannot be used",
    );
    fs::write(attempt.path("bad.json"), r#"{"name":"another-rule"}"#).unwrap();
    attempt.refuses(
        |command| _ = command.env("HARNESS_RULE_FILE", attempt.path("bad.json")),
        "no output rule is named \"another-rule\"",
    );
}

#[test]
fn a_huge_report_is_refused_with_its_measure_and_one_beyond_that_ends_nothing() {
    let attempt = Attempt::new();
    let mut server = attempt.server();
    let mut huge = read(COMPLETE);
    huge["summary"] = "x".repeat(2 << 20).into();
    told(&hand_in(&mut server, &huge), true, "1048576 are allowed");
    // The protocol's reader skips a message of more than 16 MiB, so there is nothing to answer.
    let message = format!(r#"{{"jsonrpc":"2.0","id":99,"method":"{}"}}"#, "x".repeat(17 << 20));
    server.write(&message);
    told(&hand_in(&mut server, &read(COMPLETE)), false, "accepted");
    server.end().with_status(0).with_err("exceeded the maximum line length");
}

#[test]
fn what_is_no_call_of_the_tool_is_answered_as_the_protocol_says_or_skipped() {
    let attempt = Attempt::new();
    let mut server = attempt.server();
    let answer = server.ask("tools/call", &json!({ "name": "submit", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let answer = server.ask("resources/read", &json!({ "uri": "file:///etc/passwd" }));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    server.write("this is no message");
    server.write(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"submit_report","arguments":"text"}}"#);
    let answer = server.next();
    assert!(answer["error"]["code"].is_i64(), "arguments that are no object: {answer}");
    // The last of two values under one key is what the protocol's reader keeps.
    let twice = COMPLETE.replacen('{', r#"{"status":"blocked","#, 1);
    server.write(&format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"name":"{TOOL}","arguments":{twice}}}}}"#
    ));
    told(&server.next()["result"], false, "accepted");
    assert_eq!(attempt.value(), Some(read(COMPLETE)));
    server.end().with_status(0);
}

#[test]
fn a_value_file_that_cannot_be_written_is_told_on_standard_error() {
    let attempt = Attempt::new();
    let mut command = attempt.command();
    command.env("HARNESS_VALUE_FILE", attempt.path("missing/value.json"));
    let mut server = Client::of(command);
    told(&hand_in(&mut server, &read(COMPLETE)), true, "could not be kept");
    server.end().with_status(0).with_err("a report cannot be kept");
}

#[test]
fn a_link_in_the_place_of_the_value_is_never_followed() {
    let attempt = Attempt::new();
    std::os::unix::fs::symlink(attempt.path("elsewhere"), attempt.path("value.json")).unwrap();
    let mut server = attempt.server();
    told(&hand_in(&mut server, &read(COMPLETE)), true, "not taken");
    assert!(!attempt.path("elsewhere").exists());
    server.end().with_status(0);
}

#[test]
fn a_signal_ends_the_server_while_its_input_stays_open() {
    for signal in [Signal::TERM, Signal::INT] {
        let attempt = Attempt::new();
        let mut server = attempt.server();
        told(&hand_in(&mut server, &read(COMPLETE)), false, "accepted");
        server.signal(signal);
        let said = server.wait().with_status(0);
        assert_eq!(said.out, "");
    }
}
