use std::pin::pin;
use std::task::Poll;

use harness_workflow::{AgentCall, AgentOutcome, ErrorCode, RunError, Stage, WorkflowContext, WorkflowError};
use serde_json::{Value, json};

use crate::host::{HandHost, poll, ready};

async fn ask(context: &WorkflowContext, prompt: String) -> Result<Value, WorkflowError> {
    match context.agent(AgentCall::new(prompt)).await? {
        AgentOutcome::Value(value) => Ok(value),
        AgentOutcome::NoValue(_) => Err(WorkflowError::new(ErrorCode::new("no-value"), "no value")),
    }
}

fn asks<'a>(
    context: &'a WorkflowContext,
    count: usize,
) -> Vec<impl Future<Output = Result<Value, WorkflowError>> + 'a> {
    (1..=count).map(|number| ask(context, format!("call {number}"))).collect()
}

fn ordinary() -> WorkflowError {
    WorkflowError::new(ErrorCode::new("mine"), "an ordinary failure")
}

#[test]
fn branches_begin_in_their_order_and_yield_in_it_too() {
    let host = HandHost::new();
    let context = host.context();
    let mut parallel = pin!(context.parallel(asks(&context, 3)));
    assert!(poll(parallel.as_mut()).is_pending());
    let prompts: Vec<String> = host.calls().into_iter().map(|call| call.prompt).collect();
    assert_eq!(prompts, ["call 1", "call 2", "call 3"]);
    for call in [3, 1, 2] {
        assert!(poll(parallel.as_mut()).is_pending(), "without a wake-up every branch is polled");
        host.answer_value(call, json!(call));
    }
    let Poll::Ready(yielded) = poll(parallel) else { panic!("all calls have ended") };
    assert_eq!(yielded.unwrap(), [Some(json!(1)), Some(json!(2)), Some(json!(3))]);
}

#[test]
fn an_ordinary_failure_yields_none_in_its_place() {
    let context = HandHost::new().context();
    let branches = [Ok(1), Err(ordinary()), Ok(3)].map(|result| async { result });
    assert_eq!(ready(context.parallel(branches)).unwrap(), [Some(1), None, Some(3)]);
}

#[test]
fn a_fatal_error_ends_a_parallel_at_once_and_drops_the_other_branches() {
    let host = HandHost::new();
    let context = host.context();
    host.answer(2, Err(RunError::new(ErrorCode::AGENT_START, "no provider")));
    let error = ready(context.parallel(asks(&context, 3))).unwrap_err();
    assert_eq!((error.code(), error.is_fatal()), (&ErrorCode::AGENT_START, true));
    assert_eq!(host.dropped(), [1], "the third call was never made");
}

#[test]
fn a_forged_fatal_error_ends_its_own_branch_only() {
    let context = HandHost::new().context();
    let forged = async { Err::<(), _>(WorkflowError::new(ErrorCode::CANCELLED, "forged")) };
    assert_eq!(ready(context.parallel([forged])).unwrap(), [None]);
}

#[test]
fn nothing_to_do_yields_nothing() {
    let context = HandHost::new().context();
    assert!(ready(context.parallel(asks(&context, 0))).unwrap().is_empty());
    let stage = Stage::new(|input| async move { Ok(input.item) });
    assert!(ready(context.pipeline(Vec::new(), &[stage])).unwrap().is_empty());
}

