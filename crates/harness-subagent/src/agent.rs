use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The identity of one agent: a parent, or a child that a provider started.
///
/// An id is opaque text, compared byte for byte. A child's id is the id under which its own children name
/// it as their parent. Clones share the text.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Makes an id of `text`.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentId({:?})", &*self.0)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for AgentId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for AgentId {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl Serialize for AgentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AgentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// The agent on whose behalf a child runs.
///
/// It is plain data, so that it can be stored and sent. A provider that runs children inside its own
/// harness looks the live agent up by [`id`](Self::id) there; nobody else needs to.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Parent {
    /// The parent's own id.
    pub id: AgentId,
    /// The name of the workspace in which the child works. The side that runs the child resolves it: on
    /// the same machine it is a path, elsewhere whatever that side agrees with its callers.
    pub workspace: String,
    /// How many delegations lie between the parent and the human's own agent: 0 for that agent itself.
    /// The child's depth is one more.
    #[serde(default)]
    pub depth: u32,
}

impl Parent {
    /// Describes a parent at depth 0.
    #[must_use]
    pub fn new(id: impl Into<AgentId>, workspace: impl Into<String>) -> Self {
        Self { id: id.into(), workspace: workspace.into(), depth: 0 }
    }

    /// Sets the parent's own depth.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }
}

/// What caused a start: which call of which run, and which try of it.
///
/// It names a child across processes and restarts. Two starts never share all three parts, so a value
/// handed in by an earlier attempt can be told from this one's.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Origin {
    /// The id of the run that made the call.
    pub run: Arc<str>,
    /// The number of the call within its run, from 1.
    pub call: u64,
    /// The number of the try at this call, from 1.
    pub attempt: u32,
}

impl Origin {
    /// Names attempt `attempt` at call `call` of run `run`.
    #[must_use]
    pub fn new(run: impl Into<Arc<str>>, call: u64, attempt: u32) -> Self {
        Self { run: run.into(), call, attempt }
    }
}
