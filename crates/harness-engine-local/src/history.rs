use std::collections::BTreeMap;

use harness_subagent::{AgentId, Usage};
use harness_workflow::{CallEnd, RunId, RunResult, StartRun};
use serde_json::Value;

use crate::digest::digest;
use crate::journal::{Answer, CallFingerprint, Entry, JournalError, JournalStore, Record, StoredRun};

/// What the journal of a run tells: the same that the engine goes by when it resumes the run.
///
/// ```
/// # use std::error::Error;
/// use harness_engine_local::{JsonlStore, ListedRun, RunHistory, RunState};
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let store = JsonlStore::open(folder)?;
/// for ListedRun { run, history, .. } in RunHistory::read_all(&store)? {
///     match history {
///         Ok(history) if history.state == RunState::Interrupted => println!("{run} can be resumed"),
///         Ok(history) => println!("{run} made {} calls", history.calls.len()),
///         Err(error) => println!("{run} cannot be read: {error}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunHistory {
    /// What was asked for.
    pub request: StartRun,
    /// Where the run stands.
    pub state: RunState,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When something happened last, in milliseconds since 1970.
    pub updated_ms: u64,
    /// How many times it was taken up again.
    pub resumptions: u64,
    /// The phase that the body began last.
    pub phase: Option<String>,
    /// The value that the body left last.
    pub checkpoint: Option<Value>,
    /// Why it was cancelled.
    pub cancel_reason: Option<String>,
    /// The calls for a child, by number.
    pub calls: BTreeMap<u64, CallHistory>,
    /// How many times the body began a phase, said something or left a checkpoint.
    pub(crate) narrations: u64,
}

/// A run in the list of all.
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedRun {
    /// Its id.
    pub run: RunId,
    /// What is known of it.
    pub history: Result<RunHistory, JournalError>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunState {
    /// Some process runs it.
    Running,
    /// It has not ended and nobody runs it. It can be resumed.
    Interrupted,
    /// It has ended.
    Finished(RunResult),
}

/// One call for a child.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallHistory {
    /// The call's name for people.
    pub label: String,
    /// The phase it belongs to.
    pub phase: Option<String>,
    /// What was asked.
    pub fingerprint: CallFingerprint,
    /// The tries, in their order.
    pub attempts: Vec<AttemptHistory>,
    /// What the body got, once the call has ended.
    pub answer: Option<Answer>,
}

/// One try at a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptHistory {
    /// Its number, from 1.
    pub attempt: u32,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// The child, once it had an id.
    pub child: Option<AgentId>,
    /// When the call got its answer from it, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// How the child ended, where the engine has heard of it.
    pub end: Option<CallEnd>,
}

impl RunHistory {
    /// Reads what is known of a run.
    ///
    /// # Errors
    ///
    /// Those of [`JournalStore::read`] and of [`fold`](Self::fold).
    pub fn read(store: &dyn JournalStore, run: &RunId) -> Result<Self, JournalError> {
        Self::fold(store.read(run)?)
    }

    /// Reads what is known of every run, by id. A run that cannot be read hides no other.
    ///
    /// # Errors
    ///
    /// Those of [`JournalStore::runs`].
    pub fn read_all(store: &dyn JournalStore) -> Result<Vec<ListedRun>, JournalError> {
        let list = |run: RunId| ListedRun { history: Self::read(store, &run), run };
        Ok(store.runs()?.into_iter().map(list).collect())
    }

