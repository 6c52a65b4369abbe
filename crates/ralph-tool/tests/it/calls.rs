//! What a call asks of its engine, and what it makes of what the engine answers.

use harness_subagent::StopReason;
use harness_testkit::workflow::StubChild;
use harness_workflow::{Error, ErrorCode, ErrorKind, RunError, RunId, RunResult};
use ralph_tool::{Handoff, PHASE, RalphError, RalphStatus, WORKFLOW_NAME};
use serde_json::{Value, json};

use crate::prompts::PromptParts;
use crate::stage::{Stage, blocked, complete, context, continuing, parent, report};

fn ended(status: &str, rounds: u64, report: &Value) -> Value {
    json!({ "status": status, "roundsStarted": rounds, "report": report })
}

#[tokio::test]
async fn a_call_asks_for_one_run_of_the_loop_and_disposes_of_it() {
    let config = json!({ "subagentProvider": "fake", "maxRounds": 9, "maxHandoffChars": 500 });
    let stage = Stage::returning(config, ended("complete", 2, &complete("done")), 2);
    let args = json!({ "objective": "\u{feff} Port it\n", "maxRounds": 4.0, "invented": true });
    let envelope = stage.tool.call(&args, context().with_run_id("run-7")).await.unwrap();

    let starts = stage.engine.starts();
    let [request] = &starts[..] else { panic!("there is one start") };
    assert_eq!((&*request.workflow.name, request.workflow.version), (WORKFLOW_NAME, 1));
    assert_eq!(request.args, json!({ "objective": "Port it", "maxRounds": 4, "maxHandoffChars": 500 }));
    assert_eq!(request.provider.as_deref(), Some("fake"));
    assert_eq!(request.max_agents, Some(4));
    assert_eq!(request.parent, parent());
    assert_eq!(request.run_id.as_ref().map(RunId::as_str), Some("run-7"));

    assert_eq!(envelope.result().status(), RalphStatus::Complete);
    assert_eq!(
        serde_json::to_string(&envelope).unwrap(),
        concat!(
            r#"{"runId":"run-7","agentsStarted":2,"result":{"status":"complete","roundsStarted":2,"#,
            r#""report":{"status":"complete","summary":"done","evidence":["it runs"],"nextSteps":[],"blocker":""}}}"#,
        )
    );
    assert_eq!(envelope.to_value(), serde_json::to_value(&envelope).unwrap());
    assert_eq!((envelope.attempts(), envelope.disposal_error().is_none()), (2, true));
    assert_eq!((stage.engine.disposals(), stage.engine.abandoned()), (1, 0));
    assert!(stage.engine.cancels().is_empty());
}

#[tokio::test]
async fn a_blocker_and_a_used_up_budget_are_successes() {
    let stage = Stage::returning(json!({}), ended("blocked", 1, &blocked("no key")), 1);
    let (outcome, text) = stage.shown().await;
    assert_eq!(outcome.unwrap().result().status(), RalphStatus::Blocked);
    assert!(
        text.contains("after 1 round:") && text.contains("a worker reported that it is blocked"),
        "{text}"
    );

    let stage =
        Stage::returning(json!({ "maxRounds": 2 }), ended("budget-limited", 2, &continuing("half")), 2);
    let (outcome, text) = stage.shown().await;
    assert_eq!(outcome.unwrap().result().status(), RalphStatus::BudgetLimited);
    assert!(text.contains("2 rounds limit with work remaining"), "{text}");

    let stage =
        Stage::returning(json!({ "maxRounds": 1 }), ended("budget-limited", 1, &continuing("half")), 1);
    assert!(stage.shown().await.1.contains("1 round limit"));
}

#[tokio::test]
async fn the_envelope_holds_the_whole_report_however_little_is_shown() {
    let stage = Stage::returning(json!({ "maxResultChars": 5 }), ended("complete", 1, &complete("done")), 1);
    let (outcome, text) = stage.shown().await;
    assert_eq!(text, "\n… [t");
    assert_eq!(outcome.unwrap().result().report(), &report(&complete("done")));
}

