use std::fmt::{self, Debug};
use std::io;
use std::path::PathBuf;

use harness_subagent::{AgentId, ModelChoice, OutputContract, ToolRestriction};
use harness_workflow::{AgentOutcome, CallEnd, NoValue, NumberedCall, RunError, RunId, RunResult, StartRun};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::{digest, digest_text};

/// Keeps the journals of runs.
///
/// # Contract
///
/// The engine calls it, on threads where it may block; [`JsonlStore`](crate::JsonlStore) is the one that
/// keeps files. A journal has one writer at a time, over all processes.
pub trait JournalStore: Debug + Send + Sync + 'static {
    /// Begins the journal of a new run, with `first` as its first entry, and opens it for writing.
    ///
    /// `request` carries the run's id, its provider and its most calls for a child. It never changes.
    /// When this returns, both are as safe as the store can make them; when it fails, there is no run.
    ///
    /// # Errors
    ///
    /// [`JournalError::Exists`] when there is a run of that id, and whatever keeps the store from writing.
    fn create(&self, request: &StartRun, first: &Entry) -> Result<Box<dyn Journal>, JournalError>;

    /// Reads the journal of a run and opens it for writing at its end.
    ///
    /// An entry that was not written to its end is dropped for good.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unknown`], [`JournalError::Locked`] while somebody else writes, and
    /// [`JournalError::Corrupt`] when an entry is not as it was written.
    fn open(&self, run: &RunId) -> Result<(StoredRun, Box<dyn Journal>), JournalError>;

    /// Reads the journal of a run, which may be written to at the same time.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), without [`JournalError::Locked`].
    fn read(&self, run: &RunId) -> Result<StoredRun, JournalError>;

    /// Lists the runs, by id.
    ///
    /// # Errors
    ///
    /// Whatever keeps the store from reading.
    fn runs(&self) -> Result<Vec<RunId>, JournalError>;
}

/// The writer of one run's journal. Dropping it lets another one in.
pub trait Journal: Debug + Send {
    /// Adds `entries` in their order, so that they outlive this process. They need not outlive the machine yet.
    ///
    /// After an error, what was added before is as it was.
    ///
    /// # Errors
    ///
    /// Whatever keeps the journal from writing.
    fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError>;

    /// Makes everything that was added outlive the machine's power.
    ///
    /// It is called on a thread where it may block, and on one of the runtime's while it takes less than half a
    /// millisecond.
    ///
    /// # Errors
    ///
    /// Whatever keeps the journal from writing.
    fn sync(&mut self) -> Result<(), JournalError>;
}

/// What a [`JournalStore`] knows of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredRun {
    /// What was asked for.
    pub request: StartRun,
    /// What happened, in order.
    pub records: Vec<Record>,
    /// Whether somebody has the journal open for writing.
    pub is_open: bool,
}

impl StoredRun {
    /// Says what is known of a run.
    #[must_use]
    pub fn new(request: StartRun, records: Vec<Record>, is_open: bool) -> Self {
        Self { request, records, is_open }
    }
}

/// An entry with its place in the journal.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The number of the entry, from 1 without gaps.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// When it was added, in milliseconds since 1970, by the clock of the machine.
    #[serde(rename = "time")]
    pub time_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

impl Record {
    /// Gives an entry its place.
    #[must_use]
    pub fn new(sequence: u64, time_ms: u64, entry: Entry) -> Self {
        Self { sequence, time_ms, entry }
    }
}

/// Something that happened in a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Entry {
    /// The run exists.
    RunStarted {
        /// The digest of its request.
        request: String,
    },
    /// The run was taken up again after its writer had ended.
    RunResumed,
    /// The body began a phase.
    Phase {
        /// Its title.
        title: String,
    },
    /// The body said something.
    Log {
        /// What it said.
        message: String,
    },
    /// The body left a checkpoint.
    Checkpoint {
        /// Its value.
        value: Value,
    },
    /// A child is about to be started for a call. It is synced before that.
    AgentStarted {
        /// The number of the call.
        call: u64,
        /// The number of the try at it.
        attempt: u32,
        /// The call's name for people.
        label: String,
        /// The phase it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
        /// What is asked.
        fingerprint: CallFingerprint,
    },
    /// The child has its id.
    AgentSpawned {
        /// The number of the call.
        call: u64,
        /// The number of the try at it.
        attempt: u32,
        /// The child.
        child: AgentId,
    },
    /// The call has its answer. It is never carried out again.
    AgentEnded {
        /// The number of the call.
        call: u64,
        /// The number of the try at it.
        attempt: u32,
        /// What the body got.
        answer: Answer,
        /// How the child ended. Absent when there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<CallEnd>,
    },
    /// The child was ended with its run, and its call got no answer. A resumed run tries the call again.
    AgentStopped {
        /// The number of the call.
        call: u64,
        /// The number of the try at it.
        attempt: u32,
        /// How the child ended.
        end: CallEnd,
    },
    /// The run was cancelled.
    CancelRequested {
        /// Why.
        reason: String,
    },
    /// The run ended, for good.
    RunFinished {
        /// How.
        result: RunResult,
    },
}

