use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use harness_subagent::{Capabilities, Result, StartSubagent, SubagentProvider, SubagentRun};

use crate::state::State;
use crate::workspace_state::{RoundStart, WorkspaceState};

/// A provider of which it is written down in what state each of its children finds the workspace.
#[derive(Debug)]
pub(crate) struct WatchedProvider {
    provider: Arc<dyn SubagentProvider>,
    state: State,
}

impl WatchedProvider {
    pub(crate) fn new(provider: Arc<dyn SubagentProvider>, state: State) -> Self {
        Self { provider, state }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SubagentProvider for WatchedProvider {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.provider.capabilities()
    }

    fn inherits_parent_context(&self) -> bool {
        self.provider.inherits_parent_context()
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        if let Some(origin) = &request.origin {
            // A cancelled request is refused by the provider, and the child of a forced end goes with the runtime.
            let workspace = tokio::select! {
                workspace = WorkspaceState::look(Path::new(&request.parent.workspace)) => workspace,
                () = request.cancellation.cancelled() => None,
            };
            if let Some(workspace) = workspace {
                let start = RoundStart { round: origin.call, attempt: origin.attempt, workspace };
                self.state.keep_round_start(&origin.run, &start);
            }
        }
        self.provider.start(request).await
    }
}
