use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_workflow::{
    CallEnd, CallInfo, CallOutcome, RunId, WorkflowEvent, WorkflowEventKind, WorkflowObservers,
};
use tokio_util::sync::CancellationToken;

/// The events of one run, told one after the other, also when an observer causes the next one.
pub(super) struct Stream {
    run: RunId,
    told_end: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<WorkflowEventKind>,
    open: Vec<CallInfo>,
    sequence: u64,
    closed: bool,
    telling: bool,
}

impl Stream {
    pub(super) fn new(run: RunId) -> Self {
        Self { run, told_end: CancellationToken::new(), state: Mutex::default() }
    }

    /// Is cancelled once the observers have heard of the run's end.
    pub(super) fn told_end(&self) -> &CancellationToken {
        &self.told_end
    }

    /// Tells of an event, unless the run's end was told before.
    pub(super) fn tell(&self, observers: &WorkflowObservers, kind: WorkflowEventKind) {
        let mut state = self.state();
        if !state.closed {
            state.queue.push_back(kind);
        }
        drop(state);
        self.drain(observers);
    }

    pub(super) fn open_call(&self, observers: &WorkflowObservers, call: &CallInfo) {
        let mut state = self.state();
        if !state.closed {
            state.open.push(call.clone());
            state.queue.push_back(WorkflowEventKind::AgentStarted { call: call.clone() });
        }
        drop(state);
        self.drain(observers);
    }

    /// Tells of a call's end, unless that was told before.
    pub(super) fn close_call(&self, observers: &WorkflowObservers, call: &CallInfo, end: CallEnd) {
        let mut state = self.state();
        if let Some(index) = state.open.iter().position(|open| open == call) {
            let call = state.open.remove(index);
            state.queue.push_back(WorkflowEventKind::AgentEnded { call, end });
        }
        drop(state);
        self.drain(observers);
    }

    /// Tells of the run's end, and before that of the end of every call that is open.
    pub(super) fn close(&self, observers: &WorkflowObservers, ended: WorkflowEventKind) {
        let mut state = self.state();
        for call in std::mem::take(&mut state.open) {
            let end = CallEnd::new(CallOutcome::Cancelled);
            state.queue.push_back(WorkflowEventKind::AgentEnded { call, end });
        }
        state.queue.push_back(ended);
        state.closed = true;
        drop(state);
        self.drain(observers);
    }

    fn drain(&self, observers: &WorkflowObservers) {
        let mut state = self.state();
        if std::mem::replace(&mut state.telling, true) {
            return;
        }
        while let Some(kind) = state.queue.pop_front() {
            state.sequence += 1;
            let event = WorkflowEvent::new(self.run.clone(), state.sequence, kind);
            drop(state);
            observers.notify(&event);
            if matches!(event.kind, WorkflowEventKind::Ended { .. }) {
                self.told_end.cancel();
            }
            state = self.state();
        }
        state.telling = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes the one attempt at a call that a stub makes.
pub(super) fn call_info(run: &RunId, call: &harness_workflow::NumberedCall) -> CallInfo {
    let child: Arc<str> = format!("{run}-child-{}", call.number).into();
    CallInfo::new(call.number, 1, call.label.clone(), harness_subagent::AgentId::new(child))
        .with_phase(call.phase.clone())
}
