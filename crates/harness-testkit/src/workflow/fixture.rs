use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use harness_subagent::SubagentRegistry;
use harness_workflow::{WorkflowCatalog, WorkflowEngine};

use crate::conformance::AsFixture;

/// What a check needs of the engine that it makes.
///
/// An engine takes the catalog and the registry as they are, and the limits as far as it has such settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineFixture {
    /// The bodies that the engine must know.
    pub catalog: WorkflowCatalog,
    /// Where the engine must find the providers and start its children.
    pub registry: Arc<dyn SubagentRegistry>,
    /// The name of the provider for runs that name none.
    pub default_provider: String,
    /// The engine's ceiling: the most calls for a child in one run.
    pub max_agents: u64,
    /// The most items of one combinator.
    pub max_items_per_call: usize,
    /// The most children of one run at once.
    pub max_concurrent: usize,
    /// How long a cancelled run may take to end, and a disposal to release what is held.
    pub grace: Duration,
}

type Made = Pin<Box<dyn Future<Output = Arc<dyn WorkflowEngine>> + Send>>;

/// How the suite makes the engines that it judges: one for each check, or more.
pub struct EngineConstructor {
    make: Box<dyn Fn(EngineFixture) -> Made + Send + Sync>,
    starts_elsewhere: bool,
}

impl EngineConstructor {
    /// Takes the function that makes an engine.
    pub fn new<E, F, N>(make: F) -> Self
    where
        E: WorkflowEngine,
        F: Fn(EngineFixture) -> N + Send + Sync + 'static,
        N: Future<Output = E> + Send + 'static,
    {
        Self {
            make: Box::new(move |fixture| {
                let engine = make(fixture);
                Box::pin(async move { Arc::new(engine.await) as Arc<dyn WorkflowEngine> })
            }),
            starts_elsewhere: false,
        }
    }

    /// Says that other processes start the engine's children, so that of two calls which have a slot at the same time
    /// either may have its child first. Otherwise the suite expects children in the order of their calls.
    #[must_use]
    pub fn starting_elsewhere(mut self) -> Self {
        self.starts_elsewhere = true;
        self
    }

    pub(in crate::workflow) fn starts_elsewhere(&self) -> bool {
        self.starts_elsewhere
    }

    /// Makes an engine.
    pub async fn engine(&self, fixture: EngineFixture) -> Arc<dyn WorkflowEngine> {
        (self.make)(fixture).await
    }
}

impl fmt::Debug for EngineConstructor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineConstructor")
    }
}

impl AsFixture<Self> for EngineConstructor {
    fn as_fixture(&self) -> &Self {
        self
    }
}
