use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use harness_workflow::{AgentOutcome, ErrorCode, NumberedCall, RunError};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::history::{CallHistory, RunHistory};
use crate::journal::{CallFingerprint, Entry, Journal, JournalError, Terms};

/// A sync that can be expected to take less than this is done where the run is: handing it to another thread and
/// hearing of it again costs as much, and in that time the run could do nothing either.
///
/// It is what a task may take between two waits without others noticing. Each sync is measured, so a disk that has once
/// been slow gets a thread until it is quick again.
const QUICK: Duration = Duration::from_micros(500);

/// The journal of a run that is under way: what it told when the run was taken up, and what is added.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: Arc<Writer>,
    /// The calls that the body has not come to yet.
    past: Mutex<BTreeMap<u64, CallHistory>>,
    /// How much of what the body says was said before.
    said_before: AtomicU64,
    mismatch: OnceLock<RunError>,
    /// What the latest call asked beside its prompt. Most bodies ask the same of every child.
    terms: Mutex<Terms>,
    /// Held while an entry is synced, so that calls go on in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    max_attempts: u32,
}

/// What is to be written, and what writes it.
///
/// Whatever is to be written is first put into the queue, so that the order is that of the calls. Only the
/// holder of the journal takes entries out, and takes all of them.
#[derive(Debug)]
struct Writer {
    queue: Mutex<Vec<Entry>>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    journal: Option<Box<dyn Journal>>,
    is_synced: bool,
    /// How long the latest sync took.
    latest_sync: Option<Duration>,
    /// Whether the run's end has been written, after which nothing follows.
    is_finished: bool,
    /// Why nothing is written any more.
    failure: Option<RunError>,
}

/// What the journal says of a call.
pub(crate) enum Past {
    /// It has its answer.
    Answered(Result<AgentOutcome, RunError>),
    /// It is to be carried out, as the try of that number.
    Due(u32),
}

impl Recorder {
    /// Goes on with `journal`, in which `history` stands.
    pub(crate) fn new(journal: Box<dyn Journal>, history: RunHistory, max_attempts: u32) -> Self {
        let open = Open {
            journal: Some(journal),
            is_synced: true,
            latest_sync: None,
            is_finished: false,
            failure: None,
        };
        Self {
            writer: Arc::new(Writer { queue: Mutex::default(), open: Mutex::new(open) }),
            said_before: AtomicU64::new(history.narrations),
            past: Mutex::new(history.calls),
            mismatch: OnceLock::new(),
            terms: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            max_attempts,
        }
    }

