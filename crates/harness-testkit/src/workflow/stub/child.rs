use std::fmt;
use std::sync::Arc;

use harness_subagent::{Diagnostic, StopReason};
use harness_workflow::{AgentOutcome, ErrorCode, NoValue, RunError};
use serde_json::Value;

/// What one child of a [`StubEngine`](super::StubEngine) does, once the body calls for it.
///
/// It runs its hook, waits for the run to be cancelled if it is told to, and then ends or never does.
#[derive(Clone)]
pub struct StubChild {
    pub(super) hook: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(super) waits_for_cancel: bool,
    pub(super) end: StubEnd,
}

#[derive(Clone, Debug)]
pub(super) enum StubEnd {
    Yields(Result<AgentOutcome, RunError>),
    Never,
}

impl StubChild {
    /// Yields `outcome`.
    #[must_use]
    pub fn outcome(outcome: AgentOutcome) -> Self {
        Self::new(StubEnd::Yields(Ok(outcome)))
    }

    /// Yields a value. No schema is asked.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::outcome(AgentOutcome::Value(value))
    }

    /// Stops in an ordinary way, without a value.
    #[must_use]
    pub fn failure(stop_reason: StopReason) -> Self {
        let diagnostic = Diagnostic::new("the script lets this child fail");
        Self::outcome(AgentOutcome::NoValue(NoValue::new(stop_reason, Some(diagnostic))))
    }

    /// Ends in a way after which the engine cannot go on.
    #[must_use]
    pub fn fault(error: RunError) -> Self {
        Self::new(StubEnd::Yields(Err(error)))
    }

    /// Ends in a way after which the engine cannot go on: it is [lost](ErrorCode::AGENT_RESULT).
    #[must_use]
    pub fn lost() -> Self {
        Self::fault(RunError::new(ErrorCode::AGENT_RESULT, "the script loses this child"))
    }

    /// Never ends. Only the end of its run ends it.
    #[must_use]
    pub fn endless() -> Self {
        Self::new(StubEnd::Never)
    }

    fn new(end: StubEnd) -> Self {
        Self { hook: None, waits_for_cancel: false, end }
    }

    /// Runs `hook` as soon as the body calls for the child: to cancel the caller's token, for example.
    ///
    /// It may call everything, the engine and its runs included.
    #[must_use]
    pub fn with_hook(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Holds the end back until somebody has called [`cancel`](harness_workflow::WorkflowRun::cancel) on the run,
    /// whether or not the run heeds it.
    #[must_use]
    pub fn after_cancel(mut self) -> Self {
        self.waits_for_cancel = true;
        self
    }
}

impl fmt::Debug for StubChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubChild")
            .field("has_hook", &self.hook.is_some())
            .field("waits_for_cancel", &self.waits_for_cancel)
            .field("end", &self.end)
            .finish()
    }
}
