use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, SubagentRegistry};
use harness_workflow::{
    ErrorKind, RunId, RunResult, StartRun, WorkflowEngine, WorkflowEvent, WorkflowEventKind,
    WorkflowObserver, WorkflowRun,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{EngineConstructor, EngineFixture, ScriptedBody, Step};
use crate::subagent::{MockChild, MockProvider, MockProviderHandle};
use crate::wait::within;

/// How long a check waits for what must happen. Longer than any grace that a fixture asks for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a check waits to see that something does not happen. Shorter than any grace that a fixture asks for.
const QUIET: Duration = Duration::from_millis(50);

/// An engine under test with all that surrounds it.
pub(in crate::workflow) struct Bench {
    pub(in crate::workflow) engine: Arc<dyn WorkflowEngine>,
    pub(in crate::workflow) registry: Arc<dyn SubagentRegistry>,
    pub(in crate::workflow) provider: MockProviderHandle,
    pub(in crate::workflow) events: Arc<EventRecorder>,
    starts_elsewhere: bool,
}

impl Bench {
    pub(in crate::workflow) const GRACE: Duration = Duration::from_millis(200);
    pub(in crate::workflow) const MAX_CONCURRENT: usize = 2;
    pub(in crate::workflow) const MAX_ITEMS: usize = 16;
    pub(in crate::workflow) const MAX_AGENTS: u64 = 6;
    pub(in crate::workflow) const PROVIDER: &str = "mock";
    pub(in crate::workflow) const NO_CHILD: [u64; 0] = [];

    pub(in crate::workflow) async fn new(constructor: &EngineConstructor) -> Self {
        Self::with(constructor, Capabilities::ALL, |_| {}).await
    }

    /// Makes a bench whose engine is asked for with a changed fixture.
    pub(in crate::workflow) async fn with(
        constructor: &EngineConstructor,
        capabilities: Capabilities,
        change: impl FnOnce(&mut EngineFixture),
    ) -> Self {
        let registry: Arc<dyn SubagentRegistry> = Arc::new(LocalRegistry::new());
        let (provider, handle) = MockProvider::new(capabilities);
        registry.register(provider).expect("the registry is empty");
        let mut fixture = EngineFixture {
            catalog: ScriptedBody::catalog(),
            registry: Arc::clone(&registry),
            default_provider: Self::PROVIDER.to_owned(),
            max_agents: Self::MAX_AGENTS,
            max_items_per_call: Self::MAX_ITEMS,
            max_concurrent: Self::MAX_CONCURRENT,
            grace: Self::GRACE,
        };
        change(&mut fixture);
        let engine = constructor.engine(fixture).await;
        let events = Arc::new(EventRecorder::default());
        engine.observe(Arc::clone(&events) as _);
        Self { engine, registry, provider: handle, events, starts_elsewhere: constructor.starts_elsewhere() }
    }

    /// Scripts the next children.
    pub(in crate::workflow) fn children(&self, children: impl IntoIterator<Item = MockChild>) -> &Self {
        self.provider.script(children);
        self
    }

    pub(in crate::workflow) async fn start(&self, steps: &[Step]) -> Box<dyn WorkflowRun> {
        self.start_with(request(steps), CancellationToken::new()).await
    }

    pub(in crate::workflow) async fn start_with(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Box<dyn WorkflowRun> {
        match patiently("the start", self.engine.start(request, cancellation)).await {
            Ok(run) => run,
            Err(error) => panic!("the start was refused: {error}"),
        }
    }

    /// Starts a run, waits for its result and disposes of it.
    pub(in crate::workflow) async fn run(&self, steps: &[Step]) -> RunResult {
        let run = self.start(steps).await;
        let result = result_of(&*run).await;
        dispose(&*run).await;
        result
    }

    pub(in crate::workflow) async fn refusal(&self, request: StartRun) -> ErrorKind {
        match patiently("the start", self.engine.start(request, CancellationToken::new())).await {
            Ok(_) => panic!("the start was not refused"),
            Err(error) => error.kind(),
        }
    }

    /// Returns the numbers of the calls that the first `count` children were started for, and asserts that those are the
    /// first calls, in their order unless the children are started elsewhere.
    pub(in crate::workflow) fn first_calls(&self, count: u64) -> Vec<u64> {
        let call_of = |child| self.provider.request(child).origin.map(|origin| origin.call);
        let calls: Vec<Option<u64>> = (1..=count).map(call_of).collect();
        let mut sorted = calls.clone();
        if self.starts_elsewhere {
            sorted.sort_unstable();
        }
        assert_eq!(
            sorted,
            (1..=count).map(Some).collect::<Vec<_>>(),
            "the first {count} children are for {calls:?}"
        );
        calls.into_iter().flatten().collect()
    }

    /// Starts a run and waits until its first child is asked for its result.
    pub(in crate::workflow) async fn start_and_wait_for_child(&self, steps: &[Step]) -> Box<dyn WorkflowRun> {
        let run = self.start(steps).await;
        while_awaited(&*run, "the first child", self.provider.wait_until_asked(1)).await;
        run
    }
}

/// Asks for a run of the script.
pub(in crate::workflow) fn request(steps: &[Step]) -> StartRun {
    StartRun::new(ScriptedBody::workflow_ref(), Parent::new("parent", ".")).with_args(json!(steps))
}

/// Waits for what must happen.
pub(in crate::workflow) async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(PATIENCE, what, future).await
}

/// Waits for `future` while somebody awaits the run's result, as an engine may need it to go on.
pub(in crate::workflow) async fn while_awaited<T>(
    run: &dyn WorkflowRun,
    what: &str,
    future: impl Future<Output = T>,
) -> T {
    let mut future = pin!(future);
    let mut result = pin!(run.result());
    patiently(what, async {
        tokio::select! {
            biased;
            output = &mut future => output,
            result = &mut result => match timeout(QUIET, future).await {
                Ok(output) => output,
                Err(_) => panic!("the run ended before {what}: {result:?}"),
            },
        }
    })
    .await
}

pub(in crate::workflow) async fn result_of(run: &dyn WorkflowRun) -> RunResult {
    patiently("the result", run.result()).await
}

/// Disposes of a run; that something could not be released is not judged here.
pub(in crate::workflow) async fn dispose(run: &dyn WorkflowRun) {
    let _ = patiently("the disposal", run.dispose()).await;
}

/// Waits a little and asserts that `future` is still pending.
pub(in crate::workflow) async fn still_waits<F: Future + Unpin>(what: &str, future: &mut F) {
    let early = timeout(QUIET, future).await.is_ok();
    assert!(!early, "{what} must still wait");
}

/// Lets everything happen that can happen by itself.
pub(in crate::workflow) async fn quiet() {
    tokio::time::sleep(QUIET).await;
}

/// Keeps all events, and wakes whoever waits for one.
#[derive(Debug, Default)]
pub(in crate::workflow) struct EventRecorder {
    events: Mutex<Vec<WorkflowEvent>>,
    added: Notify,
}

impl EventRecorder {
    fn lock(&self) -> MutexGuard<'_, Vec<WorkflowEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::workflow) fn all(&self) -> Vec<WorkflowEvent> {
        self.lock().clone()
    }

    /// Returns the events of one run, in the order in which they were told.
    pub(in crate::workflow) fn of(&self, run: &RunId) -> Vec<WorkflowEventKind> {
        self.lock().iter().filter(|event| event.run == *run).map(|event| event.kind.clone()).collect()
    }

    /// Waits until an event is there for which `is_it` holds.
    pub(in crate::workflow) async fn wait_for(&self, is_it: impl Fn(&WorkflowEventKind) -> bool) {
        loop {
            let mut added = pin!(self.added.notified());
            // Enabled before the look, so that an event in between is not missed.
            added.as_mut().enable();
            if self.lock().iter().any(|event| is_it(&event.kind)) {
                return;
            }
            added.await;
        }
    }

    pub(in crate::workflow) async fn wait_for_end(&self) {
        let ended = self.wait_for(|kind| matches!(kind, WorkflowEventKind::Ended { .. }));
        patiently("the event of the run's end", ended).await;
    }
}

