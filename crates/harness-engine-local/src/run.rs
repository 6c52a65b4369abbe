use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Wake;

use async_trait::async_trait;
use harness_subagent::{AgentId, Parent, SubagentProvider};
use harness_workflow::{
    CallEnd, CallInfo, CallOutcome, ContextLimits, Error, ErrorCode, ErrorKind, Result, RunError, RunId,
    RunResult, RunStopReason, Settlement, Workflow, WorkflowContext, WorkflowEvent, WorkflowEventKind,
    WorkflowMeta, WorkflowObservers, WorkflowRun,
};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Duration, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::body::{self, LostUnlessSettled, TOKEN_CANCELLED};
use crate::child::Child;
use crate::engine::Shared;
use crate::history::{RunHistory, RunState};
use crate::journal::{Entry, Journal};
use crate::recorder::Recorder;

/// All that a run is made of.
pub(crate) struct NewRun {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtime: Handle,
    pub(crate) id: RunId,
    pub(crate) meta: Arc<WorkflowMeta>,
    pub(crate) workflow: Arc<dyn Workflow>,
    pub(crate) provider: Arc<dyn SubagentProvider>,
    pub(crate) observers: Option<Box<WorkflowObservers>>,
    pub(crate) parent: Parent,
    pub(crate) args: Value,
    pub(crate) max_agents: u64,
    /// Its journal, open for writing, and what stands in it.
    pub(crate) journal: Option<(Box<dyn Journal>, RunHistory)>,
}

/// One run: what its body's context, its holder, and the tasks that end it share.
///
/// There is one allocation of it for each run and one task, which polls the body. Other tasks exist only
/// while a cancelled run is given its grace, while a child that no call waits for is disposed of, and while
/// the run itself is.
pub(crate) struct Run {
    me: Weak<Self>,
    pub(crate) shared: Arc<Shared>,
    runtime: Handle,
    id: RunId,
    meta: Arc<WorkflowMeta>,
    pub(crate) provider: Arc<dyn SubagentProvider>,
    pub(crate) parent: Arc<Parent>,
    /// Those that were there at the start. Without any, no event is made.
    observers: Option<Box<WorkflowObservers>>,
    settlement: Settlement,
    /// Whether the settlement is anything but open, to be asked without its lock.
    is_over: AtomicBool,
    /// Stops all children. It is none of the caller's tokens, so that a child never ends before the run knows of
    /// its cancellation.
    pub(crate) children_stop: CancellationToken,
    pub(crate) slots: Semaphore,
    pub(crate) agents_started: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Held while observers hear of an event, so that they hear of all in one order. Whatever an observer may
    /// call in turn, `cancel` above all, does without it.
    book: Mutex<Book>,
    result: OnceLock<Box<RunResult>>,
    /// Tells of the result, of the disposal's end, and, while somebody waits for that, of each child's end.
    changed: Notify,
    awaits_children: AtomicBool,
    disposal: Mutex<Disposal>,
}

#[derive(Default)]
struct Book {
    sequence: u64,
    /// No event may follow.
    closed: bool,
    /// The children that have not been disposed of.
    children: Vec<Arc<Child>>,
    checkpoint: Option<Value>,
    task: Option<AbortHandle>,
    /// The result, from the claim until it is published.
    pending: Option<Box<RunResult>>,
    release_error: Option<Error>,
}

#[derive(Default)]
enum Disposal {
    #[default]
    Due,
    UnderWay,
    Done(Result<()>),
}

