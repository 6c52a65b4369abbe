use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::{
    AgentCall, AgentOutcome, ErrorCode, NumberedCall, RunError, WorkflowError, WorkflowHost, join, value,
};

/// A body's only way to the world.
///
/// The engine makes one for each run and gives it to [`Workflow::run`](crate::Workflow::run). Clones are the same
/// context, for branches of a [`parallel`](Self::parallel).
///
/// Once the run is cancelled, every method but [`args`](Self::args) and
/// [`is_cancelled`](Self::is_cancelled) fails with [`ErrorCode::CANCELLED`]. All errors of a context are fatal.
#[derive(Clone, Debug)]
pub struct WorkflowContext {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    host: Arc<dyn WorkflowHost>,
    args: Value,
    limits: ContextLimits,
    agents_started: AtomicU64,
    phase: Mutex<Option<Arc<str>>>,
    /// Whether a phase was announced, to be asked without the lock.
    has_phase: AtomicBool,
}

/// What a context lets its body ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ContextLimits {
    /// The most calls for a child in the run.
    pub max_agents: u64,
    /// The most items of one combinator.
    pub max_items_per_call: usize,
}

impl ContextLimits {
    /// Sets both limits.
    #[must_use]
    pub fn new(max_agents: u64, max_items_per_call: usize) -> Self {
        Self { max_agents, max_items_per_call }
    }
}

impl WorkflowContext {
    /// Makes the context of one run. Engines call it.
    #[must_use]
    pub fn new(host: Arc<dyn WorkflowHost>, args: Value, limits: ContextLimits) -> Self {
        Self {
            state: Arc::new(State {
                host,
                args,
                limits,
                agents_started: AtomicU64::new(0),
                phase: Mutex::new(None),
                has_phase: AtomicBool::new(false),
            }),
        }
    }

    /// Returns what the run was started with.
    #[must_use]
    pub fn args(&self) -> &Value {
        &self.state.args
    }

