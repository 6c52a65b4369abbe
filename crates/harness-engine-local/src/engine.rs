use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use harness_subagent::{SubagentProvider, SubagentRegistry};
use harness_workflow::{
    CatalogEntry, EngineCapabilities, Error, ErrorKind, Result, RunId, StartRun, WorkflowCatalog,
    WorkflowEngine, WorkflowMeta, WorkflowObserver, WorkflowObservers, WorkflowRef, WorkflowRun,
};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::LocalConfig;
use crate::digest::digest;
use crate::history::{RunHistory, RunState};
use crate::journal::{Entry, Journal, JournalError, JournalStore, Record, StoredRun};
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
///
/// # Runs that survive their process
///
/// An engine that is made with a [`JournalStore`] writes down what happens in each of its runs, and
/// [`resume`](Self::resume) takes a run up again whose process has ended. The body is run from its beginning;
/// calls that had ended are answered from the journal and never carried out again, and the one that was under way is
/// tried once more. What a body does is compared with the journal, call by call, so a
/// body that has several calls under way at once should make all of them before it waits for one: which of two
/// branches makes its *second* call first is up to their children, and a run that is resumed in the other order is
/// refused.
pub struct LocalEngine {
    shared: Arc<Shared>,
    catalog: WorkflowCatalog,
    journals: Option<Arc<dyn JournalStore>>,
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
        Self { shared: Arc::new(shared), catalog, journals: None, observers: WorkflowObservers::default() }
    }

    /// Makes an engine that keeps the journals of its runs in `journals`.
    #[must_use]
    pub fn durable(
        registry: Arc<dyn SubagentRegistry>,
        catalog: WorkflowCatalog,
        config: LocalConfig,
        journals: Arc<dyn JournalStore>,
    ) -> Self {
        Self { journals: Some(journals), ..Self::new(registry, catalog, config) }
    }

    /// Returns the engine's configuration.
    #[must_use]
    pub fn config(&self) -> &LocalConfig {
        &self.shared.config
    }

    /// Takes a run up again that was interrupted, and hands it to the caller, who owns it as one that was started.
    ///
    /// The run goes on with the request that it was started with. One that has ended is not run again: its
    /// result is there at once, and no event is published. One that was cancelled before it was interrupted ends as
    /// cancelled.
    ///
    /// A body that makes other calls than the journal says ends the run in error, with
    /// [`ErrorCode::REPLAY_MISMATCH`](harness_workflow::ErrorCode::REPLAY_MISMATCH); a call that was tried as often
    /// as it may be, with [`ErrorCode::ATTEMPTS_EXHAUSTED`](harness_workflow::ErrorCode::ATTEMPTS_EXHAUSTED). After
    /// the first the journal is as it was.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run stays as it was.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Engine`], with a [`JournalError`] as its source: the run is not there, somebody else runs it, or
    /// its journal is not what was written. [`ErrorKind::UnknownWorkflow`] and [`ErrorKind::Provider`]
    /// when this engine has not what the run was started with, and [`ErrorKind::InvalidArgument`] when it allows
    /// fewer calls or keeps no journals.
    pub async fn resume(&self, run: &RunId, cancellation: CancellationToken) -> Result<Box<dyn WorkflowRun>> {
        let store = self.journals.clone().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "this engine keeps no journals; make it with a journal store",
            )
        })?;
        let id = run.clone();
        let opened = spawn_blocking(move || {
            let (stored, journal) = store.open(&id)?;
            Ok::<_, JournalError>((RunHistory::fold(stored)?, journal))
        });
        let (history, mut journal) = opened.await.map_err(thread_failed)?.map_err(journal_failed)?;
        let request = history.request.clone();
        let entry = self.catalog.resolve(&request.workflow)?;
        let provider = self.find_provider(&request)?;
        let max_agents = request.resolve_max_agents(self.max_agents())?;
        if !matches!(history.state, RunState::Finished(_)) {
            journal.append(&[Entry::RunResumed]).map_err(journal_failed)?;
        }
        let new = self.new_run(entry, provider, run.clone(), request, max_agents)?;
        Ok(Box::new(NewRun { journal: Some((journal, history)), ..new }.start(cancellation)))
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

    /// Chooses the id of a run that is about to start.
    fn claim_id(&self, asked: Option<&RunId>) -> Result<RunId> {
        match asked {
            None => Ok(RunId::from(Uuid::new_v4().to_string())),
            Some(id) if id.as_str().is_empty() => {
                Err(Error::new(ErrorKind::InvalidArgument, "a run's id must not be empty"))
            }
            // The store knows which ids there are, over all processes.
            Some(id) if self.journals.is_some() || self.shared.known.insert(id) => Ok(id.clone()),
            Some(id) => Err(Error::new(
                ErrorKind::RunExists,
                format!("a run with the id {id} exists; choose another id or none"),
            )),
        }
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
            journal: None,
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
        EngineCapabilities::default()
            .with_enforces_schema(true)
            .with_heeds_cancellation_token(true)
            .with_durable(self.journals.is_some())
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
        let id = self.claim_id(request.run_id.as_ref())?;
        let Some(store) = self.journals.clone() else {
            let new = self.new_run(entry, provider, id.clone(), request, max_agents).inspect_err(|_| {
                self.shared.known.remove(&id);
            })?;
            return Ok(Box::new(new.start(cancellation)));
        };
        let stored = request
            .clone()
            .with_run_id(id.clone())
            .with_provider(provider.name())
            .with_max_agents(max_agents);
        let new = self.new_run(entry, provider, id, request, max_agents)?;
        // If this future is dropped, so is the run that the thread returns, which cancels it.
        let started = spawn_blocking(move || start_journaled(&*store, stored, new, cancellation));
        Ok(Box::new(started.await.map_err(thread_failed)?.map_err(journal_failed)?))
    }
}

fn start_journaled(
    store: &dyn JournalStore,
    request: StartRun,
    new: NewRun,
    cancellation: CancellationToken,
) -> Result<LocalRun, JournalError> {
    let first = Entry::RunStarted { request: digest(&request) };
    let journal: Box<dyn Journal> = store.create(&request, &first)?;
    let history = RunHistory::fold(StoredRun::new(request, vec![Record::new(1, 0, first)], true))?;
    Ok(NewRun { journal: Some((journal, history)), ..new }.start(cancellation))
}

fn journal_failed(error: JournalError) -> Error {
    match &error {
        JournalError::Exists { .. } => Error::new(ErrorKind::RunExists, error.to_string()),
        JournalError::UnusableId { .. } => Error::new(ErrorKind::InvalidArgument, error.to_string()),
        _ => Error::new(ErrorKind::Engine, "the journal of the run cannot be used").with_source(error),
    }
}

fn thread_failed(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Engine, "the thread that opens the journal has ended early").with_source(error)
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine")
            .field("config", &self.shared.config)
            .field("journals", &self.journals)
            .finish_non_exhaustive()
    }
}
