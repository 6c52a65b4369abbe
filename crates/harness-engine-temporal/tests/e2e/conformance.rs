//! Holds the engine to the suite of the contract.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use harness_engine_temporal::{
    Endpoint, OwnRoutes, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
};
use harness_testkit::conformance::{Clock, Verdict};
use harness_testkit::workflow::{ENGINE_SUITE, EngineConstructor, EngineFixture};
use harness_workflow::{
    EngineCapabilities, Result, StartRun, WorkflowEngine, WorkflowMeta, WorkflowObserver, WorkflowRef,
    WorkflowRun,
};
use tokio_util::sync::CancellationToken;

use crate::server::{OTHER_NAMESPACE, Server};

/// The clauses that do not hold, each with its reason.
const KNOWN_FAILURES: &[(&str, &str)] = &[];

/// How many clauses are checked at once. They mostly wait.
const LANES: usize = 4;

pub(crate) fn run(server: &mut Server) -> std::result::Result<(), String> {
    let server = &*server;
    for (id, _) in KNOWN_FAILURES {
        ENGINE_SUITE.test_known_failures(&[id]);
    }
    let chosen = std::env::var("CLAUSE").ok();
    let checks: Vec<_> = ENGINE_SUITE
        .checks()
        .iter()
        .map(|check| check.clause().id)
        .filter(|id| chosen.as_deref().is_none_or(|chosen| *id == chosen))
        .collect();
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while let Some(id) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        wrong.extend(judge(id, server));
                    }
                    wrong
                })
            })
            .collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    println!("{} clauses, {} not as expected", checks.len(), wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n        ")) }
}

fn judge(id: &str, server: &Server) -> Option<String> {
    let start = std::time::Instant::now();
    // Two checks choose the same id for a run, which is an id of the whole namespace.
    let namespace = if id == "first_failing_check_decides" { OTHER_NAMESPACE } else { "default" };
    let endpoint = Endpoint::new(server.address()).with_namespace(namespace);
    let make = move |fixture| new_engine(endpoint.clone(), fixture);
    let verdict =
        ENGINE_SUITE.verdict(id, Clock::Real, || async { EngineConstructor::new(make).starting_elsewhere() });
    let known = KNOWN_FAILURES.iter().any(|(known, _)| *known == id);
    println!("  {:5.1} s  {id}: {verdict:?}", start.elapsed().as_secs_f64());
    match (verdict, known) {
        (Verdict::Held, false) | (Verdict::Broken { .. }, true) => None,
        (Verdict::Held, true) => Some(format!("{id} is listed as a known failure, and holds")),
        (Verdict::Broken { message }, false) => Some(format!("{id}: {message}")),
    }
}

/// An engine with a worker of its own, in this process, on a queue of its own.
#[derive(Debug)]
struct WithWorker {
    engine: TemporalEngine,
}

async fn new_engine(endpoint: Endpoint, fixture: EngineFixture) -> WithWorker {
    let queue = uuid::Uuid::new_v4().to_string();
    let worker = WorkerConfig::default()
        .with_queue(Some(queue.clone()))
        .with_child_queues([queue.clone()])
        .with_heartbeat_interval(Duration::from_millis(100))
        .with_cancellation_grace(fixture.grace);
    let worker = TemporalWorker::start(
        endpoint.clone(),
        fixture.catalog.clone(),
        Arc::clone(&fixture.registry),
        worker,
    )
    .await
    .unwrap();
    // It lives as long as the runtime of the check: runs outlive their engine.
    tokio::spawn(async move {
        let _ = worker.ended().await;
    });
    let config = TemporalConfig::default()
        .with_provider(fixture.default_provider)
        .with_queue(queue.clone())
        .with_max_concurrent_agents(NonZeroUsize::new(fixture.max_concurrent).unwrap())
        .with_max_agents(NonZeroU64::new(fixture.max_agents).unwrap())
        .with_max_items_per_call(NonZeroUsize::new(fixture.max_items_per_call).unwrap())
        .with_heartbeat_timeout(Duration::from_secs(10))
        .with_watch_interval(Duration::from_millis(100))
        // The children's grace, and the ways to the server and back.
        .with_cancellation_grace(fixture.grace + Duration::from_secs(10));
    let routes = Arc::new(OwnRoutes::new(fixture.registry, queue));
    let engine = TemporalEngine::connect(&endpoint, fixture.catalog, routes, config).await.unwrap();
    WithWorker { engine }
}

#[async_trait]
impl WorkflowEngine for WithWorker {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.engine.workflow(workflow)
    }

    fn max_agents(&self) -> u64 {
        self.engine.max_agents()
    }

    fn capabilities(&self) -> EngineCapabilities {
        self.engine.capabilities()
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.engine.observe(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        self.engine.start(request, cancellation).await
    }
}
