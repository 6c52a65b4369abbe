use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use harness_workflow::{
    CallOutcome, RunId, RunStopReason, WorkflowEvent, WorkflowEventKind, WorkflowObserver, WorkflowObservers,
};

use super::EngineFault;

/// Tells the observers of a broken engine of what the engine inside tells it, or of something else.
#[derive(Debug)]
pub(crate) struct Teller {
    fault: EngineFault,
    observers: Mutex<Vec<Arc<dyn WorkflowObserver>>>,
    /// The observers that were there when a run began.
    runs: Mutex<HashMap<RunId, Arc<WorkflowObservers>>>,
    started: Mutex<HashMap<RunId, u64>>,
}

impl Teller {
    pub(crate) fn new(fault: EngineFault) -> Self {
        Self { fault, observers: Mutex::default(), runs: Mutex::default(), started: Mutex::default() }
    }

    pub(crate) fn add(&self, observer: Arc<dyn WorkflowObserver>) {
        let mut observers = self.observers.lock().unwrap();
        if self.fault != EngineFault::KeepsFirstObserver || observers.is_empty() {
            observers.push(observer);
        }
    }

    /// Returns how many children of a run have started.
    pub(crate) fn started(&self, run: &RunId) -> u64 {
        self.started.lock().unwrap().get(run).copied().unwrap_or_default()
    }

    pub(crate) fn tell(&self, event: &WorkflowEvent) {
        if self.fault == EngineFault::PanicStopsTelling {
            let observers = self.observers.lock().unwrap().clone();
            observers.iter().for_each(|observer| observer.observe(event));
            return;
        }
        let present = || {
            let observers = WorkflowObservers::default();
            self.observers.lock().unwrap().iter().for_each(|observer| observers.add(Arc::clone(observer)));
            Arc::new(observers)
        };
        let observers = if self.fault == EngineFault::TellsLateObservers {
            present()
        } else {
            Arc::clone(self.runs.lock().unwrap().entry(event.run.clone()).or_insert_with(present))
        };
        observers.notify(event);
    }

    fn tell_later(self: Arc<Self>, event: WorkflowEvent) {
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            self.tell(&event);
        });
    }
}

/// Changes an event in the way of a fault. An empty answer drops it.
fn changed(fault: EngineFault, mut event: WorkflowEvent) -> Vec<WorkflowEvent> {
    let again = event.clone();
    let is_end = matches!(event.kind, WorkflowEventKind::Ended { .. });
    match (&mut event.kind, fault) {
        (WorkflowEventKind::Ended { .. }, EngineFault::TellsEndTwice) => return vec![event, again],
        (WorkflowEventKind::Ended { stop_reason, .. }, EngineFault::NarratesAfterCancel)
            if *stop_reason == RunStopReason::Cancelled =>
        {
            let late = WorkflowEventKind::Log { message: "late".into() };
            return vec![WorkflowEvent::new(again.run.clone(), again.sequence, late), again];
        }
        (WorkflowEventKind::Ended { attempts, .. }, EngineFault::MiscountsInEnd) => *attempts += 1,
        (WorkflowEventKind::AgentEnded { end, .. }, EngineFault::ForgetsCancelledEnds)
            if end.outcome == CallOutcome::Cancelled =>
        {
            return Vec::new();
        }
        (WorkflowEventKind::AgentEnded { end, .. }, EngineFault::DropsUsage) => end.usage = None,
        (WorkflowEventKind::AgentEnded { call, .. }, EngineFault::RenamesEndedChild) => {
            call.label.push('!');
        }
        (WorkflowEventKind::AgentStarted { call }, EngineFault::DropsPhaseOfCall) => call.phase = None,
        (WorkflowEventKind::Log { message }, EngineFault::DropsEmptyLog) if message.is_empty() => {
            return Vec::new();
        }
        (WorkflowEventKind::AgentActivity { .. }, EngineFault::DropsActivity) => return Vec::new(),
        _ => {}
    }
    if fault == EngineFault::SkipsNumbers && is_end {
        event.sequence += 1;
    }
    vec![event]
}

/// The engine inside tells the shared teller alone.
impl WorkflowObserver for Teller {
    fn observe(&self, event: &WorkflowEvent) {
        if let WorkflowEventKind::AgentStarted { .. } = event.kind {
            *self.started.lock().unwrap().entry(event.run.clone()).or_default() += 1;
        }
        let is_end = matches!(event.kind, WorkflowEventKind::Ended { .. });
        for event in changed(self.fault, event.clone()) {
            match self.fault {
                EngineFault::TellsLater => self.clone_for_later().tell_later(event),
                EngineFault::TellsEndLater if is_end => self.clone_for_later().tell_later(event),
                _ => self.tell(&event),
            }
        }
    }
}

impl Teller {
    /// Shares what is needed to tell later.
    fn clone_for_later(&self) -> Arc<Self> {
        let later = Self::new(self.fault);
        later.observers.lock().unwrap().clone_from(&self.observers.lock().unwrap());
        Arc::new(later)
    }
}
