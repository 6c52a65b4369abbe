//! A client's side of one run.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::StreamExt;
use harness_workflow::{
    CallEnd, CallInfo, CallOutcome, Error, ErrorCode, ErrorKind, Result, RunError, RunId, RunResult,
    Settlement, WorkflowEvent, WorkflowEventKind, WorkflowMeta, WorkflowObservers, WorkflowRun,
};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, HistoryEventFilterType, UntypedWorkflow, WorkflowCancelOptions, WorkflowDescribeOptions,
    WorkflowExecutionInfo, WorkflowFetchHistoryOptions, WorkflowHandle,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::child::micros;
use crate::fold::{Attempt, Fold, Happening};
use crate::wire::{self, Beat, Note, StartedChild};

/// How long a client waits before it asks a server again that has not answered.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) const TOKEN_CANCELLED: &str = "the token given to start was cancelled";

/// What a run is followed with.
pub(crate) struct NewRun {
    pub(crate) client: Client,
    pub(crate) id: RunId,
    pub(crate) meta: Arc<WorkflowMeta>,
    /// The first history to follow.
    pub(crate) execution: String,
    pub(crate) observers: WorkflowObservers,
    pub(crate) grace: Duration,
    pub(crate) watch_interval: Duration,
    /// How many events of the history are old, of a run that was under way before.
    pub(crate) old_events: i64,
    /// Why it was cancelled before it began.
    pub(crate) cancelled: Option<String>,
    /// Nothing happens in it any more, so nothing is told of it.
    pub(crate) silent: bool,
}

/// One run: what its holders and the tasks that follow it share.
pub(crate) struct Run {
    client: Client,
    runtime: Handle,
    id: RunId,
    meta: Arc<WorkflowMeta>,
    observers: WorkflowObservers,
    grace: Duration,
    watch_interval: Duration,
    settlement: Settlement,
    /// The tasks that follow the run are to end.
    over: CancellationToken,
    /// Held while observers hear of an event, so that they hear of all in one order. Whatever an observer may call in
    /// turn, `cancel` above all, does without it.
    book: Mutex<Book>,
    /// When the run was cancelled by this client's clock, or else by the server's.
    cancelled_at: OnceLock<u64>,
    result: OnceLock<RunResult>,
    changed: Notify,
    holders: AtomicUsize,
    disposal: Mutex<Disposal>,
}

#[derive(Default)]
struct Book {
    sequence: u64,
    closed: bool,
    fold: Fold,
    /// Children whose start was told and whose end was not.
    told: HashMap<(u64, u32), Told>,
    /// Attempts that have ended. What comes late of them is not told.
    ended: HashSet<(u64, u32)>,
}

struct Told {
    info: CallInfo,
    /// The number of the last activity that was told.
    activity: u64,
}

#[derive(Default)]
enum Disposal {
    #[default]
    Due,
    UnderWay,
    Done(Result<()>),
}

impl NewRun {
    /// Tells of the run and follows it.
    pub(crate) fn follow(self, runtime: Handle) -> Arc<Run> {
        let run = Arc::new(Run {
            client: self.client,
            runtime,
            id: self.id,
            meta: self.meta,
            observers: self.observers,
            grace: self.grace,
            watch_interval: self.watch_interval,
            settlement: Settlement::default(),
            over: CancellationToken::new(),
            book: Mutex::default(),
            cancelled_at: OnceLock::new(),
            result: OnceLock::new(),
            changed: Notify::new(),
            holders: AtomicUsize::new(0),
            disposal: Mutex::default(),
        });
        if let Some(reason) = &self.cancelled {
            run.settlement.request_cancel(reason);
            let _ = run.cancelled_at.set(micros(SystemTime::now()));
        }
        run.book().closed = self.silent;
        run.emit(&mut run.book(), || WorkflowEventKind::Started { meta: Arc::clone(&run.meta) });
        run.runtime.spawn(follow(Arc::clone(&run), self.execution, self.old_events));
        if !run.observers.is_empty() {
            run.runtime.spawn(watch(Arc::clone(&run)));
        }
        run
    }
}

