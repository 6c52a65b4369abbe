use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use crate::wire::RunLimits;
use crate::{SharedFolders, Workspaces};

/// What a [`TemporalEngine`](crate::TemporalEngine) lets its runs do.
///
/// A run takes the limits along: they stay as they were at its start, whoever watches it later.
///
/// ```
/// use std::time::Duration;
/// use harness_engine_temporal::TemporalConfig;
///
/// let config = TemporalConfig::default().with_provider("echo").with_heartbeat_timeout(Duration::from_secs(60));
/// assert_eq!(config.max_agents.get(), 1000);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TemporalConfig {
    /// The name of the provider for runs that name none. `spawn` by default.
    pub provider: String,
    /// The task queue of the workers that run bodies. `harness` by default.
    pub queue: String,
    /// The most children that one run has at the same time. 16 by default.
    pub max_concurrent_agents: NonZeroUsize,
    /// The most calls for a child that one run may make. 1000 by default.
    pub max_agents: NonZeroU64,
    /// The most items of one combinator. 4096 by default.
    pub max_items_per_call: NonZeroUsize,
    /// The most times that one call is tried. 3 by default.
    pub max_attempts_per_call: NonZeroU32,
    /// How long a worker may be silent before its children count as lost and their calls are tried again. 30 seconds
    /// by default, and at least 1.
    pub heartbeat_timeout: Duration,
    /// How long one attempt at a call may take: after that its child is ended, and the body gets no value. 12 hours by
    /// default.
    pub call_limit: Duration,
    /// How long a holder waits in a disposal for its run to end, and so for its children to be gone. Then it lets go,
    /// and the run goes on ending by itself. 60 seconds by default; less than the heartbeat timeout is of little use.
    pub cancellation_grace: Duration,
    /// How often a client that has observers asks what children are doing. 1 second by default.
    pub watch_interval: Duration,
    /// How many bytes of calls, answers and notes a history may hold, about, before the run goes on with a fresh one.
    /// 8 MiB by default; servers end a run at 50 MiB.
    pub max_history_bytes: u64,
    /// How many events a history may have before the run goes on with a fresh one. 10 000 by default; servers end a
    /// run at 51 200.
    pub max_history_events: u32,
}

impl Default for TemporalConfig {
    fn default() -> Self {
        Self {
            provider: "spawn".to_owned(),
            queue: DEFAULT_QUEUE.to_owned(),
            max_concurrent_agents: const { NonZeroUsize::new(16).expect("it is greater than zero") },
            max_agents: const { NonZeroU64::new(1000).expect("it is greater than zero") },
            max_items_per_call: const { NonZeroUsize::new(4096).expect("it is greater than zero") },
            max_attempts_per_call: const { NonZeroU32::new(3).expect("it is greater than zero") },
            heartbeat_timeout: Duration::from_secs(30),
            call_limit: Duration::from_secs(12 * 60 * 60),
            cancellation_grace: Duration::from_secs(60),
            watch_interval: Duration::from_secs(1),
            max_history_bytes: 8 * 1024 * 1024,
            max_history_events: 10_000,
        }
    }
}

pub(crate) const DEFAULT_QUEUE: &str = "harness";