impl NewRun {
    /// Brings the run to life and hands it to its holder. A run that has ended stays as it is.
    pub(crate) fn start(self, cancellation: CancellationToken) -> LocalRun {
        let mut book = Book::default();
        let (mut agents_started, mut attempts, mut cancel_reason, mut end) = (0, 0, None, None);
        let recorder = self.journal.map(|(journal, mut history)| {
            agents_started = history.agents_started();
            attempts = history.attempts();
            cancel_reason = history.cancel_reason.take();
            book.checkpoint = history.checkpoint.take();
            if let RunState::Finished(result) = &history.state {
                end = Some(result.clone());
            }
            Box::new(Recorder::new(journal, history, self.shared.config.max_attempts_per_call.get()))
        });
        let limits = ContextLimits::new(self.max_agents, self.shared.config.max_items_per_call.get());
        let run = Arc::new_cyclic(|me| Run {
            me: Weak::clone(me),
            slots: Semaphore::new(self.shared.slots),
            shared: self.shared,
            runtime: self.runtime,
            id: self.id,
            meta: self.meta,
            provider: self.provider,
            parent: Arc::new(self.parent),
            observers: self.observers,
            settlement: Settlement::default(),
            is_over: AtomicBool::new(false),
            children_stop: CancellationToken::new(),
            agents_started: AtomicU64::new(agents_started),
            attempts: AtomicU64::new(attempts),
            recorder,
            book: Mutex::new(book),
            result: OnceLock::new(),
            changed: Notify::new(),
            awaits_children: AtomicBool::new(false),
            disposal: Mutex::default(),
        });
        if let Some(end) = end {
            run.stay_ended(end);
            return LocalRun { run };
        }
        if let Some(reason) = &cancel_reason {
            run.request_cancel(reason);
        } else if cancellation.is_cancelled() {
            run.request_cancel(TOKEN_CANCELLED);
            run.note(|| Entry::CancelRequested { reason: TOKEN_CANCELLED.to_owned() });
        }
        run.emit(|| WorkflowEventKind::Started { meta: Arc::clone(&run.meta) });
        let context = WorkflowContext::new(Arc::clone(&run) as _, self.args, limits);
        let task = body::drive(LostUnlessSettled(Arc::clone(&run)), self.workflow, context, cancellation);
        let span = harness_workflow::trace::run_span(&run.id);
        let task = if span.is_disabled() {
            run.runtime.spawn(task)
        } else {
            run.runtime.spawn(task.instrument(span))
        };
        let mut book = run.book();
        if !book.closed {
            book.task = Some(task.abort_handle());
        }
        drop(book);
        LocalRun { run }
    }
}

impl Run {
    pub(crate) fn id(&self) -> &RunId {
        &self.id
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls a method of a run holds it")
    }

    // ---- Cancellation ----

    /// Returns why the body may not go on.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        self.is_over()
            .then(|| self.settlement.cancel_reason().unwrap_or_else(|| "the run has ended".to_owned()))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn request_cancel(&self, reason: &str) -> bool {
        let is_first = self.settlement.request_cancel(reason);
        self.is_over.store(true, Ordering::Release);
        is_first
    }

    /// Records the request and gives the run its grace.
    pub(crate) fn cancel(&self, reason: &str) {
        if !self.request_cancel(reason) {
            return;
        }
        self.stop_children();
        self.note(|| Entry::CancelRequested { reason: reason.to_owned() });
        let run = self.arc();
        self.runtime.spawn(async move { run.end_within_the_grace().await });
    }

    /// Asks all children to stop and lets no other start.
    fn stop_children(&self) {
        self.children_stop.cancel();
        self.slots.close();
    }

    /// Watches over a cancelled run: its children get half of the grace to stop by themselves.
    async fn end_within_the_grace(&self) {
        let grace = self.shared.config.cancellation_grace;
        let half = grace / 2;
        if self.settles_within(half).await {
            return;
        }
        self.release_children();
        if self.settles_within(grace - half).await {
            return;
        }
        self.force().await;
    }

    async fn settles_within(&self, limit: Duration) -> bool {
        timeout(limit, self.wait_until(|| self.result.get().is_some())).await.is_ok()
    }

    /// Waits until `condition`, of something that [`changed`](Self::changed) tells of, holds.
    async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until `condition`, of the children in the book, holds.
    async fn await_children(&self, condition: impl FnMut() -> bool) {
        // Whoever takes a child out of the book after the condition was looked at sees this: both hold the book's lock.
        self.awaits_children.store(true, Ordering::Relaxed);
        self.wait_until(condition).await;
    }

    // ---- Settlement ----

    /// Claims the run's end and keeps its result until it is published. Only the first claim succeeds.
    pub(crate) fn claim(&self, result: impl FnOnce() -> RunResult) -> bool {
        let mut book = self.book();
        let Some(claim) = self.settlement.claim() else { return false };
        self.is_over.store(true, Ordering::Release);
        let result = result()
            .with_agents_started(self.agents_started.load(Ordering::Relaxed))
            .with_attempts(self.attempts.load(Ordering::Relaxed))
            .with_checkpoint(book.checkpoint.take());
        book.pending = Some(Box::new(claim.settle(result)));
        true
    }

