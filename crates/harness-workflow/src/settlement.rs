use std::mem;
use std::sync::{Mutex, PoisonError};

use crate::{RunError, RunResult};

/// Decides which of the things that can end a run does: the first to claim it.
///
/// An engine holds one for each run. The body's value, a forced end and the loss of the run all
/// [`claim`](Self::claim) before they clean anything up, so whatever the clean-up causes can no longer change the
/// outcome. A cancellation that came before the claim wins over it all the same.
///
/// ```
/// use harness_workflow::{RunResult, RunStopReason, Settlement};
/// use serde_json::json;
///
/// let settlement = Settlement::default();
/// assert!(settlement.request_cancel("enough"));
/// assert!(!settlement.request_cancel("too late to be the reason"));
///
/// let claim = settlement.claim().expect("nothing has ended the run before");
/// assert!(settlement.claim().is_none());
/// let result = claim.settle(RunResult::completed(json!("a value that came after the cancel")));
/// assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
/// ```
#[derive(Debug, Default)]
pub struct Settlement {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Open,
    CancelRequested(Box<str>),
    Claimed,
}

impl Settlement {
    /// Records a request to cancel and says whether it is the first and in time.
    pub fn request_cancel(&self, reason: &str) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = matches!(*state, State::Open);
        if first {
            *state = State::CancelRequested(reason.into());
        }
        first
    }

    /// Returns the reason of a cancellation that was recorded and has not been settled yet.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<String> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::CancelRequested(reason) => Some(reason.to_string()),
            State::Open | State::Claimed => None,
        }
    }

    /// Claims the run's end. Only the first claim succeeds.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *state, State::Claimed) {
            State::Open => Some(Claim { cancelled: None }),
            State::CancelRequested(reason) => Some(Claim { cancelled: Some(reason) }),
            State::Claimed => None,
        }
    }

    /// Says whether the run's end has been claimed.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Claimed)
    }
}

/// The right to say how a run ended.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    cancelled: Option<Box<str>>,
}

impl Claim {
    /// Returns the reason of the cancellation that came before the claim.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// Makes the run's result of what happened: cancelled when a cancellation came before, with the counts and the
    /// checkpoint of `result`, else `result` itself.
    #[must_use]
    pub fn settle(self, result: RunResult) -> RunResult {
        match self.cancelled {
            Some(reason) => RunResult::cancelled(RunError::cancelled(&reason))
                .with_agents_started(result.agents_started())
                .with_attempts(result.attempts())
                .with_checkpoint(result.checkpoint().cloned()),
            None => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ErrorCode, RunStopReason};

    #[test]
    fn a_cancel_after_the_claim_changes_nothing() {
        let settlement = Settlement::default();
        let claim = settlement.claim().unwrap();
        assert!(!settlement.request_cancel("late"));
        assert_eq!(settlement.cancel_reason(), None);
        let result = claim.settle(RunResult::completed(json!(1)));
        assert_eq!(result.value(), Some(&json!(1)));
    }

    #[test]
    fn a_cancelled_run_keeps_its_counts_and_its_checkpoint() {
        let settlement = Settlement::default();
        settlement.request_cancel("enough");
        let failed = RunResult::failed(RunError::new(ErrorCode::ENGINE_LOST, "lost"))
            .with_agents_started(3)
            .with_attempts(4)
            .with_checkpoint(Some(json!("kept")));
        let result = settlement.claim().unwrap().settle(failed);
        assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
        assert_eq!((result.agents_started(), result.attempts()), (3, 4));
        assert_eq!(result.checkpoint(), Some(&json!("kept")));
        assert_eq!(result.error().unwrap().details(), Some(&json!({ "reason": "enough" })));
    }
}
