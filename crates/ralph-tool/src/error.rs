use harness_subagent::{Diagnostic, OutputViolation, StopReason};
use harness_workflow::{Error, ErrorCode, NoValue, RunError, RunId};
use ralph_report::RoundReport;
use serde_json::{Map, Value, json};

use crate::config::InvalidMaxRounds;
use crate::shown;
use crate::terminal::InvalidTerminal;

/// Why a call of the `ralph` tool failed.
///
/// The first group is found before there is a run, and nothing has been started. Errors of the second group carry the
/// [`EndedRun`]: whatever went wrong, the last good report is there if any round left one.
///
/// [`code`](Self::code) is stable. To a model, show [`render::error`](crate::render::error); to another program, give
/// the [`RunError`] that an error converts into, which is `{ code, message, details }` and bounded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RalphError {
    /// The arguments are not of the form that the input schema describes.
    #[error("the arguments cannot be used: {problem}")]
    #[non_exhaustive]
    InvalidArguments {
        /// What is wrong with them.
        problem: String,
    },
    /// The call has no calling agent, on whose behalf the workers would run.
    #[error("the call comes without a calling agent; call the tool on behalf of one")]
    NoCallingAgent,
    /// The objective is empty or blank.
    #[error("the objective is empty; say what is to be achieved")]
    ObjectiveEmpty,
    /// The call cannot have the rounds that it asks for.
    #[error(transparent)]
    MaxRounds(#[from] InvalidMaxRounds),
    /// The configured provider cannot run Ralph's workers.
    #[error("subagent provider {provider:?} {problem}")]
    #[non_exhaustive]
    Provider {
        /// Its name.
        provider: String,
        /// Why not.
        problem: ProviderProblem,
    },
    /// The run cannot go on from the report that it was given.
    #[error("the run cannot go on from that report: {problem}")]
    #[non_exhaustive]
    InvalidHandoff {
        /// Why not.
        problem: String,
    },
    /// The engine refused to start a run, or failed to.
    #[error("the workflow engine did not start the run")]
    EngineStart(#[source] Error),

    /// A worker yielded no report.
    #[error("round {round} failed: its worker {}", ended(.why.as_ref()))]
    #[non_exhaustive]
    RoundFailed {
        /// The round, from 1.
        round: u64,
        /// Why the worker yielded none, where the run could still say so.
        why: Option<NoValue>,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// A worker's report was refused.
    #[error("the report of round {round} is refused: {}", first(.violations, *.unlisted))]
    #[non_exhaustive]
    InvalidReport {
        /// The round, from 1.
        round: u64,
        /// What is wrong with the report, the deciding violation first; at most 100.
        violations: Vec<OutputViolation>,
        /// How many violations follow the listed ones.
        unlisted: u64,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// The engine could not go on with the run.
    #[error("the run failed ({}): {}", .error.code(), .error.message())]
    #[non_exhaustive]
    WorkflowFailed {
        /// What the engine says.
        error: RunError,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// The engine lost the run, and nobody knows how it ended.
    #[error("the workflow engine lost the run: {}", .error.message())]
    #[non_exhaustive]
    EngineLost {
        /// What the engine says.
        error: RunError,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// The run was cancelled.
    #[error("{}", .error.message())]
    #[non_exhaustive]
    Cancelled {
        /// What the engine says, the reason among it.
        error: RunError,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// The run completed with a value that the loop cannot have returned.
    #[error("the run completed with a value that cannot be trusted")]
    #[non_exhaustive]
    InvalidTerminal {
        /// What is wrong with the value.
        #[source]
        problem: InvalidTerminal,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
    /// The run completed and the number of workers is not that of the rounds.
    #[error("the run completed after {rounds_started} rounds with {} workers; there is one for each round", .run.agents_started())]
    #[non_exhaustive]
    AgentsMismatch {
        /// The rounds, as the run says.
        rounds_started: u64,
        /// What is left of the run.
        run: Box<EndedRun>,
    },
}

/// Why a provider cannot run Ralph's workers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderProblem {
    /// There is none of that name.
    #[error("is not registered; register it, or configure another one")]
    NotRegistered,
    /// Its children cannot hand in a value.
    #[error("does not support structured output; configure one whose children can hand in a report")]
    WithoutStructuredOutput,
    /// Its children see what their parent has seen.
    #[error("inherits parent context; configure one whose children start fresh")]
    InheritsContext,
}

/// What is left of a run that did not come to a result.
#[derive(Clone, Debug)]
pub struct EndedRun {
    id: RunId,
    agents_started: u64,
    attempts: u64,
    last_report: Option<RoundReport>,
    disposal_error: Option<Error>,
}

impl EndedRun {
    /// Describes the run `id`, of which nothing else is known.
    #[must_use]
    pub fn new(id: impl Into<RunId>) -> Self {
        Self { id: id.into(), agents_started: 0, attempts: 0, last_report: None, disposal_error: None }
    }

    /// Sets how many workers were started, and how many times a start was tried.
    #[must_use]
    pub fn with_counts(mut self, agents_started: u64, attempts: u64) -> Self {
        (self.agents_started, self.attempts) = (agents_started, attempts);
        self
    }

    /// Sets the last good report.
    #[must_use]
    pub fn with_last_report(mut self, report: Option<RoundReport>) -> Self {
        self.last_report = report;
        self
    }

    /// Says why the run could not be released.
    #[must_use]
    pub fn with_disposal_error(mut self, error: Option<Error>) -> Self {
        self.disposal_error = error;
        self
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns how many workers were started.
    #[must_use]
    pub fn agents_started(&self) -> u64 {
        self.agents_started
    }

    /// Returns how many times the start of a worker was tried.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Returns the last report that was accepted: of the run's rounds, else the one that it went on from.
    #[must_use]
    pub fn last_report(&self) -> Option<&RoundReport> {
        self.last_report.as_ref()
    }

    /// Returns why the run could not be released after its end, if so. It has no part in how the run ended.
    #[must_use]
    pub fn disposal_error(&self) -> Option<&Error> {
        self.disposal_error.as_ref()
    }
}

impl RalphError {
    /// The longest [`summary`](Self::summary), in UTF-16 code units.
    pub const MAX_SUMMARY_CHARS: usize = 1000;

    /// Makes the error of a call whose worker yielded no report in round `round`.
    #[must_use]
    pub fn round_failed(round: u64, why: Option<NoValue>, run: EndedRun) -> Self {
        Self::RoundFailed { round, why, run: Box::new(run) }
    }

    /// Returns the stable name of what went wrong, in kebab case.
    ///
    /// A refused report is `workflow-failed`, as every run that ended in an error; [`cause`](Self::cause) tells them
    /// apart.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidArguments { .. } => "invalid-arguments",
            Self::NoCallingAgent => "no-calling-agent",
            Self::ObjectiveEmpty => "objective-empty",
            Self::MaxRounds(problem) => problem.code(),
            Self::Provider { problem: ProviderProblem::NotRegistered, .. } => "provider-not-registered",
            Self::Provider { problem: ProviderProblem::WithoutStructuredOutput, .. } => {
                "provider-without-structured-output"
            }
            Self::Provider { problem: ProviderProblem::InheritsContext, .. } => "provider-inherits-context",
            Self::InvalidHandoff { .. } => "handoff-invalid",
            Self::EngineStart(_) => "engine-start-failed",
            Self::RoundFailed { .. } => "round-failed",
            Self::InvalidReport { .. } | Self::WorkflowFailed { .. } => "workflow-failed",
            Self::EngineLost { .. } => "engine-lost",
            Self::Cancelled { .. } => "cancelled",
            Self::InvalidTerminal { problem, .. } => problem.code(),
            Self::AgentsMismatch { .. } => "agents-mismatch",
        }
    }

    /// Returns the finer name of what went wrong, where there is one: the kind of the deciding violation of a refused
    /// report, the engine's code of a failed run, the kind of a refused start.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::InvalidReport { violations, .. } => violations.first().map(|first| first.kind.as_str()),
            Self::WorkflowFailed { error, .. } => Some(error.code().as_str()),
            Self::EngineStart(error) => Some(error.kind().as_str()),
            _ => None,
        }
    }

    /// Returns what is left of the run, of an error after its start.
    #[must_use]
    pub fn run(&self) -> Option<&EndedRun> {
        match self {
            Self::InvalidArguments { .. }
            | Self::NoCallingAgent
            | Self::ObjectiveEmpty
            | Self::MaxRounds(_)
            | Self::Provider { .. }
            | Self::InvalidHandoff { .. }
            | Self::EngineStart(_) => None,
            Self::RoundFailed { run, .. }
            | Self::InvalidReport { run, .. }
            | Self::WorkflowFailed { run, .. }
            | Self::EngineLost { run, .. }
            | Self::Cancelled { run, .. }
            | Self::InvalidTerminal { run, .. }
            | Self::AgentsMismatch { run, .. } => Some(run),
        }
    }

    /// Returns the round in which the run ended, from 1, where one had begun.
    #[must_use]
    pub fn round(&self) -> Option<u64> {
        match self {
            Self::RoundFailed { round, .. } | Self::InvalidReport { round, .. } => Some(*round),
            _ => self.run().map(EndedRun::agents_started).filter(|rounds| *rounds > 0),
        }
    }

    /// Returns the last report that was accepted, from which a new run can go on.
    #[must_use]
    pub fn last_report(&self) -> Option<&RoundReport> {
        self.run()?.last_report()
    }

    /// Returns what is wrong with the report that was refused, the deciding violation first.
    #[must_use]
    pub fn violations(&self) -> &[OutputViolation] {
        match self {
            Self::InvalidReport { violations, .. } => violations,
            _ => &[],
        }
    }

    /// Returns why the worker stopped that yielded no report.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.no_value().map(|why| &why.stop_reason)
    }

    /// Returns what is said of the worker that yielded no report.
    #[must_use]
    pub fn diagnostic(&self) -> Option<&Diagnostic> {
        self.no_value()?.diagnostic.as_ref()
    }

    /// Returns why the run could not be released after its end, if so.
    #[must_use]
    pub fn disposal_error(&self) -> Option<&Error> {
        self.run()?.disposal_error()
    }

    fn no_value(&self) -> Option<&NoValue> {
        match self {
            Self::RoundFailed { why, .. } => why.as_ref(),
            _ => None,
        }
    }

    /// Returns the error and its causes as one line of at most [`MAX_SUMMARY_CHARS`](Self::MAX_SUMMARY_CHARS) UTF-16
    /// code units. Of what others wrote only first lines are left, so there are no stack traces in it.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut summary = self.to_string();
        summary.truncate(summary.lines().next().unwrap_or_default().len());
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            summary.push_str(": ");
            summary.push_str(&shown::first_line(&cause.to_string(), Self::MAX_SUMMARY_CHARS));
            source = cause.source();
        }
        shown::first_line(&summary, Self::MAX_SUMMARY_CHARS)
    }

    fn details(&self) -> Value {
        let mut details = Map::new();
        let mut add = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                details.insert(key.to_owned(), value);
            }
        };
        add("cause", self.cause().map(Value::from));
        add("round", self.round().map(Value::from));
        if let Some(run) = self.run() {
            add("runId", Some(json!(run.id())));
            add("agentsStarted", Some(run.agents_started().into()));
            add("attempts", Some(run.attempts().into()));
            add("lastReport", Some(json!(run.last_report())));
            let disposal = run.disposal_error().map(ToString::to_string);
            add(
                "disposalError",
                disposal.map(|error| shown::first_line(&error, Self::MAX_SUMMARY_CHARS).into()),
            );
        }
        if let Self::InvalidReport { violations, unlisted, .. } = self {
            add("violations", Some(json!(violations)));
            add("unlisted", Some((*unlisted).into()));
        }
        // The set of reasons is open, so a provider may have written an essay.
        add("stopReason", self.stop_reason().map(|reason| shown::first_line(reason.as_str(), 100).into()));
        add("diagnostic", self.diagnostic().map(|diagnostic| json!(diagnostic)));
        Value::Object(details)
    }
}

