use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use harness_subagent::{
    Capabilities, Error, ErrorKind, ProviderInfo, Result, StartSubagent, SubagentProvider, SubagentRun,
};
use tokio::time::sleep;

use super::mock_child::StartStep;
use super::mock_handle::Shared;
use super::mock_run::{ChildState, MockRun};
use super::{MockChild, MockProviderHandle};

/// A provider whose children follow a script.
///
/// Starts take the scripted children in their order; further ones get the
/// [default child](MockProviderHandle::set_default). Everything happens when the script or the handle says so:
/// unless a script names a duration it neither sleeps nor spawns, and with one it is exact under a paused clock.
///
/// It keeps the provider's contract, as far as the script lets it.
#[derive(Debug)]
pub struct MockProvider {
    info: ProviderInfo,
    shared: Arc<Shared>,
}

impl MockProvider {
    /// Makes a provider named `mock`, whose children begin with an empty context, and its handle.
    #[must_use]
    pub fn new(capabilities: Capabilities) -> (Arc<Self>, MockProviderHandle) {
        Self::with_info(ProviderInfo::new("mock", capabilities))
    }

    /// Makes a provider that says of itself what `info` says, and its handle.
    #[must_use]
    pub fn with_info(info: ProviderInfo) -> (Arc<Self>, MockProviderHandle) {
        let shared = Arc::new(Shared::default());
        let handle = MockProviderHandle::new(Arc::clone(&shared));
        (Arc::new(Self { info, shared }), handle)
    }
}

#[async_trait]
impl SubagentProvider for MockProvider {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn capabilities(&self) -> Capabilities {
        self.info.capabilities
    }

    fn inherits_parent_context(&self) -> bool {
        self.info.inherits_parent_context
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let (number, child) = self.shared.begin(&request);
        if request.cancellation.is_cancelled() {
            return Err(cancelled());
        }
        let MockChild { held_start, delay, .. } = child;
        if held_start {
            tokio::select! {
                biased;
                () = request.cancellation.cancelled() => return Err(cancelled()),
                () = self.shared.wait_for(|state| state.released_starts.contains(&number)) => {}
            }
        }
        if let Some(delay) = delay {
            tokio::select! {
                biased;
                () = request.cancellation.cancelled() => return Err(cancelled()),
                () = sleep(delay) => {}
            }
        }
        if let StartStep::Refuse(error) = child.start {
            return Err(error);
        }
        let rules = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).rules.clone();
        let id = format!("{}/{number}", self.info.name);
        let state = Arc::new(ChildState::new(number, id, child, request, rules));
        // From here on there is a child: the run counts it, and its drop notices when nobody took it.
        let run = MockRun::new(state, Arc::clone(&self.shared));
        run.begin();
        Ok(Box::new(run))
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the request was cancelled before there was a child")
}
