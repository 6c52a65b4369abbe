//! A workflow engine of somebody else's: it runs each body and each child in a task of the current tokio runtime, in
//! memory. It is written from the contract of `harness-workflow` alone, and `main` holds it to that contract.
//!
//! Run it with `cargo run -p harness-testkit --example custom_engine`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{Origin, Parent, StartSubagent, SubagentProvider, SubagentRegistry, SubagentRun};
use harness_testkit::conformance::Clock;
use harness_testkit::workflow::{ENGINE_SUITE, EngineConstructor, EngineFixture};
use harness_workflow::{
    AgentOutcome, CallEnd, CallInfo, CallOutcome, ContextLimits, EngineCapabilities, Error, ErrorCode,
    ErrorKind, NoValue, NumberedCall, Result, RunError, RunId, RunResult, Settlement, StartRun, Workflow,
    WorkflowContext, WorkflowEngine, WorkflowEvent, WorkflowEventKind, WorkflowHost, WorkflowMeta,
    WorkflowObserver, WorkflowObservers, WorkflowRef, WorkflowRun,
};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let constructor = || async { EngineConstructor::new(new_engine) };
    if ENGINE_SUITE.run(Clock::Paused, constructor) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn new_engine(fixture: EngineFixture) -> TaskEngine {
    TaskEngine::new(fixture)
}

/// An engine whose runs are tasks.
#[derive(Debug)]
pub struct TaskEngine {
    settings: EngineFixture,
    observers: WorkflowObservers,
    ids: Mutex<Ids>,
}

/// Every id that a run has had.
#[derive(Debug, Default)]
struct Ids {
    taken: std::collections::HashSet<RunId>,
    made: u64,
}

impl TaskEngine {
    /// Makes an engine of what the suite's fixture asks for.
    #[must_use]
    pub fn new(settings: EngineFixture) -> Self {
        Self { settings, observers: WorkflowObservers::default(), ids: Mutex::default() }
    }

    fn find_provider(&self, request: &StartRun) -> Result<Arc<dyn SubagentProvider>> {
        let name = request.resolve_provider(&self.settings.default_provider)?;
        self.settings.registry.provider(name).ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("provider {name:?} is not registered; register it first"))
        })
    }

    fn take_id(&self, asked: Option<RunId>) -> Result<RunId> {
        let mut ids = lock(&self.ids);
        let id = asked.unwrap_or_else(|| {
            loop {
                ids.made += 1;
                let id = RunId::from(format!("task-run-{}", ids.made));
                if !ids.taken.contains(&id) {
                    break id;
                }
            }
        });
        if !ids.taken.insert(id.clone()) {
            return Err(Error::new(ErrorKind::RunExists, format!("run {id} exists; choose another id")));
        }
        Ok(id)
    }
}

#[async_trait]
impl WorkflowEngine for TaskEngine {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.settings.catalog.get(workflow).map(|entry| Arc::clone(entry.meta()))
    }

    fn max_agents(&self) -> u64 {
        self.settings.max_agents
    }

    fn capabilities(&self) -> EngineCapabilities {
        // The registry enforces the schemas.
        EngineCapabilities::default().with_enforces_schema(true).with_heeds_cancellation_token(true)
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.observers.add(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        let entry = self.settings.catalog.resolve(&request.workflow)?;
        request.check_args()?;
        let provider = self.find_provider(&request)?;
        let max_agents = request.resolve_max_agents(self.settings.max_agents)?;
        let id = self.take_id(request.run_id)?;

        let (result, _) = watch::channel(None);
        let state = Arc::new(RunState {
            id,
            meta: Arc::clone(entry.meta()),
            parent: request.parent,
            provider,
            registry: Arc::clone(&self.settings.registry),
            grace: self.settings.grace,
            slots: Arc::new(Semaphore::new(self.settings.max_concurrent)),
            settlement: Settlement::default(),
            stop: CancellationToken::new(),
            stopped_at: OnceLock::new(),
            stream: Mutex::new(Stream::new(self.observers.snapshot())),
            children: Mutex::default(),
            progress: Mutex::default(),
            result,
        });
        let limits = ContextLimits::new(max_agents, self.settings.max_items_per_call);
        let host = Arc::new(TaskHost { run: Arc::clone(&state) });
        let context = WorkflowContext::new(host, request.args, limits);
        state.tell(WorkflowEventKind::Started { meta: Arc::clone(&state.meta) });
        tokio::spawn(drive(Arc::clone(&state), Arc::clone(entry.workflow()), context, cancellation));
        Ok(Box::new(TaskRun { state }))
    }
}

