use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use harness_subagent::{Activity, AgentId, Diagnostic, StopReason, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{RunError, RunId, RunStopReason, WorkflowMeta};

/// Hears of what happens in the runs of an engine.
///
/// # Contract
///
/// The engine calls it; whoever wants to watch implements it. It is called on whatever thread causes the
/// event and should return quickly. A panic in one observer is caught and logged; it reaches neither the
/// other observers nor the run.
pub trait WorkflowObserver: Debug + Send + Sync + 'static {
    /// Takes note of `event`.
    fn observe(&self, event: &WorkflowEvent);
}

/// Something that happened in a run.
///
/// # Order
///
/// For one run, in the order of [`sequence`](Self::sequence):
///
/// - [`Started`](WorkflowEventKind::Started) comes first and before `start` returns,
///   [`Ended`](WorkflowEventKind::Ended) last, each exactly once, however the run ends;
/// - the [`AgentStarted`](WorkflowEventKind::AgentStarted) of an attempt comes before its
///   [`AgentEnded`](WorkflowEventKind::AgentEnded), and every started attempt ends exactly once, before the
///   run does. Ends that a body no longer waits for are reported by the engine as cancelled;
/// - a start that fails causes neither; call numbers may therefore have gaps;
/// - after a cancellation no [`Phase`](WorkflowEventKind::Phase), [`Log`](WorkflowEventKind::Log) or
///   [`Checkpoint`](WorkflowEventKind::Checkpoint) is reported any more;
/// - the end is reported before anybody who waits for the result gets it.
///
/// A run that an engine resumes has a new [`Started`](WorkflowEventKind::Started), sequence numbers from 1, and no
/// events for what its journal answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkflowEvent {
    /// The run.
    pub run: RunId,
    /// The number of the event in its run, from 1 without gaps.
    pub sequence: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: WorkflowEventKind,
}

impl WorkflowEvent {
    /// Makes the event number `sequence` of `run`.
    #[must_use]
    pub fn new(run: RunId, sequence: u64, kind: WorkflowEventKind) -> Self {
        Self { run, sequence, kind }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkflowEventKind {
    /// The run exists.
    Started {
        /// What the workflow says of itself.
        meta: Arc<WorkflowMeta>,
    },
    /// The body began a phase.
    Phase {
        /// Its title.
        title: String,
    },
    /// The body said something.
    Log {
        /// What it said.
        message: String,
    },
    /// The body left a checkpoint.
    Checkpoint {
        /// Its value.
        value: Value,
    },
    /// A child was started for a call.
    AgentStarted {
        /// The call.
        call: CallInfo,
    },
    /// A child did something. Lossy: nothing may be decided by it.
    AgentActivity {
        /// The call.
        call: CallInfo,
        /// What it did.
        activity: Activity,
    },
    /// A child ended, or was given up.
    AgentEnded {
        /// The call.
        call: CallInfo,
        /// How it ended.
        end: CallEnd,
    },
    /// The run ended. Its value is not told.
    Ended {
        /// How it ended.
        stop_reason: RunStopReason,
        /// What went wrong, of a run that did not complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<RunError>,
        /// How many calls for a child the body made.
        agents_started: u64,
        /// How many times a start of a child was tried.
        attempts: u64,
    },
}

/// One attempt at a call for a child, in events.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallInfo {
    /// The number of the call in its run, from 1.
    pub call: u64,
    /// The number of the try at this call, from 1.
    pub attempt: u32,
    /// The call's name for people.
    pub label: String,
    /// The phase it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The child's id.
    pub child: AgentId,
}

impl CallInfo {
    /// Describes attempt `attempt` at call `call`, made by `child`.
    #[must_use]
    pub fn new(call: u64, attempt: u32, label: impl Into<String>, child: AgentId) -> Self {
        Self { call, attempt, label: label.into(), phase: None, child }
    }

    /// Sets the phase it belongs to.
    #[must_use]
    pub fn with_phase(mut self, phase: Option<String>) -> Self {
        self.phase = phase;
        self
    }
}

/// How an attempt at a call ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallEnd {
    /// What the body gets.
    pub outcome: CallOutcome,
    /// Why the child stopped, where the engine knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Why it did not complete, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Diagnostic>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The provider's own name for its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

impl CallEnd {
    /// An end of which nothing but the outcome is known.
    #[must_use]
    pub fn new(outcome: CallOutcome) -> Self {
        Self { outcome, stop_reason: None, diagnostic: None, usage: None, session_id: None }
    }
}

/// What the body gets of a call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a call yields a value, none, or ends with its run")]
pub enum CallOutcome {
    /// A value.
    Completed,
    /// No value, or an error.
    Failed,
    /// Nothing: the run is over.
    Cancelled,
}

/// The observers of an engine: what an engine holds to tell them of events, one by one.
#[derive(Debug, Default)]
pub struct WorkflowObservers {
    observers: RwLock<Arc<[Arc<dyn WorkflowObserver>]>>,
}

impl WorkflowObservers {
    /// Adds an observer.
    pub fn add(&self, observer: Arc<dyn WorkflowObserver>) {
        let mut observers = self.observers.write().unwrap_or_else(PoisonError::into_inner);
        *observers = observers.iter().cloned().chain([observer]).collect();
    }

    /// Returns the observers that there are now, for one run: what is added later hears nothing of it.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self {
            observers: RwLock::new(Arc::clone(
                &self.observers.read().unwrap_or_else(PoisonError::into_inner),
            )),
        }
    }

    /// Says whether nobody listens, in which case an engine need not make the event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.observers.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tells every observer of `event`, in the order in which they were added. One that panics is logged and
    /// passed over.
    pub fn notify(&self, event: &WorkflowEvent) {
        let observers = Arc::clone(&self.observers.read().unwrap_or_else(PoisonError::into_inner));
        for observer in observers.iter() {
            if catch_unwind(AssertUnwindSafe(|| observer.observe(event))).is_err() {
                tracing::warn!(run = %event.run, sequence = event.sequence, "an observer of workflow events panicked");
            }
        }
    }
}
