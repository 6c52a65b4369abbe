use std::sync::{Arc, Mutex};

use harness_workflow::{WorkflowEvent, WorkflowEventKind, WorkflowObserver, WorkflowObservers};

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<u64>>);

impl Recorder {
    fn heard(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

impl WorkflowObserver for Recorder {
    fn observe(&self, event: &WorkflowEvent) {
        self.0.lock().unwrap().push(event.sequence);
    }
}

#[derive(Debug)]
struct Panicker;

impl WorkflowObserver for Panicker {
    fn observe(&self, _event: &WorkflowEvent) {
        std::panic::resume_unwind(Box::new("an observer that panics"));
    }
}

/// Adds another observer while it is told of an event.
#[derive(Debug)]
struct Adder(Arc<WorkflowObservers>, Arc<Recorder>);

impl WorkflowObserver for Adder {
    fn observe(&self, _event: &WorkflowEvent) {
        self.0.add(Arc::clone(&self.1) as _);
    }
}

fn event(sequence: u64) -> WorkflowEvent {
    WorkflowEvent::new("r".into(), sequence, WorkflowEventKind::Log { message: String::new() })
}

#[test]
fn a_panic_of_an_observer_is_kept_from_those_around_it() {
    let observers = WorkflowObservers::default();
    let (before, after) = (Arc::new(Recorder::default()), Arc::new(Recorder::default()));
    observers.add(Arc::clone(&before) as _);
    observers.add(Arc::new(Panicker));
    observers.add(Arc::clone(&after) as _);
    observers.notify(&event(1));
    observers.notify(&event(2));
    assert_eq!((before.heard(), after.heard()), (vec![1, 2], vec![1, 2]));
}

#[test]
fn an_observer_may_add_another_which_hears_of_the_next_event() {
    let observers = Arc::new(WorkflowObservers::default());
    let recorder = Arc::new(Recorder::default());
    observers.add(Arc::new(Adder(Arc::clone(&observers), Arc::clone(&recorder))));
    observers.notify(&event(1));
    assert_eq!(recorder.heard(), [0; 0]);
    observers.notify(&event(2));
    assert_eq!(recorder.heard(), [2]);
}

#[test]
fn a_snapshot_hears_of_no_observer_that_is_added_later() {
    let observers = WorkflowObservers::default();
    assert!(observers.is_empty());
    let early = Arc::new(Recorder::default());
    observers.add(Arc::clone(&early) as _);
    let snapshot = observers.snapshot();
    let late = Arc::new(Recorder::default());
    observers.add(Arc::clone(&late) as _);
    snapshot.notify(&event(1));
    assert_eq!((early.heard(), late.heard()), (vec![1], vec![]));
}
