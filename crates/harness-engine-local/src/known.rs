use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use harness_workflow::RunId;

/// The run ids that callers have chosen: all of runs that live, and of those that have ended the latest.
///
/// Ids that the engine makes are not here, since they never come again.
#[derive(Debug, Default)]
pub(crate) struct KnownRuns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the run of an id lives.
    alive: HashMap<RunId, bool>,
    ended: VecDeque<RunId>,
}

impl KnownRuns {
    const MAX_ENDED: usize = 100_000;

    /// Adds an id and says whether it is new.
    pub(crate) fn insert(&self, id: &RunId) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.alive.contains_key(id) {
            return false;
        }
        state.alive.insert(id.clone(), true);
        true
    }

    /// Takes note that the run has ended.
    pub(crate) fn end(&self, id: &RunId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.alive.get_mut(id) {
            Some(alive) if *alive => *alive = false,
            _ => return,
        }
        state.ended.push_back(id.clone());
        if state.ended.len() > Self::MAX_ENDED
            && let Some(oldest) = state.ended.pop_front()
        {
            state.alive.remove(&oldest);
        }
    }

    /// Takes an id out again, whose run has not come to be.
    pub(crate) fn remove(&self, id: &RunId) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).alive.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_known_after_its_end_and_the_memory_is_bounded() {
        let known = KnownRuns::default();
        let first = RunId::from("first");
        assert!(known.insert(&first));
        assert!(!known.insert(&first));
        known.end(&first);
        assert!(!known.insert(&first));
        for index in 0..KnownRuns::MAX_ENDED {
            let id = RunId::from(index.to_string());
            known.insert(&id);
            known.end(&id);
        }
        assert!(known.insert(&first));
        assert_eq!(known.state.lock().unwrap().ended.len(), KnownRuns::MAX_ENDED);
    }
}
