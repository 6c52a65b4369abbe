use std::sync::{Arc, Mutex, PoisonError};

use harness_subagent::{ChildEnding, ErrorKind, StartedChild, StopReason, SubagentEvent, SubagentObserver};

/// An observer of a registry that keeps what it hears. Clones keep it together.
#[derive(Clone, Debug, Default)]
pub struct SubagentRecorder {
    seen: Arc<Mutex<Vec<SeenEvent>>>,
}

impl SubagentRecorder {
    /// Makes an observer that has heard nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what was heard so far.
    #[must_use]
    pub fn events(&self) -> Vec<SeenEvent> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the children whose start was heard of.
    #[must_use]
    pub fn started(&self) -> Vec<StartedChild> {
        let started = |event| match event {
            SeenEvent::Started(child) => Some(child),
            _ => None,
        };
        self.events().into_iter().filter_map(started).collect()
    }

    /// Returns how the children ended whose end was heard of, by the number of their start.
    #[must_use]
    pub fn ended(&self) -> Vec<(u64, SeenEnding)> {
        let ended = |event| match event {
            SeenEvent::Ended(child, ending) => Some((child.sequence, ending)),
            _ => None,
        };
        self.events().into_iter().filter_map(ended).collect()
    }
}

impl SubagentObserver for SubagentRecorder {
    fn observe(&self, event: &SubagentEvent<'_>) {
        let seen = match event {
            SubagentEvent::ProviderAdded { provider } => SeenEvent::ProviderAdded((*provider).to_owned()),
            SubagentEvent::ProviderRemoved { provider } => SeenEvent::ProviderRemoved((*provider).to_owned()),
            SubagentEvent::Started { child } => SeenEvent::Started((*child).clone()),
            SubagentEvent::Ended { child, ending } => SeenEvent::Ended((*child).clone(), (*ending).into()),
            // An event that a newer seam has is none of this recorder's.
            _ => return,
        };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

/// A [`SubagentEvent`] that was heard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SeenEvent {
    /// A provider can be used.
    ProviderAdded(String),
    /// A provider can be used no more.
    ProviderRemoved(String),
    /// A child was handed over.
    Started(StartedChild),
    /// A child's place is free again.
    Ended(StartedChild, SeenEnding),
}

/// A [`ChildEnding`] that was heard of.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SeenEnding {
    /// The result was ready.
    Result {
        /// Why the child stopped.
        stop_reason: StopReason,
        /// What it said last.
        output: Option<String>,
    },
    /// The child was lost.
    Lost(ErrorKind),
    /// The run was disposed of before.
    Disposed,
    /// The run was dropped before.
    Dropped,
    /// An ending that this crate does not know.
    Unknown,
}

impl From<ChildEnding<'_>> for SeenEnding {
    fn from(ending: ChildEnding<'_>) -> Self {
        match ending {
            ChildEnding::Result { stop_reason, output } => {
                Self::Result { stop_reason: stop_reason.clone(), output: output.map(str::to_owned) }
            }
            ChildEnding::Lost { error } => Self::Lost(error.kind()),
            ChildEnding::Disposed => Self::Disposed,
            ChildEnding::Dropped => Self::Dropped,
            _ => Self::Unknown,
        }
    }
}
