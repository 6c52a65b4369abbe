//! The names under which implementations trace their work.

use tracing::Span;

use crate::Origin;

/// Opens the span `subagent` around the work for one child.
///
/// Its fields are `run`, `call` and `attempt`, from the request's [`Origin`] where it has one, and `child`,
/// which is recorded once the provider has named the child.
#[must_use]
pub fn child_span(origin: Option<&Origin>) -> Span {
    let span = tracing::info_span!(
        "subagent",
        run = tracing::field::Empty,
        call = tracing::field::Empty,
        attempt = tracing::field::Empty,
        child = tracing::field::Empty,
    );
    if let (Some(origin), false) = (origin, span.is_disabled()) {
        span.record("run", &*origin.run);
        span.record("call", origin.call);
        span.record("attempt", origin.attempt);
    }
    span
}