    /// Ends what the body has left, and makes the claimed result known.
    pub(crate) async fn wind_up(&self) {
        self.stop_children();
        if self.has_children() {
            Box::pin(self.clean_up()).await;
        }
        if self.recorder.is_some() {
            Box::pin(self.seal(true)).await;
        }
        self.publish();
    }

    /// Ends the children that the body has left, within the grace.
    async fn clean_up(&self) {
        self.release_children();
        let grace = self.shared.config.cancellation_grace;
        let gone = timeout(grace, self.await_children(|| !self.has_children())).await;
        if gone.is_err() {
            tracing::warn!(run = %self.id, "children outlive the grace and are given up");
        }
    }

    /// Records the claimed result as the end of the run, for good.
    ///
    /// A run whose journal cannot be written, or is not that of its body, keeps its journal as it is, so that it can
    /// be resumed. `body_has_ended` says that the body has made all its calls.
    async fn seal(&self, body_has_ended: bool) {
        const LIMIT: Duration = Duration::from_secs(10);
        let Some(recorder) = &self.recorder else { return };
        let Some(result) = self.book().pending.clone() else { return };
        let is_cancelled = result.stop_reason() == RunStopReason::Cancelled;
        let outcome = match recorder.mismatch(body_has_ended && !is_cancelled) {
            Some(mismatch) => Err(mismatch),
            None => {
                let entry = Entry::RunFinished { result: *result };
                timeout(LIMIT, recorder.record_synced_elsewhere(entry)).await.unwrap_or_else(|_| {
                    Err(RunError::new(
                        ErrorCode::JOURNAL,
                        "the end could not be recorded in time; resume the run",
                    ))
                })
            }
        };
        let Err(error) = outcome else { return };
        tracing::warn!(run = %self.id, %error, "the end of a run is not recorded");
        let mut book = self.book();
        if let Some(pending) = book.pending.as_deref_mut()
            && !is_cancelled
        {
            *pending = RunResult::failed(error)
                .with_agents_started(pending.agents_started())
                .with_attempts(pending.attempts())
                .with_checkpoint(pending.checkpoint().cloned());
        }
    }

    /// Ends a run whose body has not come to its end in time. The body is dropped, if it ever returns from `poll`.
    async fn force(&self) {
        let reason = self.stop_reason().unwrap_or_default();
        if self.claim(|| RunResult::cancelled(RunError::cancelled(&reason))) {
            tracing::warn!(run = %self.id, "the body has not ended within the grace and is given up");
        }
        self.stop_children();
        self.release_children();
        if let Some(task) = self.book().task.take() {
            task.abort();
        }
        self.seal(false).await;
        self.publish();
    }

    /// Ends a run whose task is gone.
    pub(crate) fn lose(&self) {
        self.claim(|| {
            RunResult::failed(RunError::new(
                ErrorCode::ENGINE_LOST,
                "the runtime of the engine has shut down; start the run again",
            ))
        });
        self.publish();
    }

    /// Reports every end that has not been reported, the run's last, and hands the result to whoever waits.
    fn publish(&self) {
        let mut book = self.book();
        let Some(result) = book.pending.take() else { return };
        let children = book.children.clone();
        for child in children {
            if child.claim_report() {
                self.report(&mut book, || child_ended(&child, CallEnd::new(CallOutcome::Cancelled)));
            }
        }
        self.report(&mut book, || WorkflowEventKind::Ended {
            stop_reason: result.stop_reason(),
            error: result.error().cloned(),
            agents_started: result.agents_started(),
            attempts: result.attempts(),
        });
        book.closed = true;
        book.task = None;
        drop(book);
        self.shared.known.end(&self.id);
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
        // Only the holder of the pending result gets here, so the cell is empty.
        let _ = self.result.set(result);
        self.changed.notify_waiters();
    }

    /// Makes known how a run ended before it was taken up. Nothing happens in it any more.
    fn stay_ended(&self, result: RunResult) {
        // The claim keeps a cancellation from having any effect.
        drop(self.settlement.claim());
        self.is_over.store(true, Ordering::Release);
        self.book().closed = true;
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
        let _ = self.result.set(Box::new(result));
    }

