use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread;

use futures::future::try_join_all;
use harness_subagent::SubagentRegistry;
use harness_workflow::WorkflowCatalog;
use temporalio_client::Client;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::runtime::{PollerBehavior, RuntimeOptions};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::body::RunWorkflow;
use crate::child::{Calls, Children};
use crate::client::{ConnectError, Endpoint};
use crate::{WorkerConfig, chain};

/// A worker: it runs bodies and children that it takes from the server's task queues.
///
/// It dials out and listens nowhere. It has threads of its own, so it does not matter to it what else the process does,
/// and a body that does not return from `poll` holds up the bodies of this worker only.
///
/// Dropping it ends it as [`shut_down`](Self::shut_down) does, and waits for nothing.
#[derive(Debug)]
pub struct TemporalWorker {
    shutdown: CancellationToken,
    ended: watch::Receiver<Option<Result<(), Arc<WorkerError>>>>,
}

/// Why a worker could not begin, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The worker is to take nothing from nowhere.
    #[error("the worker has no queue; give it one for bodies or for children")]
    NoQueue,
    /// The machine or the library refuses.
    #[error("the worker cannot run: {reason}")]
    #[non_exhaustive]
    Broken {
        /// Why.
        reason: String,
    },
}

impl WorkerError {
    fn broken(error: &dyn std::error::Error) -> Self {
        Self::Broken { reason: chain(error) }
    }
}

impl TemporalWorker {
    /// Starts a worker that runs the bodies of `catalog`, and children on the providers of `registry`.
    ///
    /// It returns once the server was reached. After that the worker goes on through every outage of the server.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the worker ends.
    ///
    /// # Errors
    ///
    /// [`WorkerError`].
    pub async fn start(
        endpoint: Endpoint,
        catalog: WorkflowCatalog,
        registry: Arc<dyn SubagentRegistry>,
        config: WorkerConfig,
    ) -> Result<Self, Arc<WorkerError>> {
        let shutdown = CancellationToken::new();
        let guard = shutdown.clone().drop_guard();
        let (ready, is_ready) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        let token = shutdown.clone();
        let body = move || {
            let outcome = run(&endpoint, &catalog, &registry, &config, &token, ready).map_err(Arc::new);
            if let Err(error) = &outcome {
                tracing::error!(error = %chain(&**error), "the worker has ended");
            }
            end.send_replace(Some(outcome));
        };
        thread::Builder::new()
            .name("harness-worker".to_owned())
            .spawn(body)
            .map_err(|error| Arc::new(WorkerError::broken(&error)))?;
        let worker = Self { shutdown, ended };
        if is_ready.await.is_err() {
            // It has ended before it was ready, and says why.
            worker.ended().await?;
        }
        guard.disarm();
        Ok(worker)
    }

    /// Asks the worker to end. It takes nothing more, ends its children gently, and gives their calls back, which
    /// other workers then try again.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Waits until the worker has ended and has released its children.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait changes nothing.
    ///
    /// # Errors
    ///
    /// Why it could not go on.
    pub async fn ended(&self) -> Result<(), Arc<WorkerError>> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(Arc::new(WorkerError::Broken { reason: "its thread has panicked".to_owned() })),
        }
    }
}

impl Drop for TemporalWorker {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Runs a worker to its end, on this thread and two more.
fn run(
    endpoint: &Endpoint,
    catalog: &WorkflowCatalog,
    registry: &Arc<dyn SubagentRegistry>,
    config: &WorkerConfig,
    shutdown: &CancellationToken,
    ready: oneshot::Sender<()>,
) -> Result<(), WorkerError> {
    // Bodies are polled on this thread; everything else goes on while one of them is busy.
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("harness-worker")
        .enable_all()
        .build()
        .map_err(|error| WorkerError::broken(&error))?;
    let outcome = tokio.block_on(async {
        let client = tokio::select! {
            client = endpoint.connect() => client?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let runtime = Runtime::from_current_tokio(RuntimeOptions::default())
            .map_err(|error| WorkerError::broken(&error))?;
        let mut workers = workers(&runtime, &client, catalog, registry, config, shutdown)?;
        let stops: Vec<_> = workers.iter().map(Worker::shutdown_handle).collect();
        let stop = async {
            // Whoever started it may be gone.
            let _ = ready.send(());
            shutdown.cancelled().await;
            for stop in stops {
                stop();
            }
            Ok(())
        };
        let running = try_join_all(workers.iter_mut().map(Worker::run));
        tokio::try_join!(
            async {
                let outcome = running.await.map(drop).map_err(|error| WorkerError::broken(&error));
                shutdown.cancel();
                outcome
            },
            stop
        )?;
        Ok(())
    });
    // What a child leaves running in the background has had its grace.
    tokio.shutdown_background();
    outcome
}

fn workers(
    runtime: &Runtime,
    client: &Client,
    catalog: &WorkflowCatalog,
    registry: &Arc<dyn SubagentRegistry>,
    config: &WorkerConfig,
    shutdown: &CancellationToken,
) -> Result<Vec<Worker>, WorkerError> {
    // One poller for each queue: whether it takes bodies, and whether it takes children.
    let mut queues: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    if let Some(queue) = &config.queue {
        queues.entry(queue).or_default().0 = true;
    }
    for queue in config.child_queues.iter().collect::<HashSet<_>>() {
        queues.entry(queue).or_default().1 = true;
    }
    if queues.is_empty() {
        return Err(WorkerError::NoQueue);
    }
    let children = Arc::new(Children::new(Arc::clone(registry), config, shutdown.clone()));
    queues
        .into_iter()
        .map(|(queue, (takes_bodies, takes_children))| {
            let slots = FixedSizeSlotSupplier::new(config.max_children.get());
            let tuner = TunerHolder::builder()
                .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(100))
                .activity_task_slot_supplier(slots)
                .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
                .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
                .build();
            let mut options = WorkerOptions::new(queue)
                .tuner(tuner)
                .max_heartbeat_throttle_interval(config.heartbeat_interval)
                .default_heartbeat_throttle_interval(config.heartbeat_interval)
                .sticky_queue_schedule_to_start_timeout(STICKY)
                // The server hands work to a worker that was frozen for as long as a poll of it is open. Each such
                // attempt is lost, so there are as few as can be.
                .activity_task_poller_behavior(PollerBehavior::SimpleMaximum(1))
                .workflow_task_poller_behavior(PollerBehavior::SimpleMaximum(2))
                .build();
            if takes_bodies {
                let catalog = catalog.clone();
                options
                    .register_workflow_with_factory(move || RunWorkflow::new(catalog.clone()))
                    .map_err(|error| WorkerError::broken(&error))?;
            }
            if takes_children {
                options.register_activities(Calls(Arc::clone(&children)));
            }
            Worker::new(runtime, client.clone(), options).map_err(|error| WorkerError::broken(&error))
        })
        .collect()
}

/// How long a body's next step waits for the worker that ran the last one, before any worker may take it.
const STICKY: std::time::Duration = std::time::Duration::from_secs(5);
