//! Vectors of kind `loop` on the test kit's engine, which is as plain as the contract lets an engine be.

use std::sync::Arc;

use harness_subagent::StopReason;
use harness_testkit::workflow::{StubChild, StubEngine};
use harness_workflow::{Error, ErrorKind};
use ralph_tool::workflows;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::scene::{Child, ChildKind, Scene, call_written, start_written, terminal_written};
use super::{Verdict, compare};

const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

pub(super) async fn judge(scene: &Scene, expected: &Value) -> Verdict {
    let config = match scene.configure() {
        Ok(config) => config,
        Err(refusal) => {
            let got = json!({ "execute": { "outcome": "apply-throws", "category": refusal.code() } });
            return compare(&json!({ "execute": expected["execute"] }), &got);
        }
    };
    let (registry, _provider) = scene.registry(&config);
    let (engine, handle) = StubEngine::running(workflows());
    let engine = Arc::new(engine.with_max_agents(MAX_SAFE_INTEGER));

    let cancellation = CancellationToken::new();
    handle.push_children(scene.children().map(|child| script(child, &cancellation)));
    if scene.engine.start_throws {
        handle.fail_starts(Error::new(ErrorKind::Engine, "the script fails the start"));
    }
    if scene.engine.result_rejects {
        handle.lose_runs();
    }
    if scene.engine.dispose_rejects {
        handle.fail_disposals(Error::new(ErrorKind::Release, "the script fails the disposal"));
    }
    if scene.engine.cancel_ignored {
        handle.ignore_cancels();
    }
    let called = scene.call(config, engine, registry, scene.context(cancellation)).await;

    let calls: Vec<Value> = handle
        .calls()
        .iter()
        .map(|call| call_written(&call.label, call.phase.as_deref(), &call.prompt))
        .collect();
    if let (Some(length), Some(last)) = (called.last_report_length(), calls.last())
        && last["priorSerializedLength"] != length
    {
        return Err(format!(
            "the error should carry the last good report, of {}",
            last["priorSerializedLength"]
        ));
    }
    if handle.abandoned() > 0 {
        return Err("a run was dropped before it was disposed of".into());
    }
    let ends = handle.body_ends();
    compare(
        expected,
        &json!({
            "start": start_written(&handle.starts()),
            "phaseCalls": handle.phases().len(),
            "agentCalls": calls.len(),
            "calls": calls,
            "terminal": terminal_written(ends.first().and_then(|end| end.as_ref().ok())),
            "execute": called.written(),
            "disposeCalls": handle.disposals(),
            "cancelCalls": handle.cancels().len(),
        }),
    )
}

fn script(child: &Child, cancellation: &CancellationToken) -> StubChild {
    let scripted = match child.kind {
        ChildKind::Value => StubChild::value(child.value()),
        ChildKind::Failure => StubChild::failure(StopReason::ERROR),
        ChildKind::Fatal => StubChild::lost(),
        ChildKind::Abort => StubChild::endless(),
    };
    let abort = cancellation.clone();
    match (child.kind, child.abort_first) {
        (ChildKind::Abort, _) => scripted.with_hook(move || abort.cancel()),
        (_, true) => scripted.with_hook(move || abort.cancel()).after_cancel(),
        (_, false) => scripted,
    }
}
