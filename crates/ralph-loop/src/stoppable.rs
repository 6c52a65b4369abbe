use std::sync::Arc;

use async_trait::async_trait;
use harness_engine_local::LocalEngine;
use harness_workflow::{
    EngineCapabilities, Result, RunId, RunResult, StartRun, WorkflowEngine, WorkflowMeta, WorkflowObserver,
    WorkflowRef, WorkflowRun,
};
use tokio_util::sync::CancellationToken;

use crate::stops::StopCause;

/// The engine, except that the journal of a run that is stopped says what stopped it.
///
/// A cancellation token carries no reason. The engine below gets none therefore: whoever holds the run cancels it, and
/// the reason is put in on the way.
#[derive(Debug)]
pub(crate) struct StoppableEngine<E = LocalEngine> {
    engine: Arc<E>,
    cause: StopCause,
}

impl<E: WorkflowEngine> StoppableEngine<E> {
    pub(crate) fn new(engine: Arc<E>, cause: StopCause) -> Self {
        Self { engine, cause }
    }

    fn stoppable(&self, run: Box<dyn WorkflowRun>) -> Box<dyn WorkflowRun> {
        Box::new(StoppableRun { run, cause: self.cause.clone() })
    }
}

impl StoppableEngine {
    /// Takes an interrupted run up again, as [`LocalEngine::resume`] does.
    pub(crate) async fn resume(&self, run: &RunId) -> Result<Box<dyn WorkflowRun>> {
        let run = self.engine.resume(run, CancellationToken::new()).await?;
        Ok(self.stoppable(run))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<E: WorkflowEngine> WorkflowEngine for StoppableEngine<E> {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.engine.workflow(workflow)
    }

    fn max_agents(&self) -> u64 {
        self.engine.max_agents()
    }

    fn capabilities(&self) -> EngineCapabilities {
        self.engine.capabilities().with_heeds_cancellation_token(false)
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.engine.observe(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        // A run whose cancellation came first never has a child: the engine looks before it starts one.
        let token = if cancellation.is_cancelled() { cancellation } else { CancellationToken::new() };
        let run = self.engine.start(request, token).await?;
        Ok(self.stoppable(run))
    }
}

#[derive(Debug)]
struct StoppableRun {
    run: Box<dyn WorkflowRun>,
    cause: StopCause,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl WorkflowRun for StoppableRun {
    fn id(&self) -> &RunId {
        self.run.id()
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        self.run.meta()
    }

    async fn result(&self) -> RunResult {
        self.run.result().await
    }

    fn cancel(&self, reason: &str) {
        self.run.cancel(self.cause.reason().unwrap_or(reason));
    }

    async fn dispose(&self) -> Result<()> {
        self.run.dispose().await
    }
}
