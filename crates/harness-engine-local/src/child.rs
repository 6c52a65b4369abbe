use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use harness_subagent::SubagentRun;
use harness_workflow::{CallEnd, CallInfo, CallOutcome};
use tokio::sync::OnceCell;

use crate::run::Run;

/// A child of a run, from its start until it has been disposed of.
///
/// The call that it belongs to, the run's end and the run's disposal may all want it gone; it is disposed of
/// once.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) run: Box<dyn SubagentRun>,
    /// What events say of it, of a run that is observed.
    pub(crate) info: Option<Box<CallInfo>>,
    /// Whether its end has been reported, or its start never will be.
    reported: AtomicBool,
    disposal: OnceCell<()>,
}

impl Child {
    pub(crate) fn new(run: Box<dyn SubagentRun>, info: Option<Box<CallInfo>>) -> Self {
        Self { run, info, reported: AtomicBool::new(false), disposal: OnceCell::new() }
    }

    /// Claims the right to report the child's end.
    pub(crate) fn claim_report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// Disposes of the child, or waits for whoever is doing so, and gives its slot back.
    pub(crate) async fn dispose(self: &Arc<Self>, run: &Run) {
        self.disposal
            .get_or_init(|| async {
                if let Err(error) = self.run.dispose().await {
                    tracing::warn!(run = %run.id(), child = %self.run.id(), %error, "a child could not be released");
                    run.note_release_error(self.run.id(), error);
                }
                // One that no call has waited for to its end is told of now, when nothing can be added any more.
                run.report_end(self, || self.cancelled_end());
                run.child_is_gone(self);
            })
            .await;
    }

    /// Describes the end of a child that was ended for the run's sake.
    fn cancelled_end(&self) -> CallEnd {
        let mut end = CallEnd::new(CallOutcome::Cancelled);
        // After the disposal a result is there at once or never.
        let mut result = self.run.result();
        if let Poll::Ready(Ok(result)) = result.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            end.stop_reason = Some(result.stop_reason);
            end.diagnostic = result.diagnostic;
            end.usage = result.usage;
            end.session_id = result.session_id;
        }
        end
    }
}
