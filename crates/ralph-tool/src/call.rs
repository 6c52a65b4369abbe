use harness_subagent::{OutputViolation, Parent, SubagentRegistry};
use harness_workflow::{
    ErrorCode, NoValue, RunError, RunId, RunResult, RunStopReason, StartRun, WorkflowEngine, WorkflowRun,
};
use ralph_report::{RoundReport, text};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::arguments::{CallArguments, LoopArgs};
use crate::error::{EndedRun, ProviderProblem};
use crate::terminal::{self, Terminal};
use crate::workflow::INVALID_REPORT;
use crate::{Envelope, Handoff, Progress, RalphConfig, RalphError, workflow_ref};

/// Where a call comes from, and how it is stopped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallContext {
    /// The agent on whose behalf the workers run. Without one the call is refused.
    pub parent: Option<Parent>,
    /// Cancels the call. Its owner cancels it; the call passes it on to the engine.
    pub cancellation: CancellationToken,
    /// The id of the run. Without one the engine makes one. A second call with a known id attaches to that run or is
    /// refused, by what the engine is [capable](harness_workflow::EngineCapabilities::attaches_to_known_run) of.
    pub run_id: Option<RunId>,
    /// The report to go on from, for a run that continues an earlier one.
    pub handoff: Option<Handoff>,
}

impl CallContext {
    /// A call on behalf of `parent`, with a token of its own.
    #[must_use]
    pub fn new(parent: Parent) -> Self {
        Self { parent: Some(parent), ..Self::default() }
    }

    /// Lets `cancellation` stop the call.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: CancellationToken) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Chooses the id of the run.
    #[must_use]
    pub fn with_run_id(mut self, run_id: impl Into<RunId>) -> Self {
        self.run_id = Some(run_id.into());
        self
    }

    /// Goes on from an earlier run.
    #[must_use]
    pub fn with_handoff(mut self, handoff: Handoff) -> Self {
        self.handoff = Some(handoff);
        self
    }
}

/// The reason that a run is cancelled with when its call is.
const CALL_CANCELLED: &str = "the call was cancelled";

/// The reason that a run is cancelled with when nobody waits for its call any more.
const CALL_DROPPED: &str = "the call was dropped";

/// Refuses arguments with which no call starts a run.
pub(crate) fn check(config: &RalphConfig, args: &Value) -> Result<(), RalphError> {
    wanted(config, &CallArguments::read(args)?).map(drop)
}

/// Returns the objective and the rounds that a call asks for.
fn wanted<'a>(config: &RalphConfig, args: &CallArguments<'a>) -> Result<(&'a str, u64), RalphError> {
    let objective = text::trim(args.objective);
    if objective.is_empty() {
        return Err(RalphError::ObjectiveEmpty);
    }
    Ok((objective, config.resolve_max_rounds(args.max_rounds)?))
}

/// Carries one call out, from its arguments to the run's disposal.
pub(crate) async fn run(
    config: &RalphConfig,
    engine: &dyn WorkflowEngine,
    registry: &dyn SubagentRegistry,
    args: &Value,
    context: CallContext,
) -> Result<Envelope, RalphError> {
    let args = CallArguments::read(args)?;
    let parent = context.parent.ok_or(RalphError::NoCallingAgent)?;
    let (objective, max_rounds) = wanted(config, &args)?;
    check_provider(config.subagent_provider(), registry)?;
    if let Some(handoff) = &context.handoff {
        handoff
            .check(config.max_handoff_chars())
            .map_err(|problem| RalphError::InvalidHandoff { problem })?;
    }

    let max_handoff_chars = config.max_handoff_chars();
    let mut request = StartRun::new(workflow_ref(), parent)
        .with_args(LoopArgs::write(objective, max_rounds, max_handoff_chars, context.handoff.as_ref()))
        .with_provider(config.subagent_provider())
        .with_max_agents(max_rounds);
    request.run_id = context.run_id;
    let handoff = context.handoff.map(|handoff| handoff.report);
    let terms = Terms { max_rounds, max_handoff_chars, handoff };

    // If this future is dropped while the engine starts the run, the engine cancels what it would have returned. From
    // the moment it has returned, its owner does.
    let run = engine.start(request, context.cancellation.clone()).await.map_err(RalphError::EngineStart)?;
    finish(OwnedRun::new(run), terms, &context.cancellation).await
}

/// What the loop was asked for, as far as it decides what may come of it.
struct Terms {
    max_rounds: u64,
    max_handoff_chars: u64,
    handoff: Option<RoundReport>,
}

impl Terms {
    /// Reads the arguments of a run that was started before.
    fn of(args: &Value) -> Result<Self, RalphError> {
        let args = LoopArgs::read(args)
            .map_err(|error| RalphError::InvalidArguments { problem: error.to_string() })?;
        let LoopArgs { max_rounds, max_handoff_chars, handoff, .. } = args;
        Ok(Self { max_rounds, max_handoff_chars, handoff })
    }
}

/// Carries on with a run that somebody else has started.
pub(crate) async fn follow(
    run: Box<dyn WorkflowRun>,
    args: &Value,
    cancellation: &CancellationToken,
) -> Result<Envelope, RalphError> {
    let run = OwnedRun::new(run);
    finish(run, Terms::of(args)?, cancellation).await
}