#[tokio::test]
async fn a_failing_round_is_an_error_with_the_last_good_report() {
    let stage = Stage::running(json!({}), [StubChild::failure(StopReason::MAX_TOKENS)]);
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert_eq!((error.code(), error.round(), error.last_report()), ("round-failed", Some(1), None));
    assert!(
        text.starts_with("Error: round 1 failed") && text.contains("No earlier round left a report"),
        "{text}"
    );

    let children = [StubChild::value(continuing("half way")), StubChild::failure(StopReason::REFUSAL)];
    let stage = Stage::running(json!({}), children);
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert_eq!((error.code(), error.round()), ("round-failed", Some(2)));
    assert_eq!(error.last_report(), Some(&report(&continuing("half way"))));
    assert!(text.contains("round 2 failed") && text.contains("\"summary\": \"half way\""), "{text}");
}

#[tokio::test]
async fn why_a_worker_stopped_reaches_the_caller() {
    let stage = Stage::running(json!({}), [StubChild::failure(StopReason::MAX_TOKENS)]);
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert_eq!(error.stop_reason(), Some(&StopReason::MAX_TOKENS));
    assert_eq!(error.diagnostic().unwrap().message(), "the script lets this child fail");
    assert!(text.contains("(max-tokens): the script lets this child fail"), "{text}");
    // The terminal value has no room for it.
    let ends = stage.engine.body_ends();
    assert_eq!(
        ends[0].as_ref().unwrap(),
        &json!({ "status": "round-failed", "roundsStarted": 1, "lastReport": null })
    );
}

#[tokio::test]
async fn a_value_of_null_is_no_report() {
    let stage = Stage::running(json!({}), [StubChild::value(Value::Null)]);
    let error = stage.shown().await.0.unwrap_err();
    assert_eq!((error.code(), error.stop_reason()), ("round-failed", Some(&StopReason::NO_VALUE)));
}

#[tokio::test]
async fn however_the_engine_ends_a_run_it_is_disposed_of_once() {
    #[track_caller]
    fn check(outcome: &Stage, error: &RalphError, code: &str, cause: Option<&str>) {
        assert_eq!((error.code(), error.cause()), (code, cause));
        assert_eq!(outcome.engine.disposals(), 1);
        assert!(error.run().is_some());
    }
    for message in ["the disk is full", ""] {
        let stage = Stage::settable(json!({}));
        stage.engine.settle(RunResult::failed(RunError::new(ErrorCode::JOURNAL, message)));
        check(&stage, &stage.shown().await.0.unwrap_err(), "workflow-failed", Some("journal"));
    }
    for message in ["somebody cancelled it", ""] {
        let stage = Stage::settable(json!({}));
        stage.engine.settle(RunResult::cancelled(RunError::new(ErrorCode::CANCELLED, message)));
        check(&stage, &stage.shown().await.0.unwrap_err(), "cancelled", None);
    }
    let stage = Stage::settable(json!({}));
    stage.engine.lose_runs();
    check(&stage, &stage.shown().await.0.unwrap_err(), "engine-lost", None);
}

#[tokio::test]
async fn a_start_that_fails_leaves_nothing_to_dispose_of() {
    let stage = Stage::settable(json!({}));
    let refused = Error::new(ErrorKind::Engine, "the store is locked").with_source("held by another process");
    stage.engine.fail_starts(refused);
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.code(), error.cause(), error.run().is_none()),
        ("engine-start-failed", Some("engine"), true)
    );
    assert!(text.contains("the store is locked: held by another process"), "{text}");
    assert_eq!(stage.engine.disposals(), 0);
}

