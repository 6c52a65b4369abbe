use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Error, ErrorKind, ProviderInfo, Result, StartSubagent, SubagentObserver, SubagentProvider, SubagentRun,
};

/// Finds the provider for a request and guards what it may ask.
///
/// # Contract
///
/// Engines and harnesses call this trait; a registry implements it. Every method may be called at any
/// time from any thread.
///
/// A registry must not start tasks or threads of its own. A child's end is noticed, and its place under the
/// limits freed, by the first of: its result is ready (somebody waits for it), its run is disposed of, its
/// run is dropped.
#[async_trait]
pub trait SubagentRegistry: Debug + Send + Sync + 'static {
    /// Makes `provider` available under its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DuplicateProvider`] when the name is taken; the first provider stays.
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()>;

    /// Takes the provider named `name` out and returns it, or nothing when there is none.
    ///
    /// Further starts under that name are refused. Children that were started live on, and whoever holds
    /// the provider may still use it with [`start_on`](Self::start_on).
    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>>;

    /// Finds the provider named `name`, to pin it for several starts.
    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>>;

    /// Describes the providers, in the order in which they were registered.
    fn providers(&self) -> Vec<ProviderInfo>;

    /// Adds an observer for as long as the registry lives.
    fn observe(&self, observer: Arc<dyn SubagentObserver>);

    /// Starts a child on `provider`, registered or not.
    ///
    /// The checks come in this order, and the first that fails decides:
    ///
    /// 1. the capabilities that the request needs: output contract, depth limit, tool restriction if it is
    ///    required, persona, model choice. A preferred tool restriction that the provider lacks is dropped;
    /// 2. the depth: one more than the parent's must not exceed the request's limit;
    /// 3. the output contract's schema can be enforced;
    /// 4. the limits of the tree: first the children alive, then all children ever. A start that the provider
    ///    then fails gives the place of a living child back, but stays counted among all.
    ///
    /// Only then is the provider called, once. Its error is passed on unchanged.
    ///
    /// The run's result differs from the provider's in one case: a child that claims
    /// [`COMPLETED`](crate::StopReason::COMPLETED) under an output contract without a value, or with one that the
    /// schema refuses, has [`NO_VALUE`](crate::StopReason::NO_VALUE) or
    /// [`SCHEMA_REFUSED`](crate::StopReason::SCHEMA_REFUSED) instead, with a diagnostic that says why; the refused
    /// value stays in the result.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no child is left behind.
    ///
    /// # Errors
    ///
    /// In the order above [`ErrorKind::UnsupportedCapability`], [`ErrorKind::DepthExceeded`],
    /// [`ErrorKind::UnsupportedSchema`], [`ErrorKind::BudgetAncestryUnavailable`], [`ErrorKind::Capacity`],
    /// [`ErrorKind::BudgetExhausted`], then the provider's own.
    async fn start_on(
        &self,
        provider: &Arc<dyn SubagentProvider>,
        request: StartSubagent,
    ) -> Result<Box<dyn SubagentRun>>;
}

/// Conveniences for every [`SubagentRegistry`].
#[async_trait]
pub trait SubagentRegistryExt: SubagentRegistry {
    /// Starts a child on the provider named `provider`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoProvider`] before everything else, then those of
    /// [`start_on`](SubagentRegistry::start_on).
    async fn start(&self, provider: &str, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let Some(provider) = self.provider(provider) else {
            let known: Vec<String> = self.providers().into_iter().map(|info| info.name).collect();
            return Err(Error::new(
                ErrorKind::NoProvider,
                format!("no provider is named {provider:?}; registered are {known:?}"),
            ));
        };
        self.start_on(&provider, request).await
    }
}

impl<T: SubagentRegistry + ?Sized> SubagentRegistryExt for T {}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: SubagentRegistry + ?Sized> SubagentRegistry for Arc<T> {
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()> {
        (**self).register(provider)
    }

    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        (**self).unregister(name)
    }

    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        (**self).provider(name)
    }

    fn providers(&self) -> Vec<ProviderInfo> {
        (**self).providers()
    }

    fn observe(&self, observer: Arc<dyn SubagentObserver>) {
        (**self).observe(observer);
    }

    // By hand: the registry's own future is all there is.
    fn start_on<'life0, 'life1, 'async_trait>(
        &'life0 self,
        provider: &'life1 Arc<dyn SubagentProvider>,
        request: StartSubagent,
    ) -> Pin<Box<dyn Future<Output = Result<Box<dyn SubagentRun>>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        (**self).start_on(provider, request)
    }
}
