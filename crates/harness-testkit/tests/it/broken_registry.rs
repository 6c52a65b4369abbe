//! A registry for each clause that keeps all of the contract but that clause.
//!
//! It wraps a registry that keeps the contract, and stands between it and its providers as well, so that it can
//! hide from it what it needs to know.

mod observer;
mod run;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use harness_subagent::{
    ActivityStream, AgentId, Capabilities, Error, ErrorKind, OutputContract, Parent, ProviderInfo,
    RestrictionStrength, Result, StartSubagent, StartedChild, SubagentEvent, SubagentObserver,
    SubagentProvider, SubagentRegistry, SubagentResult, SubagentRun,
};
use harness_testkit::subagent::{MockChild, MockProvider, RegistryFixture, RegistryTraits, TreeLimits};
use tokio_util::sync::CancellationToken;

use self::observer::BrokenObserver;
use self::run::BrokenRun;
use crate::local_fixture::LocalFixture;

macro_rules! faults {
    ($($name:ident),* $(,)?) => {
        /// What a broken registry does wrong.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum RegistryFault {
            $($name),*
        }

        impl RegistryFault {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    TrimsNames,
    ReplacesProvider,
    InventsProvider,
    KeepsUnregistered,
    UnregisteringEndsChildren,
    RefusesUnregistered,
    SortsProviders,
    MisnamesProviders,
    NeglectsSecondObserver,
    LetsPanicsThrough,
    TellsStartLate,
    EndsTwice,
    TellsFailedStarts,
    HidesOrigin,
    RepeatsNumbers,
    TellsProvidersReason,
    NotReentrant,
    SpawnsTask,
    ResultKeepsPlace,
    DisposeKeepsPlace,
    DropKeepsPlace,
    IgnoresModelChoice,
    KeepsPreferredRestriction,
    EditsPrompt,
    IgnoresDepth,
    DepthFirst,
    LimitsBeforeDepth,
    IgnoresMaximum,
    AdmitsOneTooMany,
    StartsOneTooMany,
    TotalLimitFirst,
    FailureKeepsPlace,
    FailureIsNotCounted,
    CountsByParent,
    CountsAllTogether,
    BelievesStrangers,
    HiddenLimit,
    RewrapsErrors,
    JudgesFailures,
    ToleratesNoValue,
    DropsRefusedValue,
    FinishesDroppedStart,
    OwnId,
    HidesReleaseFailure,
    HidesActivity,
}

use RegistryFault as Fault;

#[derive(Debug)]
pub(crate) struct BrokenRegistryFixture {
    fault: Fault,
}

impl BrokenRegistryFixture {
    pub(crate) async fn new(fault: Fault) -> Self {
        Self { fault }
    }
}

impl RegistryFixture for BrokenRegistryFixture {
    fn registry(&self) -> Arc<dyn SubagentRegistry> {
        Arc::new(BrokenRegistry::new(LocalFixture.registry(), self.fault, None))
    }

    fn traits(&self) -> RegistryTraits {
        LocalFixture.traits()
    }

    fn limited(&self, limits: TreeLimits) -> Option<Arc<dyn SubagentRegistry>> {
        let mut inner = limits;
        match self.fault {
            Fault::AdmitsOneTooMany => inner.active = limits.active.map(|limit| limit + 1),
            Fault::StartsOneTooMany => inner.total = limits.total.map(|limit| limit + 1),
            _ => {}
        }
        let inner = LocalFixture.limited(inner)?;
        Some(Arc::new(BrokenRegistry::new(inner, self.fault, Some(limits))))
    }
}

#[derive(Debug)]
struct BrokenRegistry {
    inner: Arc<dyn SubagentRegistry>,
    common: Arc<Common>,
    limits: Option<TreeLimits>,
    kept: Mutex<HashMap<String, Arc<dyn SubagentProvider>>>,
    held: Mutex<Vec<Box<dyn SubagentRun>>>,
    starts: Mutex<HashMap<AgentId, u32>>,
    credits: AtomicU32,
}

/// What a broken registry, its runs and its observers have in common.
#[derive(Debug)]
struct Common {
    fault: Fault,
    observers: Mutex<Vec<Arc<dyn SubagentObserver>>>,
    telling: AtomicBool,
    panicked: AtomicBool,
    live: AtomicU32,
    tokens: Mutex<Vec<CancellationToken>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BrokenRegistry {
    fn new(inner: Arc<dyn SubagentRegistry>, fault: Fault, limits: Option<TreeLimits>) -> Self {
        Self {
            inner,
            common: Arc::new(Common {
                fault,
                observers: Mutex::default(),
                telling: AtomicBool::new(false),
                panicked: AtomicBool::new(false),
                live: AtomicU32::new(0),
                tokens: Mutex::default(),
            }),
            limits,
            kept: Mutex::default(),
            held: Mutex::default(),
            starts: Mutex::default(),
            credits: AtomicU32::new(0),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.common.fault == fault
    }

    /// Refuses what this registry refuses out of turn.
    fn refuse_early(&self, provider: &dyn SubagentProvider, request: &StartSubagent) -> Result<()> {
        let too_deep = request.max_depth.is_some_and(|limit| request.parent.depth >= limit);
        let live = self.common.live.load(Ordering::Relaxed);
        let active = self.limits.and_then(|limits| limits.active);
        let total = self.limits.and_then(|limits| limits.total);
        let started = lock(&self.starts).get(&request.parent.id).copied().unwrap_or_default();
        let kind = match self.common.fault {
            Fault::RefusesUnregistered if self.inner.provider(provider.name()).is_none() => {
                ErrorKind::NoProvider
            }
            Fault::DepthFirst if too_deep => ErrorKind::DepthExceeded,
            Fault::LimitsBeforeDepth if too_deep && active.is_some_and(|limit| live >= limit) => {
                ErrorKind::Capacity
            }
            Fault::TotalLimitFirst if total.is_some_and(|limit| started >= limit) => {
                ErrorKind::BudgetExhausted
            }
            Fault::HiddenLimit if live > 50 => ErrorKind::Capacity,
            _ => return Ok(()),
        };
        Err(Error::new(kind, "refused out of turn"))
    }

    /// Changes the request that the inner registry gets to see.
    fn disguise(&self, request: &mut StartSubagent) {
        match self.common.fault {
            Fault::IgnoresDepth if request.parent.depth > 0 && request.max_depth.is_some() => {
                request.max_depth = Some(u32::MAX);
            }
            Fault::CountsByParent if request.parent.id.as_str().starts_with("mock/") => {
                Arc::make_mut(&mut request.parent).depth = 0;
            }
            Fault::BelievesStrangers if request.parent.id.as_str() == "a stranger" => {
                Arc::make_mut(&mut request.parent).depth = 0;
            }
            Fault::CountsAllTogether if request.parent.depth == 0 => {
                request.parent = Parent::new("root", request.parent.workspace.clone()).into();
            }
            Fault::IgnoresMaximum => {
                request.output = request.output.take().map(|contract| without_maximum(&contract));
            }
            _ => {}
        }
    }
}

fn without_maximum(contract: &OutputContract) -> OutputContract {
    let mut schema = contract.schema().as_ref().clone();
    if let Some(size) = schema.pointer_mut("/properties/size").and_then(|size| size.as_object_mut()) {
        size.remove("maximum");
    }
    OutputContract::new(schema).expect("a schema with less in it is within the subset")
}

#[async_trait]
impl SubagentRegistry for BrokenRegistry {
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()> {
        let name = provider.name().to_owned();
        match self.inner.register(Arc::clone(&provider)) {
            Err(_) if self.is(Fault::ReplacesProvider) => {
                lock(&self.kept).insert(name, provider);
                Ok(())
            }
            answer => answer,
        }
    }

    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        if self.is(Fault::UnregisteringEndsChildren) {
            for token in lock(&self.common.tokens).iter() {
                token.cancel();
            }
        }
        let taken = self.inner.unregister(name);
        if self.is(Fault::KeepsUnregistered)
            && let Some(taken) = &taken
        {
            lock(&self.kept).insert(name.to_owned(), Arc::clone(taken));
        }
        if self.is(Fault::InventsProvider) && taken.is_none() {
            return Some(MockProvider::new(Capabilities::NONE).0);
        }
        taken
    }

    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        if let Some(kept) = lock(&self.kept).get(name) {
            return Some(Arc::clone(kept));
        }
        if self.is(Fault::TrimsNames) {
            let known = self.inner.providers().into_iter().find(|info| info.name.trim() == name.trim());
            return self.inner.provider(&known?.name);
        }
        self.inner.provider(name)
    }

    fn providers(&self) -> Vec<ProviderInfo> {
        if self.is(Fault::NotReentrant) && self.common.telling.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut providers = self.inner.providers();
        if self.is(Fault::SortsProviders) {
            providers.sort_by(|one, other| one.name.cmp(&other.name));
        }
        providers
    }

    fn observe(&self, observer: Arc<dyn SubagentObserver>) {
        let mut observers = lock(&self.common.observers);
        observers.push(Arc::clone(&observer));
        let number = observers.len();
        drop(observers);
        self.inner.observe(Arc::new(BrokenObserver {
            inner: observer,
            number,
            common: Arc::clone(&self.common),
            late: Mutex::default(),
        }));
    }

    async fn start_on(
        &self,
        provider: &Arc<dyn SubagentProvider>,
        mut request: StartSubagent,
    ) -> Result<Box<dyn SubagentRun>> {
        if self.is(Fault::SpawnsTask) {
            tokio::spawn(async {});
        }
        self.refuse_early(&**provider, &request)?;
        *lock(&self.starts).entry(request.parent.id.clone()).or_default() += 1;
        let raw = Arc::new(Mutex::new(None));
        let between: Arc<dyn SubagentProvider> = Arc::new(Between {
            inner: Arc::clone(provider),
            common: Arc::clone(&self.common),
            original: request.clone(),
            raw: Arc::clone(&raw),
        });
        let original = request.clone();
        self.disguise(&mut request);
        let begun = if self.is(Fault::FinishesDroppedStart) && tokio::runtime::Handle::try_current().is_ok() {
            let inner = Arc::clone(&self.inner);
            tokio::spawn(async move { inner.start_on(&between, request).await })
                .await
                .expect("the start does not panic")
        } else {
            self.inner.start_on(&between, request).await
        };
        let run = match begun {
            Ok(run) => run,
            Err(error) => return self.failed(error, Arc::clone(provider), original).await,
        };
        if self.is(Fault::LetsPanicsThrough) && self.common.panicked.load(Ordering::Relaxed) {
            drop(run);
            panic!("an observer panicked");
        }
        self.common.live.fetch_add(1, Ordering::Relaxed);
        let raw = lock(&raw).take().expect("a run that was handed over was started");
        Ok(Box::new(BrokenRun {
            local: Some(run),
            raw,
            id: AgentId::new("own"),
            limited: self.limits.is_some(),
            contract: original.output.is_some(),
            common: Arc::clone(&self.common),
            disposes: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }))
    }
}

impl BrokenRegistry {
    async fn failed(
        &self,
        error: Error,
        provider: Arc<dyn SubagentProvider>,
        request: StartSubagent,
    ) -> Result<Box<dyn SubagentRun>> {
        let by_provider = !matches!(error.kind(), ErrorKind::Capacity | ErrorKind::BudgetExhausted);
        match self.common.fault {
            Fault::TellsFailedStarts if by_provider => {
                let child = StartedChild::new(1, AgentId::new("failed"), provider.name(), request.parent);
                for observer in lock(&self.common.observers).iter() {
                    observer.observe(&SubagentEvent::Started { child: &child });
                }
            }
            Fault::RewrapsErrors => {
                return Err(Error::new(error.kind(), format!("the start failed: {error}")).with_source(error));
            }
            Fault::FailureKeepsPlace if by_provider && self.limits.is_some() => {
                let (hidden, handle) = MockProvider::new(Capabilities::ALL);
                handle.script([MockChild::hanging()]);
                let held = self.inner.start_on(&(hidden as _), request).await;
                lock(&self.held).extend(held);
            }
            Fault::FailureIsNotCounted if by_provider => {
                self.credits.fetch_add(1, Ordering::Relaxed);
            }
            Fault::FailureIsNotCounted if self.credits.load(Ordering::Relaxed) > 0 => {
                return provider.start(request).await;
            }
            _ => {}
        }
        Err(error)
    }
}

/// Stands between the inner registry and a provider.
#[derive(Debug)]
struct Between {
    inner: Arc<dyn SubagentProvider>,
    common: Arc<Common>,
    original: StartSubagent,
    raw: Arc<Mutex<Option<Arc<dyn SubagentRun>>>>,
}

#[async_trait]
impl SubagentProvider for Between {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.inner.capabilities();
        let preferred = self
            .original
            .tools
            .as_ref()
            .is_some_and(|tools| tools.strength == RestrictionStrength::Preferred);
        match self.common.fault {
            Fault::IgnoresModelChoice => capabilities.with_model_choice(true),
            Fault::KeepsPreferredRestriction if preferred => capabilities.with_tool_restriction(true),
            _ => capabilities,
        }
    }

    fn inherits_parent_context(&self) -> bool {
        self.inner.inherits_parent_context()
    }

    async fn start(&self, mut request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        request.parent = self.original.parent.clone();
        request.max_depth = self.original.max_depth;
        request.output = self.original.output.clone();
        match self.common.fault {
            Fault::EditsPrompt => request.prompt.push_str(" (be quick)"),
            Fault::UnregisteringEndsChildren => {
                request.cancellation = request.cancellation.child_token();
                lock(&self.common.tokens).push(request.cancellation.clone());
            }
            _ => {}
        }
        let run: Arc<dyn SubagentRun> = Arc::from(self.inner.start(request).await?);
        *lock(&self.raw) = Some(Arc::clone(&run));
        Ok(Box::new(SharedRun(run)))
    }
}

/// A run that somebody else holds too.
#[derive(Debug)]
struct SharedRun(Arc<dyn SubagentRun>);

#[async_trait]
impl SubagentRun for SharedRun {
    fn id(&self) -> &AgentId {
        self.0.id()
    }

    async fn result(&self) -> Result<SubagentResult> {
        self.0.result().await
    }

    async fn dispose(&self) -> Result<()> {
        self.0.dispose().await
    }

    fn activity(&self) -> ActivityStream {
        self.0.activity()
    }
}
