//! Vectors of kind `loop` on the embedded engine, with a scripted provider behind a real registry.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use harness_engine_local::{LocalConfig, LocalEngine};
use harness_registry_local::LocalRegistry;
use harness_subagent::StopReason;
use harness_testkit::subagent::MockChild;
use harness_workflow::{WorkflowEngine, WorkflowEvent, WorkflowEventKind, WorkflowObserver};
use ralph_tool::workflows;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::scene::{Child, ChildKind, Faults, Scene, call_written};
use super::{Verdict, compare};

const MAX_SAFE_INTEGER: NonZeroU64 = NonZeroU64::new((1 << 53) - 1).expect("the number is not zero");

/// Says whether a vector describes what happens on an engine that enforces schemas and has no faults, and starts a run.
pub(super) fn applies(scene: &Scene, expected: &Value) -> bool {
    scene.engine == Faults::default()
        && !expected["start"].is_null()
        && scene.children().take(agent_calls(expected)).all(|child| {
            let value = child.value();
            child.kind != ChildKind::Value || value.is_null() || fits_the_schema(&value)
        })
}

pub(super) fn agent_calls(expected: &Value) -> usize {
    let calls = expected["agentCalls"].as_u64().expect("an expectation has a number of calls");
    usize::try_from(calls).expect("the calls can be counted")
}

/// Says whether the schema of a worker's report admits the value.
fn fits_the_schema(value: &Value) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Shape {
        status: String,
        #[serde(rename = "summary")]
        _summary: String,
        #[serde(rename = "evidence")]
        _evidence: Vec<String>,
        #[serde(rename = "nextSteps")]
        _next_steps: Vec<String>,
        #[serde(rename = "blocker")]
        _blocker: String,
    }
    let shape = Shape::deserialize(value);
    value.is_object()
        && shape.is_ok_and(|shape| ["continue", "complete", "blocked"].contains(&&*shape.status))
}

pub(super) fn config() -> LocalConfig {
    LocalConfig::default().with_max_agents(MAX_SAFE_INTEGER)
}

pub(super) async fn judge(scene: &Scene, expected: &Value) -> Verdict {
    judge_on(scene, expected, &JUDGED, async |registry| {
        Arc::new(LocalEngine::new(registry, workflows(), config())) as Arc<dyn WorkflowEngine>
    })
    .await
}

/// What of an expectation is judged here.
pub(super) const JUDGED: [&str; 4] = ["phaseCalls", "agentCalls", "calls", "execute"];

/// Judges some fields of a vector on the engine that `make` makes for the children of a registry.
pub(super) async fn judge_on<F>(scene: &Scene, expected: &Value, fields: &[&str], make: F) -> Verdict
where
    F: AsyncFnOnce(Arc<LocalRegistry>) -> Arc<dyn WorkflowEngine>,
{
    let config_of_tool = scene.configure().expect("a configuration that starts a run is accepted");
    let (registry, provider) = scene.registry(&config_of_tool);
    let cancellation = CancellationToken::new();
    provider.script(scene.children().enumerate().map(|(index, child)| script(index, child, &cancellation)));

    let engine = make(Arc::clone(&registry)).await;
    let watcher = Arc::new(Watcher::default());
    engine.observe(Arc::clone(&watcher) as _);
    let called = scene.call(config_of_tool, engine, registry, scene.context(cancellation)).await;

    provider.assert_nothing_left();
    let seen = watcher.0.lock().unwrap_or_else(PoisonError::into_inner);
    let phase = seen.call_phases.iter().find(|phase| **phase != seen.call_phases[0]);
    let phase =
        phase.or(seen.call_phases.first()).cloned().unwrap_or_else(|| Some(ralph_tool::PHASE.to_owned()));
    let calls: Vec<Value> = provider
        .requests()
        .iter()
        .map(|request| {
            call_written(request.label.as_deref().unwrap_or_default(), phase.as_deref(), &request.prompt)
        })
        .collect();
    let got = json!({
        "phaseCalls": seen.phases,
        "agentCalls": calls.len(),
        "calls": calls,
        "execute": called.written(),
    });
    let judged: serde_json::Map<String, Value> =
        fields.iter().map(|key| ((*key).to_owned(), expected[*key].clone())).collect();
    compare(&Value::Object(judged), &got)
}

pub(super) fn script(index: usize, child: &Child, cancellation: &CancellationToken) -> MockChild {
    let scripted = match child.kind {
        ChildKind::Value => MockChild::value(child.value()),
        ChildKind::Failure => MockChild::failing(StopReason::ERROR),
        // There are two ways in which an engine cannot go on.
        ChildKind::Fatal if child.abort_first || index.is_multiple_of(2) => MockChild::lost(),
        ChildKind::Fatal => MockChild::refused(),
        ChildKind::Abort => MockChild::hanging(),
    };
    let abort = cancellation.clone();
    match (child.kind, child.abort_first) {
        (ChildKind::Abort, _) => scripted.on_asked(move || abort.cancel()),
        (_, true) => scripted.when_cancelled().on_asked(move || abort.cancel()),
        (_, false) => scripted,
    }
}

/// Takes note of what a run announces.
#[derive(Debug, Default)]
struct Watcher(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    phases: usize,
    call_phases: Vec<Option<String>>,
}

impl WorkflowObserver for Watcher {
    fn observe(&self, event: &WorkflowEvent) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &event.kind {
            WorkflowEventKind::Phase { .. } => seen.phases += 1,
            WorkflowEventKind::AgentStarted { call } => seen.call_phases.push(call.phase.clone()),
            _ => {}
        }
    }
}
