use std::fmt;
use std::future::ready;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use harness_subagent::{
    AgentId, Capabilities, Error, ErrorKind, Origin, Parent, ProviderInfo, RestrictionStrength, Result,
    Schema, StartSubagent, StartedChild, SubagentObserver, SubagentProvider, SubagentRegistry, SubagentRun,
    trace,
};
use tracing::Span;

use crate::budget::{Budget, Place};
use crate::observers::{Observers, Snapshot};
use crate::providers::Providers;
use crate::run::{Boxed, Life, LocalRun, Watched, within};

/// The [`SubagentRegistry`] of one process.
///
/// It never spawns and holds no lock while a provider or an observer runs, so both may call back into it.
///
/// # Observers
///
/// The observers that are present when a start is called hear of that child, of its start and of its end,
/// also when the registry is gone by then. Provider events keep their order for every observer: one that is
/// caused while another one is being told, by an observer or on another thread, is told after that one, on
/// the thread that is telling.
///
/// # Starts
///
/// A start is checked, and takes its place in its tree, when [`start_on`](SubagentRegistry::start_on) is called. Its
/// provider works when the future is polled, and a future that is dropped gives the place back.
///
/// # Limits
///
/// Without limits the registry remembers nothing of the children it starts. With limits it remembers, for
/// each tree, how many children it has had and their ids, until [`forget_tree`](Self::forget_tree).
///
/// The tree of a start is told by its parent: a parent at depth 0 is a root, a deeper one must be a child
/// that this registry has started at just that depth, by a start that has returned. An id that has named
/// several agents, or an agent and the root above it, tells no tree.
#[derive(Debug)]
pub struct LocalRegistry {
    providers: Providers,
    observers: Observers,
    budget: Option<Arc<Budget>>,
    /// How many starts were announced. Starts that nobody watches share nothing that they would wait for.
    announced: AtomicU64,
}

impl LocalRegistry {
    /// Makes an empty registry without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::with_budget(None)
    }

    /// Begins a registry with limits.
    #[must_use]
    pub fn builder() -> LocalRegistryBuilder {
        LocalRegistryBuilder::default()
    }

    /// Forgets the tree of agents below `root`, and says whether it did.
    ///
    /// Whoever owns the root calls this when the root is done. Nothing is forgotten, and the answer is
    /// `false`, while a child of the tree is alive or being started, for a root that has started nothing, and
    /// in a registry without limits. A root that is forgotten and starts children again begins with fresh
    /// limits; its former children are unknown parents.
    pub fn forget_tree(&self, root: &AgentId) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.forget(root))
    }

    fn with_budget(budget: Option<Budget>) -> Self {
        Self {
            providers: Providers::default(),
            observers: Observers::new(),
            budget: budget.map(Arc::new),
            announced: AtomicU64::new(0),
        }
    }
}

