use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use harness_subagent::{
    AgentId, Capabilities, Error, ErrorKind, Result, StartSubagent, SubagentProvider, SubagentResult,
    SubagentRun,
};

/// A provider whose children have ended, all alike, before their start returns. It records nothing but how many
/// there are, which makes it cheap enough to measure an engine with.
///
/// It says that it can be asked for everything, and its name is `instant`.
#[derive(Debug)]
pub struct InstantProvider {
    result: SubagentResult,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    live: AtomicU64,
}

impl InstantProvider {
    /// Makes a provider whose children end with `result`.
    #[must_use]
    pub fn new(result: SubagentResult) -> Self {
        Self { result, counts: Arc::default() }
    }

    /// Returns how many children were started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.counts.started.load(Ordering::Relaxed)
    }

    /// Returns how many runs are held by somebody.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.counts.live.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl SubagentProvider for InstantProvider {
    fn name(&self) -> &str {
        "instant"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        if request.cancellation.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the request was cancelled before the start"));
        }
        let number = self.counts.started.fetch_add(1, Ordering::Relaxed) + 1;
        self.counts.live.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(InstantRun {
            id: AgentId::new(format!("instant/{number}")),
            result: self.result.clone(),
            counts: Arc::clone(&self.counts),
        }))
    }
}

#[derive(Debug)]
struct InstantRun {
    id: AgentId,
    result: SubagentResult,
    counts: Arc<Counts>,
}

#[async_trait]
impl SubagentRun for InstantRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        Ok(self.result.clone())
    }

    async fn dispose(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for InstantRun {
    fn drop(&mut self) {
        self.counts.live.fetch_sub(1, Ordering::Relaxed);
    }
}
