use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use harness_subagent::{
    Capabilities, Error, ErrorKind, ProviderInfo, Result, StartSubagent, SubagentProvider, SubagentRegistry,
    SubagentRun,
};

/// Says where the children of a provider run.
///
/// # Contract
///
/// The engine asks it once for each start of a run. A client has no providers of its own, so whoever wires it declares
/// them: the name, and the task queue of the workers that have a provider of that name.
pub trait Routes: Debug + Send + Sync + 'static {
    /// Returns the route of the provider `name`, or nothing when there is none.
    fn route(&self, name: &str) -> Option<Route>;

    /// Lists the names of the providers that have routes.
    fn names(&self) -> Vec<String>;
}

/// Where the children of one provider run.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Route {
    /// The task queue of the workers that have the provider.
    pub queue: String,
    /// The provider, as it describes itself there.
    pub provider: ProviderInfo,
}

impl Route {
    /// Sends the children of `provider` to `queue`.
    #[must_use]
    pub fn new(queue: impl Into<String>, provider: ProviderInfo) -> Self {
        Self { queue: queue.into(), provider }
    }
}

/// Routes that are declared one by one.
///
/// ```
/// use harness_engine_temporal::{DeclaredRoutes, Route, Routes};
/// use harness_subagent::{Capabilities, ProviderInfo};
///
/// let routes = DeclaredRoutes::default()
///     .with(Route::new("harness.gpu", ProviderInfo::new("big-model", Capabilities::ALL)));
/// assert_eq!(routes.route("big-model").unwrap().queue, "harness.gpu");
/// assert_eq!(routes.route("other"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeclaredRoutes {
    routes: BTreeMap<String, Route>,
}

impl DeclaredRoutes {
    /// Adds a route. It replaces an earlier one for the same provider.
    #[must_use]
    pub fn with(mut self, route: Route) -> Self {
        self.routes.insert(route.provider.name.clone(), route);
        self
    }

    /// Registers a stand-in for each provider, for those who look at a registry to see what a provider is capable of.
    /// A stand-in starts no child: children are started on workers.
    ///
    /// # Errors
    ///
    /// Those of [`SubagentRegistry::register`].
    pub fn register(&self, registry: &dyn SubagentRegistry) -> Result<()> {
        for route in self.routes.values() {
            registry.register(Arc::new(RemoteProvider { info: route.provider.clone() }))?;
        }
        Ok(())
    }
}

impl Routes for DeclaredRoutes {
    fn route(&self, name: &str) -> Option<Route> {
        self.routes.get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.routes.keys().cloned().collect()
    }
}

/// The routes of a process that runs its children itself, by a worker of its own: every provider of a registry, on one
/// queue.
#[derive(Clone, Debug)]
pub struct OwnRoutes {
    registry: Arc<dyn SubagentRegistry>,
    queue: String,
}

impl OwnRoutes {
    /// Sends the children of every provider of `registry` to `queue`.
    #[must_use]
    pub fn new(registry: Arc<dyn SubagentRegistry>, queue: impl Into<String>) -> Self {
        Self { registry, queue: queue.into() }
    }
}

impl Routes for OwnRoutes {
    fn route(&self, name: &str) -> Option<Route> {
        let provider = self.registry.provider(name)?;
        Some(Route::new(&self.queue, ProviderInfo::from(&*provider)))
    }

    fn names(&self) -> Vec<String> {
        self.registry.providers().into_iter().map(|info| info.name).collect()
    }
}

/// A provider that is somewhere else.
#[derive(Debug)]
struct RemoteProvider {
    info: ProviderInfo,
}

#[async_trait]
impl SubagentProvider for RemoteProvider {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn capabilities(&self) -> Capabilities {
        self.info.capabilities
    }

    fn inherits_parent_context(&self) -> bool {
        self.info.inherits_parent_context
    }

    async fn start(&self, _: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        Err(Error::new(
            ErrorKind::Provider,
            format!("{:?} runs on workers; start its children through a run", self.info.name),
        ))
    }
}