/// What a run, its body and its children share.
#[derive(Debug)]
struct RunState {
    id: RunId,
    meta: Arc<WorkflowMeta>,
    parent: Parent,
    provider: Arc<dyn SubagentProvider>,
    registry: Arc<dyn SubagentRegistry>,
    grace: Duration,
    slots: Arc<Semaphore>,
    settlement: Settlement,
    /// Is cancelled when the run is, and at its end: no child goes on after that.
    stop: CancellationToken,
    stopped_at: OnceLock<Instant>,
    stream: Mutex<Stream>,
    children: Mutex<Vec<JoinHandle<()>>>,
    progress: Mutex<Progress>,
    result: watch::Sender<Option<RunResult>>,
}

#[derive(Debug, Default)]
struct Progress {
    attempts: u64,
    checkpoint: Option<Value>,
    release_error: Option<String>,
}

/// The events of a run, told one at a time.
#[derive(Debug)]
struct Stream {
    observers: WorkflowObservers,
    sequence: u64,
    open: HashMap<u64, CallInfo>,
    ended: bool,
}

impl Stream {
    fn new(observers: WorkflowObservers) -> Self {
        Self { observers, sequence: 0, open: HashMap::new(), ended: false }
    }

    fn tell(&mut self, run: &RunId, kind: WorkflowEventKind) {
        if self.ended {
            return;
        }
        let in_turn = match &kind {
            WorkflowEventKind::AgentStarted { call } => self.open.insert(call.call, call.clone()).is_none(),
            WorkflowEventKind::AgentEnded { call, .. } => self.open.remove(&call.call).is_some(),
            _ => true,
        };
        if !in_turn {
            return;
        }
        self.ended = matches!(kind, WorkflowEventKind::Ended { .. });
        self.sequence += 1;
        self.observers.notify(&WorkflowEvent::new(run.clone(), self.sequence, kind));
    }
}

impl RunState {
    fn tell(&self, kind: WorkflowEventKind) {
        lock(&self.stream).tell(&self.id, kind);
    }

    /// Tells of what the body says, unless the run was cancelled before.
    fn narrate(&self, kind: WorkflowEventKind) {
        let mut stream = lock(&self.stream);
        if !self.stop.is_cancelled() {
            stream.tell(&self.id, kind);
        }
    }

    fn cancel(&self, reason: &str) {
        if self.settlement.request_cancel(reason) {
            self.stop_children();
        }
    }

    fn stop_children(&self) {
        self.stopped_at.get_or_init(Instant::now);
        self.stop.cancel();
    }

    /// Waits until the run has been stopped for as long as its grace.
    async fn grace_is_over(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep_until(self.deadline()).await;
    }

    fn deadline(&self) -> Instant {
        *self.stopped_at.get_or_init(Instant::now) + self.grace
    }

    /// Waits for the children that are left, and gives up those that take too long.
    async fn release_children(&self) {
        let children = std::mem::take(&mut *lock(&self.children));
        for mut child in children {
            if timeout_at(self.deadline(), &mut child).await.is_err() {
                child.abort();
            }
        }
        let mut stream = lock(&self.stream);
        let open: Vec<CallInfo> = stream.open.values().cloned().collect();
        for call in open {
            let end = CallEnd::new(CallOutcome::Cancelled);
            stream.tell(&self.id, WorkflowEventKind::AgentEnded { call, end });
        }
    }
}