/// The form for other programs: the code, the [`summary`](RalphError::summary), and details.
///
/// The details are an object with those of these keys that apply: `cause`, `round`, `runId`, `agentsStarted`,
/// `attempts`, `lastReport` (`null` where a run left none), `violations`, `unlisted`, `stopReason`, `diagnostic`,
/// `disposalError`.
impl From<&RalphError> for RunError {
    fn from(error: &RalphError) -> Self {
        Self::new(ErrorCode::new(error.code()), error.summary()).with_details(error.details())
    }
}

/// Says how a worker ended that yielded no report.
fn ended(why: Option<&NoValue>) -> String {
    match why {
        None => "yielded no report".into(),
        Some(NoValue { stop_reason, diagnostic: None, .. }) => format!("yielded no report ({stop_reason})"),
        Some(NoValue { stop_reason, diagnostic: Some(diagnostic), .. }) => {
            format!("yielded no report ({stop_reason}): {}", shown::first_line(diagnostic.message(), 500))
        }
    }
}

/// Says what decides, and how much more there is.
fn first(violations: &[OutputViolation], unlisted: u64) -> String {
    let message = violations.first().map_or("for a reason that was lost", |first| &first.message);
    match (violations.len() as u64).saturating_sub(1).saturating_add(unlisted) {
        0 => message.to_owned(),
        more => format!("{message} (and {more} more)"),
    }
}