/// Reads the history until the run has ended.
async fn follow(run: Arc<Run>, mut execution: String, mut old_events: i64) {
    while !run.over.is_cancelled() {
        let options = WorkflowFetchHistoryOptions::builder()
            .skip_archival(true)
            .wait_new_event(true)
            .event_filter_type(HistoryEventFilterType::AllEvent)
            .build();
        let mut events = run.handle(Some(execution.clone())).fetch_history(options);
        let next = loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = run.over.cancelled() => return,
            };
            match event {
                Some(Ok(event)) => {
                    let is_old = event.event_id <= old_events;
                    match run.take(event, is_old) {
                        Next::Goes => {}
                        Next::GoesOn(execution) => break Some(execution),
                        Next::Ended => return,
                    }
                }
                Some(Err(WorkflowInteractionError::NotFound(status))) => {
                    run.lose(&format!("the server does not know the run any more: {}", status.message()));
                    return;
                }
                Some(Err(error)) => {
                    tracing::warn!(run = %run.id, %error, "the history cannot be read; trying again");
                    break None;
                }
                // The server had no more to say for now.
                None => break None,
            }
        };
        match next {
            Some(next) => {
                execution = next;
                old_events = 0;
            }
            None => sleep(PAUSE).await,
        }
    }
}

/// Asks what the children do, while there are any.
async fn watch(run: Arc<Run>) {
    loop {
        tokio::select! {
            () = sleep(run.watch_interval) => {}
            () = run.over.cancelled() => return,
        }
        if run.book().fold.open().next().is_none() {
            continue;
        }
        let description = match run.handle(None).describe(WorkflowDescribeOptions::default()).await {
            Ok(description) => description.into_raw(),
            Err(error) => {
                tracing::debug!(run = %run.id, %error, "the run cannot be described; trying again");
                continue;
            }
        };
        for activity in description.pending_activities {
            let id = wire::read_activity_id(&activity.activity_id);
            let beat = wire::read_first::<Beat>(activity.heartbeat_details.as_ref());
            if let (Some(id), Some(beat)) = (id, beat) {
                run.take_beat(id, beat);
            }
        }
    }
}

/// What follows an event of a history.
enum Next {
    Goes,
    GoesOn(String),
    Ended,
}

