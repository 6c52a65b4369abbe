use std::pin::pin;

use harness_subagent::{ModelChoice, OutputContract, StopReason, ToolRestriction};
use harness_workflow::{
    AgentCall, AgentOutcome, ErrorCode, NoValue, RunError, Stage, WorkflowContext, WorkflowError,
};
use serde_json::{Value, json};

use crate::host::{HandHost, poll, ready};

fn too_deep() -> Value {
    (0..harness_workflow::value::MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]))
}

#[track_caller]
fn check_refusal<T: std::fmt::Debug>(refused: Result<T, WorkflowError>, code: &ErrorCode) {
    let error = refused.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.is_fatal(), "all errors of a context are fatal");
}

#[test]
fn every_hook_of_a_cancelled_run_fails_with_the_reason() {
    let host = HandHost::new();
    let context = host.context();
    host.cancel("enough");
    let stage = Stage::new(|input| async move { Ok(input.item) });
    check_refusal(ready(context.agent(AgentCall::new("work"))), &ErrorCode::CANCELLED);
    check_refusal(context.phase("p"), &ErrorCode::CANCELLED);
    check_refusal(context.log("l"), &ErrorCode::CANCELLED);
    check_refusal(context.checkpoint(json!(1)), &ErrorCode::CANCELLED);
    check_refusal(ready(context.parallel::<(), std::future::Ready<_>>([])), &ErrorCode::CANCELLED);
    check_refusal(ready(context.pipeline(Vec::new(), &[stage])), &ErrorCode::CANCELLED);

    let error = context.log("l").unwrap_err();
    assert_eq!(error.as_run_error(), &RunError::cancelled("enough"));
    assert!(context.is_cancelled());
    assert_eq!(context.args(), &json!({ "the": "args" }), "the arguments stay readable");
    assert_eq!((host.told(), host.calls(), context.agents_started()), (vec![], vec![], 0));
}

#[test]
fn cancellation_is_checked_before_the_arguments() {
    let host = HandHost::new();
    let context = host.context();
    host.cancel("enough");
    check_refusal(ready(context.agent(AgentCall::new(""))), &ErrorCode::CANCELLED);
    check_refusal(context.phase(""), &ErrorCode::CANCELLED);
    check_refusal(context.checkpoint(too_deep()), &ErrorCode::CANCELLED);
    check_refusal(ready(context.pipeline(vec![json!(1); 4], &[])), &ErrorCode::CANCELLED);
}

#[test]
fn a_call_without_a_prompt_is_refused_before_it_counts() {
    let host = HandHost::new();
    let context = host.context();
    check_refusal(ready(context.agent(AgentCall::new(""))), &ErrorCode::INVALID_ARGUMENT);
    assert_eq!(context.agents_started(), 0);
    exhaust(&host, &context);
    check_refusal(ready(context.agent(AgentCall::new(""))), &ErrorCode::INVALID_ARGUMENT);
}

fn exhaust(host: &HandHost, context: &WorkflowContext) {
    for call in 1..=3 {
        host.answer_value(call, json!(call));
        ready(context.agent(AgentCall::new("work"))).unwrap();
    }
}

#[test]
fn the_cap_on_calls_is_inclusive_and_a_refused_call_does_not_count() {
    let host = HandHost::new();
    let context = host.context();
    exhaust(&host, &context);
    check_refusal(ready(context.agent(AgentCall::new("one more"))), &ErrorCode::AGENT_CAP);
    assert_eq!((context.agents_started(), host.calls().len()), (3, 3));
}

