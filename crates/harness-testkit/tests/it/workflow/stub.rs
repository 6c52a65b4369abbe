use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use harness_subagent::{Parent, StopReason};
use harness_testkit::workflow::{StubChild, StubEngine, StubEngineHandle};
use harness_workflow::{
    AgentCall, AgentOutcome, Error, ErrorCode, ErrorKind, InvariantObserver, RunError, RunResult,
    RunStopReason, StartRun, Workflow, WorkflowCatalog, WorkflowContext, WorkflowEngine, WorkflowError,
    WorkflowMeta, WorkflowRef, WorkflowRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Announces one phase, makes the calls that its arguments ask for, one after the other, and returns what they
/// yielded.
#[derive(Debug)]
struct Caller(WorkflowMeta);

#[async_trait]
impl Workflow for Caller {
    fn meta(&self) -> &WorkflowMeta {
        &self.0
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        context.phase("calls")?;
        let mut answers = Vec::new();
        for number in 1..=context.args().as_u64().unwrap_or(1) {
            let call = AgentCall::new(format!("call {number}"));
            answers.push(match context.agent(call).await? {
                AgentOutcome::Value(value) => value,
                AgentOutcome::NoValue(why) => json!({ "failed": why.stop_reason }),
            });
            context.checkpoint(json!(answers))?;
        }
        Ok(json!(answers))
    }
}

fn catalog() -> WorkflowCatalog {
    let meta = WorkflowMeta::new("caller", 1, "Makes as many calls as it is told to.");
    WorkflowCatalog::new().with(Arc::new(Caller(meta))).unwrap()
}

fn request(calls: u64) -> StartRun {
    StartRun::new(WorkflowRef::new("caller", 1), Parent::new("parent", ".")).with_args(json!(calls))
}

struct Fixture {
    engine: StubEngine,
    handle: StubEngineHandle,
    invariants: Arc<InvariantObserver>,
}

impl Fixture {
    fn new((engine, handle): (StubEngine, StubEngineHandle)) -> Self {
        let invariants = Arc::new(InvariantObserver::new("stub"));
        engine.observe(Arc::clone(&invariants) as _);
        Self { engine, handle, invariants }
    }

    fn start(&self, calls: u64) -> Box<dyn WorkflowRun> {
        ready(self.engine.start(request(calls), CancellationToken::new())).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.invariants.violations(), []);
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn ready<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something"),
    }
}

#[test]
fn a_body_runs_with_its_scripted_children_and_without_a_runtime() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.push_children([StubChild::value(json!("one")), StubChild::failure(StopReason::REFUSAL)]);
    let run = stub.start(2);
    assert_eq!(stub.handle.phases(), [""; 0], "nothing happens before the result is awaited");

    let result = ready(run.result());
    let answers = json!(["one", { "failed": "refusal" }]);
    assert_eq!(result.value(), Some(&answers));
    assert_eq!((result.agents_started(), result.attempts()), (2, 2));
    assert_eq!(result.checkpoint(), Some(&answers));
    assert_eq!(stub.handle.phases(), ["calls"]);
    assert_eq!(stub.handle.checkpoints().len(), 2);
    let calls = stub.handle.calls();
    assert_eq!((calls[1].number, calls[1].label.as_str()), (2, "call 2"));
    assert_eq!(calls[1].phase.as_deref(), Some("calls"));
    assert_eq!(stub.handle.body_ends(), [Ok(answers)]);
}

#[test]
fn a_lost_child_and_a_missing_script_end_the_run_in_error() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.push_child(StubChild::lost());
    for code in [ErrorCode::AGENT_RESULT, ErrorCode::AGENT_START] {
        let result = ready(stub.start(1).result());
        assert_eq!(result.stop_reason(), RunStopReason::Error);
        assert_eq!(result.error().unwrap().code(), &code);
    }
}