/// Waits for the run's end, disposes of the run, and judges what came of it.
async fn finish(
    mut run: OwnedRun,
    terms: Terms,
    cancellation: &CancellationToken,
) -> Result<Envelope, RalphError> {
    let result = run.result(cancellation).await;
    let disposal_error = run.dispose().await;

    let progress = result.checkpoint().and_then(Progress::from_checkpoint);
    let (last_report, failure) = progress.map(Progress::into_parts).unwrap_or_default();
    let ended = EndedRun::new(run.run.id().clone())
        .with_counts(result.agents_started(), result.attempts())
        .with_last_report(last_report.or(terms.handoff))
        .with_disposal_error(disposal_error);
    let stop_reason = result.stop_reason();
    match result.into_value() {
        Ok(value) => match terminal::decode(&value, terms.max_rounds, terms.max_handoff_chars) {
            Ok(terminal) => completed(terminal, failure, ended),
            Err(problem) => Err(RalphError::InvalidTerminal { problem, run: Box::new(ended) }),
        },
        Err(error) => Err(not_completed(stop_reason, error, ended)),
    }
}

/// Looks the provider up, anew for each call.
fn check_provider(name: &str, registry: &dyn SubagentRegistry) -> Result<(), RalphError> {
    let problem = match registry.provider(name) {
        None => ProviderProblem::NotRegistered,
        Some(provider) if !provider.capabilities().output_contract => {
            ProviderProblem::WithoutStructuredOutput
        }
        Some(provider) if provider.inherits_parent_context() => ProviderProblem::InheritsContext,
        Some(_) => return Ok(()),
    };
    Err(RalphError::Provider { provider: name.to_owned(), problem })
}

/// A run that is this call's to dispose of. Dropped before that, it is cancelled: no way out of a call leaves a run
/// behind that goes on.
struct OwnedRun {
    run: Box<dyn WorkflowRun>,
    /// The run has been told to stop, or is past that.
    stopped: bool,
}

impl OwnedRun {
    fn new(run: Box<dyn WorkflowRun>) -> Self {
        Self { run, stopped: false }
    }

    /// Waits for the run's end, and cancels the run once the call is cancelled.
    ///
    /// The engine was given the token too, and an engine that heeds it has then done so already. One that does not
    /// hears of it here, also when the token was cancelled before the run was there.
    async fn result(&mut self, cancellation: &CancellationToken) -> RunResult {
        match cancellation.run_until_cancelled(self.run.result()).await {
            Some(result) => result,
            None => {
                self.cancel(CALL_CANCELLED);
                self.run.result().await
            }
        }
    }

    /// Cancels the run, unless that has been done. Noted first: an engine whose cancellation panics is not asked again
    /// while the panic unwinds.
    fn cancel(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.run.cancel(reason);
        }
    }

    /// Disposes of the run and returns what went wrong with that.
    async fn dispose(&mut self) -> Option<harness_workflow::Error> {
        let error = self.run.dispose().await.err();
        self.stopped = true;
        if let Some(error) = &error {
            tracing::warn!(run = %self.run.id(), %error, "a run could not be released");
        }
        error
    }
}

impl Drop for OwnedRun {
    fn drop(&mut self) {
        self.cancel(CALL_DROPPED);
    }
}

/// Turns what the loop says into what the call returns.
fn completed(terminal: Terminal, failure: Option<NoValue>, ended: EndedRun) -> Result<Envelope, RalphError> {
    let rounds_started = terminal.rounds_started();
    if ended.agents_started() != rounds_started {
        return Err(RalphError::AgentsMismatch { rounds_started, run: Box::new(ended) });
    }
    match terminal {
        Terminal::Ended(result) => Ok(Envelope {
            run_id: ended.id().clone(),
            agents_started: ended.agents_started(),
            result,
            attempts: ended.attempts(),
            disposal_error: ended.disposal_error().cloned(),
        }),
        Terminal::RoundFailed { round, last_report } => {
            // In a run that goes on from another one, the report to go on from outlives a failing first round.
            let last_report = last_report.or_else(|| ended.last_report().cloned());
            Err(RalphError::round_failed(round, failure, ended.with_last_report(last_report)))
        }
    }
}

/// Turns the error of a run into the error of its call.
fn not_completed(stop_reason: RunStopReason, error: RunError, ended: EndedRun) -> RalphError {
    let run = Box::new(ended);
    if stop_reason == RunStopReason::Cancelled {
        RalphError::Cancelled { error, run }
    } else if *error.code() == ErrorCode::ENGINE_LOST {
        RalphError::EngineLost { error, run }
    } else if *error.code() == INVALID_REPORT {
        invalid_report(error, run)
    } else {
        RalphError::WorkflowFailed { error, run }
    }
}

/// Reads what the loop says of a refused report.
fn invalid_report(error: RunError, run: Box<EndedRun>) -> RalphError {
    #[derive(Deserialize)]
    struct Details {
        round: u64,
        violations: Vec<OutputViolation>,
        unlisted: u64,
    }
    match error.details().map(Details::deserialize) {
        Some(Ok(Details { round, violations, unlisted })) => {
            RalphError::InvalidReport { round, violations, unlisted, run }
        }
        Some(Err(_)) | None => RalphError::WorkflowFailed { error, run },
    }
}
