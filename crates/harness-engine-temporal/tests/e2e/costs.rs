//! What a round costs: `cargo xtask e2e temporal costs` prints the tables of `docs/scale.md`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use harness_engine_temporal::{
    Endpoint, OwnRoutes, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, SubagentRegistry};
use harness_testkit::subagent::{MockChild, MockProvider};
use harness_workflow::{
    AgentCall, AgentOutcome, RunId, RunStopReason, StartRun, Workflow, WorkflowCatalog, WorkflowContext,
    WorkflowEngine, WorkflowError, WorkflowMeta, WorkflowRef,
};
use serde_json::{Value, json};
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, UntypedWorkflow, WorkflowDescribeOptions,
};
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// One measurement.
#[derive(Clone, Copy)]
struct Case {
    rounds: u64,
    runs: u64,
    workers: usize,
    /// The bytes of a prompt, of what a child says, and of a checkpoint.
    bytes: usize,
    /// How long a child takes.
    child: Duration,
}

const ONE: Case = Case { rounds: 10, runs: 1, workers: 1, bytes: 100, child: Duration::ZERO };

/// Asks one child after the other, and keeps what it said as a checkpoint, as loops do.
#[derive(Debug)]
struct Rounds(WorkflowMeta);

impl Rounds {
    fn catalog() -> WorkflowCatalog {
        let meta = WorkflowMeta::new("rounds", 1, "Asks one child after the other.");
        WorkflowCatalog::new().with(Arc::new(Self(meta))).unwrap()
    }
}

#[async_trait]
impl Workflow for Rounds {
    fn meta(&self) -> &WorkflowMeta {
        &self.0
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        let number = |name: &str| context.args()[name].as_u64().unwrap_or_default();
        let prompt = "p".repeat(usize::try_from(number("bytes")).unwrap_or_default());
        for _ in 0..number("rounds") {
            if let AgentOutcome::Value(value) = context.agent(AgentCall::new(&prompt)).await? {
                context.checkpoint(value)?;
            }
        }
        Ok(Value::Null)
    }
}

/// What was seen of a case.
struct Seen {
    case: Case,
    took: Duration,
    /// Of the first run.
    events: i64,
    history: i64,
    requests: BTreeMap<String, u64>,
}

impl Seen {
    #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
    fn a_round(&self, count: u64) -> f64 {
        count as f64 / (self.case.rounds * self.case.runs) as f64
    }

    fn all_requests(&self) -> f64 {
        self.a_round(self.requests.values().sum())
    }
}

pub(crate) fn run(server: &mut Server) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let measure = |case: Case| runtime.block_on(measure(server, case));
    let mut load = load();
    let by_rounds = [10, 100, 300].map(|rounds| Case { rounds, ..ONE });
    let with_reports = [10, 100, 300].map(|rounds| Case { rounds, bytes: 4096, ..ONE });
    let by_rounds: Vec<Seen> =
        by_rounds.into_iter().chain(with_reports).map(measure).collect::<Result<_, _>>()?;
    println!(
        "\n| rounds | bytes of prompt, answer, checkpoint | events | history | events a round | history a round | time a round | requests a round |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for seen in &by_rounds {
        let Seen { case: Case { rounds, bytes, .. }, took, events, history, .. } = seen;
        println!(
            "| {rounds} | {bytes} each | {events} | {:.1} KB | {:.1} | {:.2} KB | {:.0} ms | {:.1} |",
            kilobytes(*history),
            seen.a_round(events.unsigned_abs()),
            kilobytes(*history) / seen.a_round(1).recip(),
            took.as_secs_f64() * 1000.0 * seen.a_round(1),
            seen.all_requests(),
        );
    }
    println!("\n| request | for each of 100 rounds |\n|---|---|");
    for (operation, count) in &by_rounds[1].requests {
        println!("| `{operation}` | {:.2} |", by_rounds[1].a_round(*count));
    }

    println!(
        "\n| runs of 10 rounds | workers | time | rounds a second | requests a round |\n|---|---|---|---|---|"
    );
    for runs in [1, 10, 50] {
        for workers in [1, 2] {
            let seen = measure(Case { runs, workers, ..ONE })?;
            println!(
                "| {runs} | {workers} | {:.1} s | {:.1} | {:.1} |",
                seen.took.as_secs_f64(),
                1.0 / (seen.took.as_secs_f64() * seen.a_round(1)),
                seen.all_requests(),
            );
        }
    }

    let long = measure(Case { rounds: 2, child: Duration::from_secs(20), ..ONE })?;
    println!("\nchildren of 20 s, a heartbeat every 2 s: for each round");
    for (operation, count) in &long.requests {
        println!("  {operation}: {:.1}", long.a_round(*count));
    }
    load = load.max(self::load());
    println!(
        "\nserver {} MB, this process with the client and the last workers {} MB; load average up to {load}",
        server.memory() / 1024,
        crate::server::memory_of(std::process::id()) / 1024,
    );
    Ok(())
}

