use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{
    ActivityStream, AgentId, Capabilities, Result, StartSubagent, StopReason, SubagentProvider,
    SubagentResult, SubagentRun,
};
use tokio_util::sync::CancellationToken;

use crate::state::State;
use crate::workspace_state::{Repositories, RoundStart, WorkspaceState};

/// A provider of which it is written down in what state each of its children finds the workspace.
#[derive(Debug)]
pub(crate) struct WatchedProvider {
    provider: Arc<dyn SubagentProvider>,
    state: State,
    repositories: Repositories,
}

impl WatchedProvider {
    pub(crate) fn new(provider: Arc<dyn SubagentProvider>, state: State) -> Self {
        Self { provider, state, repositories: Repositories::default() }
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
        let workspace = Path::new(&request.parent.workspace);
        if let Some(origin) = &request.origin
            && let Some(top) = self.repositories.top_of(workspace)
        {
            let look = Box::pin(WorkspaceState::look(workspace, &top));
            // A cancelled request is refused by the provider, and the child of a forced end goes with the runtime.
            let workspace = request.cancellation.run_until_cancelled(look).await.flatten();
            if let Some(workspace) = workspace {
                let start = RoundStart { round: origin.call, attempt: origin.attempt, workspace };
                self.state.keep_round_start(&origin.run, &start);
            }
        }
        let cancellation = request.cancellation.clone();
        let run = self.provider.start(request).await?;
        Ok(Box::new(WatchedRun { run, cancellation }))
    }
}

/// A child whose crash does not overtake the signal that was its cause.
///
/// Until a new child has a session of its own, Ctrl-C on the terminal reaches it too. Its end is then known before our
/// own signal is heard, and would count as a failure of its round.
#[derive(Debug)]
struct WatchedRun {
    run: Box<dyn SubagentRun>,
    cancellation: CancellationToken,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SubagentRun for WatchedRun {
    fn id(&self) -> &AgentId {
        self.run.id()
    }

    async fn result(&self) -> Result<SubagentResult> {
        const PATIENCE: Duration = Duration::from_millis(200);
        let result = self.run.result().await;
        if result.as_ref().is_ok_and(|result| result.stop_reason == StopReason::CRASHED) {
            // Whether there was one or not, the result stays what it is: who cancelled knows better.
            let _ = tokio::time::timeout(PATIENCE, self.cancellation.cancelled()).await;
        }
        result
    }

    async fn dispose(&self) -> Result<()> {
        self.run.dispose().await
    }

    fn activity(&self) -> ActivityStream {
        self.run.activity()
    }
}
