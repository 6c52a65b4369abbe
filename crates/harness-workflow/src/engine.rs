use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{Result, RunId, RunResult, StartRun, WorkflowMeta, WorkflowObserver, WorkflowRef};

/// Runs workflows.
///
/// # Contract
///
/// Adapters and applications call this trait; an engine implements it. Every method may be called at any
/// time from any thread.
///
/// An engine is made with the [`WorkflowCatalog`](crate::WorkflowCatalog) of the bodies that it can run and with
/// whatever starts children for it, a subagent registry as a rule.
#[async_trait]
pub trait WorkflowEngine: Debug + Send + Sync + 'static {
    /// Returns what the named workflow says of itself, or nothing when this engine cannot run it.
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>>;

    /// Returns the engine's ceiling: the most calls for a child that one run may make. At least 1. Never
    /// changes.
    fn max_agents(&self) -> u64;

    /// Returns what differs between engines. Never changes.
    fn capabilities(&self) -> EngineCapabilities;

    /// Adds an observer for as long as the engine lives. It hears of the runs that are started from now on, and of no
    /// other.
    fn observe(&self, observer: Arc<dyn WorkflowObserver>);

    /// Starts a run and hands it to the caller.
    ///
    /// The checks come in this order, and the first that fails decides:
    ///
    /// 1. the engine's catalog has the workflow;
    /// 2. the arguments are plain ([`StartRun::check_args`]);
    /// 3. the provider, the engine's default included, has a usable name ([`StartRun::resolve_provider`]) and
    ///    is there. What it is capable of is not asked: that shows at the first child;
    /// 4. the most calls for a child are within the ceiling ([`StartRun::resolve_max_agents`]);
    /// 5. the run's id is not known, or the engine attaches to known runs.
    ///
    /// A refused start publishes nothing: no run, no event. The provider that is found is the run's to its
    /// end, whatever is registered under its name later.
    ///
    /// `cancellation` cancels the run; when it is cancelled already, the run exists and ends as cancelled, and
    /// its body never begins.
    ///
    /// Ownership passes when this returns `Ok`: the caller must dispose of the run on every path. Dropping the
    /// engine ends no run.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run that it would have returned is cancelled.
    ///
    /// # Errors
    ///
    /// In the order above [`ErrorKind::UnknownWorkflow`](crate::ErrorKind::UnknownWorkflow),
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument),
    /// [`ErrorKind::Provider`](crate::ErrorKind::Provider),
    /// [`ErrorKind::RunExists`](crate::ErrorKind::RunExists); also
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) and [`ErrorKind::Engine`](crate::ErrorKind::Engine), with the
    /// engine's own error as its source.
    async fn start(&self, request: StartRun, cancellation: CancellationToken)
    -> Result<Box<dyn WorkflowRun>>;
}

/// What differs between engines that all keep the contract.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct EngineCapabilities {
    /// A child's value that its schema refuses never reaches the body: it counts as no value.
    pub enforces_schema: bool,
    /// The run heeds the token given to `start` by itself. Without it, only
    /// [`WorkflowRun::cancel`] reaches the run, and the caller must bridge.
    pub heeds_cancellation_token: bool,
    /// A run survives the end of its process and can be resumed.
    pub durable: bool,
    /// A second start of a known run id returns that run. Without it, the start is refused with
    /// [`ErrorKind::RunExists`](crate::ErrorKind::RunExists).
    pub attaches_to_known_run: bool,
}

impl EngineCapabilities {
    /// Says whether a value that its schema refuses counts as no value.
    #[must_use]
    pub fn with_enforces_schema(mut self, able: bool) -> Self {
        self.enforces_schema = able;
        self
    }

    /// Says whether a run heeds the token by itself.
    #[must_use]
    pub fn with_heeds_cancellation_token(mut self, able: bool) -> Self {
        self.heeds_cancellation_token = able;
        self
    }

    /// Says whether a run survives the end of its process.
    #[must_use]
    pub fn with_durable(mut self, able: bool) -> Self {
        self.durable = able;
        self
    }

    /// Says whether a second start of a known run id returns that run.
    #[must_use]
    pub fn with_attaches_to_known_run(mut self, able: bool) -> Self {
        self.attaches_to_known_run = able;
        self
    }
}

/// One run of a workflow, owned by whoever called `start`.
///
/// # Contract
///
/// The engine implements it; its holder waits for the result and disposes of the run, on every path. A run
/// outlives the engine's handle. A run that is dropped without being disposed of is cancelled, and what it
/// holds is released in the background.
#[async_trait]
pub trait WorkflowRun: Debug + Send + Sync {
    /// Returns the run's id. It never changes and is never empty.
    fn id(&self) -> &RunId;

    /// Returns what the workflow says of itself; events carry the same.
    fn meta(&self) -> &Arc<WorkflowMeta>;

    /// Waits for the run's end.
    ///
    /// - It always resolves, also when the engine loses the run: the error is then
    ///   [`ErrorCode::ENGINE_LOST`](crate::ErrorCode::ENGINE_LOST).
    /// - It may be called any number of times, also at once and after [`dispose`](Self::dispose); every call
    ///   gets the same answer, and the first thing that ended the run decides it.
    /// - Before it resolves, every child has ended or been given up, and its end has been reported.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait changes nothing.
    async fn result(&self) -> RunResult;

    /// Asks the run to stop.
    ///
    /// - It returns at once. The body's context fails from now on, its children are cancelled, and a body that
    ///   ignores it is given up after the engine's grace.
    /// - The first reason counts. It does nothing once the run has ended, or once it has been called.
    /// - The run's result is then cancelled, also when the body returns a value after all.
    fn cancel(&self, reason: &str);

    /// Ends the run if it still runs, and waits until its children and all else it holds are gone, for as long as the
    /// engine's grace at most. What is not gone by then is given up.
    ///
    /// - The holder calls it on every path, also after a result.
    /// - A repeated or concurrent call waits for the first and gets the same answer.
    /// - Afterwards [`result`](Self::result) resolves at once.
    /// - On an engine whose runs live elsewhere it ends the holder's part only; see the engine's documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves the release to the engine, which finishes it in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Release`](crate::ErrorKind::Release) when something could not be released. How the run ended is
    /// never an error here.
    async fn dispose(&self) -> Result<()>;
}
