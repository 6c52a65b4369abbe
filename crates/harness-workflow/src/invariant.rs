use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    CallInfo, RunId, RunStopReason, WorkflowEvent, WorkflowEventKind, WorkflowMeta, WorkflowObserver,
};

/// Checks that an engine's events keep the order and the sense that [`WorkflowEvent`] promises.
///
/// Each stream has one owner: the engine that started the run, which alone tells of it. A run that two tell of is a
/// violation too.
///
/// Attach one to an engine in development and in tests, and ask for its [`violations`](Self::violations). It
/// remembers every run it has heard of, so it is not meant for a process that runs for weeks.
///
/// ```
/// use harness_workflow::{InvariantObserver, WorkflowEvent, WorkflowEventKind, WorkflowObserver};
///
/// let invariants = InvariantObserver::new("my-engine");
/// let kind = WorkflowEventKind::Log { message: "a run that never started".into() };
/// invariants.observe(&WorkflowEvent::new("run-1".into(), 1, kind));
/// assert_eq!(invariants.violations()[0].package, "my-engine");
/// ```
#[derive(Debug)]
pub struct InvariantObserver {
    package: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: HashMap<RunId, Run>,
    violations: Vec<InvariantViolation>,
}

#[derive(Debug)]
struct Run {
    meta: Arc<WorkflowMeta>,
    sequence: u64,
    started: u64,
    open: HashMap<(u64, u32), CallInfo>,
    ended: bool,
}

/// An event that breaks the contract of its stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvariantViolation {
    /// The package that owns the stream.
    pub package: String,
    /// The event, with its run.
    pub event: WorkflowEvent,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: run {}, event {}: {}", self.package, self.event.run, self.event.sequence, self.message)
    }
}

impl InvariantObserver {
    const MAX_VIOLATIONS: usize = 1000;

    /// Makes an observer of the stream that `package` owns.
    #[must_use]
    pub fn new(package: impl Into<String>) -> Self {
        Self { package: package.into(), state: Mutex::default() }
    }

    /// Returns the violations so far, the first 1000 of them.
    #[must_use]
    pub fn violations(&self) -> Vec<InvariantViolation> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).violations.clone()
    }

    /// Returns the runs that have started and not ended.
    #[must_use]
    pub fn open_runs(&self) -> Vec<RunId> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.runs.iter().filter(|(_, run)| !run.ended).map(|(id, _)| id.clone()).collect()
    }
}

impl WorkflowObserver for InvariantObserver {
    fn observe(&self, event: &WorkflowEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for message in state.check(event) {
            let violation =
                InvariantViolation { package: self.package.clone(), event: event.clone(), message };
            tracing::error!(%violation, "a workflow event breaks its contract");
            if state.violations.len() < Self::MAX_VIOLATIONS {
                state.violations.push(violation);
            }
        }
    }
}

impl State {
    fn check(&mut self, event: &WorkflowEvent) -> Vec<String> {
        let mut wrong = Vec::new();
        if event.run.as_str().is_empty() {
            wrong.push("the run's id is empty".to_owned());
        }
        if let WorkflowEventKind::Started { meta } = &event.kind {
            self.begin(event, meta, &mut wrong);
        } else if let Some(run) = self.runs.get_mut(&event.run) {
            run.check(event, &mut wrong);
        } else {
            wrong.push("the run has not started".to_owned());
        }
        wrong
    }

    fn begin(&mut self, event: &WorkflowEvent, meta: &Arc<WorkflowMeta>, wrong: &mut Vec<String>) {
        if let Err(error) = meta.check() {
            wrong.push(error.to_string());
        }
        if event.sequence != 1 {
            wrong.push("a run's first event has number 1".to_owned());
        }
        let run = Run {
            meta: Arc::clone(meta),
            sequence: event.sequence,
            started: 0,
            open: HashMap::new(),
            ended: false,
        };
        if let Some(known) = self.runs.insert(event.run.clone(), run) {
            let other = if known.meta == *meta { "" } else { " as another workflow" };
            wrong.push(format!("the run has started before{other}"));
        }
    }
}

impl Run {
    fn check(&mut self, event: &WorkflowEvent, wrong: &mut Vec<String>) {
        if self.ended {
            wrong.push("the run has ended".to_owned());
        }
        if event.sequence != self.sequence + 1 {
            wrong.push(format!("the event after number {} has another number", self.sequence));
        }
        self.sequence = event.sequence;
        match &event.kind {
            WorkflowEventKind::AgentStarted { call } => self.agent_started(call, wrong),
            WorkflowEventKind::AgentActivity { call, .. } => {
                if self.open.get(&(call.call, call.attempt)) != Some(call) {
                    wrong.push("the activity is of a child that is not open".to_owned());
                }
            }
            WorkflowEventKind::AgentEnded { call, .. } => {
                match self.open.remove(&(call.call, call.attempt)) {
                    None => wrong.push("the child that ended is not open".to_owned()),
                    Some(opened) if opened != *call => {
                        wrong.push("the child ended under another identity".to_owned());
                    }
                    Some(_) => {}
                }
            }
            WorkflowEventKind::Ended { stop_reason, error, agents_started, .. } => {
                self.ended = true;
                if !self.open.is_empty() {
                    wrong.push(format!("{} children are open at the end of the run", self.open.len()));
                }
                if *agents_started < self.started {
                    wrong.push(format!(
                        "{} calls had children, but only {agents_started} count",
                        self.started
                    ));
                }
                if error.is_none() != (*stop_reason == RunStopReason::Completed) {
                    wrong.push("a run has an error exactly when it did not complete".to_owned());
                }
            }
            WorkflowEventKind::Started { .. }
            | WorkflowEventKind::Phase { .. }
            | WorkflowEventKind::Log { .. }
            | WorkflowEventKind::Checkpoint { .. } => {}
        }
    }

    fn agent_started(&mut self, call: &CallInfo, wrong: &mut Vec<String>) {
        if call.call == 0 || call.attempt == 0 {
            wrong.push("calls and attempts count from 1".to_owned());
        }
        if call.child.as_str().is_empty() {
            wrong.push("the child's id is empty".to_owned());
        }
        self.started += 1;
        if self.open.insert((call.call, call.attempt), call.clone()).is_some() {
            wrong.push("the attempt is open already".to_owned());
        }
    }
}
