use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use harness_workflow::{
    AgentOutcome, CallEnd, CallOutcome, CatalogEntry, ContextLimits, ErrorCode, NumberedCall, Result,
    RunError, RunId, RunResult, Settlement, WorkflowContext, WorkflowEventKind, WorkflowHost, WorkflowMeta,
    WorkflowObservers, WorkflowRun,
};
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio_util::sync::CancellationToken;

use super::child::StubEnd;
use super::stream::{Stream, call_info};
use super::{Shared, StubChild, handle};

type Body = Pin<Box<dyn Future<Output = std::result::Result<Value, RunError>> + Send>>;

pub(super) struct StubRun {
    state: Arc<State>,
    meta: Arc<WorkflowMeta>,
    context: WorkflowContext,
    /// Whoever holds the lock polls the body; a waiter that gives up passes it on.
    body: AsyncMutex<Option<Body>>,
    disposal: OnceCell<Result<()>>,
    dispose_asked: AtomicBool,
}

struct State {
    engine: Arc<Shared>,
    observers: WorkflowObservers,
    id: RunId,
    settlement: Settlement,
    /// Stays when the settlement is claimed.
    cancel_reason: OnceLock<String>,
    cancel_asked: CancellationToken,
    stream: Stream,
    result: OnceLock<RunResult>,
    attempts: AtomicU64,
    checkpoint: Mutex<Option<Value>>,
}

impl StubRun {
    const MAX_ITEMS_PER_CALL: usize = 4096;

    pub(super) fn start(
        engine: Arc<Shared>,
        id: RunId,
        entry: &CatalogEntry,
        args: Value,
        max_agents: u64,
    ) -> Self {
        let state = Arc::new(State {
            observers: engine.observers.snapshot(),
            engine,
            stream: Stream::new(id.clone()),
            id,
            settlement: Settlement::default(),
            cancel_reason: OnceLock::new(),
            cancel_asked: CancellationToken::new(),
            result: OnceLock::new(),
            attempts: AtomicU64::new(0),
            checkpoint: Mutex::default(),
        });
        let host = Arc::new(StubHost { state: Arc::clone(&state) });
        let limits = ContextLimits::new(max_agents, Self::MAX_ITEMS_PER_CALL);
        let context = WorkflowContext::new(host, args, limits);
        let body: Option<Body> = state.engine.runs_bodies.then(|| {
            let workflow = Arc::clone(entry.workflow());
            let context = context.clone();
            let body = async move { workflow.run(context).await.map_err(RunError::from) };
            Box::pin(body) as Body
        });
        let meta = Arc::clone(entry.meta());
        state.tell(WorkflowEventKind::Started { meta: Arc::clone(&meta) });
        Self {
            state,
            meta,
            context,
            body: AsyncMutex::new(body),
            disposal: OnceCell::new(),
            dispose_asked: AtomicBool::new(false),
        }
    }

    /// Ends the run by whatever the script says, as long as it is polled.
    async fn drive(&self) {
        let mut body = self.body.lock().await;
        if self.state.settlement.is_claimed() {
            return;
        }
        let loses_runs = self.state.engine.script().loses_runs;
        if loses_runs {
            let lost = RunError::new(ErrorCode::ENGINE_LOST, "the script loses this run");
            self.state.end(self.with_counts(RunResult::failed(lost)));
        } else if let Some(future) = body.as_mut() {
            let end = contained(future).await;
            *body = None;
            self.state.engine.script().record.body_ends.push(end.clone());
            self.state.end(self.with_counts(end.map_or_else(RunResult::failed, RunResult::completed)));
        } else {
            let mut outcome = self.state.engine.script().outcome.subscribe();
            let outcome = outcome.wait_for(Option::is_some).await.expect("the run holds the sender").clone();
            self.state.end(outcome.expect("the wait was for a result"));
        }
    }

    fn end_as_cancelled(&self, reason: &str) {
        if self.state.settlement.request_cancel(reason) {
            self.state.cancel_reason.set(reason.to_owned()).expect("only the first request succeeds");
        }
        // The claim replaces this result by a cancelled one; only the counts and the checkpoint are of use.
        self.state.end(self.with_counts(RunResult::completed(Value::Null)));
    }

    fn with_counts(&self, result: RunResult) -> RunResult {
        let checkpoint = self.state.checkpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        result
            .with_agents_started(self.context.agents_started())
            .with_attempts(self.state.attempts.load(Ordering::Relaxed))
            .with_checkpoint(checkpoint)
    }

    /// Drops the body of a run that has ended, unless it is being polled: whoever polls it does that then.
    fn drop_body(&self) {
        if let Ok(mut body) = self.body.try_lock() {
            *body = None;
        }
    }
}

impl State {
    fn tell(&self, kind: WorkflowEventKind) {
        self.stream.tell(&self.observers, kind);
    }

    fn end(&self, result: RunResult) {
        let Some(claim) = self.settlement.claim() else { return };
        let result = claim.settle(result);
        let ended = WorkflowEventKind::Ended {
            stop_reason: result.stop_reason(),
            error: result.error().cloned(),
            agents_started: result.agents_started(),
            attempts: result.attempts(),
        };
        self.result.set(result).expect("only the one claim sets the result");
        self.stream.close(&self.observers, ended);
    }
}