impl Run {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, execution: Option<String>) -> WorkflowHandle<Client, UntypedWorkflow> {
        let info = WorkflowExecutionInfo::builder()
            .namespace(self.client.options().namespace.clone())
            .workflow_id(self.id.as_str())
            .maybe_run_id(execution)
            .build();
        WorkflowHandle::new(self.client.clone(), info)
    }

    // ---- What the server tells ----

    fn take(
        &self,
        event: temporalio_common::protos::temporal::api::history::v1::HistoryEvent,
        is_old: bool,
    ) -> Next {
        let mut book = self.book();
        for happening in book.fold.take(event) {
            match happening {
                Happening::Closed(result) => {
                    drop(book);
                    self.publish(result);
                    return Next::Ended;
                }
                Happening::Continued { execution } => return Next::GoesOn(execution),
                Happening::CancelRequested { at } => {
                    let _ = self.cancelled_at.set(at);
                }
                Happening::Note(note) if !is_old => self.tell_note(&mut book, note),
                Happening::Ended { attempt, child, end } => {
                    let key = (attempt.call, attempt.attempt);
                    if !is_old {
                        self.tell_end(&mut book, &attempt, child.as_ref(), end);
                    }
                    book.ended.insert(key);
                }
                Happening::Note(_) => {}
            }
        }
        Next::Goes
    }

    fn tell_note(&self, book: &mut Book, note: Note) {
        // After a cancellation the body says nothing any more.
        if self.cancelled_at.get().is_some() {
            return;
        }
        self.emit(book, || match note {
            Note::Phase(title) => WorkflowEventKind::Phase { title },
            Note::Log(message) => WorkflowEventKind::Log { message },
            Note::Checkpoint(value) => WorkflowEventKind::Checkpoint { value },
        });
    }

    /// Tells of a started child, unless that was done or comes too late.
    fn tell_start(&self, book: &mut Book, attempt: &Attempt, child: &StartedChild) {
        let key = (attempt.call, attempt.attempt);
        // A child whose start was under way when the run was cancelled is never told of.
        let is_late = self.cancelled_at.get().is_some_and(|at| child.at > *at);
        if is_late || book.told.contains_key(&key) || book.ended.contains(&key) {
            return;
        }
        let info = CallInfo::new(attempt.call, attempt.attempt, &attempt.label, child.id.clone())
            .with_phase(attempt.phase.clone());
        book.told.insert(key, Told { info: info.clone(), activity: 0 });
        self.emit(book, || WorkflowEventKind::AgentStarted { call: info });
    }

    fn tell_end(&self, book: &mut Book, attempt: &Attempt, child: Option<&StartedChild>, end: CallEnd) {
        if let Some(child) = child {
            self.tell_start(book, attempt, child);
        }
        if let Some(told) = book.told.remove(&(attempt.call, attempt.attempt)) {
            self.emit(book, || WorkflowEventKind::AgentEnded { call: told.info, end });
        }
    }

    /// Takes in what a worker says of a child that lives.
    fn take_beat(&self, (call, attempt): (u64, u32), beat: Beat) {
        let mut book = self.book();
        let open = book.fold.open().find(|open| (open.call, open.attempt) == (call, attempt)).cloned();
        let (Some(open), Some(child)) = (open, &beat.child) else { return };
        self.tell_start(&mut book, &open, child);
        for (number, activity) in beat.activity {
            let Some(told) = book.told.get_mut(&(call, attempt)) else { return };
            if number <= told.activity {
                continue;
            }
            told.activity = number;
            let info = told.info.clone();
            self.emit(&mut book, || WorkflowEventKind::AgentActivity { call: info, activity });
        }
    }

    fn emit(&self, book: &mut Book, kind: impl FnOnce() -> WorkflowEventKind) {
        if book.closed || self.observers.is_empty() {
            return;
        }
        book.sequence += 1;
        self.observers.notify(&WorkflowEvent::new(self.id.clone(), book.sequence, kind()));
    }

    // ---- The end ----

    /// Makes an end known, unless there was one. What was not told to its end is told as cancelled.
    fn publish(&self, result: RunResult) {
        // From here on a cancellation has no effect.
        let Some(_claim) = self.settlement.claim() else { return };
        let mut book = self.book();
        let mut left: Vec<_> = book.told.drain().map(|(_, told)| told.info).collect();
        left.sort_by_key(|info| (info.call, info.attempt));
        for call in left {
            let end = CallEnd::new(CallOutcome::Cancelled);
            self.emit(&mut book, || WorkflowEventKind::AgentEnded { call, end });
        }
        self.emit(&mut book, || WorkflowEventKind::Ended {
            stop_reason: result.stop_reason(),
            error: result.error().cloned(),
            agents_started: result.agents_started(),
            attempts: result.attempts(),
        });
        book.closed = true;
        drop(book);
        // Only the holder of the claim gets here, so the cell is empty.
        let _ = self.result.set(result);
        self.over.cancel();
        self.changed.notify_waiters();
    }

    fn lose(&self, why: &str) {
        let result = self.book().fold.counted(RunResult::failed(RunError::new(ErrorCode::ENGINE_LOST, why)));
        self.publish(result);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.result.get().is_some()
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

    // ---- Cancellation ----

    /// Asks the server to cancel the run, as often as it takes.
    pub(crate) fn cancel(self: &Arc<Self>, reason: &str) {
        if !self.settlement.request_cancel(reason) {
            return;
        }
        let _ = self.cancelled_at.set(micros(SystemTime::now()));
        let run = Arc::clone(self);
        let reason = reason.to_owned();
        self.runtime.spawn(async move {
            request_cancel(&run.handle(None), &reason).await;
        });
    }

    pub(crate) fn cancel_with(self: &Arc<Self>, token: CancellationToken) {
        let run = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::select! {
                () = token.cancelled() => run.cancel(TOKEN_CANCELLED),
                () = run.over.cancelled() => {}
            }
        });
    }

    // ---- Disposal ----

    fn begin_disposal(self: &Arc<Self>, ends_the_run: bool) {
        let mut disposal = self.disposal.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*disposal, Disposal::Due) {
            return;
        }
        if self.has_ended() {
            *disposal = Disposal::Done(Ok(()));
            drop(disposal);
            self.changed.notify_waiters();
            return;
        }
        *disposal = Disposal::UnderWay;
        drop(disposal);
        if ends_the_run {
            self.cancel("the run was disposed of");
        } else {
            self.let_go();
        }
        let finish = FinishDisposal(Arc::clone(self));
        self.runtime.spawn(async move {
            let run = &finish.0;
            if timeout(run.grace, run.wait_until(|| run.has_ended())).await.is_err() {
                run.let_go();
            }
        });
    }

    /// Follows the run no longer. It goes on as it is.
    fn let_go(&self) {
        let reason = self.settlement.cancel_reason();
        let counted = |result| self.book().fold.counted(result);
        let result = match reason {
            Some(reason) => counted(RunResult::cancelled(RunError::cancelled(&reason))),
            None => counted(RunResult::failed(RunError::new(
                ErrorCode::ENGINE_LOST,
                "the holder has let go of the run before its end",
            ))),
        };
        *self.disposal.lock().unwrap_or_else(PoisonError::into_inner) =
            Disposal::Done(self.settlement.cancel_reason().map_or(Ok(()), |_| {
                Err(Error::new(
                    ErrorKind::Release,
                    format!("run {} has not ended within the grace; it goes on ending by itself", self.id),
                ))
            }));
        self.publish(result);
    }

    fn disposal_outcome(&self) -> Option<Result<()>> {
        match &*self.disposal.lock().unwrap_or_else(PoisonError::into_inner) {
            Disposal::Done(outcome) => Some(outcome.clone()),
            Disposal::Due | Disposal::UnderWay => None,
        }
    }
}

