use std::sync::Arc;

use harness_subagent::SubagentRegistry;

use crate::conformance::AsFixture;

/// How the registry's suite gets registries. Each check gets a fresh fixture.
pub trait RegistryFixture: Send + Sync {
    /// Makes a registry without providers and without limits.
    fn registry(&self) -> Arc<dyn SubagentRegistry>;

    /// Returns what differs between registries that all keep the contract.
    fn traits(&self) -> RegistryTraits;

    /// Makes a registry without providers and with `limits`, or nothing when it knows no limits.
    fn limited(&self, limits: TreeLimits) -> Option<Arc<dyn SubagentRegistry>>;
}

impl<T: RegistryFixture + 'static> AsFixture<dyn RegistryFixture> for T {
    fn as_fixture(&self) -> &(dyn RegistryFixture + 'static) {
        self
    }
}

/// What differs between registries that all keep the contract.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RegistryTraits {
    /// The registry can limit the children of a tree.
    pub limits: bool,
}

impl RegistryTraits {
    /// Says whether the registry can limit the children of a tree.
    #[must_use]
    pub fn with_limits(mut self, able: bool) -> Self {
        self.limits = able;
        self
    }
}

/// The limits of each tree of agents. What is absent is unlimited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TreeLimits {
    /// The most children alive at once.
    pub active: Option<u32>,
    /// The most children ever.
    pub total: Option<u32>,
}

impl TreeLimits {
    /// Limits the children alive at once.
    #[must_use]
    pub fn active(limit: u32) -> Self {
        Self { active: Some(limit), total: None }
    }

    /// Limits the children ever.
    #[must_use]
    pub fn total(limit: u32) -> Self {
        Self { active: None, total: Some(limit) }
    }

    /// Limits the children ever too.
    #[must_use]
    pub fn with_total(mut self, limit: u32) -> Self {
        self.total = Some(limit);
        self
    }
}
