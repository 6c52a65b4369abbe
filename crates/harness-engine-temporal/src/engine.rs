use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use harness_workflow::{
    CatalogEntry, EngineCapabilities, Error, ErrorKind, Result, RunId, StartRun, WorkflowCatalog,
    WorkflowEngine, WorkflowMeta, WorkflowObserver, WorkflowObservers, WorkflowRef, WorkflowRun,
};
use temporalio_client::errors::{WorkflowInteractionError, WorkflowStartError};
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionDescription, WorkflowExecutionStatus,
    WorkflowIdReusePolicy, WorkflowStartOptions,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::body::RunWorkflow;
use crate::client::{ConnectError, Endpoint};
use crate::run::{NewRun, Run, TOKEN_CANCELLED, TemporalRun, request_cancel};
use crate::wire::{self, MAX_BYTES, RunInput};
use crate::{Route, Routes, TemporalConfig};

/// Runs workflows on a Temporal server.
///
/// The engine is a client: it starts runs, follows them, and tells of them. [`TemporalWorker`](crate::TemporalWorker)s,
/// here or elsewhere, run the bodies and the children. A run survives the end of this process, of workers, and of the
/// server.
///
/// # Who owns a run
///
/// Whoever started it, also by a repeated start of the same id, which returns the run that there is: its disposal
/// cancels the run, waits [for a while](TemporalConfig::cancellation_grace) for its end, and then lets go of it. A run
/// whose process has died is not cancelled by that. [`attach`](Self::attach) hands over a run whose disposal ends the
/// watch over it and nothing else.
///
/// A run's result is the server's, whatever this process asked for meanwhile: a run that ended before a cancellation
/// reached the server has its own end.
pub struct TemporalEngine {
    pub(crate) client: Client,
    catalog: WorkflowCatalog,
    routes: Arc<dyn Routes>,
    config: TemporalConfig,
    observers: WorkflowObservers,
    /// The runs that live here, so that a second start of one tells of it once.
    known: Mutex<HashMap<RunId, Weak<Run>>>,
}

impl TemporalEngine {
    /// Connects to a server and makes an engine that knows the workflows of `catalog`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub async fn connect(
        endpoint: &Endpoint,
        catalog: WorkflowCatalog,
        routes: Arc<dyn Routes>,
        config: TemporalConfig,
    ) -> Result<Self, ConnectError> {
        let client = endpoint.connect().await?;
        Ok(Self {
            client,
            catalog,
            routes,
            config,
            observers: WorkflowObservers::default(),
            known: Mutex::default(),
        })
    }

    /// Returns the engine's configuration.
    #[must_use]
    pub fn config(&self) -> &TemporalConfig {
        &self.config
    }

    /// Watches a run that somebody started, on whatever machine.
    ///
    /// Its events begin with what happens from now on; of a run that has ended there are none, and its result is there
    /// soon. [`WorkflowRun::cancel`] cancels the run for everybody; its disposal, and its drop, end the watch only, and
    /// its result then says [`engine-lost`](harness_workflow::ErrorCode::ENGINE_LOST) unless the run had ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the server knows no such run; [`ErrorKind::UnknownWorkflow`] when this
    /// engine does not know its workflow; [`ErrorKind::Engine`] when the server cannot be asked.
    pub async fn attach(&self, run: &RunId) -> Result<Box<dyn WorkflowRun>> {
        let run = self.take_up(run).await?;
        Ok(Box::new(TemporalRun::new(run, false)))
    }

    /// Cancels a run that somebody started, on whatever machine, and returns when the server has taken note.
    ///
    /// A run that has ended stays as it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Engine`] when the server cannot be asked.
    pub async fn cancel(&self, run: &RunId, reason: &str) -> Result<()> {
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(run.as_str());
        let options = temporalio_client::WorkflowCancelOptions::builder().reason(reason).build();
        match handle.cancel(options).await {
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(failed("the run cannot be cancelled", error)),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<RunId, Weak<Run>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, run: &Arc<Run>, id: &RunId) {
        let mut known = self.known();
        known.retain(|_, run| run.upgrade().is_some_and(|run| !run.has_ended()));
        known.insert(id.clone(), Arc::downgrade(run));
    }

    fn find_route(&self, request: &StartRun) -> Result<Route> {
        let name = request.resolve_provider(&self.config.provider)?;
        self.routes.route(name).ok_or_else(|| {
            Error::new(
                ErrorKind::Provider,
                format!(
                    "there is no route for a provider named {name:?}; routes are there for: {}",
                    self.routes.names().join(", ")
                ),
            )
        })
    }

    fn new_run(&self, id: RunId, entry: &CatalogEntry, execution: String) -> NewRun {
        NewRun {
            client: self.client.clone(),
            id,
            meta: Arc::clone(entry.meta()),
            execution,
            observers: self.observers.snapshot(),
            grace: self.config.cancellation_grace,
            watch_interval: self.config.watch_interval,
            old_events: 0,
            cancelled: None,
            silent: false,
        }
    }

    /// Follows a run that there is.
    async fn take_up(&self, id: &RunId) -> Result<Arc<Run>> {
        if let Some(run) = self.known().get(id).and_then(Weak::upgrade) {
            return Ok(run);
        }
        let runtime = runtime()?;
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(id.as_str());
        let description =
            handle.describe(WorkflowDescribeOptions::default()).await.map_err(|error| match error {
                WorkflowInteractionError::NotFound(_) => Error::new(
                    ErrorKind::InvalidArgument,
                    format!("the server knows no run {id}, or no longer"),
                ),
                error => failed("the run cannot be looked up", error),
            })?;
        let workflow = self.workflow_of(id, &description).await?;
        let entry = self.catalog.resolve(&workflow)?;
        let mut new = self.new_run(id.clone(), entry, description.run_id().to_owned());
        new.silent = description.status() != WorkflowExecutionStatus::Running;
        new.old_events = i64::try_from(description.history_length()).unwrap_or(i64::MAX);
        let run = new.follow(runtime);
        self.keep(&run, id);
        Ok(run)
    }

    /// Reads from a run's history which workflow it runs.
    async fn workflow_of(
        &self,
        id: &RunId,
        description: &WorkflowExecutionDescription,
    ) -> Result<WorkflowRef> {
        use futures::StreamExt;

        let foreign = || {
            Error::new(ErrorKind::RunExists, format!("{id} is on the server, and is no run of this engine"))
        };
        if description.workflow_type() != wire::RUN {
            return Err(foreign());
        }
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(id.as_str());
        let mut events = handle.fetch_history(temporalio_client::WorkflowFetchHistoryOptions::default());
        let first = events.next().await.ok_or_else(foreign)?;
        let first = first.map_err(|error| failed("the history cannot be read", error))?;
        let mut fold = crate::fold::Fold::default();
        fold.take(first);
        Ok(fold.request.ok_or_else(foreign)?.workflow)
    }
}

fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Engine, "a run must be started inside a tokio runtime").with_source(error)
    })
}

pub(crate) fn failed(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Engine, what).with_source(error)
}

#[async_trait]
impl WorkflowEngine for TemporalEngine {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.catalog.get(workflow).map(|entry| Arc::clone(entry.meta()))
    }

    fn max_agents(&self) -> u64 {
        self.config.max_agents.get()
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities::default()
            .with_enforces_schema(true)
            .with_heeds_cancellation_token(true)
            .with_durable(true)
            .with_attaches_to_known_run(true)
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
        let route = self.find_route(&request)?;
        let max_agents = request.resolve_max_agents(self.max_agents())?;
        let is_made_up = request.run_id.is_none();
        let id = match &request.run_id {
            Some(id) if id.as_str().is_empty() => {
                return Err(Error::new(ErrorKind::InvalidArgument, "a run's id must not be empty"));
            }
            Some(id) => id.clone(),
            None => RunId::from(Uuid::new_v4().to_string()),
        };
        let cancelled = cancellation.is_cancelled().then(|| TOKEN_CANCELLED.to_owned());
        let input = RunInput {
            version: wire::VERSION,
            request: request
                .with_run_id(id.clone())
                .with_provider(&route.provider.name)
                .with_max_agents(max_agents),
            queue: route.queue,
            limits: self.config.limits(),
            cancelled: cancelled.clone(),
            carried: None,
        };
        let bytes = wire::size(&input);
        if bytes > MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a request of {bytes} bytes cannot be sent; at most {MAX_BYTES} can"),
            ));
        }
        let runtime = runtime()?;
        match self.start_on_the_server(&runtime, &id, input).await {
            Ok(started) => {
                let mut new = self.new_run(id.clone(), entry, started.keep());
                new.cancelled = cancelled;
                let run = new.follow(runtime);
                self.keep(&run, &id);
                run.cancel_with(cancellation);
                Ok(Box::new(TemporalRun::new(run, true)))
            }
            Err(WorkflowStartError::AlreadyStarted { .. }) => {
                let run = self.take_up(&id).await?;
                run.cancel_with(cancellation);
                Ok(Box::new(TemporalRun::new(run, true)))
            }
            Err(error) => {
                // Whether the server has it after all nobody knows. A repeat with the same id attaches to it; one whose
                // id nobody knows is of no use.
                if is_made_up {
                    drop(Started {
                        client: self.client.clone(),
                        runtime,
                        id,
                        execution: None,
                        wanted: false,
                    });
                }
                Err(failed("the run could not be started", error))
            }
        }
    }
}

impl TemporalEngine {
    /// Starts the workflow in a task, which goes on when whoever waits for it is gone, and then undoes it.
    async fn start_on_the_server(
        &self,
        runtime: &Handle,
        id: &RunId,
        input: RunInput,
    ) -> Result<Started, WorkflowStartError> {
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let client = self.client.clone();
        let options = WorkflowStartOptions::new(self.config.queue.clone(), id.as_str())
            .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
            .static_summary(input.request.workflow.to_string())
            .build();
        let mut started = Started {
            client: client.clone(),
            runtime: runtime.clone(),
            id: id.clone(),
            execution: None,
            wanted: true,
        };
        let task = runtime.spawn(async move {
            if gone.is_cancelled() {
                return Ok(started);
            }
            let handle = client.start_workflow(RunWorkflow::run, input, options).await?;
            started.execution = Some(handle.run_id().unwrap_or_default().to_owned());
            started.wanted = false;
            Ok(started)
        });
        let started = task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        guard.disarm();
        started
    }
}

/// A run that the server may have and that nobody owns yet. Dropped as it is, it is cancelled.
struct Started {
    client: Client,
    runtime: Handle,
    id: RunId,
    execution: Option<String>,
    wanted: bool,
}

impl Started {
    /// Takes it over, and returns the name of its history.
    fn keep(mut self) -> String {
        self.wanted = true;
        self.execution.take().unwrap_or_default()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.wanted {
            return;
        }
        let handle = self.client.get_workflow_handle::<UntypedWorkflow>(self.id.as_str());
        self.runtime.spawn(async move {
            request_cancel(&handle, "the start of the run was given up").await;
        });
    }
}

impl fmt::Debug for TemporalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporalEngine")
            .field("config", &self.config)
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}
