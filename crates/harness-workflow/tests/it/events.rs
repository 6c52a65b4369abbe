use std::sync::Arc;

use harness_subagent::{Activity, AgentId, Diagnostic, StopReason, Usage};
use harness_workflow::{
    CallEnd, CallInfo, CallOutcome, ErrorCode, RunError, RunStopReason, WorkflowEvent, WorkflowEventKind,
    WorkflowMeta,
};
use serde_json::{Value, json};

/// Holds the JSON of an event against what other programs read, and reads it back.
#[track_caller]
fn check(kind: WorkflowEventKind, expected: Value) {
    let event = WorkflowEvent::new("run-1".into(), 3, kind);
    let text = serde_json::to_string(&event).unwrap();
    let mut all = expected;
    all["run"] = json!("run-1");
    all["sequence"] = json!(3);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), all);
    assert_eq!(serde_json::from_str::<WorkflowEvent>(&text).unwrap(), event);
}

#[test]
fn every_event_has_a_stable_form() {
    let call = CallInfo::new(1, 2, "label", AgentId::new("child"));
    let told = json!({ "call": 1, "attempt": 2, "label": "label", "child": "child" });
    let meta = Arc::new(WorkflowMeta::new("w", 1, "d"));
    check(
        WorkflowEventKind::Started { meta },
        json!({ "event": "started", "meta": { "name": "w", "version": 1, "description": "d" } }),
    );
    check(WorkflowEventKind::Phase { title: "t".into() }, json!({ "event": "phase", "title": "t" }));
    check(WorkflowEventKind::Log { message: String::new() }, json!({ "event": "log", "message": "" }));
    check(
        WorkflowEventKind::Checkpoint { value: json!(null) },
        json!({ "event": "checkpoint", "value": null }),
    );
    check(
        WorkflowEventKind::AgentStarted { call: call.clone().with_phase(Some("p".into())) },
        json!({ "event": "agent-started", "call": { "call": 1, "attempt": 2, "label": "label", "phase": "p", "child": "child" } }),
    );
    check(
        WorkflowEventKind::AgentActivity { call: call.clone(), activity: Activity::new("reads") },
        json!({ "event": "agent-activity", "call": told, "activity": { "text": "reads" } }),
    );
    let mut end = CallEnd::new(CallOutcome::Failed);
    end.stop_reason = Some(StopReason::REFUSAL);
    end.diagnostic = Some(Diagnostic::new("no"));
    end.usage = Some(Usage::new(1, 2));
    end.session_id = Some("s".into());
    let text =
        serde_json::to_value(WorkflowEventKind::AgentEnded { call: call.clone(), end: end.clone() }).unwrap();
    assert_eq!(text["end"]["outcome"], "failed");
    assert_eq!(text["end"]["stop_reason"], "refusal");
    assert_eq!(text["end"]["session_id"], "s");
    assert_eq!(
        serde_json::from_value::<WorkflowEventKind>(text).unwrap(),
        WorkflowEventKind::AgentEnded { call: call.clone(), end }
    );
    check(
        WorkflowEventKind::AgentEnded { call, end: CallEnd::new(CallOutcome::Cancelled) },
        json!({ "event": "agent-ended", "call": told, "end": { "outcome": "cancelled" } }),
    );
    check(
        WorkflowEventKind::Ended {
            stop_reason: RunStopReason::Completed,
            error: None,
            agents_started: 1,
            attempts: 2,
        },
        json!({ "event": "ended", "stop_reason": "completed", "agents_started": 1, "attempts": 2 }),
    );
    let error = Some(RunError::new(ErrorCode::PANIC, "m"));
    check(
        WorkflowEventKind::Ended { stop_reason: RunStopReason::Error, error, agents_started: 0, attempts: 0 },
        json!({ "event": "ended", "stop_reason": "error", "error": { "code": "panic", "message": "m" }, "agents_started": 0, "attempts": 0 }),
    );
}

#[test]
fn an_event_of_a_later_version_with_more_fields_can_be_read() {
    let text = r#"{"run":"r","sequence":1,"event":"log","message":"m","colour":"green"}"#;
    let event: WorkflowEvent = serde_json::from_str(text).unwrap();
    assert_eq!(event.kind, WorkflowEventKind::Log { message: "m".into() });
}

#[test]
fn a_long_error_is_cut_between_characters_and_keeps_its_code() {
    let error = RunError::new(ErrorCode::PANIC, "é".repeat(RunError::MAX_MESSAGE_BYTES));
    assert!(error.message().len() <= RunError::MAX_MESSAGE_BYTES);
    assert!(error.message().ends_with(" [cut]"));
    let text = json!({ "code": "of-its-own", "message": "x".repeat(10_000) }).to_string();
    let read: RunError = serde_json::from_str(&text).unwrap();
    assert_eq!(read.code().as_str(), "of-its-own");
    assert_eq!(read.message().len(), RunError::MAX_MESSAGE_BYTES);
}
