//! Holds children back until all runs are alive.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore};

/// The first child of each run waits here, until all of them do. Later children pass.
#[derive(Debug)]
pub(crate) struct Gate {
    runs: usize,
    waiting: AtomicUsize,
    full: Notify,
    open: Semaphore,
    resident_at_the_gate: AtomicU64,
}

impl Gate {
    pub(crate) fn new(runs: usize) -> Self {
        Self {
            runs,
            waiting: AtomicUsize::new(0),
            full: Notify::new(),
            open: Semaphore::new(0),
            resident_at_the_gate: AtomicU64::new(0),
        }
    }

    pub(crate) async fn pass(&self) {
        if self.open.is_closed() {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) + 1 == self.runs {
            self.full.notify_one();
        }
        // The gate opens by closing the semaphore.
        let _ = self.open.acquire().await;
    }

    pub(crate) async fn open_when_full(&self) {
        self.full.notified().await;
        self.resident_at_the_gate.store(resident_bytes(), Ordering::Relaxed);
        self.open.close();
    }

    /// Returns the memory of the process when all runs were alive.
    pub(crate) fn resident(&self) -> u64 {
        self.resident_at_the_gate.load(Ordering::Relaxed)
    }
}

/// Returns the resident memory of this process, or 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