async fn measure(server: &Server, case: Case) -> Result<Seen, String> {
    let registry: Arc<dyn SubagentRegistry> = Arc::new(LocalRegistry::new());
    let (provider, children) = MockProvider::new(Capabilities::ALL);
    let child = MockChild::text("r".repeat(case.bytes));
    children.set_default(if case.child.is_zero() { child } else { child.after(case.child) });
    registry.register(provider).unwrap();
    let endpoint = Endpoint::new(server.address());
    let queue = uuid::Uuid::new_v4().to_string();
    let many = NonZeroUsize::new(100).unwrap();
    let mut workers = Vec::new();
    for _ in 0..case.workers {
        let config = WorkerConfig::default()
            .with_queue(Some(queue.clone()))
            .with_child_queues([queue.clone()])
            .with_max_children(many);
        let worker =
            TemporalWorker::start(endpoint.clone(), Rounds::catalog(), Arc::clone(&registry), config).await;
        workers.push(worker.unwrap());
    }
    let config = TemporalConfig::default().with_provider("mock").with_queue(&queue);
    let routes = Arc::new(OwnRoutes::new(registry, queue.clone()));
    let engine = TemporalEngine::connect(&endpoint, Rounds::catalog(), routes, config).await.unwrap();
    let before = server.settled_requests();
    let begin = Instant::now();
    let ids: Vec<RunId> = (1..=case.runs).map(|run| RunId::from(format!("{queue}-{run}"))).collect();
    let all = ids.iter().map(|id| async {
        let request = StartRun::new(WorkflowRef::new("rounds", 1), Parent::new("me", "."))
            .with_run_id(id.clone())
            .with_args(json!({ "rounds": case.rounds, "bytes": case.bytes }));
        let run = engine.start(request, CancellationToken::new()).await.unwrap();
        let result = run.result().await;
        run.dispose().await.unwrap();
        result
    });
    for result in join_all(all).await {
        if result.stop_reason() != RunStopReason::Completed || result.agents_started() != case.rounds {
            return Err(format!("{result:?}"));
        }
    }
    let took = begin.elapsed();
    let mut requests = server.settled_requests();
    for (operation, count) in &mut requests {
        *count -= before.get(operation).unwrap_or(&0);
    }
    requests.retain(|_, count| *count > 0);
    let (events, history) = size(server, &ids[0]).await?;
    for worker in &workers {
        worker.shut_down();
    }
    for worker in &workers {
        worker.ended().await.unwrap();
    }
    Ok(Seen { case, took, events, history, requests })
}

/// Returns the number of events of a run's history, and its bytes.
async fn size(server: &Server, run: &RunId) -> Result<(i64, i64), String> {
    let options = ConnectionOptions::new(server.address().parse::<temporalio_client::Url>().unwrap());
    let connection = Connection::connect(options.build()).await.unwrap();
    let client = Client::new(connection, ClientOptions::new("default").build()).unwrap();
    let handle = client.get_workflow_handle::<UntypedWorkflow>(run.as_str());
    let description = handle.describe(WorkflowDescribeOptions::default()).await;
    let description = description.map_err(|error| error.to_string())?.into_raw();
    let info = description.workflow_execution_info.unwrap_or_default();
    Ok((info.history_length, info.history_size_bytes))
}

#[expect(clippy::cast_precision_loss, reason = "histories have a few megabytes at most")]
fn kilobytes(bytes: i64) -> f64 {
    bytes as f64 / 1024.0
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}
