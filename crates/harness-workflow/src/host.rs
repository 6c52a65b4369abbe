use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::Value;

use crate::{AgentOutcome, NumberedCall, RunError};

/// The engine's side of a [`WorkflowContext`](crate::WorkflowContext): what the context leaves to the engine.
///
/// # Contract
///
/// The context calls it; the author of an engine implements it, one for each run. The context has checked
/// what it passes on and has asked [`cancel_reason`](Self::cancel_reason) first.
#[async_trait]
pub trait WorkflowHost: Debug + Send + Sync + 'static {
    /// Returns why the run was cancelled, once it was. The context asks before everything else.
    fn cancel_reason(&self) -> Option<String>;

    /// Takes note that the body began the phase `title`.
    fn phase(&self, title: &str);

    /// Takes note that the body said `message`.
    fn log(&self, message: &str);

    /// Keeps `value` as the run's latest checkpoint.
    ///
    /// It becomes part of the run's result on every path. A durable engine records it no later than the
    /// next start of a child or the end of the run.
    ///
    /// # Errors
    ///
    /// What keeps the engine from going on.
    fn checkpoint(&self, value: Value) -> Result<(), RunError>;

    /// Runs one child and waits until it has ended and has been disposed of.
    ///
    /// Calls come with numbers that rise by one; those of a [`parallel`](crate::WorkflowContext::parallel)
    /// overlap. The engine waits for a free slot in the order of the numbers, starts the child through its
    /// registry, reports its start and its end, and disposes of it before it returns.
    ///
    /// # Cancel safety
    ///
    /// The context may drop the future, when a body no longer waits for a call. The engine must then end the
    /// child, report its end and dispose of it before the run ends.
    ///
    /// # Errors
    ///
    /// What keeps the engine from going on, with one of the codes of [`ErrorCode`](crate::ErrorCode):
    /// `agent-start`, `agent-result`, `attempts-exhausted`, `cancelled`, `journal`, `replay-mismatch`. A child
    /// that ended without a value is no error.
    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError>;
}
