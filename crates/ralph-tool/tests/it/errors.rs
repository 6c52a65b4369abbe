//! Errors as other programs and models get them.

use harness_subagent::StopReason;
use harness_testkit::workflow::StubChild;
use harness_workflow::{Error, ErrorCode, ErrorKind, RunError, RunResult};
use ralph_tool::{RalphError, TOOL_NAME};
use serde_json::{Value, json};

use crate::stage::{Stage, continuing};

fn wire(error: &RalphError) -> Value {
    serde_json::to_value(RunError::from(error)).unwrap()
}

#[tokio::test]
async fn a_failed_round_carries_all_that_is_known_of_it() {
    let children = [StubChild::value(continuing("half")), StubChild::failure(StopReason::REFUSAL)];
    let stage = Stage::running(json!({}), children);
    let error = stage.shown().await.0.unwrap_err();
    assert_eq!(
        wire(&error),
        json!({
            "code": "round-failed",
            "message": "round 2 failed: its worker yielded no report (refusal): the script lets this child fail",
            "details": {
                "round": 2, "runId": "stub-run-1", "agentsStarted": 2, "attempts": 2,
                "lastReport": continuing("half"),
                "stopReason": "refusal",
                "diagnostic": { "message": "the script lets this child fail" },
            },
        })
    );
}

#[tokio::test]
async fn a_refused_report_carries_every_violation() {
    let bad = json!({ "status": "complete", "summary": "", "evidence": [], "nextSteps": [], "blocker": "" });
    let stage = Stage::running(json!({}), [StubChild::value(bad)]);
    let wire = wire(&stage.shown().await.0.unwrap_err());
    assert_eq!(
        (&wire["code"], &wire["details"]["cause"]),
        (&json!("workflow-failed"), &json!("summary-not-normalized"))
    );
    assert_eq!(wire["details"]["round"], 1);
    assert_eq!(wire["details"]["lastReport"], Value::Null);
    assert_eq!(wire["details"]["unlisted"], 0);
    assert!(wire["message"].as_str().unwrap().ends_with("(and 1 more)"), "{wire}");
    let kinds: Vec<&Value> = wire["details"]["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|violation| &violation["kind"])
        .collect();
    assert_eq!(kinds, ["summary-not-normalized", "complete-needs-evidence"]);
}

#[tokio::test]
async fn a_reason_that_a_provider_made_up_is_bounded() {
    let reason = StopReason::other("because ".repeat(10_000));
    let stage = Stage::running(json!({}), [StubChild::failure(reason)]);
    let (outcome, text) = stage.shown().await;
    let wire = wire(&outcome.unwrap_err());
    assert!(wire.to_string().len() < 2000 && text.len() < 2000);
}

#[tokio::test]
async fn an_error_before_a_run_has_no_run_in_it() {
    let stage = Stage::settable(json!({}));
    let error = stage.call(json!({ "objective": "" })).await.unwrap_err();
    assert_eq!(
        wire(&error),
        json!({
            "code": "objective-empty",
            "message": "the objective is empty; say what is to be achieved",
            "details": {},
        })
    );
}

#[tokio::test]
async fn cancellation_has_a_code_of_its_own() {
    let stage = Stage::settable(json!({}));
    stage.engine.settle(RunResult::cancelled(RunError::cancelled("enough")));
    let wire = wire(&stage.shown().await.0.unwrap_err());
    assert_eq!(wire["code"], "cancelled");
    assert_eq!(wire["message"], "the run was cancelled: enough");
}

#[tokio::test]
async fn whatever_an_engine_says_is_shown_without_its_stack_and_within_the_limit() {
    let trace =
        format!("it broke\n    at run (engine.js:1:2)\n{}", "    at more (engine.js:3:4)\n".repeat(1000));
    let ends = [
        RunResult::failed(RunError::new(ErrorCode::PANIC, &*trace)),
        RunResult::cancelled(RunError::new(ErrorCode::CANCELLED, &*trace)),
        RunResult::failed(RunError::new(ErrorCode::ENGINE_LOST, &*trace)),
    ];
    for end in ends {
        let stage = Stage::settable(json!({ "maxResultChars": 100 }));
        stage.engine.settle(end);
        let (outcome, text) = stage.shown().await;
        assert!(text.contains("it broke") && !text.contains("engine.js"), "{text}");
        assert!(text.encode_utf16().count() <= 100, "{text}");
        assert!(!outcome.unwrap_err().summary().contains("engine.js"));
    }
    let stage = Stage::settable(json!({}));
    let cause = std::io::Error::other(&*trace);
    stage.engine.fail_starts(Error::new(ErrorKind::Engine, "x".repeat(100_000)).with_source(cause));
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert!(!text.contains("engine.js") && text.encode_utf16().count() <= RalphError::MAX_SUMMARY_CHARS + 10);
    assert!(error.summary().encode_utf16().count() <= RalphError::MAX_SUMMARY_CHARS);
}

#[tokio::test]
async fn details_of_a_refused_report_that_say_nothing_are_not_made_up() {
    for details in [Value::Null, json!({ "round": "two" })] {
        let stage = Stage::settable(json!({}));
        let error = RunError::new(ralph_tool::INVALID_REPORT, "the report is refused").with_details(details);
        stage.engine.settle(RunResult::failed(error));
        let error = stage.shown().await.0.unwrap_err();
        assert_eq!((error.code(), error.cause()), ("workflow-failed", Some("invalid-report")));
    }
}

#[tokio::test]
async fn a_checkpoint_of_another_kind_is_no_report() {
    for checkpoint in [json!(7), json!({ "round": 1, "report": { "status": "continue" } })] {
        let stage = Stage::settable(json!({}));
        let lost = RunError::new(ErrorCode::ENGINE_LOST, "lost");
        stage.engine.settle(RunResult::failed(lost).with_checkpoint(Some(checkpoint)));
        assert_eq!(stage.shown().await.0.unwrap_err().last_report(), None);
    }
}

#[test]
fn the_tool_has_the_name_that_workers_are_kept_from() {
    assert_eq!(TOOL_NAME, "ralph");
}
