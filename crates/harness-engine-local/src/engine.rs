use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use harness_subagent::{SubagentProvider, SubagentRegistry};
use harness_workflow::{
    CatalogEntry, EngineCapabilities, Error, ErrorKind, Result, RunId, StartRun, WorkflowCatalog,
    WorkflowEngine, WorkflowMeta, WorkflowObserver, WorkflowObservers, WorkflowRef, WorkflowRun,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::LocalConfig;
use crate::known::KnownRuns;
use crate::run::{LocalRun, NewRun};

/// Runs workflows in this process, on tokio.
///
/// Each run is one task of the runtime in which `start` is called. The runtime needs its timer. On a
/// multi-thread runtime a run ends within its grace even when its body never returns from `poll`; the body
/// then keeps its thread, which nothing can take from it. On a current-thread runtime such a body stops
/// everything.
///
/// The engine starts its children through the registry that it is made with. A run looks its provider up
/// once, at its start.
pub struct LocalEngine {
    shared: Arc<Shared>,
    catalog: WorkflowCatalog,
    observers: WorkflowObservers,
}

/// What the runs of an engine have in common. It outlives the engine's handle.
pub(crate) struct Shared {
    pub(crate) registry: Arc<dyn SubagentRegistry>,
    pub(crate) config: LocalConfig,
    pub(crate) slots: usize,
    pub(crate) known: KnownRuns,
}

impl LocalEngine {
    /// Makes an engine that keeps its runs in memory only.
    #[must_use]
    pub fn new(registry: Arc<dyn SubagentRegistry>, catalog: WorkflowCatalog, config: LocalConfig) -> Self {
        let slots = config.slots();
        let shared = Shared { registry, config, slots, known: KnownRuns::default() };
        Self { shared: Arc::new(shared), catalog, observers: WorkflowObservers::default() }
    }

    /// Returns the engine's configuration.
    #[must_use]
    pub fn config(&self) -> &LocalConfig {
        &self.shared.config
    }

    fn find_provider(&self, request: &StartRun) -> Result<Arc<dyn SubagentProvider>> {
        let name = request.resolve_provider(&self.shared.config.provider)?;
        self.shared.registry.provider(name).ok_or_else(|| {
            let known: Vec<String> =
                self.shared.registry.providers().into_iter().map(|info| info.name).collect();
            Error::new(
                ErrorKind::Provider,
                format!("no provider is named {name:?}; registered are: {}", known.join(", ")),
            )
        })
    }

    fn new_run(
        &self,
        entry: &CatalogEntry,
        provider: Arc<dyn SubagentProvider>,
        id: RunId,
        request: StartRun,
        max_agents: u64,
    ) -> Result<NewRun> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Engine, "a run must be started inside a tokio runtime").with_source(error)
        })?;
        Ok(NewRun {
            shared: Arc::clone(&self.shared),
            runtime,
            id,
            meta: Arc::clone(entry.meta()),
            workflow: Arc::clone(entry.workflow()),
            provider,
            observers: (!self.observers.is_empty()).then(|| Box::new(self.observers.snapshot())),
            parent: request.parent,
            args: request.args,
            max_agents,
        })
    }
}

#[async_trait]
impl WorkflowEngine for LocalEngine {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.catalog.get(workflow).map(|entry| Arc::clone(entry.meta()))
    }

    fn max_agents(&self) -> u64 {
        self.shared.config.max_agents.get()
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities::default().with_enforces_schema(true).with_heeds_cancellation_token(true)
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.observers.add(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        let entry = self.catalog.resolve(&request.workflow)?;
        request.check_args()?;
        let provider = self.find_provider(&request)?;
        let max_agents = request.resolve_max_agents(self.max_agents())?;
        let id = match &request.run_id {
            None => RunId::from(Uuid::new_v4().to_string()),
            Some(id) if id.as_str().is_empty() => {
                return Err(Error::new(ErrorKind::InvalidArgument, "a run's id must not be empty"));
            }
            Some(id) if !self.shared.known.insert(id) => return Err(run_exists(id)),
            Some(id) => id.clone(),
        };
        let new = self.new_run(entry, provider, id.clone(), request, max_agents).inspect_err(|_| {
            self.shared.known.remove(&id);
        })?;
        let run: LocalRun = new.start(cancellation);
        Ok(Box::new(run))
    }
}

fn run_exists(id: &RunId) -> Error {
    Error::new(ErrorKind::RunExists, format!("a run with the id {id} exists; choose another id or none"))
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine").field("config", &self.shared.config).finish_non_exhaustive()
    }
}