/// Polls a body and turns its panic into an error.
async fn contained(body: &mut Body) -> std::result::Result<Value, RunError> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(RunError::new(ErrorCode::PANIC, panic_message(&*panic)))),
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text");
    format!("the body panicked: {text}")
}

#[async_trait]
impl WorkflowRun for StubRun {
    fn id(&self) -> &RunId {
        &self.state.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.meta
    }

    async fn result(&self) -> RunResult {
        tokio::select! {
            biased;
            () = self.state.stream.told_end().cancelled() => {}
            () = self.drive() => self.state.stream.told_end().cancelled().await,
        }
        self.drop_body();
        self.state.result.get().expect("the end is told after the result is set").clone()
    }

    fn cancel(&self, reason: &str) {
        let (hook, ignored) = {
            let mut script = self.state.engine.script();
            script.record.cancels.push(reason.to_owned());
            (script.on_cancel.clone(), script.ignores_cancel)
        };
        if let Some(hook) = hook {
            hook();
        }
        if !ignored {
            self.end_as_cancelled(reason);
        }
        self.state.cancel_asked.cancel();
        if !ignored {
            self.drop_body();
        }
    }

    async fn dispose(&self) -> Result<()> {
        self.dispose_asked.store(true, Ordering::Relaxed);
        let hook = {
            let mut script = self.state.engine.script();
            script.record.disposals += 1;
            script.on_dispose.clone()
        };
        if let Some(hook) = hook {
            hook();
        }
        let release = || async {
            self.end_as_cancelled("the run was disposed of");
            self.drop_body();
            let gate = self.state.engine.script().dispose_gate.subscribe();
            handle::pass(gate).await;
            match self.state.engine.script().dispose_error.clone() {
                Some(error) => Err(error),
                None => Ok(()),
            }
        };
        self.disposal.get_or_init(release).await.clone()
    }
}

impl Drop for StubRun {
    fn drop(&mut self) {
        if !self.dispose_asked.load(Ordering::Relaxed) {
            self.state.engine.script().record.abandoned += 1;
        }
        self.end_as_cancelled("the run was dropped");
    }
}

impl fmt::Debug for StubRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubRun").field("id", &self.state.id).finish_non_exhaustive()
    }
}

struct StubHost {
    state: Arc<State>,
}

impl fmt::Debug for StubHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubHost").field("run", &self.state.id).finish_non_exhaustive()
    }
}

impl StubHost {
    async fn play(&self, child: StubChild) -> std::result::Result<AgentOutcome, RunError> {
        if let Some(hook) = child.hook {
            hook();
        }
        if child.waits_for_cancel {
            self.state.cancel_asked.cancelled().await;
        }
        match child.end {
            StubEnd::Yields(outcome) => outcome,
            StubEnd::Never => std::future::pending().await,
        }
    }
}

#[async_trait]
impl WorkflowHost for StubHost {
    fn cancel_reason(&self) -> Option<String> {
        self.state.cancel_reason.get().cloned()
    }

    fn phase(&self, title: &str) {
        self.state.engine.script().record.phases.push(title.to_owned());
        self.state.tell(WorkflowEventKind::Phase { title: title.to_owned() });
    }

    fn log(&self, message: &str) {
        self.state.engine.script().record.logs.push(message.to_owned());
        self.state.tell(WorkflowEventKind::Log { message: message.to_owned() });
    }

    fn checkpoint(&self, value: Value) -> std::result::Result<(), RunError> {
        self.state.engine.script().record.checkpoints.push(value.clone());
        *self.state.checkpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(value.clone());
        self.state.tell(WorkflowEventKind::Checkpoint { value });
        Ok(())
    }

    async fn call(&self, call: NumberedCall) -> std::result::Result<AgentOutcome, RunError> {
        let child = {
            let mut script = self.state.engine.script();
            script.record.calls.push(call.clone());
            script.children.pop_front()
        };
        self.state.attempts.fetch_add(1, Ordering::Relaxed);
        let Some(child) = child else {
            let message = format!("the script has no child for call {}; push one more", call.number);
            return Err(RunError::new(ErrorCode::AGENT_START, message));
        };
        let info = call_info(&self.state.id, &call);
        let mut open = OpenCall { state: &self.state, info, end: CallEnd::new(CallOutcome::Cancelled) };
        self.state.stream.open_call(&self.state.observers, &open.info);
        let outcome = self.play(child).await;
        open.end = match &outcome {
            Ok(AgentOutcome::Value(_)) => CallEnd::new(CallOutcome::Completed),
            Ok(AgentOutcome::NoValue(why)) => {
                let mut end = CallEnd::new(CallOutcome::Failed);
                end.stop_reason = Some(why.stop_reason.clone());
                end.diagnostic.clone_from(&why.diagnostic);
                end
            }
            Err(_) => CallEnd::new(CallOutcome::Failed),
        };
        outcome
    }
}

/// Tells of the call's end, also when the body no longer waits for it.
struct OpenCall<'a> {
    state: &'a State,
    info: harness_workflow::CallInfo,
    end: CallEnd,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.state.stream.close_call(&self.state.observers, &self.info, self.end.clone());
    }
}