impl Default for LocalRegistry {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SubagentRegistry for LocalRegistry {
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()> {
        self.providers.add(provider, &self.observers)
    }

    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.providers.remove(name, &self.observers)
    }

    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.providers.find(name)
    }

    fn providers(&self) -> Vec<ProviderInfo> {
        self.providers.list()
    }

    fn observe(&self, observer: Arc<dyn SubagentObserver>) {
        self.observers.add(observer);
    }

    // By hand, so that the request goes straight to the provider: the future of this start need not hold it.
    fn start_on<'life0, 'life1, 'async_trait>(
        &'life0 self,
        provider: &'life1 Arc<dyn SubagentProvider>,
        mut request: StartSubagent,
    ) -> Boxed<'async_trait, Box<dyn SubagentRun>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        match self.begin(&**provider, &mut request) {
            Ok(begun) => {
                let start = within(&begun.span, provider.start(request));
                Box::pin(self.see_through(begun, start))
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

/// A start that nothing but its provider can refuse any more.
struct Begun {
    depth: u32,
    schema: Option<Schema>,
    place: Option<Place>,
    watch: Option<Box<Watch>>,
    span: Span,
}

/// What those who watch will be told, and who they are.
struct Watch {
    observers: Snapshot,
    provider: String,
    parent: Arc<Parent>,
    origin: Option<Origin>,
    label: Option<String>,
}

impl LocalRegistry {
    fn begin(&self, provider: &dyn SubagentProvider, request: &mut StartSubagent) -> Result<Begun> {
        let depth = check(provider, request)?;
        Ok(Begun {
            depth,
            schema: request.output.as_ref().map(|contract| contract.judge().clone()),
            place: self.budget.as_ref().map(|budget| budget.admit(&request.parent)).transpose()?,
            watch: self.observers.snapshot().map(|observers| {
                Box::new(Watch {
                    observers,
                    provider: provider.name().to_owned(),
                    parent: Arc::clone(&request.parent),
                    origin: request.origin.clone(),
                    label: request.label.clone(),
                })
            }),
            span: trace::child_span(request.origin.as_ref()),
        })
    }

    async fn see_through(
        &self,
        begun: Begun,
        start: Boxed<'_, Box<dyn SubagentRun>>,
    ) -> Result<Box<dyn SubagentRun>> {
        let child = start.await?;
        let Begun { depth, schema, place, watch, span } = begun;
        if let Some(place) = &place {
            place.occupy(child.id(), depth);
        }
        if !span.is_disabled() {
            span.record("child", child.id().as_str());
        }
        let watched = watch.map(|watch| {
            let sequence = self.announced.fetch_add(1, Ordering::Relaxed) + 1;
            let Watch { observers, provider, parent, origin, label } = *watch;
            let child = StartedChild::new(sequence, child.id().clone(), provider, parent)
                .with_origin(origin)
                .with_label(label);
            Box::new(Watched { observers, child })
        });
        let life = Life::begin(place, watched);
        Ok(Box::new(LocalRun { child, schema, refusal: OnceLock::new(), span, life }))
    }
}

/// Checks what can be said of a start before anything happens, drops what is only preferred and cannot be had, and
/// returns the depth of the child.
fn check(provider: &dyn SubagentProvider, request: &mut StartSubagent) -> Result<u32> {
    let capabilities = provider.capabilities();
    if !capabilities.tool_restriction {
        request.tools.take_if(|tools| tools.strength == RestrictionStrength::Preferred);
    }
    if let Some(lacking) = lacking_capability(capabilities, request) {
        return Err(Error::new(
            ErrorKind::UnsupportedCapability,
            format!(
                "provider {:?} lacks the capability {lacking}; choose another provider or ask for less",
                provider.name()
            ),
        ));
    }
    child_depth(request)
}

/// Names the first capability that `request` needs and the provider lacks.
fn lacking_capability(capabilities: Capabilities, request: &StartSubagent) -> Option<&'static str> {
    let needs = [
        (request.output.is_some(), capabilities.output_contract, "output_contract"),
        (request.max_depth.is_some(), capabilities.depth_limit, "depth_limit"),
        (request.tools.is_some(), capabilities.tool_restriction, "tool_restriction"),
        (request.persona.is_some(), capabilities.persona, "persona"),
        (request.model.is_some(), capabilities.model_choice, "model_choice"),
    ];
    needs.into_iter().find(|(needed, able, _)| *needed && !able).map(|(_, _, name)| name)
}

/// Returns the depth of the child that `request` asks for.
fn child_depth(request: &StartSubagent) -> Result<u32> {
    let most = request.max_depth.unwrap_or(u32::MAX);
    match request.parent.depth.checked_add(1) {
        Some(depth) if depth <= most => Ok(depth),
        _ => Err(Error::new(
            ErrorKind::DepthExceeded,
            format!(
                "a child of a parent at depth {} would be deeper than {most}, the most that is allowed; do \
                 the work without delegating",
                request.parent.depth
            ),
        )),
    }
}

/// Builds a [`LocalRegistry`] with limits. A limit that is not set is none.
#[derive(Clone, Debug, Default)]
pub struct LocalRegistryBuilder {
    max_active_per_tree: Option<u32>,
    max_children_per_tree: Option<u64>,
}

impl LocalRegistryBuilder {
    /// Limits how many children of one tree may be alive at once. At least 1.
    #[must_use]
    pub fn max_active_per_tree(mut self, limit: u32) -> Self {
        self.max_active_per_tree = Some(limit);
        self
    }

    /// Limits how many children one tree may have in all. At least 1.
    ///
    /// A child counts from the moment its provider is called, and stays counted when the provider fails.
    #[must_use]
    pub fn max_children_per_tree(mut self, limit: u64) -> Self {
        self.max_children_per_tree = Some(limit);
        self
    }

    /// Makes the registry.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`], when a limit is 0: it would refuse every start.
    pub fn build(self) -> Result<LocalRegistry, InvalidLimit> {
        let active = self
            .max_active_per_tree
            .map(|limit| NonZeroU32::new(limit).ok_or(InvalidLimit { limit: "max_active_per_tree" }));
        let children = self
            .max_children_per_tree
            .map(|limit| NonZeroU64::new(limit).ok_or(InvalidLimit { limit: "max_children_per_tree" }));
        let (active, children) = (active.transpose()?, children.transpose()?);
        let limited = active.is_some() || children.is_some();
        Ok(LocalRegistry::with_budget(limited.then(|| Budget::new(active, children))))
    }
}

/// A limit of 0, under which no child could ever start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InvalidLimit {
    limit: &'static str,
}

impl InvalidLimit {
    /// Returns the name of the limit, as the builder has it.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        self.limit
    }
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be at least 1; leave it out for no limit", self.limit)
    }
}

impl std::error::Error for InvalidLimit {}
