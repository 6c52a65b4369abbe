use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{Origin, OutputContract, Parent};

/// A request to start one child.
///
/// The caller fills it in, the registry checks it, the provider carries it out. Build it with
/// [`new`](Self::new) and the `with_*` methods; a part that is left out asks for nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartSubagent {
    /// What the child is told, verbatim. A provider may append how to hand in the value, and nothing else.
    pub prompt: String,
    /// A short name for people who watch.
    pub label: Option<String>,
    /// The call that this start belongs to, where there is one.
    pub origin: Option<Origin>,
    /// The agent on whose behalf the child runs.
    pub parent: Arc<Parent>,
    /// Asks the child to stop. The caller cancels it; the provider must heed it before and after the start.
    pub cancellation: CancellationToken,
    /// The value that the child must hand in. Needs the capability `output_contract`.
    pub output: Option<OutputContract>,
    /// The greatest depth that the child may have. Needs the capability `depth_limit`.
    pub max_depth: Option<u32>,
    /// Which tools the child may use. Needs the capability `tool_restriction`, unless it is only preferred.
    pub tools: Option<ToolRestriction>,
    /// The name of a persona that the provider knows. Needs the capability `persona`.
    pub persona: Option<String>,
    /// The language model that the child should use. Needs the capability `model_choice`.
    pub model: Option<ModelChoice>,
}

impl StartSubagent {
    /// Asks for a child of `parent` that is told `prompt`, with a cancellation token of its own.
    #[must_use]
    pub fn new(prompt: impl Into<String>, parent: impl Into<Arc<Parent>>) -> Self {
        Self::stopped_by(CancellationToken::new(), prompt, parent)
    }

    /// Asks for a child of `parent` that is told `prompt` and that `cancellation` stops.
    ///
    /// It is [`new`](Self::new) without a token that is made to be replaced, for callers that start many children.
    #[must_use]
    pub fn stopped_by(
        cancellation: CancellationToken,
        prompt: impl Into<String>,
        parent: impl Into<Arc<Parent>>,
    ) -> Self {
        Self {
            prompt: prompt.into(),
            label: None,
            origin: None,
            parent: parent.into(),
            cancellation,
            output: None,
            max_depth: None,
            tools: None,
            persona: None,
            model: None,
        }
    }

    /// Names the child for people who watch.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Says which call the start belongs to.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Lets `cancellation` stop the child.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: CancellationToken) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Asks for a value.
    #[must_use]
    pub fn with_output(mut self, output: OutputContract) -> Self {
        self.output = Some(output);
        self
    }

    /// Limits the child's depth.
    #[must_use]
    pub fn with_max_depth(mut self, max_depth: u32) -> Self {
        self.max_depth = Some(max_depth);
        self
    }

    /// Restricts the child's tools.
    #[must_use]
    pub fn with_tools(mut self, tools: ToolRestriction) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Gives the child a persona.
    #[must_use]
    pub fn with_persona(mut self, persona: impl Into<String>) -> Self {
        self.persona = Some(persona.into());
        self
    }

    /// Chooses the child's model.
    #[must_use]
    pub fn with_model(mut self, model: ModelChoice) -> Self {
        self.model = Some(model);
        self
    }
}

/// Which tools a child may use.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolRestriction {
    /// The tools concerned.
    pub filter: ToolFilter,
    /// What happens when the provider cannot restrict tools.
    #[serde(default)]
    pub strength: RestrictionStrength,
}

impl ToolRestriction {
    /// Forbids the named tools. The restriction is required until [`preferred`](Self::preferred) says otherwise.
    #[must_use]
    pub fn deny<T: Into<String>>(tools: impl IntoIterator<Item = T>) -> Self {
        Self {
            filter: ToolFilter::Deny(tools.into_iter().map(Into::into).collect()),
            strength: RestrictionStrength::Required,
        }
    }

    /// Allows the named tools and no others. The restriction is required until
    /// [`preferred`](Self::preferred) says otherwise.
    #[must_use]
    pub fn allow_only<T: Into<String>>(tools: impl IntoIterator<Item = T>) -> Self {
        Self {
            filter: ToolFilter::AllowOnly(tools.into_iter().map(Into::into).collect()),
            strength: RestrictionStrength::Required,
        }
    }

    /// Makes the restriction one that a provider without the capability may do without.
    #[must_use]
    pub fn preferred(mut self) -> Self {
        self.strength = RestrictionStrength::Preferred;
        self
    }
}

/// The tools that a [`ToolRestriction`] is about, by name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolFilter {
    /// These and no others.
    AllowOnly(Vec<String>),
    /// All but these.
    Deny(Vec<String>),
}

/// What happens to a [`ToolRestriction`] where the provider cannot restrict tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a restriction either must hold or need not")]
pub enum RestrictionStrength {
    /// The registry refuses the start.
    #[default]
    Required,
    /// The registry drops the restriction before it calls the provider.
    Preferred,
}

/// The language model that a child should use. What is left out is the provider's choice.
///
/// Names only: credentials never travel in a request.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModelChoice {
    /// The vendor or gateway, by a name that the side running the child resolves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl ModelChoice {
    /// Chooses a model and leaves its vendor to the provider.
    #[must_use]
    pub fn model(model: impl Into<String>) -> Self {
        Self { provider: None, model: Some(model.into()) }
    }

    /// Chooses the vendor or gateway too.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }
}