/// Runs the body to whatever ends it, cleans up, and makes the result known.
async fn drive(
    run: Arc<RunState>,
    workflow: Arc<dyn Workflow>,
    context: WorkflowContext,
    cancellation: CancellationToken,
) {
    if cancellation.is_cancelled() {
        run.cancel("the token of the start was cancelled");
    }
    let counts = context.clone();
    let ended = if run.stop.is_cancelled() {
        Err(lost("the run was cancelled before its body began"))
    } else {
        let mut body = tokio::spawn(async move { workflow.run(context).await });
        let ended = loop {
            tokio::select! {
                biased;
                () = cancellation.cancelled(), if !run.stop.is_cancelled() => run.cancel("its token was cancelled"),
                () = run.grace_is_over() => break Err(lost("the body was given up")),
                joined = &mut body => break match joined {
                    Ok(Ok(value)) => storable(value),
                    Ok(Err(error)) => Err(RunError::from(error)),
                    Err(failed) => Err(RunError::new(ErrorCode::PANIC, format!("the body failed: {failed}"))),
                },
            }
        };
        body.abort();
        ended
    };
    let claim = run.settlement.claim().expect("nothing else claims");
    run.stop_children();
    run.release_children().await;

    let result = ended.map_or_else(RunResult::failed, RunResult::completed);
    let result = {
        let progress = lock(&run.progress);
        let result = result.with_agents_started(counts.agents_started()).with_attempts(progress.attempts);
        claim.settle(result.with_checkpoint(progress.checkpoint.clone()))
    };
    run.tell(WorkflowEventKind::Ended {
        stop_reason: result.stop_reason(),
        error: result.error().cloned(),
        agents_started: result.agents_started(),
        attempts: result.attempts(),
    });
    run.result.send_replace(Some(result));
}

fn lost(message: &str) -> RunError {
    RunError::new(ErrorCode::ENGINE_LOST, message)
}

fn storable(value: Value) -> Result<Value, RunError> {
    match harness_workflow::value::check(&value) {
        Ok(()) => Ok(value),
        Err(error) => Err(RunError::new(ErrorCode::RESULT_UNSERIALIZABLE, error.to_string())),
    }
}

/// The body's way to the run.
#[derive(Debug)]
struct TaskHost {
    run: Arc<RunState>,
}

#[async_trait]
impl WorkflowHost for TaskHost {
    fn cancel_reason(&self) -> Option<String> {
        let settlement = &self.run.settlement;
        settlement.cancel_reason().or_else(|| settlement.is_claimed().then(|| "the run has ended".into()))
    }

    fn phase(&self, title: &str) {
        self.run.narrate(WorkflowEventKind::Phase { title: title.into() });
    }

    fn log(&self, message: &str) {
        self.run.narrate(WorkflowEventKind::Log { message: message.into() });
    }

    fn checkpoint(&self, value: Value) -> Result<(), RunError> {
        lock(&self.run.progress).checkpoint = Some(value.clone());
        self.run.narrate(WorkflowEventKind::Checkpoint { value });
        Ok(())
    }

    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError> {
        // Dropping this future drops the guard, which ends the child.
        let stop = self.run.stop.child_token();
        let dropped = stop.clone().drop_guard();
        let slot = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(self.cancelled()),
            slot = Arc::clone(&self.run.slots).acquire_owned() => slot.expect("the semaphore is never closed"),
        };
        let run = Arc::clone(&self.run);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let child = tokio::spawn(async move {
            let outcome = run_child(&run, call, &stop).await;
            drop(slot);
            // Nobody listens when the body dropped the call.
            let _ = answer.send(outcome);
        });
        lock(&self.run.children).push(child);
        let outcome = answered.await.unwrap_or_else(|_| Err(lost("the child was given up")));
        dropped.disarm();
        outcome
    }
}

impl TaskHost {
    fn cancelled(&self) -> RunError {
        RunError::cancelled(&self.cancel_reason().unwrap_or_else(|| "the call was dropped".into()))
    }
}

