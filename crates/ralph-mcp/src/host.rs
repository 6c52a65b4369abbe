use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use harness_workflow::{ErrorCode, RunError, RunId, RunResult, WorkflowObserver};
use ralph_tool::{Envelope, RalphError, RalphTool};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Runs the loops of a [`LoopServer`](crate::LoopServer), and remembers them.
///
/// # Contract
///
/// The server calls it; whoever wires an application implements it. It decides everything that a deployment decides,
/// the agent, the workspace and the caps among it, and none of that comes from a client.
///
/// Calls may overlap. Which runs a client may see is the host's decision: of any other it says that there is none.
#[async_trait]
pub trait LoopHost: Debug + Send + Sync + 'static {
    /// Returns the tool that clients are offered. Never changes.
    ///
    /// The server takes its definition, its guidance and its rendering from it, and reads results of ended runs with
    /// it. It calls nothing of it that starts a run.
    fn tool(&self) -> &RalphTool;

    /// Starts the new run `run` with the arguments of a call of the tool, and sees it to its end.
    ///
    /// - The server chooses the id, which is new.
    /// - The host attaches `watch`'s observer to the run before it starts, and cancels the run when the token is
    ///   cancelled. When this returns, nothing of the run is left alive.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is cancelled.
    ///
    /// # Errors
    ///
    /// [`LoopError::Refused`] when the host did not start the run, and what the tool says.
    async fn run(&self, run: &RunId, args: &Value, watch: RunWatch) -> Result<Envelope, LoopError>;

    /// Takes the interrupted run `run` up again and sees it to its end, as [`run`](Self::run) does.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), [`LoopError::Refused`] for a run that is not interrupted among it.
    async fn resume(&self, run: &RunId, watch: RunWatch) -> Result<Envelope, LoopError>;

    /// Returns what is known of a run, or nothing where a client is to see no such run.
    ///
    /// # Errors
    ///
    /// A refusal, when what is known cannot be read.
    async fn look(&self, run: &RunId) -> Result<Option<RunFacts>, Refusal>;

    /// Returns the runs that a client may see, the latest first and at most `most` of them.
    ///
    /// # Errors
    ///
    /// A refusal, when they cannot be listed.
    async fn latest(&self, most: usize) -> Result<Vec<(RunId, RunFacts)>, Refusal>;

    /// Ends everything that still runs, and leaves it so that it can be taken up again.
    ///
    /// The server calls it once, at its end, after the calls that it cancels are gone. A [`run`](Self::run) that is
    /// under way then returns soon, whatever with.
    async fn interrupt(&self);
}

/// How a run is watched and stopped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunWatch {
    /// Cancels the run.
    pub cancellation: CancellationToken,
    /// Hears of what happens in it.
    pub observer: Arc<dyn WorkflowObserver>,
}

impl RunWatch {
    pub(crate) fn new(cancellation: CancellationToken, observer: Arc<dyn WorkflowObserver>) -> Self {
        Self { cancellation, observer }
    }
}

/// What is known of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunFacts {
    /// The arguments of the workflow, as the run was started with them.
    pub args: Value,
    /// Where it stands.
    pub standing: Standing,
    /// How many rounds were started.
    pub rounds_started: u64,
    /// The checkpoint that it left last.
    pub checkpoint: Option<Value>,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When something happened last, in milliseconds since 1970.
    pub updated_ms: u64,
}

impl RunFacts {
    /// Describes a run that was started with `args` and of which nothing else is known but where it stands.
    #[must_use]
    pub fn new(args: Value, standing: Standing) -> Self {
        Self { args, standing, rounds_started: 0, checkpoint: None, started_ms: 0, updated_ms: 0 }
    }

    /// Sets how far it has come.
    #[must_use]
    pub fn with_rounds(mut self, rounds_started: u64, checkpoint: Option<Value>) -> Self {
        (self.rounds_started, self.checkpoint) = (rounds_started, checkpoint);
        self
    }

    /// Sets when it was started and when something happened last, in milliseconds since 1970.
    #[must_use]
    pub fn with_times(mut self, started_ms: u64, updated_ms: u64) -> Self {
        (self.started_ms, self.updated_ms) = (started_ms, updated_ms);
        self
    }
}

/// Where a run stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// Some process runs it.
    Running,
    /// It has not ended and nobody runs it. It can be taken up again.
    Interrupted,
    /// It has ended.
    Ended(Box<RunResult>),
}

/// Why a loop came to no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The tool says so.
    #[error(transparent)]
    Tool(#[from] RalphError),
    /// It was not started.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Why something that a client asked for is not done, with a stable code.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    code: &'static str,
    message: String,
    details: Option<Value>,
}

impl Refusal {
    /// Refuses under the stable name `code`, in kebab case, with a message for the calling model.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    pub(crate) fn of(run: &RunId, code: &'static str, message: impl Into<String>) -> Self {
        Self { details: Some(json!({ "runId": run })), ..Self::new(code, message) }
    }

    /// Returns the stable name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }
}

/// The form for other programs.
impl From<&Refusal> for RunError {
    fn from(refusal: &Refusal) -> Self {
        let error = Self::new(ErrorCode::new(refusal.code), refusal.message.clone());
        match &refusal.details {
            Some(details) => error.with_details(details.clone()),
            None => error,
        }
    }
}