#[tokio::test]
async fn a_failing_disposal_is_attached_and_masks_nothing() {
    let release = || Error::new(ErrorKind::Release, "a child would not go");

    let stage = Stage::returning(json!({}), ended("complete", 1, &complete("done")), 1);
    stage.engine.fail_disposals(release());
    let envelope = stage.shown().await.0.unwrap();
    assert_eq!(envelope.result().status(), RalphStatus::Complete);
    assert_eq!(envelope.disposal_error().unwrap().to_string(), "a child would not go");
    assert!(envelope.to_value().as_object().unwrap().keys().all(|key| key != "disposalError"));

    let stage = Stage::running(json!({}), [StubChild::failure(StopReason::ERROR)]);
    stage.engine.fail_disposals(release());
    let error = stage.shown().await.0.unwrap_err();
    assert_eq!(error.code(), "round-failed");
    assert_eq!(error.disposal_error().unwrap().to_string(), "a child would not go");
    let wire = RunError::from(&error);
    assert_eq!(wire.details().unwrap()["disposalError"], "a child would not go");
}

#[tokio::test]
async fn a_refused_report_says_what_is_wrong_and_keeps_the_last_good_one() {
    let bad =
        json!({ "status": "complete", "summary": " padded", "evidence": [], "nextSteps": [], "blocker": "" });
    let children = [StubChild::value(continuing("half way")), StubChild::value(bad)];
    let stage = Stage::running(json!({}), children);
    let (outcome, text) = stage.shown().await;
    let error = outcome.unwrap_err();
    assert_eq!((error.code(), error.cause()), ("workflow-failed", Some("summary-not-normalized")));
    assert_eq!(error.round(), Some(2));
    let violations: Vec<(&str, &str)> =
        error.violations().iter().map(|violation| (&*violation.pointer, &*violation.kind)).collect();
    assert_eq!(
        violations,
        [("/summary", "summary-not-normalized"), ("/evidence", "complete-needs-evidence")]
    );
    assert_eq!(error.last_report(), Some(&report(&continuing("half way"))));
    assert!(text.contains("the report of round 2 is refused: /summary"), "{text}");
    assert!(text.ends_with(&report(&continuing("half way")).to_json_pretty()), "{text}");
}

#[tokio::test]
async fn a_report_outside_the_five_keys_is_refused_in_the_loop() {
    let mut extra = complete("done");
    extra["mood"] = json!("good");
    let stage = Stage::running(json!({}), [StubChild::value(extra)]);
    let error = stage.shown().await.0.unwrap_err();
    assert_eq!((error.code(), error.cause()), ("workflow-failed", Some("unknown-key")));
}

#[tokio::test]
async fn a_number_of_workers_that_is_not_that_of_the_rounds_is_not_trusted() {
    for value in [
        ended("complete", 2, &complete("done")),
        json!({ "status": "round-failed", "roundsStarted": 2, "lastReport": continuing("half") }),
    ] {
        let error = Stage::returning(json!({}), value, 3).shown().await.0.unwrap_err();
        assert_eq!((error.code(), error.round()), ("agents-mismatch", Some(3)));
    }
}

#[tokio::test]
async fn no_ending_loses_the_last_good_report() {
    let children = || [StubChild::value(continuing("one")), StubChild::value(continuing("two"))];
    let stage = Stage::running(json!({}), children().into_iter().chain([StubChild::lost()]));
    let error = stage.shown().await.0.unwrap_err();
    assert_eq!((error.code(), error.cause()), ("workflow-failed", Some("agent-result")));
    assert_eq!(error.last_report(), Some(&report(&continuing("two"))));
    assert_eq!(error.round(), Some(3));
}

