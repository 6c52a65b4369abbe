use std::fmt::Debug;
use std::sync::Arc;

use crate::{AgentId, Error, Origin, Parent, StopReason};

/// Hears of what happens in a registry.
///
/// # Contract
///
/// The registry calls it; whoever wants to watch implements it. It is called in the order of the events, on
/// whatever thread causes them, and should return quickly. A panic in one observer is caught and logged; it
/// reaches neither the other observers nor the children.
pub trait SubagentObserver: Debug + Send + Sync + 'static {
    /// Takes note of `event`.
    fn observe(&self, event: &SubagentEvent<'_>);
}

/// What happened in a registry.
///
/// Every [`Started`](Self::Started) is followed by exactly one [`Ended`](Self::Ended) of the same
/// [`StartedChild::sequence`], and a start that fails causes neither.
#[derive(Debug)]
#[non_exhaustive]
pub enum SubagentEvent<'a> {
    /// A provider can be used.
    ProviderAdded {
        /// Its name.
        provider: &'a str,
    },
    /// A provider can be used no more. Its children live on.
    ProviderRemoved {
        /// Its name.
        provider: &'a str,
    },
    /// A provider has handed a child over.
    Started {
        /// The child.
        child: &'a StartedChild,
    },
    /// The child's place in the registry is free again: with its result, its disposal or the drop of its
    /// run, whichever came first.
    Ended {
        /// The child.
        child: &'a StartedChild,
        /// Which of the three it was.
        ending: ChildEnding<'a>,
    },
}

/// A child in the events of a registry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartedChild {
    /// The number of the start among those that its registry has announced, from 1. Child ids may come again, these
    /// do not.
    pub sequence: u64,
    /// The child's id.
    pub id: AgentId,
    /// The name of its provider, registered at the time or before.
    pub provider: String,
    /// On whose behalf it runs.
    pub parent: Arc<Parent>,
    /// The call it belongs to, where there is one.
    pub origin: Option<Origin>,
    /// Its name for people, where there is one.
    pub label: Option<String>,
}

impl StartedChild {
    /// Describes a child.
    #[must_use]
    pub fn new(
        sequence: u64,
        id: AgentId,
        provider: impl Into<String>,
        parent: impl Into<Arc<Parent>>,
    ) -> Self {
        Self { sequence, id, provider: provider.into(), parent: parent.into(), origin: None, label: None }
    }

    /// Sets the call it belongs to.
    #[must_use]
    pub fn with_origin(mut self, origin: Option<Origin>) -> Self {
        self.origin = origin;
        self
    }

    /// Sets its name for people.
    #[must_use]
    pub fn with_label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }
}

/// What freed a child's place in the registry.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ChildEnding<'a> {
    /// Its result was ready.
    Result {
        /// Why it stopped, as the registry passed it on.
        stop_reason: &'a StopReason,
        /// What it said last, absent when it said nothing.
        output: Option<&'a str>,
    },
    /// The provider lost it.
    Lost {
        /// How.
        error: &'a Error,
    },
    /// Its run was disposed of before the result was ready.
    Disposed,
    /// Its run was dropped before the result was ready.
    Dropped,
}
