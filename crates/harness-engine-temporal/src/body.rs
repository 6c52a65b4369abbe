//! The workflow that workers know: it runs a body of the catalog by hand.

use std::any::Any;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use harness_workflow::{
    CatalogEntry, ContextLimits, ErrorCode, NumberedCall, RunError, RunId, RunResult, WorkflowCatalog,
    WorkflowContext as BodyContext, WorkflowError, value,
};
use serde_json::{Value, json};
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, ContinueAsNewOptions, MemoValue,
    RetryPolicy, WorkflowCancellationToken, WorkflowContext, WorkflowResult, WorkflowTermination,
};

use crate::child::Calls;
use crate::host::Table;
use crate::wire::{
    self, Answer, CallReport, CallRequest, Carried, CarriedAnswer, MAX_BYTES, NOTES, Notes, RunInput,
    RunOutput, Verdict, activity_id,
};

/// The workflow type `harness-run`.
#[workflow]
pub(crate) struct RunWorkflow {
    catalog: WorkflowCatalog,
}

impl RunWorkflow {
    pub(crate) fn new(catalog: WorkflowCatalog) -> Self {
        Self { catalog }
    }
}

#[workflow_methods(factory_only)]
impl RunWorkflow {
    #[run(name = wire::RUN)]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>, input: RunInput) -> WorkflowResult<RunOutput> {
        let catalog = ctx.state(|state| state.catalog.clone());
        let ctx = &*ctx;
        // A worker that cannot run it leaves it to another one; a newer release may be on its way.
        if input.version != wire::VERSION {
            let message = format!("the run was started by version {} of the protocol", input.version);
            return give_back(ctx, message).await;
        }
        let Some(entry) = catalog.get(&input.request.workflow) else {
            return give_back(ctx, format!("{} is not in this worker's catalog", input.request.workflow))
                .await;
        };
        let mut drive = Drive::new(ctx, entry, input);
        poll_fn(|cx| drive.poll(cx)).await
    }
}

async fn give_back(ctx: &WorkflowContext<RunWorkflow>, message: String) -> WorkflowResult<RunOutput> {
    ctx.force_task_fail(message);
    std::future::pending().await
}

type Body = Pin<Box<dyn Future<Output = Result<Value, WorkflowError>> + Send>>;
type Activity<'a> = Pin<Box<dyn Future<Output = Result<CallReport, ActivityExecutionError>> + 'a>>;

/// One run under way.
///
/// The body is polled after each single answer, so the order of the answers alone decides what it does.
struct Drive<'a> {
    ctx: &'a WorkflowContext<RunWorkflow>,
    input: RunInput,
    run: RunId,
    table: Arc<Table>,
    body: Option<Body>,
    /// Makes the body, until it begins.
    begin: Option<Box<dyn FnOnce() -> Body>>,
    /// What the body came to, once it has ended.
    outcome: Option<RunResult>,
    cancelled: Option<String>,
    /// Answers from before the run went on with a fresh history, the next one first.
    carried: VecDeque<CarriedAnswer>,
    /// Everything that the body was answered, to be carried on.
    given: Vec<CarriedAnswer>,
    /// Calls that wait for a slot.
    waiting: VecDeque<NumberedCall>,
    open: Vec<Open<'a>>,
    attempts: u64,
    fence: u64,
    /// How many bytes of ours are in the history, about.
    bytes: u64,
}

/// An attempt that is under way.
struct Open<'a> {
    call: NumberedCall,
    attempt: u32,
    token: WorkflowCancellationToken,
    /// Nobody waits for the answer.
    dropped: bool,
    future: Activity<'a>,
}