/// Asks the server to cancel a run until it has taken note or says that there is none, for an hour at most.
pub(crate) async fn request_cancel(handle: &WorkflowHandle<Client, UntypedWorkflow>, reason: &str) {
    const TRIES: u32 = 3600;
    let options =
        WorkflowCancelOptions::builder().reason(reason).request_id(uuid::Uuid::new_v4().to_string()).build();
    for _ in 0..TRIES {
        match handle.cancel(options.clone()).await {
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => return,
            Err(error) => tracing::warn!(%error, "the server cannot be asked to cancel a run; trying again"),
        }
        sleep(PAUSE).await;
    }
}

/// Ends a disposal, also when its task is dropped with its runtime.
struct FinishDisposal(Arc<Run>);

impl Drop for FinishDisposal {
    fn drop(&mut self) {
        let run = &self.0;
        let mut disposal = run.disposal.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*disposal, Disposal::Done(_)) {
            *disposal = Disposal::Done(Ok(()));
        }
        drop(disposal);
        run.changed.notify_waiters();
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

/// A holder's side of a run.
#[derive(Debug)]
pub(crate) struct TemporalRun {
    run: Arc<Run>,
    /// Whether its disposal ends the run, or only the watch over it.
    owns: bool,
}

impl TemporalRun {
    pub(crate) fn new(run: Arc<Run>, owns: bool) -> Self {
        run.holders.fetch_add(1, Ordering::Relaxed);
        Self { run, owns }
    }
}

#[async_trait]
impl WorkflowRun for TemporalRun {
    fn id(&self) -> &RunId {
        &self.run.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.run.meta
    }

    async fn result(&self) -> RunResult {
        self.run.wait_until(|| self.run.has_ended()).await;
        self.run.result.get().cloned().expect("the wait is for the result")
    }

    fn cancel(&self, reason: &str) {
        self.run.cancel(reason);
    }

    async fn dispose(&self) -> Result<()> {
        self.run.begin_disposal(self.owns);
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

impl Drop for TemporalRun {
    fn drop(&mut self) {
        if self.run.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.run.begin_disposal(self.owns);
        }
    }
}
