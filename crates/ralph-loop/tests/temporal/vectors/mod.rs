//! Vectors of kind `loop`, through the engine's adapter, on a real server.
//!
//! The vectors and the way in which they are judged are those of the tests of `ralph-tool`.

#[expect(dead_code, reason = "on this engine less is judged than there")]
mod embedded;
#[expect(dead_code, reason = "on this engine less is written down than there")]
mod scene;

use std::io::{BufRead as _, BufReader};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use flate2::bufread::GzDecoder;
use harness_engine_temporal::{
    Endpoint, OwnRoutes, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
};
use harness_registry_local::LocalRegistry;
use harness_workflow::WorkflowEngine;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::scene::Scene;
use crate::server::Server;

const VECTORS: &[u8] = include_bytes!("loop.jsonl.gz");

/// At least so many must be run.
const LEAST: usize = 100;
/// The most rounds of a vector. Each round takes the development server about a tenth of a second.
const MOST_ROUNDS: usize = 3;
/// How many vectors are run at once. They mostly wait.
const LANES: usize = 8;

/// Nothing, or how the outcome differs from the expected one.
pub(crate) type Verdict = Result<(), String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    id: String,
    #[serde(default)]
    rust_unrepresentable: bool,
    input: Option<Box<RawValue>>,
    expect: Option<Value>,
    /// What this project does on purpose, where that is something else.
    ours: Option<Value>,
}

pub(crate) fn run(server: &mut Server) -> Result<()> {
    let lines = BufReader::new(GzDecoder::new(VECTORS)).lines();
    let mut chosen = Vec::new();
    for line in lines {
        let vector: Vector = serde_json::from_str(&line?)?;
        let expected = vector.ours.or(vector.expect);
        if let (false, Some(input), Some(expected)) = (vector.rust_unrepresentable, vector.input, expected) {
            let scene = Scene::read(input.get());
            let is_short = expected["agentCalls"].as_u64().is_some_and(|calls| calls <= MOST_ROUNDS as u64);
            if is_short && embedded::applies(&scene, &expected) {
                chosen.push((vector.id, scene, expected));
            }
        }
    }
    ensure!(chosen.len() >= LEAST, "only {} vectors can be run", chosen.len());
    let address = server.address();
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let lane = || {
            let mut wrong = Vec::new();
            while let Some((id, scene, expected)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(difference) = judge(scene, expected, &address) {
                    println!("        {id}: {difference}");
                    wrong.push(id.clone());
                }
            }
            wrong
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane counts what fails")).collect()
    });
    println!("        {} vectors, {} not as expected", chosen.len(), wrong.len());
    ensure!(wrong.is_empty(), "not as expected: {}", wrong.join(", "));
    Ok(())
}

fn judge(scene: &Scene, expected: &Value, address: &str) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // Who cancels a run is told nothing any more, also of what was said before and has not arrived yet.
    let is_cancelled = expected["execute"]["category"] == "cancelled";
    let fields = &embedded::JUDGED[usize::from(is_cancelled)..];
    let verdict = runtime.block_on(embedded::judge_on(scene, expected, fields, async |registry| {
        Arc::new(engine(address, registry).await) as Arc<dyn WorkflowEngine>
    }));
    runtime.shutdown_background();
    verdict
}

/// An engine with a worker of its own, in this process, on a queue of its own.
async fn engine(address: &str, registry: Arc<LocalRegistry>) -> TemporalEngine {
    const MOST_CHILDREN: NonZeroU64 = NonZeroU64::new((1 << 53) - 1).expect("the number is not zero");
    let queue = uuid::Uuid::new_v4().to_string();
    let endpoint = Endpoint::new(address);
    let config = WorkerConfig::default()
        .with_queue(Some(queue.clone()))
        .with_child_queues([queue.clone()])
        .with_heartbeat_interval(Duration::from_millis(100))
        .with_cancellation_grace(Duration::from_secs(5));
    let worker =
        TemporalWorker::start(endpoint.clone(), ralph_tool::workflows(), registry.clone(), config).await;
    let worker = worker.expect("the server takes workers");
    // It lives as long as the runtime of the vector.
    tokio::spawn(async move {
        let _ = worker.ended().await;
    });
    let config = TemporalConfig::default()
        .with_queue(&queue)
        .with_max_agents(MOST_CHILDREN)
        .with_heartbeat_timeout(Duration::from_secs(10));
    let routes = Arc::new(OwnRoutes::new(registry, &queue));
    TemporalEngine::connect(&endpoint, ralph_tool::workflows(), routes, config)
        .await
        .expect("the server takes clients")
}

/// Says which expected fields did not come out. A field that is not expected is not judged.
pub(crate) fn compare(expected: &Value, got: &Value) -> Verdict {
    let expected = expected.as_object().expect("an expectation is an object");
    let differences: Vec<String> = expected
        .iter()
        .filter(|(field, value)| got.get(field) != Some(value))
        .map(|(field, value)| {
            format!("{field} should be {value} and is {}", got.get(field).unwrap_or(&Value::Null))
        })
        .collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}
