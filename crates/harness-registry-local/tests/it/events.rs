//! Started and ended: once each, in order, whatever ends the child and whatever observers do.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Diagnostic, Error, ErrorKind, Origin, Parent, StartSubagent, StartedChild, StopReason, SubagentEvent,
    SubagentObserver, SubagentRegistry, SubagentResult,
};
use tokio::sync::Semaphore;

use crate::double::{Child, Double, Notes, Step, contract, poll_once, request};

fn watched() -> (LocalRegistry, Arc<Notes>) {
    let (registry, notes) = (LocalRegistry::new(), Arc::new(Notes::default()));
    registry.observe(notes.clone());
    (registry, notes)
}

#[tokio::test]
async fn a_failed_start_causes_no_event() {
    let (registry, notes) = watched();
    let provider = Double::new("p").then(Step::Fail(Error::new(ErrorKind::Provider, "no")));
    registry.start_on(&(provider.clone() as _), request()).await.unwrap_err();
    registry.start_on(&(provider.clone() as _), request().with_max_depth(0)).await.unwrap_err();
    assert!(notes.lines().is_empty());
}

#[tokio::test]
async fn a_child_is_announced_when_its_start_is_done_and_not_before() {
    let (registry, notes) = watched();
    let permits = Arc::new(Semaphore::new(0));
    let provider = Double::new("p").then(Step::Wait(Arc::clone(&permits), Child::new("c")));
    let on: Arc<dyn harness_subagent::SubagentProvider> = provider.clone();
    let mut start = registry.start_on(&on, request());
    assert!(poll_once(&mut start).is_pending());
    assert!(notes.lines().is_empty());
    permits.add_permits(1);
    let run = start.await.unwrap();
    assert_eq!(notes.lines(), ["started 1 c on p"]);
    drop(run);
}

#[tokio::test]
async fn a_start_comes_before_the_end_of_a_child_that_has_ended_already() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    provider.then_child("c").ends(SubagentResult::completed("fast"));
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(notes.lines(), ["started 1 c on p"], "nobody has waited yet");
    run.result().await.unwrap();
    run.result().await.unwrap();
    run.dispose().await.unwrap();
    drop(run);
    assert_eq!(notes.lines(), ["started 1 c on p", "ended 1 c completed: fast"]);
}

#[tokio::test]
async fn sequences_differ_where_child_ids_come_again() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    for _ in 0..2 {
        provider.then_child("same");
        drop(registry.start_on(&(provider.clone() as _), request()).await.unwrap());
    }
    assert_eq!(
        notes.lines(),
        ["started 1 same on p", "ended 1 same dropped", "started 2 same on p", "ended 2 same dropped"]
    );
}

#[derive(Debug, Default)]
struct Keep(Mutex<Vec<StartedChild>>);

impl SubagentObserver for Keep {
    fn observe(&self, event: &SubagentEvent<'_>) {
        if let SubagentEvent::Started { child } | SubagentEvent::Ended { child, .. } = event {
            self.0.lock().unwrap().push((*child).clone());
        }
    }
}

#[tokio::test]
async fn events_name_parent_origin_and_label() {
    let registry = LocalRegistry::new();
    let keep = Arc::new(Keep::default());
    registry.observe(keep.clone());
    let parent = Parent::new("me", "/w").with_depth(2);
    let request =
        StartSubagent::new("x", parent.clone()).with_origin(Origin::new("r", 1, 2)).with_label("name");
    drop(registry.start_on(&(Double::new("p") as _), request).await.unwrap());
    let children = keep.0.lock().unwrap();
    assert_eq!(children.len(), 2);
    for child in &*children {
        assert_eq!(*child.parent, parent);
        assert_eq!(child.origin, Some(Origin::new("r", 1, 2)));
        assert_eq!(child.label.as_deref(), Some("name"));
        assert_eq!((child.sequence, child.provider.as_str(), child.id.as_str()), (1, "p", "p-1"));
    }
}

#[tokio::test]
async fn the_end_tells_the_result_as_the_registry_passed_it_on() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    provider.then_child("a").ends(SubagentResult::completed(""));
    provider.then_child("b").ends(SubagentResult::stopped(StopReason::REFUSAL, Diagnostic::new("secret")));
    provider.then_child("c").ends(SubagentResult::completed("no value"));
    provider.then_child("d").is_lost();
    for number in 0..4 {
        let mut request = request();
        if number == 2 {
            request = request.with_output(contract());
        }
        let run = registry.start_on(&(provider.clone() as _), request).await.unwrap();
        let _ = run.result().await;
    }
    let ends: Vec<String> = notes.lines().into_iter().filter(|line| line.starts_with("ended")).collect();
    assert_eq!(
        ends,
        [
            "ended 1 a completed",
            "ended 2 b refusal",
            "ended 3 c no-value: no value",
            "ended 4 d lost, the child cannot be found"
        ]
    );
}

