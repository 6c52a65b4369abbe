//! A scripted engine, for tests of whatever calls an engine.

mod child;
mod handle;
mod run;
mod stream;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use harness_workflow::{
    CatalogEntry, EngineCapabilities, Error, ErrorKind, Result, RunId, StartRun, WorkflowCatalog,
    WorkflowEngine, WorkflowMeta, WorkflowObserver, WorkflowObservers, WorkflowRef, WorkflowRun,
};
use tokio_util::sync::CancellationToken;

pub use self::child::StubChild;
use self::handle::Script;
pub use self::handle::StubEngineHandle;
use self::run::StubRun;

/// A [`WorkflowEngine`] whose runs do what a test tells them to, by its [`StubEngineHandle`].
///
/// It comes in two modes. One that is [settable](Self::settable) never runs a body: its runs end with the result that
/// the handle [sets](StubEngineHandle::settle). One that is [running](Self::running) runs the body of the catalog with
/// children that the handle [scripts](StubEngineHandle::push_child), one for each call.
///
/// In both modes it is as plain as the contract lets an engine be, so that nothing hides a mistake of its caller:
///
/// - it enforces no schema;
/// - it does not heed the token that is given to `start`: only [`WorkflowRun::cancel`] reaches a run;
/// - nothing happens in a run before its result is awaited. The body is polled by whoever waits for the result;
/// - a cancellation settles the run at once, whatever its children do.
///
/// It needs no runtime. Any provider name that is well-formed counts as registered.
///
/// ```
/// use harness_subagent::Parent;
/// use harness_testkit::workflow::StubEngine;
/// use harness_workflow::{RunResult, StartRun, WorkflowCatalog, WorkflowEngine, WorkflowRef};
/// # use async_trait::async_trait;
/// # use harness_workflow::{Workflow, WorkflowContext, WorkflowError, WorkflowMeta};
/// # use serde_json::{Value, json};
/// # #[derive(Debug)]
/// # struct Survey(WorkflowMeta);
/// # #[async_trait]
/// # impl Workflow for Survey {
/// #     fn meta(&self) -> &WorkflowMeta {
/// #         &self.0
/// #     }
/// #     async fn run(&self, _context: WorkflowContext) -> Result<Value, WorkflowError> {
/// #         Ok(json!(null))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let survey = std::sync::Arc::new(Survey(WorkflowMeta::new("survey", 1, "Asks.")));
/// let catalog = WorkflowCatalog::new().with(survey)?;
/// let (engine, handle) = StubEngine::settable(catalog);
/// handle.settle(RunResult::completed(json!("answered")));
///
/// let request = StartRun::new(WorkflowRef::new("survey", 1), Parent::new("agent-1", "."));
/// let run = engine.start(request, Default::default()).await?;
/// assert_eq!(run.result().await.value(), Some(&json!("answered")));
/// run.dispose().await?;
///
/// assert_eq!(handle.starts().len(), 1);
/// assert_eq!(handle.disposals(), 1);
/// # Ok(())
/// # }
/// ```
pub struct StubEngine {
    catalog: WorkflowCatalog,
    max_agents: u64,
    shared: Arc<Shared>,
}

/// What an engine, its runs and its handles share.
struct Shared {
    runs_bodies: bool,
    script: Mutex<Script>,
    observers: WorkflowObservers,
    known: Mutex<HashSet<RunId>>,
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StubEngine {
    const DEFAULT_PROVIDER: &str = "default";
    const DEFAULT_MAX_AGENTS: u64 = 1000;

    /// Makes an engine that never runs a body. It knows the workflows of `catalog`.
    #[must_use]
    pub fn settable(catalog: WorkflowCatalog) -> (Self, StubEngineHandle) {
        Self::new(catalog, false)
    }

    /// Makes an engine that runs the bodies of `catalog` with scripted children.
    #[must_use]
    pub fn running(catalog: WorkflowCatalog) -> (Self, StubEngineHandle) {
        Self::new(catalog, true)
    }

    fn new(catalog: WorkflowCatalog, runs_bodies: bool) -> (Self, StubEngineHandle) {
        let shared = Arc::new(Shared {
            runs_bodies,
            script: Mutex::default(),
            observers: WorkflowObservers::default(),
            known: Mutex::default(),
        });
        let handle = StubEngineHandle::new(Arc::clone(&shared));
        (Self { catalog, max_agents: Self::DEFAULT_MAX_AGENTS, shared }, handle)
    }

    /// Sets the engine's ceiling, 1000 without it.
    #[must_use]
    pub fn with_max_agents(mut self, max_agents: u64) -> Self {
        self.max_agents = max_agents;
        self
    }

    fn check(&self, request: &StartRun) -> Result<(CatalogEntry, u64)> {
        let entry = self.catalog.resolve(&request.workflow)?;
        request.check_args()?;
        request.resolve_provider(Self::DEFAULT_PROVIDER)?;
        Ok((entry.clone(), request.resolve_max_agents(self.max_agents)?))
    }

    fn admit(&self, asked: Option<RunId>) -> Result<RunId> {
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        let id = asked.unwrap_or_else(|| {
            (known.len() + 1..)
                .map(|number| RunId::from(format!("stub-run-{number}")))
                .find(|id| !known.contains(id))
                .expect("there are more numbers than runs")
        });
        if !known.insert(id.clone()) {
            return Err(Error::new(ErrorKind::RunExists, format!("run {id} exists; choose another id")));
        }
        Ok(id)
    }
}

impl fmt::Debug for StubEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubEngine").field("runs_bodies", &self.shared.runs_bodies).finish_non_exhaustive()
    }
}

#[async_trait]
impl WorkflowEngine for StubEngine {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.catalog.get(workflow).map(|entry| Arc::clone(entry.meta()))
    }

    fn max_agents(&self) -> u64 {
        self.max_agents
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities::default()
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.shared.observers.add(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        let hook = {
            let mut script = self.shared.script();
            script.record.starts.push((request.clone(), cancellation));
            script.on_start.clone()
        };
        if let Some(hook) = hook {
            hook();
        }
        let gate = self.shared.script().start_gate.subscribe();
        handle::pass(gate).await;
        if let Some(error) = self.shared.script().start_error.clone() {
            return Err(error);
        }
        let (entry, max_agents) = self.check(&request)?;
        let id = self.admit(request.run_id)?;
        Ok(Box::new(StubRun::start(Arc::clone(&self.shared), id, &entry, request.args, max_agents)))
    }
}
