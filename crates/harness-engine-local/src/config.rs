use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::thread;
use std::time::Duration;

/// What a [`LocalEngine`](crate::LocalEngine) lets its runs do.
///
/// ```
/// use std::time::Duration;
/// use harness_engine_local::LocalConfig;
///
/// let config = LocalConfig::default().with_provider("echo").with_cancellation_grace(Duration::ZERO);
/// assert_eq!(config.max_agents.get(), 1000);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LocalConfig {
    /// The name of the provider for runs that name none. `spawn` by default.
    pub provider: String,
    /// The most children that one run has at the same time. [`None`], the default, is the number of processors
    /// less 2, at least 1 and at most 16.
    pub max_concurrent_agents: Option<NonZeroUsize>,
    /// The most calls for a child that one run may make. 1000 by default.
    pub max_agents: NonZeroU64,
    /// The most items of one combinator. 4096 by default.
    pub max_items_per_call: NonZeroUsize,
    /// The most times that one call is tried, over all resumptions of its run. 3 by default.
    pub max_attempts_per_call: NonZeroU32,
    /// How long a run may take to end once it has been cancelled, and how long its disposal may take. 5 seconds by
    /// default; zero gives a run no time at all.
    ///
    /// Children get half of it to stop by themselves and are disposed of in the other half.
    pub cancellation_grace: Duration,
}

impl Default for LocalConfig {
    fn default() -> Self {
        const fn at_least_one(number: u32) -> NonZeroU32 {
            NonZeroU32::new(number).expect("the defaults are greater than zero")
        }
        Self {
            provider: "spawn".to_owned(),
            max_concurrent_agents: None,
            max_agents: const { at_least_one(1000) }.into(),
            max_items_per_call: const { NonZeroUsize::new(4096).expect("the default is greater than zero") },
            max_attempts_per_call: const { at_least_one(3) },
            cancellation_grace: Duration::from_secs(5),
        }
    }
}

impl LocalConfig {
    /// Chooses the provider for runs that name none.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = provider.into();
        self
    }

    /// Sets the most children that one run has at the same time.
    #[must_use]
    pub fn with_max_concurrent_agents(mut self, most: Option<NonZeroUsize>) -> Self {
        self.max_concurrent_agents = most;
        self
    }

    /// Sets the most calls for a child that one run may make.
    #[must_use]
    pub fn with_max_agents(mut self, most: NonZeroU64) -> Self {
        self.max_agents = most;
        self
    }

    /// Sets the most items of one combinator.
    #[must_use]
    pub fn with_max_items_per_call(mut self, most: NonZeroUsize) -> Self {
        self.max_items_per_call = most;
        self
    }

    /// Sets the most times that one call is tried.
    #[must_use]
    pub fn with_max_attempts_per_call(mut self, most: NonZeroU32) -> Self {
        self.max_attempts_per_call = most;
        self
    }

    /// Sets how long the end of a cancelled run and a disposal may take.
    #[must_use]
    pub fn with_cancellation_grace(mut self, grace: Duration) -> Self {
        self.cancellation_grace = grace;
        self
    }

    /// The number of slots for children in one run.
    pub(crate) fn slots(&self) -> usize {
        self.max_concurrent_agents.map_or_else(
            || thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(2).clamp(1, 16)),
            NonZeroUsize::get,
        )
    }
}