    /// Makes a history of the records of a run.
    ///
    /// # Errors
    ///
    /// [`JournalError::RequestChanged`] and [`JournalError::Contradiction`].
    pub fn fold(stored: StoredRun) -> Result<Self, JournalError> {
        let StoredRun { request, records, is_open } = stored;
        let run = request.run_id.clone().unwrap_or_else(|| RunId::from(""));
        let contradiction = |record: &Record, what| JournalError::Contradiction {
            run: run.clone(),
            sequence: record.sequence,
            what,
        };
        let mut history = Self {
            request,
            state: if is_open { RunState::Running } else { RunState::Interrupted },
            started_ms: 0,
            updated_ms: 0,
            resumptions: 0,
            phase: None,
            checkpoint: None,
            cancel_reason: None,
            calls: BTreeMap::new(),
            narrations: 0,
        };
        for record in records {
            let first = record.sequence == 1;
            if first != matches!(record.entry, Entry::RunStarted { .. }) {
                return Err(contradiction(&record, "a run is started in its first record and in no other"));
            }
            if matches!(history.state, RunState::Finished(_)) {
                return Err(contradiction(&record, "nothing happens after the end"));
            }
            if first {
                history.started_ms = record.time_ms;
            }
            history.updated_ms = record.time_ms;
            if let Entry::RunStarted { request } = &record.entry
                && *request != digest(&history.request)
            {
                return Err(JournalError::RequestChanged { run });
            }
            let (sequence, run) = (record.sequence, &run);
            history.add(record).map_err(|what| JournalError::Contradiction {
                run: run.clone(),
                sequence,
                what,
            })?;
        }
        Ok(history)
    }

    fn add(&mut self, record: Record) -> Result<(), &'static str> {
        let Record { time_ms, entry, .. } = record;
        match entry {
            Entry::RunStarted { .. } => {}
            Entry::RunResumed => self.resumptions += 1,
            Entry::Phase { title } => {
                self.narrations += 1;
                self.phase = Some(title);
            }
            Entry::Log { .. } => self.narrations += 1,
            Entry::Checkpoint { value } => {
                self.narrations += 1;
                self.checkpoint = Some(value);
            }
            Entry::AgentStarted { call, attempt, label, phase, fingerprint } => {
                let call = self.calls.entry(call).or_insert_with(|| CallHistory {
                    label,
                    phase,
                    fingerprint,
                    attempts: Vec::new(),
                    answer: None,
                });
                if call.answer.is_some() {
                    return Err("a call that has ended is not tried again");
                }
                let before = call.attempts.last().map_or(0, |before| before.attempt);
                if attempt != before + 1 {
                    return Err("tries at a call are numbered from 1 without gaps");
                }
                call.attempts.push(AttemptHistory {
                    attempt,
                    started_ms: time_ms,
                    child: None,
                    ended_ms: None,
                    end: None,
                });
            }
            Entry::AgentSpawned { call, attempt, child } => {
                self.attempt(call, attempt)?.1.child = Some(child);
            }
            Entry::AgentEnded { call, attempt, answer, end } => {
                let (known, last) = self.attempt(call, attempt)?;
                last.ended_ms = Some(time_ms);
                last.end = end;
                if known.replace(answer).is_some() {
                    return Err("a call ends once");
                }
            }
            Entry::AgentStopped { call, attempt, end } => {
                let (known, last) = self.attempt(call, attempt)?;
                if known.is_some() || last.end.is_some() {
                    return Err("a child ends once");
                }
                last.ended_ms = Some(time_ms);
                last.end = Some(end);
            }
            Entry::CancelRequested { reason } => self.cancel_reason = Some(reason),
            Entry::RunFinished { result } => self.state = RunState::Finished(result),
        }
        Ok(())
    }

    /// Finds the answer and the last try of a call that has been started.
    fn attempt(
        &mut self,
        call: u64,
        attempt: u32,
    ) -> Result<(&mut Option<Answer>, &mut AttemptHistory), &'static str> {
        let call = self.calls.get_mut(&call).ok_or("a call begins before it ends")?;
        let last = call.attempts.last_mut().filter(|last| last.attempt == attempt);
        Ok((&mut call.answer, last.ok_or("only the last try at a call goes on")?))
    }

    /// Returns how many times a start of a child was tried.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.calls.values().map(|call| call.attempts.len() as u64).sum()
    }

    /// Returns what all children have used, as far as it is known.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let ends =
            self.calls.values().flat_map(|call| &call.attempts).filter_map(|attempt| attempt.end.as_ref());
        ends.filter_map(|end| end.usage).fold(Usage::default(), Usage::plus)
    }

    /// Returns how many calls the body made.
    #[must_use]
    pub fn agents_started(&self) -> u64 {
        self.calls.last_key_value().map_or(0, |(number, _)| *number)
    }
}