    /// Says whether the run was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.host.cancel_reason().is_some()
    }

    /// Returns how many calls for a child were accepted so far. Engines ask for it when the run ends.
    #[must_use]
    pub fn agents_started(&self) -> u64 {
        self.state.agents_started.load(Ordering::Relaxed)
    }

    /// Runs one child and waits for what it yields.
    ///
    /// A call counts, and gets its number, when it is first polled; it counts also while it waits for a
    /// free slot and when its child cannot be started.
    ///
    /// # Cancel safety
    ///
    /// A dropped call ends its child; the engine cleans up.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::CANCELLED`], [`ErrorCode::INVALID_ARGUMENT`] for an empty prompt,
    /// [`ErrorCode::AGENT_CAP`] for one call more than the run may make, in that order, and then those of
    /// [`WorkflowHost::call`].
    pub async fn agent(&self, call: AgentCall) -> Result<AgentOutcome, WorkflowError> {
        self.check_cancelled()?;
        if call.prompt.is_empty() {
            return Err(refusal(ErrorCode::INVALID_ARGUMENT, "a child's prompt must not be empty".into()));
        }
        let max_agents = self.state.limits.max_agents;
        let number = self
            .state
            .agents_started
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < max_agents).then(|| count + 1)
            })
            .map_err(|_| {
                refusal(ErrorCode::AGENT_CAP, format!("the run may start {max_agents} children and no more"))
            })?
            + 1;
        let phase = match call.phase {
            Some(_) => None,
            None => self.current_phase().map(|phase| phase.as_ref().to_owned()),
        };
        let call = NumberedCall::new(number, call, phase);
        self.state.host.call(call).await.map_err(WorkflowError::fatal)
    }

    /// Announces a phase, to which later calls belong unless they say otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::CANCELLED`], and [`ErrorCode::INVALID_ARGUMENT`] for an empty title.
    pub fn phase(&self, title: &str) -> Result<(), WorkflowError> {
        self.check_cancelled()?;
        if title.is_empty() {
            return Err(refusal(ErrorCode::INVALID_ARGUMENT, "a phase's title must not be empty".into()));
        }
        *self.state.phase.lock().unwrap_or_else(PoisonError::into_inner) = Some(title.into());
        self.state.has_phase.store(true, Ordering::Release);
        self.state.host.phase(title);
        Ok(())
    }

    /// Says something to whoever watches the run. The text may be empty.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::CANCELLED`].
    pub fn log(&self, message: &str) -> Result<(), WorkflowError> {
        self.check_cancelled()?;
        self.state.host.log(message);
        Ok(())
    }

    /// Leaves a value that is returned with the run's result however the run ends. Only the last one counts.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::CANCELLED`], [`ErrorCode::RESULT_UNSERIALIZABLE`] for a value that is not plain (see
    /// [`value::check`]), and what [`WorkflowHost::checkpoint`] fails with.
    pub fn checkpoint(&self, value: Value) -> Result<(), WorkflowError> {
        self.check_cancelled()?;
        value::check(&value)
            .map_err(|error| refusal(ErrorCode::RESULT_UNSERIALIZABLE, format!("checkpoint: {error}")))?;
        self.state.host.checkpoint(value).map_err(WorkflowError::fatal)
    }

    /// Runs `branches` side by side and returns what each yields, in their order.
    ///
    /// All begin at once, in their order; only calls for a child wait for a slot. A branch that fails in the
    /// ordinary way yields [`None`]. It is a plain combination of its branches: it wakes nobody and needs no
    /// runtime.
    ///
    /// # Errors
    ///
    /// The first fatal error of a branch, at once; the other branches are dropped.
    /// [`ErrorCode::CANCELLED`] and [`ErrorCode::ITEM_CAP`] before any branch begins.
    pub async fn parallel<T, F>(
        &self,
        branches: impl IntoIterator<Item = F>,
    ) -> Result<Vec<Option<T>>, WorkflowError>
    where
        F: Future<Output = Result<T, WorkflowError>>,
    {
        self.check_cancelled()?;
        // One branch more than the limit shows that there are too many, however many there are.
        let limit = self.state.limits.max_items_per_call;
        let branches: Vec<F> = branches.into_iter().take(limit.saturating_add(1)).collect();
        self.check_items(branches.len())?;
        join::all(branches).await
    }

    /// Sends every item through all `stages`, each item on its own, and returns what the last stage made of
    /// each, in the order of the items.
    ///
    /// An item does not wait for others. A stage gets what the stage before it made of the item, the item
    /// itself, and the item's index. An item for which a stage fails in the ordinary way yields [`None`] and
    /// skips its later stages.
    ///
    /// # Errors
    ///
    /// As [`parallel`](Self::parallel), and [`ErrorCode::INVALID_ARGUMENT`] without a stage.
    pub async fn pipeline(
        &self,
        items: Vec<Value>,
        stages: &[Stage<'_>],
    ) -> Result<Vec<Option<Value>>, WorkflowError> {
        self.check_cancelled()?;
        self.check_items(items.len())?;
        if stages.is_empty() {
            return Err(refusal(ErrorCode::INVALID_ARGUMENT, "a pipeline needs a stage".into()));
        }
        let flows = items.into_iter().enumerate().map(|(index, item)| async move {
            let mut previous = item.clone();
            for stage in stages {
                previous = (stage.run)(StageInput { previous, item: item.clone(), index }).await?;
            }
            Ok(previous)
        });
        join::all(flows).await
    }

    fn current_phase(&self) -> Option<Arc<str>> {
        if !self.state.has_phase.load(Ordering::Acquire) {
            return None;
        }
        self.state.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check_cancelled(&self) -> Result<(), WorkflowError> {
        match self.state.host.cancel_reason() {
            Some(reason) => Err(WorkflowError::fatal(RunError::cancelled(&reason))),
            None => Ok(()),
        }
    }

    fn check_items(&self, count: usize) -> Result<(), WorkflowError> {
        let limit = self.state.limits.max_items_per_call;
        if count > limit {
            return Err(refusal(ErrorCode::ITEM_CAP, format!("one call may have {limit} items at most")));
        }
        Ok(())
    }
}

fn refusal(code: ErrorCode, message: String) -> WorkflowError {
    WorkflowError::fatal(RunError::new(code, message))
}

type StageFuture<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Value, WorkflowError>> + Send + 'a>>;

/// One stage of a [`pipeline`](WorkflowContext::pipeline).
pub struct Stage<'a> {
    run: Box<dyn Fn(StageInput) -> StageFuture<'a> + Send + Sync + 'a>,
}

impl<'a> Stage<'a> {
    /// Makes a stage of a function.
    pub fn new<F, R>(run: F) -> Self
    where
        F: Fn(StageInput) -> R + Send + Sync + 'a,
        R: Future<Output = Result<Value, WorkflowError>> + Send + 'a,
    {
        Self { run: Box::new(move |input| Box::pin(run(input))) }
    }
}

impl std::fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stage")
    }
}

/// What a [`Stage`] is given.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageInput {
    /// What the stage before made of the item; the item itself for the first stage.
    pub previous: Value,
    /// The item.
    pub item: Value,
    /// The item's index.
    pub index: usize,
}