impl<'a> Drive<'a> {
    fn new(ctx: &'a WorkflowContext<RunWorkflow>, entry: &CatalogEntry, mut input: RunInput) -> Self {
        let request = &input.request;
        let run = request.run_id.clone().unwrap_or_else(|| RunId::from(ctx.workflow_id()));
        let carried = input.carried.take().unwrap_or_default();
        let table = Table::new(carried.notes);
        let limits =
            ContextLimits::new(request.max_agents.unwrap_or(u64::MAX), input.limits.max_items_per_call);
        let context = BodyContext::new(Arc::clone(&table) as _, request.args.clone(), limits);
        let workflow = Arc::clone(entry.workflow());
        // The body's future owns its workflow, since it is polled from a place that borrows nothing.
        let begin = move || Box::pin(async move { workflow.run(context).await }) as Body;
        Self {
            ctx,
            run,
            table,
            body: None,
            begin: Some(Box::new(begin)),
            outcome: None,
            cancelled: input.cancelled.clone(),
            carried: carried.answers.into(),
            given: Vec::new(),
            waiting: VecDeque::new(),
            open: Vec::new(),
            attempts: carried.attempts,
            fence: carried.fence,
            bytes: wire::size(&input) as u64,
            input,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<WorkflowResult<RunOutput>> {
        self.look_for_cancellation();
        if self.begin.is_some() {
            self.begin_body();
        }
        loop {
            self.answer_from_before();
            match self.start_waiting() {
                Ok(()) => {}
                Err(fresh) => return Poll::Ready(Err(fresh)),
            }
            if !self.take_one_end(cx) {
                break;
            }
        }
        if self.outcome.is_none() && self.cancelled.is_some() && self.open.is_empty() {
            // Nothing can answer the body any more, so it would wait for ever.
            self.end_body(None);
        }
        match &self.outcome {
            Some(_) if self.open.is_empty() => Poll::Ready(Ok(self.output())),
            _ => {
                self.tell_notes();
                Poll::Pending
            }
        }
    }

    // ---- The body ----

    fn begin_body(&mut self) {
        let Some(begin) = self.begin.take() else { return };
        if let Some(reason) = &self.cancelled {
            self.table.stop(reason);
            self.end_body(None);
            return;
        }
        match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(body) => {
                self.body = Some(body);
                self.poll_body();
            }
            Err(panic) => self.end_body(Some(Err(self.panicked(&*panic)))),
        }
    }

    /// Polls the body once, and takes in what it asks for and what it has dropped.
    fn poll_body(&mut self) {
        let Some(body) = &mut self.body else { return };
        let mut cx = Context::from_waker(Waker::noop());
        let outcome = match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(outcome)) => Some(outcome.map_err(RunError::from)),
            Err(panic) => Some(Err(self.panicked(&*panic))),
        };
        if outcome.is_some() {
            self.end_body(outcome);
        }
        self.take_in();
    }

    fn take_in(&mut self) {
        self.waiting.extend(self.table.take_asked());
        for call in self.table.take_dropped() {
            self.waiting.retain(|waiting| waiting.number != call);
            if let Some(open) = self.open.iter_mut().find(|open| open.call.number == call) {
                open.dropped = true;
                open.token.cancel();
            }
        }
    }

    /// Drops the body, keeps what it came to, and ends what it has left. Without an outcome it is given up.
    fn end_body(&mut self, outcome: Option<Result<Value, RunError>>) {
        let body = self.body.take();
        // What the body leaves behind may panic too when it is dropped.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(body)));
        let outcome = match (outcome, dropped) {
            (Some(Ok(_)) | None, Err(panic)) => Some(Err(self.panicked(&*panic))),
            (outcome, _) => outcome,
        };
        let result = match (&self.cancelled, outcome) {
            (Some(reason), _) => RunResult::cancelled(RunError::cancelled(reason)),
            (None, Some(outcome)) => as_result(outcome),
            (None, None) => RunResult::failed(RunError::new(ErrorCode::ENGINE_LOST, "the body was given up")),
        };
        self.outcome = Some(result);
        self.table.stop("the run has ended");
        self.take_in();
        self.waiting.clear();
        for open in &mut self.open {
            open.dropped = true;
            open.token.cancel();
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> RunError {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no text");
        tracing::error!(run = %self.run, panic = text, "the body of a workflow panicked");
        RunError::new(ErrorCode::PANIC, format!("the body of run {} panicked: {text}", self.run))
            .with_details(json!({ "run": self.run }))
    }

    // ---- Cancellation ----

    fn look_for_cancellation(&mut self) {
        let token = self.ctx.cancellation_token();
        if self.cancelled.is_some() || self.outcome.is_some() || !token.is_cancelled() {
            return;
        }
        let reason = token.reason().unwrap_or_else(|| "the run was cancelled on the server".to_owned());
        self.table.stop(&reason);
        self.cancelled = Some(reason);
        for open in &self.open {
            open.token.cancel();
        }
        // A call that waits for a slot never starts.
        for call in std::mem::take(&mut self.waiting) {
            self.table.answer(call.number, Answer::Error(self.stopped()));
        }
        self.poll_body();
    }

    fn stopped(&self) -> RunError {
        RunError::cancelled(self.cancelled.as_deref().unwrap_or("the run has ended"))
    }

    // ---- Calls ----

    /// Answers what was answered before the run went on with a fresh history, in the order of then.
    fn answer_from_before(&mut self) {
        while self.outcome.is_none() && self.cancelled.is_none() {
            let Some(next) = self.carried.pop_front() else { return };
            let index = self.waiting.iter().position(|waiting| waiting.number == next.call);
            let Some(call) = index.and_then(|index| self.waiting.remove(index)) else {
                return self.end_body(Some(Err(mismatch(next.call, "was made, and is not made now"))));
            };
            if wire::sum(&call) != next.sum {
                return self.end_body(Some(Err(mismatch(next.call, "asked for something else"))));
            }
            self.give(next.call, next.sum, next.answer);
        }
    }

    fn give(&mut self, call: u64, sum: u32, answer: Answer) {
        self.given.push(CarriedAnswer { call, sum, answer: answer.clone() });
        self.table.answer(call, answer);
        self.poll_body();
    }

    /// Starts children while there are slots, or goes on with a fresh history.
    fn start_waiting(&mut self) -> Result<(), WorkflowTermination> {
        while self.outcome.is_none() && self.cancelled.is_none() && !self.waiting.is_empty() {
            // A child that the body has dropped is gone before another one comes.
            let is_ending = self.open.iter().any(|open| open.dropped);
            if is_ending || self.open.len() >= self.input.limits.max_concurrent {
                return Ok(());
            }
            if self.open.is_empty() && self.is_history_long() {
                self.go_on_with_a_fresh_history()?;
            }
            let Some(call) = self.waiting.pop_front() else { return Ok(()) };
            self.start(call, 1);
        }
        Ok(())
    }

    fn start(&mut self, call: NumberedCall, attempt: u32) {
        let limits = self.input.limits;
        let request = CallRequest {
            version: wire::VERSION,
            run: self.run.clone(),
            call: call.clone(),
            attempt,
            fence: self.fence + 1,
            provider: self.input.request.provider.clone().unwrap_or_default(),
            parent: self.input.request.parent.clone(),
            limit_ms: limits.call_limit_ms,
        };
        let bytes = wire::size(&request);
        if bytes > MAX_BYTES {
            let error = RunError::new(
                ErrorCode::AGENT_START,
                format!("a call of {bytes} bytes cannot be sent; at most {MAX_BYTES} can"),
            );
            self.give(call.number, wire::sum(&call), Answer::Error(error));
            return;
        }
        self.bytes += bytes as u64;
        self.fence += 1;
        self.attempts += 1;
        let token = WorkflowCancellationToken::new();
        // A worker ends a call at its limit by itself; the server's own limit is for workers that do not.
        let close = limits.call_limit() + limits.release() + Duration::from_secs(60);
        let options = ActivityOptions::with_start_to_close_timeout(close)
            .activity_id(activity_id(&call, attempt))
            .task_queue(self.input.queue.clone())
            .heartbeat_timeout(limits.heartbeat())
            .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
            .cancellation_token(token.clone())
            .retry_policy(RetryPolicy::builder().maximum_attempts(1).build())
            .summary(call.label.clone())
            // By whichever worker is free, and not by the one that happens to run the body.
            .do_not_eagerly_execute(true)
            .build();
        let ctx = self.ctx;
        let future: Activity<'a> = Box::pin(ctx.execute_activity(Calls::call, request, options));
        self.open.push(Open { call, attempt, token, dropped: false, future });
    }

    /// Takes in the end of one attempt, if there is one, and lets the body go on.
    fn take_one_end(&mut self, cx: &mut Context<'_>) -> bool {
        let ended =
            self.open.iter_mut().enumerate().find_map(|(index, open)| match open.future.as_mut().poll(cx) {
                Poll::Ready(result) => Some((index, result)),
                Poll::Pending => None,
            });
        let Some((index, result)) = ended else { return false };
        let open = self.open.remove(index);
        let is_over = open.dropped || self.cancelled.is_some();
        let answer = match result {
            Ok(report) => {
                self.bytes += wire::size(&report) as u64;
                match report.verdict {
                    Verdict::Answered(answer) => answer,
                    Verdict::Cancelled => Answer::Error(self.stopped()),
                }
            }
            Err(ActivityExecutionError::Cancelled(_)) => {
                // No worker has ever had it.
                self.attempts -= 1;
                Answer::Error(self.stopped())
            }
            Err(_) if is_over => Answer::Error(self.stopped()),
            Err(ActivityExecutionError::Failed(_))
                if open.attempt < self.input.limits.max_attempts_per_call =>
            {
                self.start(open.call, open.attempt + 1);
                return true;
            }
            Err(error) => Answer::Error(exhausted(&open, &error)),
        };
        if !open.dropped {
            self.give(open.call.number, wire::sum(&open.call), answer);
        }
        true
    }

    // ---- The history ----

    fn is_history_long(&self) -> bool {
        let limits = self.input.limits;
        let is_long = self.bytes > limits.history_bytes || self.ctx.history_length() > limits.history_events;
        is_long && !self.given.is_empty() && wire::size(&self.given) + wire::size(&self.input) < MAX_BYTES
    }

    fn go_on_with_a_fresh_history(&mut self) -> Result<(), WorkflowTermination> {
        self.tell_notes();
        let mut input = self.input.clone();
        input.carried = Some(Carried {
            answers: std::mem::take(&mut self.given),
            notes: self.table.heard(),
            attempts: self.attempts,
            fence: self.fence,
        });
        self.ctx.continue_as_new(input, ContinueAsNewOptions::default()).map(|never| match never {})
    }

    /// Writes down what the body has said since the last time.
    fn tell_notes(&mut self) {
        let Notes { mut first, notes } = self.table.take_notes();
        let mut notes = notes.into_iter().peekable();
        while notes.peek().is_some() {
            // Several pieces when one would be too large.
            let mut piece = Vec::new();
            let mut bytes = 0;
            while let Some(note) =
                notes.next_if(|note| piece.is_empty() || bytes + wire::size(note) < MAX_BYTES)
            {
                bytes += wire::size(&note);
                piece.push(note);
            }
            self.bytes += bytes as u64;
            let count = piece.len() as u64;
            let told = self.ctx.upsert_memo([(NOTES, Some(MemoValue::new(Notes { first, notes: piece })))]);
            if let Err(error) = told {
                tracing::error!(run = %self.run, %error, "what the body said cannot be written down");
            }
            first += count;
        }
    }

    fn output(&mut self) -> RunOutput {
        let mut notes = self.table.take_notes();
        let result = self.outcome.take().unwrap_or_else(|| RunResult::completed(Value::Null));
        let mut result = self.counted(result);
        let bytes = wire::size(&result);
        if bytes > MAX_BYTES {
            let message = format!("a result of {bytes} bytes cannot be stored; at most {MAX_BYTES} can be");
            let checkpoint = result.checkpoint().filter(|value| wire::size(value) < MAX_BYTES / 2).cloned();
            let failed = RunResult::failed(RunError::new(ErrorCode::RESULT_UNSERIALIZABLE, message));
            result = self.counted(failed).with_checkpoint(checkpoint);
        }
        if wire::size(&notes) + wire::size(&result) > MAX_BYTES {
            tracing::warn!(run = %self.run, "the last words of the body are too long to be kept");
            notes.notes.clear();
        }
        RunOutput { result, notes }
    }

    fn counted(&self, result: RunResult) -> RunResult {
        result
            .with_agents_started(self.table.agents_started())
            .with_attempts(self.attempts)
            .with_checkpoint(self.table.checkpoint_value())
    }
}

fn as_result(outcome: Result<Value, RunError>) -> RunResult {
    match outcome {
        Ok(value) => match value::check(&value) {
            Ok(()) => RunResult::completed(value),
            Err(error) => RunResult::failed(RunError::new(
                ErrorCode::RESULT_UNSERIALIZABLE,
                format!("the body's value cannot be stored: {error}"),
            )),
        },
        // Details that could not be read back would make the whole end unreadable.
        Err(error) if error.details().is_some_and(|details| value::check(details).is_err()) => {
            RunResult::failed(RunError::new(error.code().clone(), error.message()))
        }
        Err(error) => RunResult::failed(error),
    }
}

fn mismatch(call: u64, what: &str) -> RunError {
    RunError::new(
        ErrorCode::REPLAY_MISMATCH,
        format!("call {call} of the body {what}; a body whose calls change needs a new version"),
    )
    .with_details(json!({ "call": call }))
}

fn exhausted(open: &Open<'_>, error: &ActivityExecutionError) -> RunError {
    let (number, attempts) = (open.call.number, open.attempt);
    RunError::new(
        ErrorCode::ATTEMPTS_EXHAUSTED,
        format!("call {number} was tried {attempts} times and never came to its end; the last time: {error}"),
    )
    .with_details(json!({ "call": number, "attempts": attempts }))
}
