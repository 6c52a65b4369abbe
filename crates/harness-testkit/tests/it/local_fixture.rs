//! The local registry as a registry under test.

use std::sync::Arc;

use harness_registry_local::LocalRegistry;
use harness_subagent::SubagentRegistry;
use harness_testkit::subagent::{RegistryFixture, RegistryTraits, TreeLimits};

#[derive(Debug)]
pub(crate) struct LocalFixture;

impl LocalFixture {
    pub(crate) async fn new() -> Self {
        Self
    }
}

impl RegistryFixture for LocalFixture {
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
        Some(Arc::new(builder.build().expect("the suite's limits are at least 1")))
    }
}
