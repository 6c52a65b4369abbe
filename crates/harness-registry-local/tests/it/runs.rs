//! The run that a start returns: what it forwards, and what dropping does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness_registry_local::LocalRegistry;
use harness_subagent::{AgentId, ErrorKind, StopReason, SubagentRegistry, SubagentResult};

use crate::double::{Double, Notes, Step, poll_once, request};

#[tokio::test]
async fn a_lost_child_is_an_error_of_the_result() {
    let provider = Double::new("p");
    provider.then_child("c").is_lost();
    let run = LocalRegistry::new().start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(run.result().await.unwrap_err().kind(), ErrorKind::RunLost);
    assert_eq!(run.result().await.unwrap_err().kind(), ErrorKind::RunLost);
}

#[tokio::test]
async fn a_failed_release_is_an_error_of_the_disposal_and_leaves_the_result() {
    let provider = Double::new("p");
    let child = provider.then_child("c");
    child.release_fails.store(true, Ordering::SeqCst);
    child.ends(SubagentResult::completed("done"));
    let run = LocalRegistry::new().start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(run.dispose().await.unwrap_err().kind(), ErrorKind::Release);
    assert_eq!(run.result().await.unwrap().output, "done");
}

#[tokio::test]
async fn every_method_reaches_the_provider() {
    let provider = Double::new("p");
    let child = provider.then_child("the-child");
    let run = LocalRegistry::new().start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(*run.id(), AgentId::from("the-child"));
    assert_eq!(run.activity().next().await.unwrap().text, "reading");
    run.dispose().await.unwrap();
    run.dispose().await.unwrap();
    assert_eq!(child.disposals.load(Ordering::SeqCst), 2, "the provider answers repeats itself");
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::ABORTED);
}

#[tokio::test]
async fn a_dropped_start_leaves_no_child_behind_and_no_trace() {
    let registry = LocalRegistry::builder().max_active_per_tree(1).build().unwrap();
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    let dropped = Arc::new(AtomicBool::new(false));
    let provider = Double::new("p").then(Step::Hang(Arc::clone(&dropped)));

    let on: Arc<dyn harness_subagent::SubagentProvider> = provider.clone();
    let mut start = registry.start_on(&on, request());
    assert!(poll_once(&mut start).is_pending());
    let full = registry.start_on(&(provider.clone() as _), request()).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Capacity, "the start that is under way has the place");
    assert!(!dropped.load(Ordering::SeqCst));
    drop(start);

    assert!(dropped.load(Ordering::SeqCst), "the provider's own start is dropped too");
    assert!(notes.lines().is_empty());
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(notes.lines()[0], "started 1 p-2 on p", "the next one is the first that was started");
}

#[tokio::test]
async fn the_child_is_gone_before_its_place_is_free() {
    let registry = Arc::new(LocalRegistry::builder().max_active_per_tree(1).build().unwrap());
    let provider = Double::new("p");
    let child = provider.then_child("c");
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();

    let seen = Arc::new(AtomicBool::new(false));
    let (inner, watch, again) = (Arc::clone(&seen), Arc::clone(&registry), provider.clone());
    *child.on_drop.lock().unwrap() = Some(crate::double::OnDrop(Box::new(move || {
        let on: Arc<dyn harness_subagent::SubagentProvider> = again;
        let mut start = watch.start_on(&on, request());
        let answer = poll_once(&mut start).map(|answer| answer.map(drop).map_err(|error| error.kind()));
        inner.store(answer == std::task::Poll::Ready(Err(ErrorKind::Capacity)), Ordering::SeqCst);
    })));
    drop(run);

    assert!(seen.load(Ordering::SeqCst), "while the child is being dropped its place is taken");
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
}

#[tokio::test]
async fn a_run_outlives_its_registry() {
    let registry = LocalRegistry::builder().max_active_per_tree(1).build().unwrap();
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    let provider = Double::new("p");
    let child = provider.then_child("c");
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    drop(registry);
    child.ends(SubagentResult::completed("late"));
    assert_eq!(run.result().await.unwrap().output, "late");
    assert_eq!(notes.lines(), ["started 1 c on p", "ended 1 c completed: late"]);
}
