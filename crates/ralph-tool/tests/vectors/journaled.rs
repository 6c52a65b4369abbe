//! Vectors of kind `loop` on the embedded engine with a journal: the process ends after each round, as far as the run
//! can tell, and another one takes it up again.

use std::mem;
use std::path::Path;
use std::sync::Arc;

use harness_engine_local::{JournalStore, JsonlStore, LocalEngine};
use harness_testkit::subagent::MockChild;
use harness_workflow::RunId;
use ralph_tool::{RalphTool, workflows};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::scene::{Called, Scene};
use super::{Verdict, compare, embedded, new_runtime};

pub(super) fn judge(scene: &Scene, expected: &Value, folder: &Path) -> Verdict {
    let run = RunId::from("run");
    let rounds = embedded::agent_calls(expected);
    let called = (0..rounds)
        .find_map(|completed| one_process(scene, folder, &run, completed))
        .ok_or("the call did not end with its last round")?;
    compare(&json!({ "execute": expected["execute"] }), &json!({ "execute": called.written() }))
}

/// Takes the run up after `completed` rounds, lets one more round come to its end, and is gone while the next one is
/// under way; or returns what the call came to.
fn one_process(scene: &Scene, folder: &Path, run: &RunId, completed: usize) -> Option<Called> {
    let runtime = new_runtime();
    let config = scene.configure().expect("a configuration that starts a run is accepted");
    let (registry, provider) = scene.registry(&config);
    let cancellation = CancellationToken::new();
    let died = Arc::new(Notify::new());
    let children = scene.children().enumerate().skip(completed).take(1);
    provider.script(children.map(|(index, child)| embedded::script(index, child, &cancellation)));
    let dies = Arc::clone(&died);
    provider.set_default(MockChild::hanging().on_asked(move || dies.notify_one()));

    let store = Arc::new(JsonlStore::open(folder).expect("the folder can be written"));
    let engine = LocalEngine::durable(
        Arc::clone(&registry) as _,
        workflows(),
        embedded::config(),
        Arc::clone(&store) as _,
    );
    let engine = Arc::new(engine);
    let tool =
        RalphTool::new(config, Arc::clone(&engine) as _, registry).expect("the engine has the workflow");
    let arguments = scene.arguments.clone();
    let context = scene.context(cancellation.clone()).with_run_id(run.clone());
    let run = run.clone();
    let mut call = Box::pin(async move {
        if completed == 0 {
            return tool.call(&arguments, context).await;
        }
        let request = store.read(&run).expect("the journal can be read").request;
        let resumed = engine.resume(&run, cancellation.clone()).await.expect("the run can be resumed");
        tool.follow(resumed, &request.args, cancellation).await
    });
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            outcome = &mut call => Some(outcome),
            () = died.notified() => None,
        }
    });
    if outcome.is_none() {
        // A process that dies disposes of nothing and cancels nothing.
        mem::forget(call);
    }
    drop(runtime);
    outcome.map(Called)
}
