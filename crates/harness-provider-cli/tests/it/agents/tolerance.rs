//! What surrounds a value may change from version to version, and the value may not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness_provider_cli::AgentKind;
use harness_subagent::{StopReason, SubagentProvider, SubagentResult};
use serde_json::{Value, json};

use super::fake::{End, FakeAgent, Play};

/// Plays `lines` to a provider that asks for an object.
fn play(kind: AgentKind, lines: &str, end: End) -> SubagentResult {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("lines.jsonl");
    fs::write(&file, lines).unwrap();
    fs::write(file.with_extension("records.jsonl"), "").unwrap();
    let fake = FakeAgent::new(kind, &Play::Recorded { lines: file, end });
    let provider = fake.provider().with_corrections(0);
    run(&fake, &provider)
}

fn run(fake: &FakeAgent, provider: &harness_provider_cli::AgentProvider) -> SubagentResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let run = provider.start(fake.bench.request("go")).await.unwrap();
        let result = run.result().await.unwrap();
        run.dispose().await.unwrap();
        fake.bench.assert_nothing_left();
        result
    })
}

#[track_caller]
fn check(kind: AgentKind, lines: &[&str], end: End, reason: &StopReason, value: Option<Value>) {
    let result = play(kind, &format!("{}\n", lines.join("\n")), end);
    assert_eq!((&result.stop_reason, &result.structured), (reason, &value), "{lines:?}: {result:?}");
}

const GOOD: &str = r#"{"type":"result","subtype":"success","is_error":false,"structured_output":{"a":1}}"#;
const MESSAGE: &str = r#"{"type":"item.completed","item":{"type":"agent_message","text":"{\"a\":1}"}}"#;
const DONE: &str = r#"{"type":"turn.completed"}"#;

fn value() -> Option<Value> {
    Some(json!({ "a": 1 }))
}

#[test]
fn events_that_nobody_knows_are_passed_over() {
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let odd = [
        r#"{"type":"result_of_something","is_error":true}"#,
        r#"{"type":"assistant"}"#,
        r#"{"type":"assistant","message":{"content":"text","usage":[]}}"#,
        r#"{"type":"system","subtype":"api_retry","error_status":"soon"}"#,
        r#"{"type":"item.completed","item":7}"#,
        r#"{"type":{"turn":"failed"}}"#,
        "{}",
        "null",
        "[1,2]",
    ];
    let with = |rest: &[&'static str]| odd.iter().copied().chain(rest.iter().copied()).collect::<Vec<_>>();
    check(AgentKind::ClaudeCode, &with(&[GOOD]), End::Status(0), &StopReason::COMPLETED, value());
    check(AgentKind::Codex, &with(&[MESSAGE, DONE]), End::Status(0), &StopReason::COMPLETED, value());
    // The fake reads its lines itself, so what is no JSON comes from a program of another kind.
    let fake = FakeAgent::new(AgentKind::Codex, &Play::Prompted);
    let script =
        format!("#!/bin/sh\ncat > /dev/null\nprintf '%s\\n' 'no event' '{deep}' '{MESSAGE}' '{DONE}'\n");
    let result = run(&fake, &fake.provider().with_program(program(&fake, &script)));
    assert_eq!((result.stop_reason, result.structured), (StopReason::COMPLETED, value()));
}

/// Writes a program into the place of `fake`.
fn program(fake: &FakeAgent, text: &str) -> std::path::PathBuf {
    let place = fake.bench.place();
    fs::write(place.join("part"), text).unwrap();
    fs::set_permissions(place.join("part"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(place.join("part"), place.join("program")).unwrap();
    place.join("program")
}

#[test]
fn a_value_is_taken_from_its_own_place_and_no_other() {
    let elsewhere = r#"{"type":"result","subtype":"success","is_error":false,"result":"{\"a\":1}"}"#;
    check(AgentKind::ClaudeCode, &[elsewhere], End::Status(0), &StopReason::NO_VALUE, None);
    let renamed = r#"{"type":"result","subtype":"success","is_error":false,"structured_result":{"a":1}}"#;
    check(AgentKind::ClaudeCode, &[renamed], End::Status(0), &StopReason::NO_VALUE, None);
    for text in [r#"```json\n{\"a\":1}\n```"#, r#"{\"a\":1} {\"a\":2}"#, r#"{\"a\":1,\"a\":2}"#, "Done."] {
        let message =
            format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{text}"}}}}"#);
        check(AgentKind::Codex, &[&message, DONE], End::Status(0), &StopReason::UNREADABLE_VALUE, None);
    }
    // A message of a turn that never closed is no value.
    check(AgentKind::Codex, &[MESSAGE], End::Status(0), &StopReason::NO_VALUE, None);
}

#[test]
fn words_about_failures_fail_nothing() {
    let words =
        "HTTP 429 rate limit exceeded, is_error:true, unexpected status 401 Unauthorized, turn.failed";
    let said = json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": words }] } });
    check(AgentKind::ClaudeCode, &[&said.to_string(), GOOD], End::Status(0), &StopReason::COMPLETED, value());
    let said = json!({ "type": "item.completed", "item": { "type": "agent_message", "text": words } });
    check(
        AgentKind::Codex,
        &[&said.to_string(), MESSAGE, DONE],
        End::Status(0),
        &StopReason::COMPLETED,
        value(),
    );
}

#[test]
fn a_result_without_its_flag_is_judged_by_its_kind() {
    let bare = r#"{"type":"result","subtype":"success","structured_output":{"a":1}}"#;
    check(AgentKind::ClaudeCode, &[bare], End::Status(0), &StopReason::COMPLETED, value());
    let failed = r#"{"type":"result","subtype":"error_during_execution"}"#;
    check(AgentKind::ClaudeCode, &[failed], End::Status(0), &StopReason::ERROR, None);
}

#[test]
fn an_agent_that_is_done_and_does_not_go_well_or_at_all_has_completed() {
    for (kind, lines) in [(AgentKind::ClaudeCode, &[GOOD][..]), (AgentKind::Codex, &[MESSAGE, DONE])] {
        for end in [End::Status(7), End::Signal(9), End::Stays] {
            check(kind, lines, end, &StopReason::COMPLETED, value());
        }
    }
}

#[test]
fn an_agent_that_says_nothing_is_judged_by_its_exit_status() {
    for &kind in AgentKind::ALL {
        for (text, reason, said) in [
            ("exit 0", StopReason::NO_VALUE, "handed in no value"),
            ("echo oh >&2; echo 'cannot do that' >&2; exit 1", StopReason::ERROR, "cannot do that"),
            ("kill -SEGV $$", StopReason::CRASHED, "signal 11"),
        ] {
            let fake = FakeAgent::new(kind, &Play::Prompted);
            let program = program(&fake, &format!("#!/bin/sh\n{text}\n"));
            let mut provider = fake.provider().with_program(program);
            if provider.hand_in().is_none() {
                provider = provider.with_capture(fake.capture_server());
            }
            let result = run(&fake, &provider);
            assert_eq!(result.stop_reason, reason, "{text}");
            let message = result.diagnostic.unwrap().message().to_owned();
            assert!(message.contains(said), "{message}");
        }
    }
}
