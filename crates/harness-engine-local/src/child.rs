use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use harness_subagent::SubagentRun;
use harness_workflow::{CallEnd, CallInfo, CallOutcome};

/// A child of a run, from its start until it has been disposed of.
///
/// The call that it belongs to, the run's end and the run's disposal may all want it gone. Whoever claims its
/// disposal brings it about; the others wait.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) run: Box<dyn SubagentRun>,
    /// What events say of it, of a run that is observed.
    pub(crate) info: Option<Box<CallInfo>>,
    pub(crate) call: u64,
    pub(crate) attempt: u32,
    /// Whether its end stands in the journal.
    recorded: AtomicBool,
    /// Whether its end has been reported, or its start never will be.
    reported: AtomicBool,
    disposal: AtomicBool,
}

impl Child {
    pub(crate) fn new(
        run: Box<dyn SubagentRun>,
        info: Option<Box<CallInfo>>,
        call: u64,
        attempt: u32,
    ) -> Self {
        let [recorded, reported, disposal] = [false; 3].map(AtomicBool::new);
        Self { run, info, call, attempt, recorded, reported, disposal }
    }

    /// Claims the right to record the child's end.
    pub(crate) fn claim_record(&self) -> bool {
        !self.recorded.swap(true, Ordering::Relaxed)
    }

    /// Claims the right to report the child's end.
    pub(crate) fn claim_report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// Returns whether nobody need report the child's end any more.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// Claims the duty to dispose of the child.
    pub(crate) fn claim_disposal(&self) -> bool {
        !self.disposal.swap(true, Ordering::Relaxed)
    }

    /// Describes the end of a child that was ended for the run's sake and has been disposed of.
    pub(crate) fn cancelled_end(&self) -> CallEnd {
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