#[tokio::test]
async fn the_loop_announces_itself_and_asks_each_worker_for_the_same() {
    let children = [StubChild::value(continuing("one")), StubChild::value(complete("two"))];
    let stage = Stage::running(json!({ "maxHandoffChars": 1000 }), children);
    stage.shown().await.0.unwrap();

    assert_eq!(stage.engine.phases(), [PHASE]);
    let calls = stage.engine.calls();
    let labels: Vec<_> = calls.iter().map(|call| (&*call.label, call.phase.as_deref())).collect();
    assert_eq!(labels, [("Ralph round 1", Some(PHASE)), ("Ralph round 2", Some(PHASE))]);
    for call in &calls {
        let output = call.output.as_ref().unwrap();
        assert_eq!(**output.schema(), ralph_report::schema::child_schema());
        let rule = output.rule().unwrap();
        assert_eq!(
            (rule.name(), rule.parameters()),
            (ralph_tool::REPORT_RULE, &json!({ "maxHandoffChars": 1000 }))
        );
        assert_eq!(
            serde_json::to_value(&call.tools).unwrap(),
            json!({ "filter": { "deny": ["ralph"] }, "strength": "preferred" })
        );
        assert_eq!(call.model, None);
    }
    assert_eq!(
        stage.engine.checkpoints(),
        [
            json!({ "round": 1, "report": continuing("one") }),
            json!({ "round": 2, "report": complete("two") })
        ]
    );
}

#[tokio::test]
async fn a_run_can_go_on_from_the_report_of_an_earlier_one() {
    let earlier = || Handoff::new("run-1", report(&continuing("of run 1")));
    let stage = Stage::running(json!({}), [StubChild::value(complete("done"))]);
    let args = json!({ "objective": "Port it" });
    stage.tool.call(&args, context().with_handoff(earlier())).await.unwrap();
    assert_eq!(
        stage.engine.starts()[0].args["handoff"],
        json!({ "run": "run-1", "report": continuing("of run 1") })
    );
    let first = PromptParts::read(&stage.engine.calls()[0].prompt);
    assert_eq!((first.round, first.report), (1, Some(continuing("of run 1"))));

    // It is the last good report until a round has left another one.
    let stage = Stage::running(json!({}), [StubChild::failure(StopReason::ERROR)]);
    let error = stage.tool.call(&args, context().with_handoff(earlier())).await.unwrap_err();
    assert_eq!((error.code(), error.round()), ("round-failed", Some(1)));
    assert_eq!(error.last_report(), Some(&report(&continuing("of run 1"))));
}

#[tokio::test]
async fn the_loop_refuses_arguments_that_it_cannot_use() {
    use harness_workflow::{StartRun, WorkflowEngine};

    let refused = async |args: Value| {
        let (engine, _handle) = harness_testkit::workflow::StubEngine::running(ralph_tool::workflows());
        let request = StartRun::new(ralph_tool::workflow_ref(), parent()).with_args(args);
        let run = engine.start(request, Default::default()).await.unwrap();
        let result = run.result().await;
        run.dispose().await.unwrap();
        let error = result.error().unwrap();
        assert_eq!(error.code(), &ErrorCode::INVALID_ARGUMENT, "{error}");
        error.message().to_owned()
    };
    let with = |key: &str, value: Value| {
        let mut args = json!({ "objective": "o", "maxRounds": 1, "maxHandoffChars": 100 });
        args[key] = value;
        args
    };
    let handed = |report: Value| with("handoff", json!({ "run": "r", "report": report }));
    for (args, fragment) in [
        (Value::Null, "invalid type"),
        (json!({}), "objective"),
        (with("objective", json!(" \n")), "`objective` is empty"),
        (with("maxRounds", json!(0)), "`maxRounds`"),
        (with("maxHandoffChars", json!("9")), "`maxHandoffChars`"),
        (with("surprise", json!(1)), "surprise"),
        (with("handoff", json!({ "report": continuing("x") })), "run"),
        (handed(json!({})), "`handoff`"),
        (handed(continuing(&"x".repeat(100))), "`handoff`"),
        (handed(complete("x")), "nothing to go on with"),
    ] {
        let message = refused(args).await;
        assert!(message.contains(fragment), "{message}");
    }
}