#[test]
fn a_cancel_settles_at_once_and_only_the_first_reason_counts() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.push_children([StubChild::value(json!(1)), StubChild::endless()]);
    let run = stub.start(2);
    let mut result = run.result();
    assert!(poll(&mut result).is_pending());
    run.cancel("enough");
    run.cancel("more than enough");
    let result = ready(result);
    assert_eq!(result.error(), Some(&RunError::cancelled("enough")));
    assert_eq!(result.agents_started(), 2);
    assert_eq!(result.checkpoint(), Some(&json!([1])));
    assert_eq!(stub.handle.cancels(), ["enough", "more than enough"]);
    assert_eq!(stub.handle.body_ends(), []);
}

#[test]
fn a_run_cancelled_before_it_is_awaited_never_begins_its_body() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    let run = stub.start(1);
    run.cancel("early");
    assert_eq!(ready(run.result()).stop_reason(), RunStopReason::Cancelled);
    assert_eq!(stub.handle.phases(), [""; 0]);
}

#[test]
fn the_token_reaches_no_run() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.push_child(StubChild::value(json!(1)));
    let token = CancellationToken::new();
    token.cancel();
    let run = ready(stub.engine.start(request(1), token)).unwrap();
    assert_eq!(ready(run.result()).stop_reason(), RunStopReason::Completed);
    assert!(stub.handle.start_cancellations()[0].is_cancelled());
}

#[test]
fn a_child_can_end_after_a_cancel_that_is_ignored() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.ignore_cancels();
    let aborted = CancellationToken::new();
    let hook = aborted.clone();
    stub.handle.push_child(StubChild::value(json!(1)).with_hook(move || hook.cancel()).after_cancel());
    let run = stub.start(1);
    let mut result = run.result();
    assert!(poll(&mut result).is_pending());
    assert!(aborted.is_cancelled());
    run.cancel("bridged");
    assert_eq!(ready(result).value(), Some(&json!([1])));
    assert_eq!(stub.handle.cancels(), ["bridged"]);
}

#[test]
fn a_hook_may_cancel_the_run_that_it_is_in() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    let run: Arc<Mutex<Option<Arc<dyn WorkflowRun>>>> = Arc::default();
    let seen = Arc::clone(&run);
    let hook = move || seen.lock().unwrap().clone().unwrap().cancel("from inside");
    stub.handle.push_child(StubChild::value(json!(1)).with_hook(hook));
    let started: Arc<dyn WorkflowRun> = stub.start(1).into();
    *run.lock().unwrap() = Some(Arc::clone(&started));
    let result = ready(started.result());
    assert_eq!(result.error(), Some(&RunError::cancelled("from inside")));
    *run.lock().unwrap() = None;
}

#[test]
fn a_lost_run_never_begins_its_body_and_an_earlier_cancel_wins() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.lose_runs();
    let lost = ready(stub.start(1).result());
    assert_eq!(lost.error().unwrap().code(), &ErrorCode::ENGINE_LOST);
    let run = stub.start(1);
    run.cancel("before");
    assert_eq!(ready(run.result()).stop_reason(), RunStopReason::Cancelled);
    assert_eq!(stub.handle.phases(), [""; 0]);
}

#[test]
fn a_settable_run_waits_for_its_result() {
    let stub = Fixture::new(StubEngine::settable(catalog()));
    let run = stub.start(1);
    let mut result = run.result();
    assert!(poll(&mut result).is_pending());
    let expected = RunResult::completed(json!("set")).with_agents_started(3);
    stub.handle.settle(expected.clone());
    assert_eq!(ready(result), expected);
    stub.handle.settle(RunResult::completed(json!("later")));
    assert_eq!(ready(run.result()), expected, "a run keeps its result");
}