#[test]
fn the_cap_on_items_is_inclusive_and_checked_before_any_branch_begins() {
    let host = HandHost::new();
    let context = host.context();
    let within = (0..3).map(|number| async move { Ok(number) });
    assert_eq!(ready(context.parallel(within)).unwrap().len(), 3);
    let error = ready(context.parallel(asks(&context, 4))).unwrap_err();
    assert_eq!((error.code(), error.is_fatal()), (&ErrorCode::ITEM_CAP, true));
    let error = ready(context.parallel((0_u64..).map(|number| async move { Ok(number) }))).unwrap_err();
    assert_eq!(error.code(), &ErrorCode::ITEM_CAP, "also of branches without an end");

    let stage = [Stage::new(|input| async move { Ok(input.item) })];
    assert_eq!(ready(context.pipeline(vec![Value::Null; 3], &stage)).unwrap().len(), 3);
    let error = ready(context.pipeline(vec![Value::Null; 4], &stage)).unwrap_err();
    assert_eq!(error.code(), &ErrorCode::ITEM_CAP);
    assert!(host.calls().is_empty());
}

#[test]
fn a_pipeline_without_a_stage_is_refused_after_its_items_are_counted() {
    let context = HandHost::new().context();
    let error = ready(context.pipeline(vec![json!(1)], &[])).unwrap_err();
    assert_eq!(error.code(), &ErrorCode::INVALID_ARGUMENT);
    let error = ready(context.pipeline(vec![json!(1); 4], &[])).unwrap_err();
    assert_eq!(error.code(), &ErrorCode::ITEM_CAP);
}

#[test]
fn a_stage_gets_the_previous_value_the_item_and_its_index() {
    let context = HandHost::new().context();
    let stages = [
        Stage::new(|input| async move { Ok(json!([input.previous, input.item, input.index])) }),
        Stage::new(|input| async move { Ok(json!([input.previous, input.item, input.index])) }),
    ];
    let yielded = ready(context.pipeline(vec![json!("a"), json!("b")], &stages)).unwrap();
    assert_eq!(yielded, [Some(json!([["a", "a", 0], "a", 0])), Some(json!([["b", "b", 1], "b", 1]))]);
}

#[test]
fn items_flow_through_a_pipeline_without_waiting_for_each_other() {
    let host = HandHost::new();
    let context = host.context();
    let stages = [
        Stage::new(|input| ask(&context, format!("first {}", input.item))),
        Stage::new(|input| ask(&context, format!("second {}", input.item))),
    ];
    let mut pipeline = pin!(context.pipeline(vec![json!(0), json!(1)], &stages));
    assert!(poll(pipeline.as_mut()).is_pending());
    host.answer_value(2, json!("quick"));
    assert!(poll(pipeline.as_mut()).is_pending());
    let prompts: Vec<String> = host.calls().into_iter().map(|call| call.prompt).collect();
    assert_eq!(prompts, ["first 0", "first 1", "second 1"], "item 1 is a stage ahead");
}

#[test]
fn an_item_that_fails_skips_its_later_stages_and_a_fatal_error_ends_all() {
    let host = HandHost::new();
    let context = host.context();
    let stages = [
        Stage::new(|input| async move { if input.index == 0 { Err(ordinary()) } else { Ok(input.item) } }),
        Stage::new(|input| ask(&context, format!("item {}", input.item))),
    ];
    let mut pipeline = pin!(context.pipeline(vec![json!(0), json!(1)], &stages));
    assert!(poll(pipeline.as_mut()).is_pending());
    assert_eq!(host.calls().len(), 1, "the first item never gets to the second stage");
    host.answer_value(1, json!("done"));
    let Poll::Ready(yielded) = poll(pipeline) else { panic!("the call has ended") };
    assert_eq!(yielded.unwrap(), [None, Some(json!("done"))]);

    host.answer(2, Err(RunError::new(ErrorCode::AGENT_RESULT, "lost")));
    let error = ready(context.pipeline(vec![json!(0), json!(1)], &stages)).unwrap_err();
    assert!(error.is_fatal());
}

#[test]
fn a_dropped_combinator_drops_its_calls() {
    let host = HandHost::new();
    let context = host.context();
    {
        let mut parallel = pin!(context.parallel(asks(&context, 2)));
        assert!(poll(parallel.as_mut()).is_pending());
    }
    assert_eq!(host.dropped(), [1, 2]);
}