#[tokio::test]
async fn a_disposal_ends_a_child_whose_result_nobody_waited_for() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    let child = provider.then_child("c");
    child.dispose_permits.forget_permits(usize::MAX);
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();

    let mut disposal = run.dispose();
    assert!(poll_once(&mut disposal).is_pending());
    assert_eq!(notes.lines().len(), 1, "the child is still alive");
    child.dispose_permits.add_permits(1);
    disposal.await.unwrap();

    assert_eq!(notes.lines(), ["started 1 c on p", "ended 1 c disposed"]);
    run.result().await.unwrap();
    drop(run);
    assert_eq!(notes.lines().len(), 2);
}

#[tokio::test]
async fn a_dropped_disposal_still_ends_with_the_run() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    provider.then_child("c").dispose_permits.forget_permits(usize::MAX);
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    {
        let mut disposal = run.dispose();
        assert!(poll_once(&mut disposal).is_pending());
    }
    drop(run);
    assert_eq!(notes.lines(), ["started 1 c on p", "ended 1 c dropped"]);
}

#[tokio::test]
async fn a_dropped_wait_loses_no_end() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    let child = provider.then_child("c");
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    {
        let mut wait = run.result();
        assert!(poll_once(&mut wait).is_pending());
        child.ends(SubagentResult::completed("done"));
    }
    assert_eq!(notes.lines().len(), 1);
    run.result().await.unwrap();
    assert_eq!(notes.lines()[1], "ended 1 c completed: done");
}

#[tokio::test]
async fn concurrent_waits_cause_one_end() {
    let (registry, notes) = watched();
    let provider = Double::new("p");
    let child = provider.then_child("c");
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    let ((), one, two, three) = tokio::join!(
        async { child.ends(SubagentResult::completed("x")) },
        run.result(),
        run.result(),
        run.dispose()
    );
    assert_eq!(one.unwrap(), two.unwrap());
    three.unwrap();
    assert_eq!(notes.lines().len(), 2);
}

#[tokio::test]
async fn an_observer_hears_only_of_children_whose_start_it_heard_of() {
    let registry = LocalRegistry::new();
    let early = registry.start_on(&(Double::new("p") as _), request()).await.unwrap();
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    drop(early);
    assert!(notes.lines().is_empty());
    drop(registry.start_on(&(Double::new("p") as _), request()).await.unwrap());
    assert_eq!(notes.lines(), ["started 1 p-1 on p", "ended 1 p-1 dropped"]);
}

/// Panics at every event, with a payload of the chosen kind.
#[derive(Debug)]
struct Faulty(fn());

impl SubagentObserver for Faulty {
    fn observe(&self, _event: &SubagentEvent<'_>) {
        (self.0)();
    }
}

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("and again");
    }
}

#[tokio::test]
async fn a_panicking_observer_reaches_neither_the_others_nor_the_children() {
    let registry = LocalRegistry::new();
    registry.observe(Arc::new(Faulty(|| panic!("plain"))));
    registry.observe(Arc::new(Faulty(|| panic!("number {}", 1))));
    registry.observe(Arc::new(Faulty(|| std::panic::panic_any(PanicsAgain))));
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());

    let provider = Double::new("p");
    provider.then_child("c").ends(SubagentResult::completed("ok"));
    registry.register(provider.clone()).unwrap();
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "ok");
    registry.unregister("p").unwrap();

    assert_eq!(notes.lines(), ["added p", "started 1 c on p", "ended 1 c completed: ok", "removed p"]);
}

/// Starts the next child while it is told that one has ended.
#[derive(Debug)]
struct Successor {
    registry: OnceLock<Weak<LocalRegistry>>,
    provider: Arc<Double>,
    answers: Mutex<Vec<Option<ErrorKind>>>,
}

impl SubagentObserver for Successor {
    fn observe(&self, event: &SubagentEvent<'_>) {
        if !matches!(event, SubagentEvent::Ended { child, .. } if child.sequence == 1) {
            return;
        }
        let registry = self.registry.get().unwrap().upgrade().unwrap();
        let on: Arc<dyn harness_subagent::SubagentProvider> = self.provider.clone();
        let mut start = registry.start_on(&on, request());
        let std::task::Poll::Ready(answer) = poll_once(&mut start) else {
            panic!("the double answers at once")
        };
        self.answers.lock().unwrap().push(answer.err().map(|error| error.kind()));
    }
}

#[tokio::test]
async fn the_place_is_free_when_the_end_is_told() {
    let registry = Arc::new(LocalRegistry::builder().max_active_per_tree(1).build().unwrap());
    let provider = Double::new("p");
    let successor = Arc::new(Successor {
        registry: OnceLock::new(),
        provider: provider.clone(),
        answers: Mutex::default(),
    });
    successor.registry.set(Arc::downgrade(&registry)).unwrap();
    registry.observe(successor.clone());
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    run.dispose().await.unwrap();
    assert_eq!(*successor.answers.lock().unwrap(), [None]);
}
