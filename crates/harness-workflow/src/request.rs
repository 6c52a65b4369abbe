use std::fmt;
use std::sync::Arc;

use harness_subagent::Parent;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Error, ErrorKind, Result, WorkflowRef, value};

/// The identity of one run of a workflow, unique among all runs of an engine. Clones share the text.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RunId(Arc<str>);

impl RunId {
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

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({:?})", &*self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RunId> for Arc<str> {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl From<&str> for RunId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for RunId {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// A request to run a workflow: plain data that can be stored, sent and started again.
///
/// Credentials never travel in it: the provider is a name that the side running the children resolves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StartRun {
    /// The id of the run. Without one the engine makes one. A second start of a known id attaches to that run or
    /// is refused, by the engine's [capability](crate::EngineCapabilities::attaches_to_known_run).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The workflow.
    pub workflow: WorkflowRef,
    /// What the body is given.
    #[serde(default)]
    pub args: Value,
    /// The name of the provider on which every child of the run is started. Without one the engine's default
    /// is taken. The body cannot see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The most calls for a child that the body may make: at least 1, at most the engine's
    /// [ceiling](crate::WorkflowEngine::max_agents), which counts without it. The body cannot see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_agents: Option<u64>,
    /// The agent on whose behalf every child runs.
    pub parent: Parent,
}

impl StartRun {
    /// Asks for a run of `workflow` on behalf of `parent`, with `null` as its arguments.
    #[must_use]
    pub fn new(workflow: WorkflowRef, parent: Parent) -> Self {
        Self { run_id: None, workflow, args: Value::Null, provider: None, max_agents: None, parent }
    }

    /// Chooses the run's id.
    #[must_use]
    pub fn with_run_id(mut self, run_id: impl Into<RunId>) -> Self {
        self.run_id = Some(run_id.into());
        self
    }

    /// Sets what the body is given.
    #[must_use]
    pub fn with_args(mut self, args: Value) -> Self {
        self.args = args;
        self
    }

    /// Chooses the provider.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Lowers the most calls for a child.
    #[must_use]
    pub fn with_max_agents(mut self, max_agents: u64) -> Self {
        self.max_agents = Some(max_agents);
        self
    }

    /// Checks the arguments: the second thing that an engine checks, after the workflow's name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the arguments are not plain; see [`value::check`].
    pub fn check_args(&self) -> Result<()> {
        value::check(&self.args)
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("args: {error}")))
    }

    /// Finds the name of the provider: the third thing that an engine checks. Whether it is registered is for
    /// the engine to find out next.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or has blanks at an edge, the default included.
    pub fn resolve_provider<'a>(&'a self, default: &'a str) -> Result<&'a str> {
        let name = self.provider.as_deref().unwrap_or(default);
        if name.is_empty() || is_blank(name.chars().next()) || is_blank(name.chars().next_back()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("provider {name:?} must be a name without blanks at its edges"),
            ));
        }
        Ok(name)
    }

    /// Finds the most calls for a child: the last thing that an engine checks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for 0, for more than 2^53 - 1, and for more than `ceiling`.
    pub fn resolve_max_agents(&self, ceiling: u64) -> Result<u64> {
        const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        match self.max_agents {
            None => Ok(ceiling),
            Some(0) => refuse("max_agents must be a positive safe integer, 1 to 2^53 - 1; got 0".into()),
            Some(asked) if asked > MAX_SAFE_INTEGER => {
                refuse(format!("max_agents must be a positive safe integer, 1 to 2^53 - 1; got {asked}"))
            }
            Some(asked) if asked > ceiling => {
                refuse(format!("max_agents {asked} exceeds the engine ceiling of {ceiling}; ask for less"))
            }
            Some(asked) => Ok(asked),
        }
    }
}

/// Says whether `character` is a blank that a name may not have at its edges: those are the blanks that ECMAScript
/// trims, which are Unicode's with U+FEFF in place of U+0085.
fn is_blank(character: Option<char>) -> bool {
    character.is_some_and(|c| c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}'))
}

#[cfg(test)]
mod tests {
    use harness_subagent::Parent;

    use super::*;

    fn request() -> StartRun {
        StartRun::new(WorkflowRef::new("w", 1), Parent::new("p", "/tmp"))
    }

    #[test]
    fn a_provider_name_with_a_blank_edge_is_refused_and_never_trimmed() {
        for name in ["", " spawn", "spawn\n", "\u{feff}spawn", "spawn\u{3000}"] {
            let request = request().with_provider(name);
            let error = request.resolve_provider("spawn").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}");
            assert!(error.to_string().contains("blanks"), "{name:?}");
        }
        assert!(request().resolve_provider(" default").is_err(), "the default is checked too");
        assert_eq!(request().with_provider("\u{85}x").resolve_provider("d").unwrap(), "\u{85}x");
        assert_eq!(request().resolve_provider("spawn").unwrap(), "spawn");
    }

    #[test]
    fn a_run_may_only_lower_the_ceiling() {
        for (asked, fragment) in [
            (0, "positive safe integer"),
            (1 << 53, "positive safe integer"),
            (11, "exceeds the engine ceiling"),
        ] {
            let error = request().with_max_agents(asked).resolve_max_agents(10).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(fragment), "{error}");
        }
        assert_eq!(request().with_max_agents(10).resolve_max_agents(10).unwrap(), 10);
        assert_eq!(request().resolve_max_agents(10).unwrap(), 10);
    }

    #[test]
    fn a_request_survives_its_json() {
        let request = request().with_run_id("r").with_provider("p").with_max_agents(3);
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<StartRun>(&text).unwrap(), request);
    }
}
