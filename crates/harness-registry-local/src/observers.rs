use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use harness_subagent::{SubagentEvent, SubagentObserver};

/// The observers at one moment.
pub(crate) type Snapshot = Arc<[Arc<dyn SubagentObserver>]>;

/// The observers of a registry. Events are told to a snapshot, so no lock is held while one runs.
pub(crate) struct Observers {
    present: RwLock<Snapshot>,
    /// Whether there are any, to be asked without the lock.
    any: AtomicBool,
}

impl Observers {
    pub(crate) fn new() -> Self {
        Self { present: RwLock::new(Arc::from([])), any: AtomicBool::new(false) }
    }

    pub(crate) fn add(&self, observer: Arc<dyn SubagentObserver>) {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        *present = present.iter().cloned().chain([observer]).collect();
        self.any.store(true, Ordering::Release);
    }

    /// Returns those that are there, if any are.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.any
            .load(Ordering::Acquire)
            .then(|| Arc::clone(&self.present.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("present", &self.snapshot().map_or(0, |present| present.len()))
            .finish()
    }
}

/// Tells every observer, and lets the panic of one reach nobody else.
pub(crate) fn tell(observers: &[Arc<dyn SubagentObserver>], event: &SubagentEvent<'_>) {
    for observer in observers {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer.observe(event))) else { continue };
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!(message, "an observer of the registry panicked");
        // What was thrown may panic once more when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
    }
}