impl TemporalConfig {
    /// Chooses the provider for runs that name none.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = provider.into();
        self
    }

    /// Chooses the task queue of the workers that run bodies.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the most children that one run has at the same time.
    #[must_use]
    pub fn with_max_concurrent_agents(mut self, most: NonZeroUsize) -> Self {
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

    /// Sets how long a worker may be silent.
    #[must_use]
    pub fn with_heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.heartbeat_timeout = timeout;
        self
    }

    /// Sets how long one attempt at a call may take.
    #[must_use]
    pub fn with_call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Sets how long a holder waits in a disposal.
    #[must_use]
    pub fn with_cancellation_grace(mut self, grace: Duration) -> Self {
        self.cancellation_grace = grace;
        self
    }

    /// Sets how often a client asks what children are doing.
    #[must_use]
    pub fn with_watch_interval(mut self, interval: Duration) -> Self {
        self.watch_interval = interval;
        self
    }

    /// Sets the size at which a run goes on with a fresh history.
    #[must_use]
    pub fn with_max_history_bytes(mut self, bytes: u64) -> Self {
        self.max_history_bytes = bytes;
        self
    }

    /// Sets the number of events at which a run goes on with a fresh history.
    #[must_use]
    pub fn with_max_history_events(mut self, events: u32) -> Self {
        self.max_history_events = events;
        self
    }

    pub(crate) fn limits(&self) -> RunLimits {
        // A server counts in whole seconds in places; less than one would only end healthy children.
        let heartbeat = self.heartbeat_timeout.max(Duration::from_secs(1));
        RunLimits {
            max_items_per_call: self.max_items_per_call.get(),
            max_concurrent: self.max_concurrent_agents.get(),
            max_attempts_per_call: self.max_attempts_per_call.get(),
            heartbeat_ms: millis(heartbeat),
            call_limit_ms: millis(self.call_limit),
            release_ms: millis(self.cancellation_grace),
            history_events: self.max_history_events,
            history_bytes: self.max_history_bytes,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a [`TemporalWorker`](crate::TemporalWorker) does, and how.
///
/// ```
/// use harness_engine_temporal::{SharedFolders, WorkerConfig};
///
/// let config = WorkerConfig::default()
///     .with_child_queues(["harness.gpu"])
///     .with_workspaces(SharedFolders::below("/srv/workspaces"));
/// assert_eq!(config.max_children.get(), 16);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// The task queue from which it takes bodies, if it runs bodies. `harness` by default.
    pub queue: Option<String>,
    /// The task queues from which it takes children; see [`Route`](crate::Route). `harness` alone by default.
    pub child_queues: Vec<String>,
    /// The most children that it takes from each queue at once. 16 by default.
    pub max_children: NonZeroUsize,
    /// How often it tells the server that a child lives, and hears of its cancellation. 2 seconds by default. It must
    /// be well below every run's [heartbeat timeout](TemporalConfig::heartbeat_timeout).
    pub heartbeat_interval: Duration,
    /// How long a child may take to end once it must end: half of it to stop by itself, the other half to be disposed
    /// of. 40 seconds by default.
    pub cancellation_grace: Duration,
    /// What makes workspaces into folders. Paths that are the same on every machine by default.
    pub workspaces: Arc<dyn Workspaces>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            queue: Some(DEFAULT_QUEUE.to_owned()),
            child_queues: vec![DEFAULT_QUEUE.to_owned()],
            max_children: const { NonZeroUsize::new(16).expect("it is greater than zero") },
            heartbeat_interval: Duration::from_secs(2),
            cancellation_grace: Duration::from_secs(40),
            workspaces: Arc::new(SharedFolders::anywhere()),
        }
    }
}

impl WorkerConfig {
    /// Chooses the task queue from which it takes bodies. With none it runs children only.
    #[must_use]
    pub fn with_queue(mut self, queue: Option<String>) -> Self {
        self.queue = queue;
        self
    }

    /// Chooses the task queues from which it takes children. With none it runs bodies only.
    #[must_use]
    pub fn with_child_queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.child_queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the most children that it takes from each queue at once.
    #[must_use]
    pub fn with_max_children(mut self, most: NonZeroUsize) -> Self {
        self.max_children = most;
        self
    }

    /// Sets how often it tells the server that a child lives.
    #[must_use]
    pub fn with_heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// Sets how long a child may take to end once it must end.
    #[must_use]
    pub fn with_cancellation_grace(mut self, grace: Duration) -> Self {
        self.cancellation_grace = grace;
        self
    }

    /// Chooses what makes workspaces into folders.
    #[must_use]
    pub fn with_workspaces(mut self, workspaces: impl Workspaces) -> Self {
        self.workspaces = Arc::new(workspaces);
        self
    }
}
