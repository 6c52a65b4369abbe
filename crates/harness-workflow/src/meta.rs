use std::fmt;

use serde::{Deserialize, Serialize};

/// Names one version of a workflow.
///
/// A request carries it in place of code: the engine finds the body in its own
/// [`WorkflowCatalog`](crate::WorkflowCatalog).
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct WorkflowRef {
    /// The workflow's name.
    pub name: String,
    /// Its version. A body whose sequence of calls changes gets a new one.
    pub version: u32,
}

impl WorkflowRef {
    /// Names version `version` of the workflow `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        Self { name: name.into(), version }
    }
}

impl fmt::Display for WorkflowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (version {})", self.name, self.version)
    }
}

/// What a workflow says of itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkflowMeta {
    /// Its name and version.
    #[serde(flatten)]
    pub workflow: WorkflowRef,
    /// What it does, for people and models.
    pub description: String,
    /// When to use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_to_use: Option<String>,
    /// The phases that it may announce, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseMeta>,
}

impl WorkflowMeta {
    /// Describes version `version` of the workflow `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, version: u32, description: impl Into<String>) -> Self {
        Self {
            workflow: WorkflowRef::new(name, version),
            description: description.into(),
            when_to_use: None,
            phases: Vec::new(),
        }
    }

    /// Says when to use the workflow.
    #[must_use]
    pub fn with_when_to_use(mut self, text: impl Into<String>) -> Self {
        self.when_to_use = Some(text.into());
        self
    }

    /// Adds a phase.
    #[must_use]
    pub fn with_phase(mut self, phase: PhaseMeta) -> Self {
        self.phases.push(phase);
        self
    }

    /// Checks that every text that must say something does.
    ///
    /// # Errors
    ///
    /// [`InvalidMeta`], with all violations. A catalog asks when a workflow enters it.
    pub fn check(&self) -> Result<(), InvalidMeta> {
        let mut violations = Vec::new();
        if self.workflow.name.is_empty() {
            violations.push("`name` must not be empty".to_owned());
        }
        if self.description.is_empty() {
            violations.push("`description` must not be empty".to_owned());
        }
        for (index, phase) in self.phases.iter().enumerate() {
            if phase.title.is_empty() {
                violations.push(format!("`phases[{index}].title` must not be empty"));
            }
        }
        if violations.is_empty() { Ok(()) } else { Err(InvalidMeta { violations }) }
    }
}

/// One phase of a workflow.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PhaseMeta {
    /// Its title, as the body announces it.
    pub title: String,
    /// What happens in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl PhaseMeta {
    /// Describes a phase.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), detail: None }
    }

    /// Says what happens in it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// Everything that is wrong with a [`WorkflowMeta`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidMeta {
    violations: Vec<String>,
}

impl InvalidMeta {
    /// Returns what is wrong, one line each.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

impl fmt::Display for InvalidMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workflow description is not usable: {}", self.violations.join("; "))
    }
}

impl std::error::Error for InvalidMeta {}
