//! Records the histories that the crate's tests replay: `cargo xtask e2e temporal record`.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use harness_engine_temporal::{
    Endpoint, OwnRoutes, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, StartSubagent, StopReason, SubagentRegistry};
use harness_testkit::subagent::{MockChild, MockProvider, MockProviderHandle};
use harness_testkit::workflow::{Ask, ScriptedBody, Step};
use harness_workflow::{RunResult, RunStopReason, StartRun, WorkflowEngine, WorkflowRef, WorkflowRun};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bodies::{self, Change};
use crate::server::Server;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/histories");
/// What stands for this machine and this process in what is recorded.
const IDENTITY: &str = "recorder";

/// One run to be recorded.
struct Recording {
    name: &'static str,
    workflow: WorkflowRef,
    args: Value,
    limits: fn(TemporalConfig) -> TemporalConfig,
    /// What is done while it runs.
    meanwhile: fn(Stage<'_>) -> BoxFuture<'_, ()>,
    ends: RunStopReason,
}

/// What surrounds a run.
struct Stage<'a> {
    run: &'a dyn WorkflowRun,
    children: MockProviderHandle,
    worker: &'a mut TemporalWorker,
    another: Box<dyn Fn() -> BoxFuture<'static, TemporalWorker> + Send>,
}

fn nothing(_: Stage<'_>) -> BoxFuture<'_, ()> {
    Box::pin(async {})
}

fn recordings() -> Vec<Recording> {
    let ask = |prompt: &str| Step::Ask(Ask::new(prompt));
    let asks = |prompts: &[&str]| prompts.iter().map(|prompt| Ask::new(*prompt)).collect::<Vec<_>>();
    let script = |name, steps: Vec<Step>| Recording {
        name,
        workflow: ScriptedBody::workflow_ref(),
        args: json!(steps),
        limits: |config| config,
        meanwhile: nothing,
        ends: RunStopReason::Completed,
    };
    let survey = |name| Recording {
        workflow: WorkflowRef::new("survey", 1),
        args: json!(["a", "b", "c"]),
        ..script(name, Vec::new())
    };
    vec![
        script(
            "sequence",
            vec![
                Step::Phase("one".into()),
                ask("one"),
                Step::Log("between".into()),
                Step::Checkpoint(json!({ "at": 1 })),
                ask("two"),
                ask("three"),
            ],
        ),
        Recording {
            limits: |config| config.with_max_concurrent_agents(NonZeroUsize::new(2).unwrap()),
            ..script(
                "parallel",
                vec![Step::Parallel(asks(&["slow 1", "2", "3", "slow 4", "5"])), Step::ask("after")],
            )
        },
        survey("stages"),
        script("race", vec![Step::Race(asks(&["quick", "hang 1", "hang 2"])), ask("after")]),
        Recording {
            ends: RunStopReason::Error,
            ..script(
                "failures",
                vec![
                    Step::Try(vec![ask("refuse")]),
                    ask("fail"),
                    Step::Try(vec![Step::Fail("mine".into())]),
                    ask("more"),
                    Step::Fail("mine".into()),
                ],
            )
        },
        Recording {
            ends: RunStopReason::Error,
            ..script("panic", vec![ask("one"), Step::Panic("on purpose".into())])
        },
        Recording {
            meanwhile: |stage| {
                Box::pin(async move {
                    stage.children.wait_until_asked(3).await;
                    stage.run.cancel("enough");
                })
            },
            ends: RunStopReason::Cancelled,
            ..script("cancelled", vec![ask("one"), Step::Parallel(asks(&["hang 1", "hang 2"])), ask("never")])
        },
        Recording {
            limits: |config| config.with_max_history_events(20),
            args: json!(["a", "b", "c", "d", "e", "f"]),
            ..survey("continued")
        },
        Recording {
            // The worker that has the first attempt ends and gives it back.
            meanwhile: |stage| {
                Box::pin(async move {
                    stage.children.wait_until_asked(2).await;
                    let next = (stage.another)().await;
                    let first = std::mem::replace(stage.worker, next);
                    first.shut_down();
                    first.ended().await.unwrap();
                    stage.children.wait_until_asked(3).await;
                    stage.children.finish(3);
                })
            },
            ..script("attempts", vec![ask("one"), ask("hang"), ask("three")])
        },
        Recording {
            limits: |config| config.with_max_attempts_per_call(NonZeroU32::new(1).unwrap()),
            meanwhile: |stage| {
                Box::pin(async move {
                    stage.children.wait_until_asked(1).await;
                    let next = (stage.another)().await;
                    let first = std::mem::replace(stage.worker, next);
                    first.shut_down();
                    first.ended().await.unwrap();
                })
            },
            ..script("exhausted", vec![Step::Try(vec![ask("hang")]), ask("two")])
        },
    ]
}

/// A child that does what its prompt says.
fn child(request: &StartSubagent) -> MockChild {
    match request.prompt.split([' ', ',']).next().unwrap_or_default() {
        "slow" => MockChild::text("late").after(Duration::from_millis(400)),
        "hang" => MockChild::hanging(),
        "refuse" => MockChild::refused(),
        "fail" => MockChild::failing(StopReason::REFUSAL),
        _ => MockChild::text(format!("{} is done", request.prompt)),
    }
}

pub(crate) fn run(server: &mut Server) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for recording in recordings() {
        let name = recording.name;
        let ends = recording.ends;
        let (result, histories) = runtime.block_on(play(server.address(), recording));
        if result.stop_reason() != ends {
            return Err(format!("{name}: {result:?}"));
        }
        let count = histories.len();
        for (number, history) in (1..).zip(histories) {
            let file = if count == 1 { format!("{name}.json") } else { format!("{name}.{number}.json") };
            let text = an_event_to_a_line(&history);
            println!("  {file}: {} events", text.lines().count() - 2);
            fs::write(Path::new(FOLDER).join(file), text).unwrap();
        }
    }
    Ok(())
}

