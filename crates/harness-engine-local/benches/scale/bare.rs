//! The anchor: the same work as a bare tokio program, one task for a run and one for each child.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::gate::Gate;
use crate::work::{first_prompt, make_value, next_prompt};

/// Carries out `runs` runs at once, with `calls` calls each.
pub(crate) async fn runs(runs: usize, calls: u64, gate: Option<Arc<Gate>>) {
    let mut all = JoinSet::new();
    for _ in 0..runs {
        all.spawn(run(calls, gate.clone()));
    }
    if let Some(gate) = &gate {
        gate.open_when_full().await;
    }
    while let Some(value) = all.join_next().await {
        assert!(value.expect("a run does not panic").is_object());
    }
}

/// Carries out one run.
pub(crate) async fn run(calls: u64, gate: Option<Arc<Gate>>) -> Value {
    let mut prompt = first_prompt();
    let mut value = Value::Null;
    for _ in 0..calls {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(child(prompt, sender, gate.clone()));
        value = receiver.await.expect("a child hands its value in");
        prompt = next_prompt(&value);
    }
    value
}

async fn child(prompt: String, sender: oneshot::Sender<Value>, gate: Option<Arc<Gate>>) {
    if let Some(gate) = gate {
        gate.pass().await;
    }
    // Nobody waits for the child of a run that was given up.
    let _ = sender.send(make_value(&prompt));
}