    // ---- Children ----

    /// Takes a started child in and reports it. Of one that comes too late, nobody hears.
    pub(crate) fn admit(&self, child: &Arc<Child>) -> std::result::Result<(), RunError> {
        let mut book = self.book();
        book.children.push(Arc::clone(child));
        if let Some(reason) = self.stop_reason() {
            child.claim_report();
            return Err(RunError::cancelled(&reason));
        }
        self.report(&mut book, || WorkflowEventKind::AgentStarted { call: call_info(child) });
        Ok(())
    }

    /// Reports how a child ended, unless that has been done. `end` is there if the run is observed.
    pub(crate) fn report_end(&self, child: &Child, end: Option<Box<CallEnd>>) {
        if !self.is_observed() {
            return;
        }
        let mut book = self.book();
        if let Some(end) = end
            && child.claim_report()
        {
            self.report(&mut book, || child_ended(child, *end));
        }
    }

    /// Disposes of a child. Only whoever has claimed its disposal calls it.
    pub(crate) async fn release(&self, child: &Arc<Child>) {
        if let Err(error) = child.run.dispose().await {
            tracing::warn!(run = %self.id, child = %child.run.id(), %error, "a child could not be released");
            self.note_release_error(child.run.id(), error);
        }
        // One that no call has waited for to its end is told of now, when nothing can be added any more.
        if self.recorder.is_some() && child.claim_record() {
            let (call, attempt, end) = (child.call, child.attempt, child.cancelled_end());
            self.note(|| Entry::AgentStopped { call, attempt, end });
        }
        if self.is_observed() && !child.is_reported() {
            self.report_end(child, Some(Box::new(child.cancelled_end())));
        }
        self.forget(child);
    }

    pub(crate) fn release_in_background(&self, child: Arc<Child>) {
        let run = self.arc();
        self.runtime.spawn(async move { run.release(&child).await });
    }

    /// Begins the disposal of every child for which nobody has done that.
    fn release_children(&self) {
        let children = self.book().children.clone();
        for child in children {
            if child.claim_disposal() {
                self.release_in_background(child);
            }
        }
    }

    /// Waits until somebody else has disposed of a child.
    pub(crate) async fn until_gone(&self, child: &Arc<Child>) {
        self.await_children(|| !self.book().children.iter().any(|known| Arc::ptr_eq(known, child))).await;
    }

    /// Takes a child out that has been disposed of, and gives its slot back.
    fn forget(&self, child: &Arc<Child>) {
        let mut book = self.book();
        let Some(index) = book.children.iter().position(|known| Arc::ptr_eq(known, child)) else { return };
        book.children.swap_remove(index);
        drop(book);
        self.slots.add_permits(1);
        // Whoever waits for the result need not be woken by every child of the run.
        if self.awaits_children.load(Ordering::Relaxed) {
            self.changed.notify_waiters();
        }
    }

    fn has_children(&self) -> bool {
        !self.book().children.is_empty()
    }

    fn note_release_error(&self, child: &AgentId, error: harness_subagent::Error) {
        self.book().release_error.get_or_insert_with(|| {
            Error::new(ErrorKind::Release, format!("child {child} could not be released")).with_source(error)
        });
    }

    // ---- Events ----

    pub(crate) fn is_observed(&self) -> bool {
        self.observers.is_some()
    }

    pub(crate) fn emit(&self, kind: impl FnOnce() -> WorkflowEventKind) {
        if self.is_observed() {
            self.report(&mut self.book(), kind);
        }
    }

    /// Records and reports what the body says, unless it says it too late or has said it before.
    pub(crate) fn narrate(&self, kind: impl FnOnce() -> WorkflowEventKind, entry: impl FnOnce() -> Entry) {
        if self.recorder.as_ref().is_some_and(|recorder| recorder.has_heard()) {
            return;
        }
        self.note(entry);
        if self.is_observed() {
            let mut book = self.book();
            if !self.is_over() {
                self.report(&mut book, kind);
            }
        }
    }