fn an_event_to_a_line(history: &[u8]) -> String {
    let history: Value = serde_json::from_slice(history).unwrap();
    let events: Vec<String> = history["events"].as_array().unwrap().iter().map(Value::to_string).collect();
    format!("{{\"events\":[\n{}\n]}}\n", events.join(",\n"))
}

/// Plays one run, and returns what came of it and its histories.
async fn play(address: String, recording: Recording) -> (RunResult, Vec<Vec<u8>>) {
    let registry: Arc<dyn SubagentRegistry> = Arc::new(LocalRegistry::new());
    let (provider, children) = MockProvider::new(Capabilities::ALL);
    children.set_default_with(child);
    registry.register(provider).unwrap();
    let endpoint = Endpoint::new(address).with_identity(IDENTITY);
    let queue = recording.name.to_owned();
    let catalog = bodies::catalog(Change::Nothing);
    let another = {
        let (endpoint, catalog, registry, queue) =
            (endpoint.clone(), catalog.clone(), Arc::clone(&registry), queue.clone());
        move || {
            let config = WorkerConfig::default()
                .with_queue(Some(queue.clone()))
                .with_child_queues([queue.clone()])
                .with_heartbeat_interval(Duration::from_millis(100))
                .with_cancellation_grace(Duration::from_secs(2));
            let started =
                TemporalWorker::start(endpoint.clone(), catalog.clone(), Arc::clone(&registry), config);
            let started: BoxFuture<'static, TemporalWorker> = Box::pin(async move { started.await.unwrap() });
            started
        }
    };
    let mut worker = another().await;
    let config = (recording.limits)(TemporalConfig::default().with_provider("mock").with_queue(&queue));
    let routes = Arc::new(OwnRoutes::new(registry, queue));
    let engine = TemporalEngine::connect(&endpoint, catalog, routes, config).await.unwrap();
    let request = StartRun::new(recording.workflow, Parent::new("parent", "."))
        .with_run_id(recording.name)
        .with_args(recording.args);
    let run = engine.start(request, CancellationToken::new()).await.unwrap();
    let stage = Stage { run: &*run, children, worker: &mut worker, another: Box::new(another) };
    (recording.meanwhile)(stage).await;
    let result = run.result().await;
    run.dispose().await.unwrap();
    worker.shut_down();
    worker.ended().await.unwrap();
    let histories = engine.histories(run.id()).await.unwrap();
    (result, histories)
}
