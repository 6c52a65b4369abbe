//! Holds the local registry to the subagent contract.

use std::sync::Arc;

use harness_registry_local::LocalRegistry;
use harness_subagent::SubagentRegistry;
use harness_testkit::subagent::{RegistryFixture, RegistryTraits, TreeLimits};

harness_testkit::subagent_registry_conformance!(Fixture::new);

struct Fixture;

impl Fixture {
    async fn new() -> Self {
        Self
    }
}

impl RegistryFixture for Fixture {
    fn registry(&self) -> Arc<dyn SubagentRegistry> {
        Arc::new(LocalRegistry::new())
    }

    fn traits(&self) -> RegistryTraits {
        RegistryTraits::default().with_limits(true)
    }

    fn limited(&self, limits: TreeLimits) -> Option<Arc<dyn SubagentRegistry>> {
        let mut builder = LocalRegistry::builder();
        if let Some(limit) = limits.active {
            builder = builder.max_active_per_tree(limit);
        }
        if let Some(limit) = limits.total {
            builder = builder.max_children_per_tree(limit.into());
        }
        Some(Arc::new(builder.build().unwrap()))
    }
}