#[test]
fn a_call_counts_when_it_is_first_polled() {
    let host = HandHost::new();
    let context = host.context();
    let first = context.agent(AgentCall::new("made first"));
    let mut second = pin!(context.agent(AgentCall::new("polled first")));
    assert_eq!(context.agents_started(), 0);
    assert!(poll(second.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    assert!(poll(pin!(first)).is_pending());
    let prompts: Vec<String> = host.calls().into_iter().map(|call| call.prompt).collect();
    assert_eq!((context.agents_started(), prompts), (2, vec!["polled first".into(), "made first".into()]));
}

#[test]
fn clones_are_one_context() {
    let host = HandHost::new();
    let context = host.context();
    context.clone().phase("work").unwrap();
    exhaust(&host, &context.clone());
    assert_eq!(context.agents_started(), 3);
    assert_eq!(host.calls()[0].phase.as_deref(), Some("work"));
}

#[test]
fn a_call_takes_its_defaults_from_the_prompt_and_the_phase() {
    #[track_caller]
    fn check(call: AgentCall, label: &str, phase: Option<&str>) {
        let host = HandHost::new();
        let context = host.context();
        context.phase("first").unwrap();
        context.phase("announced last").unwrap();
        assert!(poll(pin!(context.agent(call))).is_pending());
        let call = host.calls().remove(0);
        assert_eq!((call.number, call.label.as_str(), call.phase.as_deref()), (1, label, phase));
    }
    let announced = Some("announced last");
    check(AgentCall::new("one\ntwo"), "one", announced);
    check(AgentCall::new("x".repeat(49)), &format!("{}…", "x".repeat(47)), announced);
    check(AgentCall::new("one").with_label("named"), "named", announced);
    check(AgentCall::new("one").with_phase("its own"), "one", Some("its own"));
}

#[test]
fn before_any_phase_a_call_has_none() {
    let host = HandHost::new();
    assert!(poll(pin!(host.context().agent(AgentCall::new("one")))).is_pending());
    assert_eq!(host.calls()[0].phase, None);
}

#[test]
fn whatever_a_call_asks_for_reaches_the_host() {
    let host = HandHost::new();
    let output = OutputContract::new(json!({ "type": "object" })).unwrap();
    let (model, tools) = (ModelChoice::model("some"), ToolRestriction::deny(["shell"]).preferred());
    let call = AgentCall::new("work")
        .with_output(output.clone())
        .with_model(model.clone())
        .with_tools(tools.clone());
    assert!(poll(pin!(host.context().agent(call))).is_pending());
    let call = host.calls().remove(0);
    assert_eq!((call.output, call.model, call.tools), (Some(output), Some(model), Some(tools)));
}

#[test]
fn a_child_without_a_value_is_no_error_and_a_fault_is_fatal() {
    let host = HandHost::new();
    let context = host.context();
    let no_value = AgentOutcome::NoValue(NoValue::new(StopReason::REFUSAL, None));
    host.answer(1, Ok(no_value.clone()));
    assert_eq!(ready(context.agent(AgentCall::new("one"))).unwrap(), no_value);
    host.answer(2, Err(RunError::new(ErrorCode::AGENT_RESULT, "lost")));
    check_refusal(ready(context.agent(AgentCall::new("two"))), &ErrorCode::AGENT_RESULT);
}

#[test]
fn narration_reaches_the_host_as_it_is() {
    let host = HandHost::new();
    let context = host.context();
    context.phase("p").unwrap();
    context.log("").unwrap();
    context.checkpoint(json!({ "a": null })).unwrap();
    assert_eq!(host.told(), ["phase p", "log ", "checkpoint {\"a\":null}"]);
}

#[test]
fn narration_that_makes_no_sense_is_refused() {
    let host = HandHost::new();
    let context = host.context();
    check_refusal(context.phase(""), &ErrorCode::INVALID_ARGUMENT);
    check_refusal(context.checkpoint(too_deep()), &ErrorCode::RESULT_UNSERIALIZABLE);
    assert!(host.told().is_empty());
}

#[test]
fn a_checkpoint_that_the_engine_cannot_keep_is_fatal() {
    let host = HandHost::new();
    host.refuse_checkpoints(RunError::new(ErrorCode::JOURNAL, "disk full"));
    check_refusal(host.context().checkpoint(json!(1)), &ErrorCode::JOURNAL);
}

#[test]
fn a_body_cannot_make_a_fatal_error() {
    let forged = WorkflowError::new(ErrorCode::CANCELLED, "the run was cancelled: not really");
    assert!(!forged.is_fatal());
}