    pub(crate) fn keep_checkpoint(&self, value: Value) -> std::result::Result<(), RunError> {
        if let Some(recorder) = &self.recorder {
            if recorder.has_heard() {
                self.book().checkpoint = Some(value);
                return Ok(());
            }
            recorder.note(Entry::Checkpoint { value: value.clone() })?;
        }
        let mut book = self.book();
        if !self.is_over() {
            self.report(&mut book, || WorkflowEventKind::Checkpoint { value: value.clone() });
            book.checkpoint = Some(value);
        }
        Ok(())
    }

    /// Records what may be lost with the machine. If it cannot be, the next call says so.
    pub(crate) fn note(&self, entry: impl FnOnce() -> Entry) {
        if let Some(recorder) = &self.recorder {
            let _ = recorder.note(entry());
        }
    }

    fn report(&self, book: &mut Book, kind: impl FnOnce() -> WorkflowEventKind) {
        if let Some(observers) = &self.observers
            && !book.closed
        {
            book.sequence += 1;
            observers.notify(&WorkflowEvent::new(self.id.clone(), book.sequence, kind()));
        }
    }

    // ---- Disposal ----

    /// Begins the disposal, if that has not been done.
    fn begin_disposal(&self) {
        let mut disposal = self.disposal.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*disposal, Disposal::Due) {
            return;
        }
        if self.result.get().is_some() && !self.has_children() {
            *disposal = Disposal::Done(self.release_outcome());
            return;
        }
        *disposal = Disposal::UnderWay;
        drop(disposal);
        self.cancel("the run was disposed of");
        let finish = FinishDisposal(self.arc());
        self.runtime.spawn(async move {
            let run = &finish.0;
            run.release_children();
            let grace = run.shared.config.cancellation_grace;
            let gone = || run.result.get().is_some() && !run.has_children();
            if timeout(grace, run.await_children(gone)).await.is_err() {
                run.force().await;
            }
        });
    }

    fn release_outcome(&self) -> Result<()> {
        let book = self.book();
        match &book.release_error {
            Some(error) => Err(error.clone()),
            None if book.children.is_empty() => Ok(()),
            None => Err(Error::new(
                ErrorKind::Release,
                format!("{} children outlive the grace and are given up", book.children.len()),
            )),
        }
    }

    fn disposal_outcome(&self) -> Option<Result<()>> {
        match &*self.disposal.lock().unwrap_or_else(PoisonError::into_inner) {
            Disposal::Done(outcome) => Some(outcome.clone()),
            Disposal::Due | Disposal::UnderWay => None,
        }
    }
}

/// Ends a disposal, also when its task is dropped with its runtime.
struct FinishDisposal(Arc<Run>);

impl Drop for FinishDisposal {
    fn drop(&mut self) {
        let run = &self.0;
        let outcome = run.release_outcome();
        *run.disposal.lock().unwrap_or_else(PoisonError::into_inner) = Disposal::Done(outcome);
        run.changed.notify_waiters();
    }
}

fn call_info(child: &Child) -> CallInfo {
    *child.info.clone().expect("children of observed runs are described")
}

fn child_ended(child: &Child, end: CallEnd) -> WorkflowEventKind {
    WorkflowEventKind::AgentEnded { call: call_info(child), end }
}

/// The waker of the token given to `start`: what it wakes is the run's cancellation.
impl Wake for Run {
    fn wake(self: Arc<Self>) {
        self.cancel(TOKEN_CANCELLED);
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("settlement", &self.settlement)
            .finish_non_exhaustive()
    }
}

/// The holder's side of a run.
#[derive(Debug)]
pub(crate) struct LocalRun {
    run: Arc<Run>,
}

#[async_trait]
impl WorkflowRun for LocalRun {
    fn id(&self) -> &RunId {
        &self.run.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.run.meta
    }

    async fn result(&self) -> RunResult {
        self.run.wait_until(|| self.run.result.get().is_some()).await;
        self.run.result.get().map(|result| RunResult::clone(result)).expect("the wait is for the result")
    }

    fn cancel(&self, reason: &str) {
        self.run.cancel(reason);
    }

    async fn dispose(&self) -> Result<()> {
        self.run.begin_disposal();
        let mut outcome = None;
        self.run
            .wait_until(|| {
                outcome = self.run.disposal_outcome();
                outcome.is_some()
            })
            .await;
        outcome.expect("the wait is for the outcome")
    }
}

impl Drop for LocalRun {
    fn drop(&mut self) {
        self.run.begin_disposal();
    }
}
