use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use harness_workflow::{ErrorCode, RunError, RunResult, Workflow, WorkflowContext, WorkflowError, value};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::run::Run;

/// Polls the body of `run` to its end and settles the run: the task of a run.
pub(crate) async fn drive(
    run: LostUnlessSettled,
    workflow: Arc<dyn Workflow>,
    context: WorkflowContext,
    cancellation: CancellationToken,
) {
    let run = &run.0;
    // The token's waker cancels the run on the thread that cancels the token: no task waits for it, and a body
    // that does not return from `poll` is no hindrance.
    let mut cancelled = pin!(cancellation.cancelled_owned());
    let waker = Waker::from(Arc::clone(run));
    if cancelled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        run.cancel(TOKEN_CANCELLED);
    }
    let outcome = if run.is_over() {
        drop(context);
        Err(RunError::cancelled(TOKEN_CANCELLED))
    } else {
        poll_body(run, &*workflow, context).await
    };
    if run.claim(|| as_result(outcome)) {
        run.wind_up().await;
    }
}

pub(crate) const TOKEN_CANCELLED: &str = "the token given to start was cancelled";

async fn poll_body(run: &Run, workflow: &dyn Workflow, context: WorkflowContext) -> Result<Value, RunError> {
    type Body<'a> = Pin<Box<dyn Future<Output = Result<Value, WorkflowError>> + Send + 'a>>;

    let guarded = |poll: &mut dyn FnMut() -> Poll<Result<Value, WorkflowError>>| match catch_unwind(
        AssertUnwindSafe(poll),
    ) {
        Ok(poll) => poll.map_err(RunError::from),
        Err(panic) => Poll::Ready(Err(panicked(run, &*panic))),
    };
    let mut body: Option<Body<'_>> = None;
    let mut context = Some(context);
    let outcome = poll_fn(|cx| {
        guarded(&mut || {
            if let Some(context) = context.take() {
                body = Some(workflow.run(context));
            }
            match &mut body {
                Some(body) => body.as_mut().poll(cx),
                None => Poll::Pending,
            }
        })
    })
    .await;
    // What the body leaves behind may panic too when it is dropped.
    match catch_unwind(AssertUnwindSafe(|| drop(body.take()))) {
        Ok(()) => outcome,
        Err(panic) => outcome.and(Err(panicked(run, &*panic))),
    }
}

fn panicked(run: &Run, panic: &(dyn Any + Send)) -> RunError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    tracing::error!(run = %run.id(), panic = text, "the body of a workflow panicked");
    RunError::new(ErrorCode::PANIC, format!("the body of run {} panicked: {text}", run.id()))
        .with_details(json!({ "run": run.id() }))
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

/// Ends a run whose task is dropped before its end, since its runtime shuts down.
///
/// The task gets it from outside: it may be dropped before it is polled at all.
pub(crate) struct LostUnlessSettled(pub(crate) Arc<Run>);

impl Drop for LostUnlessSettled {
    fn drop(&mut self) {
        self.0.lose();
    }
}
