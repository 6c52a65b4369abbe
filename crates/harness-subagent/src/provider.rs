use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Result, StartSubagent, SubagentRun};

/// Runs children of one kind.
///
/// # Contract
///
/// A registry calls this trait; a provider implements it. Starts may overlap and are independent: none
/// shares the failure, the cancellation or the cleanup of another. A provider may queue starts.
#[async_trait]
pub trait SubagentProvider: Debug + Send + Sync + 'static {
    /// Returns the name under which the provider is registered, used verbatim. Never changes.
    fn name(&self) -> &str;

    /// Returns what the provider can be asked for. Never changes.
    fn capabilities(&self) -> Capabilities;

    /// Says whether a child sees what its parent has seen. Never changes.
    ///
    /// A provider whose children begin with an empty context returns `false`.
    fn inherits_parent_context(&self) -> bool;

    /// Starts one child and hands its run to the caller.
    ///
    /// - The registry calls this once per request, after it has checked the request against
    ///   [`capabilities`](Self::capabilities), and passes the request on unchanged, save for a preferred
    ///   tool restriction that the provider lacks.
    /// - Ownership passes when this returns `Ok`. Before that, the provider must release whatever it created.
    ///   After that, the caller must dispose of the run, on every path.
    /// - What goes wrong after that is a result of the run, not an error of this method.
    /// - A request that is cancelled before there is a child is refused; one that is cancelled later ends
    ///   the child, whose result then says so.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no child is left behind.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) for a cancelled request, and
    /// [`ErrorKind::Provider`](crate::ErrorKind::Provider), with the provider's own error as its source,
    /// for everything else.
    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>>;
}

/// What a provider can be asked for beyond a prompt.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Children can hand in a value under an [`OutputContract`](crate::OutputContract).
    pub output_contract: bool,
    /// Children can be kept from starting children below a depth.
    pub depth_limit: bool,
    /// Children can be kept from tools.
    pub tool_restriction: bool,
    /// Children can be given a persona.
    pub persona: bool,
    /// The child's model can be chosen.
    pub model_choice: bool,
}

impl Capabilities {
    /// A provider that can be asked for nothing but a prompt.
    pub const NONE: Self = Self {
        output_contract: false,
        depth_limit: false,
        tool_restriction: false,
        persona: false,
        model_choice: false,
    };

    /// A provider that can be asked for everything.
    pub const ALL: Self = Self {
        output_contract: true,
        depth_limit: true,
        tool_restriction: true,
        persona: true,
        model_choice: true,
    };

    /// Says whether children can hand in a value.
    #[must_use]
    pub fn with_output_contract(mut self, able: bool) -> Self {
        self.output_contract = able;
        self
    }

    /// Says whether the children's depth can be limited.
    #[must_use]
    pub fn with_depth_limit(mut self, able: bool) -> Self {
        self.depth_limit = able;
        self
    }

    /// Says whether children can be kept from tools.
    #[must_use]
    pub fn with_tool_restriction(mut self, able: bool) -> Self {
        self.tool_restriction = able;
        self
    }

    /// Says whether children can be given a persona.
    #[must_use]
    pub fn with_persona(mut self, able: bool) -> Self {
        self.persona = able;
        self
    }

    /// Says whether the children's model can be chosen.
    #[must_use]
    pub fn with_model_choice(mut self, able: bool) -> Self {
        self.model_choice = able;
        self
    }
}

/// What a registry tells of a provider.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProviderInfo {
    /// Its name.
    pub name: String,
    /// What it can be asked for.
    pub capabilities: Capabilities,
    /// Whether its children see what their parent has seen.
    pub inherits_parent_context: bool,
}

impl ProviderInfo {
    /// Describes a provider whose children begin with an empty context.
    #[must_use]
    pub fn new(name: impl Into<String>, capabilities: Capabilities) -> Self {
        Self { name: name.into(), capabilities, inherits_parent_context: false }
    }

    /// Says whether the provider's children see what their parent has seen.
    #[must_use]
    pub fn with_inherited_context(mut self, inherits: bool) -> Self {
        self.inherits_parent_context = inherits;
        self
    }
}

impl From<&dyn SubagentProvider> for ProviderInfo {
    fn from(provider: &dyn SubagentProvider) -> Self {
        Self::new(provider.name(), provider.capabilities())
            .with_inherited_context(provider.inherits_parent_context())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: SubagentProvider + ?Sized> SubagentProvider for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn inherits_parent_context(&self) -> bool {
        (**self).inherits_parent_context()
    }

    // By hand: the provider's own future is all there is.
    fn start<'life0, 'async_trait>(
        &'life0 self,
        request: StartSubagent,
    ) -> Pin<Box<dyn Future<Output = Result<Box<dyn SubagentRun>>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        (**self).start(request)
    }
}