#[test]
fn a_start_is_recorded_before_it_fails() {
    let stub = Fixture::new(StubEngine::settable(catalog()));
    let hooks = Arc::new(Mutex::new(0));
    let count = Arc::clone(&hooks);
    stub.handle.on_start(move || *count.lock().unwrap() += 1);
    stub.handle.fail_starts(Error::new(ErrorKind::Engine, "scripted"));
    let error = ready(stub.engine.start(request(7), CancellationToken::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Engine);
    assert_eq!(stub.handle.starts(), [request(7)]);
    assert_eq!(*hooks.lock().unwrap(), 1);
}

#[test]
fn every_disposal_gets_the_scripted_error_and_still_ends_the_run() {
    let stub = Fixture::new(StubEngine::settable(catalog()));
    stub.handle.ignore_cancels();
    stub.handle.fail_disposals(Error::new(ErrorKind::Release, "scripted"));
    let run = stub.start(1);
    for _ in 0..2 {
        assert_eq!(ready(run.dispose()).unwrap_err().kind(), ErrorKind::Release);
    }
    assert_eq!(ready(run.result()).stop_reason(), RunStopReason::Cancelled);
    assert_eq!(stub.handle.disposals(), 2);
    assert_eq!(stub.handle.abandoned(), 0);
}

#[test]
fn starts_and_disposals_can_be_held_back() {
    let stub = Fixture::new(StubEngine::settable(catalog()));
    stub.handle.hold_starts();
    let mut start = stub.engine.start(request(1), CancellationToken::new());
    assert!(poll(&mut start).is_pending());
    stub.handle.release_starts();
    let run = ready(start).unwrap();

    stub.handle.hold_disposals();
    let mut dispose = run.dispose();
    assert!(poll(&mut dispose).is_pending());
    let mut second = run.dispose();
    assert!(poll(&mut second).is_pending(), "the second disposal waits for the first");
    stub.handle.release_disposals();
    // The second waits for the first, which goes on when it is polled.
    ready(dispose).unwrap();
    ready(second).unwrap();
}

#[test]
fn a_dropped_run_is_cancelled_and_counted() {
    let stub = Fixture::new(StubEngine::settable(catalog()));
    drop(stub.start(1));
    assert_eq!(stub.handle.abandoned(), 1);
    assert_eq!(stub.invariants.open_runs(), []);
}

#[test]
fn a_waiter_that_gives_up_passes_the_body_on() {
    let stub = Fixture::new(StubEngine::running(catalog()));
    stub.handle.ignore_cancels();
    stub.handle.push_child(StubChild::value(json!(1)).after_cancel());
    let run = stub.start(1);
    let mut first = run.result();
    assert!(poll(&mut first).is_pending());
    let mut second = run.result();
    assert!(poll(&mut second).is_pending());
    drop(first);
    run.cancel("go on");
    assert_eq!(ready(second).value(), Some(&json!([1])));
}

#[test]
fn starts_are_checked_in_the_order_of_the_contract() {
    #[track_caller]
    fn check(engine: &StubEngine, request: StartRun, kind: ErrorKind) {
        let error = ready(engine.start(request, CancellationToken::new())).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let stub = Fixture::new(StubEngine::settable(catalog()));
    let mut wrong = request(1).with_args(deep).with_provider(" ").with_max_agents(0);
    wrong.workflow = WorkflowRef::new("caller", 2);
    check(&stub.engine, wrong.clone(), ErrorKind::UnknownWorkflow);
    wrong.workflow = WorkflowRef::new("caller", 1);
    check(&stub.engine, wrong.clone(), ErrorKind::InvalidArgument);
    check(&stub.engine, request(1).with_provider(" x"), ErrorKind::InvalidArgument);
    check(&stub.engine, request(1).with_max_agents(1001), ErrorKind::InvalidArgument);
    let run = ready(stub.engine.start(request(1).with_run_id("mine"), CancellationToken::new())).unwrap();
    assert_eq!(run.id().as_str(), "mine");
    check(&stub.engine, request(1).with_run_id("mine"), ErrorKind::RunExists);
}