/// What a body got of a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// A value.
    Value(Value),
    /// None.
    NoValue(NoValue),
    /// An error that is not the child's.
    Error(RunError),
}

impl From<&Result<AgentOutcome, RunError>> for Answer {
    fn from(outcome: &Result<AgentOutcome, RunError>) -> Self {
        match outcome {
            Ok(AgentOutcome::Value(value)) => Self::Value(value.clone()),
            Ok(AgentOutcome::NoValue(why)) => Self::NoValue(why.clone()),
            Err(error) => Self::Error(error.clone()),
        }
    }
}

impl From<Answer> for Result<AgentOutcome, RunError> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Value(value) => Ok(AgentOutcome::Value(value)),
            Answer::NoValue(why) => Ok(AgentOutcome::NoValue(why)),
            Answer::Error(error) => Err(error),
        }
    }
}

/// What tells one call from another when a body is run again.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallFingerprint {
    /// The digest of what the child is told.
    pub prompt: String,
    /// The digest of what else is asked: the output contract, the model, the tools. Absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<String>,
}

impl CallFingerprint {
    /// Makes the fingerprint of a call. `latest` is what the call before it asked for, and becomes this one's.
    pub(crate) fn of(call: &NumberedCall, latest: &mut Terms) -> Self {
        if !latest.are_of(call) {
            *latest = Terms::of(call);
        }
        Self { prompt: digest_text(&call.prompt), terms: latest.digest.clone() }
    }
}

/// What a call asks beside its prompt, with its digest.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    output: Option<OutputContract>,
    model: Option<ModelChoice>,
    tools: Option<ToolRestriction>,
    digest: Option<String>,
}

impl Terms {
    fn of(call: &NumberedCall) -> Self {
        let NumberedCall { output, model, tools, .. } = call;
        let none = output.is_none() && model.is_none() && tools.is_none();
        let digest = (!none).then(|| digest(&(output, model, tools)));
        Self { output: output.clone(), model: model.clone(), tools: tools.clone(), digest }
    }

    fn are_of(&self, call: &NumberedCall) -> bool {
        self.output == call.output && self.model == call.model && self.tools == call.tools
    }
}

/// Why a journal cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is a run of that id.
    #[error("a run with the id {run} exists; choose another id, or resume it")]
    Exists {
        /// The run.
        run: RunId,
    },
    /// There is no run of that id.
    #[error("there is no run with the id {run}; list the runs to see which there are")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// Somebody else runs it.
    #[error("run {run} is under way{}; wait for its end, or end that process", held_by(holder))]
    Locked {
        /// The run.
        run: RunId,
        /// The process that runs it, where that can be read.
        holder: Option<u32>,
    },
    /// The id cannot be the name of a folder.
    #[error("run id {run} is longer than a folder's name may be; choose a shorter one")]
    UnusableId {
        /// The run.
        run: RunId,
    },
    /// A line is not as it was written.
    #[error("line {line} of {} is not as it was written: {what}; restore the file from a copy", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The entries do not make sense in their order.
    #[error("record {sequence} of run {run} contradicts the records before it: {what}")]
    Contradiction {
        /// The run.
        run: RunId,
        /// The number of the record.
        sequence: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The request is not the one that the journal belongs to.
    #[error("the request of run {run} is not the one that it was started with; restore it from a copy")]
    RequestChanged {
        /// The run.
        run: RunId,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An earlier write failed, after which nothing is added any more.
    #[error("an earlier entry could not be written; the run can be resumed once the cause is gone")]
    Stopped,
}

fn held_by(holder: &Option<u32>) -> impl fmt::Display {
    fmt::from_fn(move |f| match holder {
        Some(pid) => write!(f, " in process {pid}"),
        None => Ok(()),
    })
}
