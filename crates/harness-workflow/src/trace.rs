//! The names under which engines trace their work.

use tracing::Span;

use crate::RunId;

/// Opens the span `workflow_run` around one run. Its field is `run`.
#[must_use]
pub fn run_span(run: &RunId) -> Span {
    tracing::info_span!("workflow_run", %run)
}

/// Opens the span `workflow_call` around one attempt at a call for a child.
///
/// Its fields are `run`, `call`, `attempt`, and `child`, which is recorded once the child has its id.
#[must_use]
pub fn call_span(run: &RunId, call: u64, attempt: u32) -> Span {
    tracing::info_span!("workflow_call", %run, call, attempt, child = tracing::field::Empty)
}