async fn run_child(
    run: &RunState,
    call: NumberedCall,
    stop: &CancellationToken,
) -> Result<AgentOutcome, RunError> {
    lock(&run.progress).attempts += 1;
    let mut request = StartSubagent::new(call.prompt, run.parent.clone())
        .with_label(call.label.clone())
        .with_origin(Origin::new(run.id.as_str(), call.number, 1))
        .with_cancellation(stop.clone());
    (request.output, request.model, request.tools) = (call.output, call.model, call.tools);
    let wants_value = request.output.is_some();

    let started = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(RunError::cancelled("the child was not started any more")),
        started = run.registry.start_on(&run.provider, request) => started,
    };
    let child = started.map_err(|error| RunError::new(ErrorCode::AGENT_START, error.to_string()))?;
    let info = CallInfo::new(call.number, 1, call.label, child.id().clone()).with_phase(call.phase);
    run.tell(WorkflowEventKind::AgentStarted { call: info.clone() });

    let (outcome, end) = watch_child(run, &info, &*child, stop, wants_value).await;
    if let Err(error) = child.dispose().await {
        lock(&run.progress).release_error = Some(error.to_string());
    }
    run.tell(WorkflowEventKind::AgentEnded { call: info, end });
    outcome
}

/// Waits for the child's end and tells what it does meanwhile.
async fn watch_child(
    run: &RunState,
    info: &CallInfo,
    child: &dyn SubagentRun,
    stop: &CancellationToken,
    wants_value: bool,
) -> (Result<AgentOutcome, RunError>, CallEnd) {
    let mut activity = child.activity();
    let mut watched = true;
    let mut result = child.result();
    let result = loop {
        tokio::select! {
            biased;
            // A child that is asked to stop may take its time: the disposal is what ends it for sure.
            () = stop.cancelled() => break None,
            next = activity.next(), if watched => match next {
                Some(activity) => run.tell(WorkflowEventKind::AgentActivity { call: info.clone(), activity }),
                None => watched = false,
            },
            result = &mut result => break Some(result),
        }
    };
    let mut end = CallEnd::new(CallOutcome::Cancelled);
    let Some(result) = result else {
        return (Err(RunError::cancelled("the child was cancelled")), end);
    };
    let outcome = match result {
        Err(error) => {
            end.outcome = CallOutcome::Failed;
            Err(RunError::new(ErrorCode::AGENT_RESULT, error.to_string()))
        }
        Ok(result) => {
            end.stop_reason = Some(result.stop_reason.clone());
            end.diagnostic.clone_from(&result.diagnostic);
            (end.usage, end.session_id) = (result.usage, result.session_id);
            let value = match result.structured {
                Some(value) => Some(value),
                None => (!wants_value).then_some(Value::String(result.output)),
            };
            match value.filter(|_| result.stop_reason.is_completed()) {
                Some(value) => {
                    end.outcome = CallOutcome::Completed;
                    Ok(AgentOutcome::Value(value))
                }
                None => {
                    end.outcome = CallOutcome::Failed;
                    Ok(AgentOutcome::NoValue(NoValue::new(result.stop_reason, result.diagnostic)))
                }
            }
        }
    };
    (outcome, end)
}

/// The caller's handle. The run itself is a task that goes on without it.
#[derive(Debug)]
struct TaskRun {
    state: Arc<RunState>,
}

#[async_trait]
impl WorkflowRun for TaskRun {
    fn id(&self) -> &RunId {
        &self.state.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.state.meta
    }

    async fn result(&self) -> RunResult {
        let mut result = self.state.result.subscribe();
        let result = result.wait_for(Option::is_some).await.expect("this handle holds the sender");
        result.clone().expect("the wait was for a result")
    }

    fn cancel(&self, reason: &str) {
        self.state.cancel(reason);
    }

    async fn dispose(&self) -> Result<()> {
        self.state.cancel("the run was disposed of");
        self.result().await;
        match &lock(&self.state.progress).release_error {
            Some(error) => Err(Error::new(ErrorKind::Release, format!("a child was not released: {error}"))),
            None => Ok(()),
        }
    }
}

impl Drop for TaskRun {
    fn drop(&mut self) {
        self.state.cancel("the run was dropped");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