impl WorkflowObserver for EventRecorder {
    fn observe(&self, event: &WorkflowEvent) {
        self.lock().push(event.clone());
        self.added.notify_waiters();
    }
}

/// Names an event in a failure.
pub(in crate::workflow) fn name_of(kind: &WorkflowEventKind) -> &'static str {
    match kind {
        WorkflowEventKind::Started { .. } => "started",
        WorkflowEventKind::Phase { .. } => "phase",
        WorkflowEventKind::Log { .. } => "log",
        WorkflowEventKind::Checkpoint { .. } => "checkpoint",
        WorkflowEventKind::AgentStarted { .. } => "agent-started",
        WorkflowEventKind::AgentActivity { .. } => "agent-activity",
        WorkflowEventKind::AgentEnded { .. } => "agent-ended",
        WorkflowEventKind::Ended { .. } => "ended",
        _ => "another",
    }
}

/// Returns the names of the events without the activity, which is lossy.
pub(in crate::workflow) fn names(events: &[WorkflowEventKind]) -> Vec<&'static str> {
    events.iter().map(name_of).filter(|name| *name != "agent-activity").collect()
}

#[track_caller]
pub(in crate::workflow) fn assert_value(result: &RunResult, value: &Value) {
    assert_eq!(result.value(), Some(value), "the run's result is {result:?}");
}

/// Returns the code of the error with which a run ended.
#[track_caller]
pub(in crate::workflow) fn code_of(result: &RunResult) -> &str {
    result.error().unwrap_or_else(|| panic!("the run has no error: {result:?}")).code().as_str()
}

/// Returns the reason with which a run was cancelled.
#[track_caller]
pub(in crate::workflow) fn reason_of(result: &RunResult) -> &str {
    assert_eq!(code_of(result), "cancelled");
    let details = result.error().and_then(|error| error.details());
    details
        .and_then(|details| details["reason"].as_str())
        .unwrap_or_else(|| panic!("a cancelled run says why: {result:?}"))
}