    /// Finds out what is to become of a call.
    pub(crate) fn look_up(&self, call: &NumberedCall) -> Result<Past, RunError> {
        if let Some(error) = self.mismatch.get() {
            return Err(error.clone());
        }
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner).remove(&call.number);
        let Some(past) = past else { return Ok(Past::Due(1)) };
        if past.label != call.label || past.fingerprint != self.fingerprint(call) {
            return Err(self.mismatched(format!(
                "call {} of the body is not the one in the journal, {:?}",
                call.number, past.label
            )));
        }
        if let Some(answer) = past.answer {
            return Ok(Past::Answered(answer.into()));
        }
        let tried = past.attempts.last().map_or(0, |last| last.attempt);
        if tried >= self.max_attempts {
            return Err(RunError::new(
                ErrorCode::ATTEMPTS_EXHAUSTED,
                format!("call {} was tried {tried} times and never came to its end", call.number),
            )
            .with_details(json!({ "call": call.number, "attempts": tried })));
        }
        Ok(Past::Due(tried + 1))
    }

    /// Returns what tells the call from others.
    pub(crate) fn fingerprint(&self, call: &NumberedCall) -> CallFingerprint {
        CallFingerprint::of(call, &mut self.terms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn mismatched(&self, message: String) -> RunError {
        let message = format!("{message}; resume the run with the body that it was started with");
        self.mismatch.get_or_init(|| RunError::new(ErrorCode::REPLAY_MISMATCH, message)).clone()
    }

    /// Returns why the body and the journal do not go together. Asked at the end of a body that `has_ended`, it
    /// also finds out whether the body left calls out.
    pub(crate) fn mismatch(&self, has_ended: bool) -> Option<RunError> {
        if has_ended && self.mismatch.get().is_none() {
            let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((number, call)) = past.first_key_value() {
                let message = format!("the body never made call {number} of the journal, {:?}", call.label);
                drop(self.mismatched(message));
            }
        }
        self.mismatch.get().cloned()
    }

    /// Says whether the journal has what the body says now, and takes note that the body has said it.
    pub(crate) fn has_heard(&self) -> bool {
        self.said_before
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Adds an entry now, or with the next one if a sync is under way.
    ///
    /// What goes wrong is known to whatever is recorded next.
    pub(crate) fn note(&self, entry: Entry) -> Result<(), RunError> {
        self.writer.push(entry);
        match self.writer.open.try_lock() {
            Ok(mut open) => self.writer.write(&mut open),
            Err(TryLockError::Poisoned(open)) => self.writer.write(&mut open.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Adds an entry, so that it outlives the process.
    pub(crate) async fn record(&self, entry: Entry) -> Result<(), RunError> {
        self.writer.push(entry);
        // A write that needs no sync takes less time than its way to another thread.
        if let Ok(mut open) = self.writer.open.try_lock() {
            return self.writer.write(&mut open);
        }
        self.on_blocking_thread(Writer::write).await
    }

    /// Adds an entry and syncs it with all before it.
    ///
    /// On a disk that is known to be quick this is done at once, on the thread of the caller. Callers go on in their
    /// order: who comes later finds its entry synced with those before it.
    pub(crate) async fn record_synced(&self, entry: Entry) -> Result<(), RunError> {
        self.writer.push(entry);
        let _turn = self.turn.lock().await;
        if let Ok(mut open) = self.writer.open.try_lock()
            && open.latest_sync.is_some_and(|took| took < QUICK)
        {
            return self.writer.write_synced(&mut open);
        }
        self.on_blocking_thread(Writer::write_synced).await
    }

    /// The same, always on a thread that may be blocked, so that the caller can limit its wait.
    pub(crate) async fn record_synced_elsewhere(&self, entry: Entry) -> Result<(), RunError> {
        self.writer.push(entry);
        self.on_blocking_thread(Writer::write_synced).await
    }

    async fn on_blocking_thread(
        &self,
        work: fn(&Writer, &mut Open) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let writer = Arc::clone(&self.writer);
        spawn_blocking(move || work(&writer, &mut writer.open())).await.unwrap_or_else(|error| {
            Err(RunError::new(ErrorCode::JOURNAL, format!("the journal was not written: {error}")))
        })
    }

    /// Lets another writer in, unless this one hangs: it then goes when it can.
    pub(crate) fn close(&self) {
        if let Ok(mut open) = self.writer.open.try_lock() {
            open.journal = None;
        }
    }
}

impl Writer {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: Entry) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    fn write(&self, open: &mut Open) -> Result<(), RunError> {
        if let Some(failure) = &open.failure {
            return Err(failure.clone());
        }
        let mut entries = mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        if open.is_finished || entries.is_empty() {
            return Ok(());
        }
        if let Some(end) = entries.iter().position(|entry| matches!(entry, Entry::RunFinished { .. })) {
            entries.truncate(end + 1);
            open.is_finished = true;
        }
        open.is_synced = false;
        open.with_journal(|journal| journal.append(&entries))
    }

    /// Syncs what this and other calls have added, unless another call has just done that.
    fn write_synced(&self, open: &mut Open) -> Result<(), RunError> {
        self.write(open)?;
        if !open.is_synced {
            let begun = Instant::now();
            open.with_journal(|journal| journal.sync())?;
            open.latest_sync = Some(begun.elapsed());
            open.is_synced = true;
        }
        // What was added meanwhile need not wait for the next call.
        self.write(open)
    }
}

impl Open {
    fn with_journal(
        &mut self,
        work: impl FnOnce(&mut dyn Journal) -> Result<(), JournalError>,
    ) -> Result<(), RunError> {
        let outcome = match &mut self.journal {
            Some(journal) => work(&mut **journal),
            None => Err(JournalError::Stopped),
        };
        outcome.map_err(|error| {
            let error = RunError::new(
                ErrorCode::JOURNAL,
                format!("{}; the run can be resumed once the cause is gone", crate::chain(&error)),
            );
            self.failure.insert(error).clone()
        })
    }
}
