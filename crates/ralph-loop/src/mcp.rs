//! The `ralph` tool for MCP clients: who runs the loops that they ask for.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::Context;
use async_trait::async_trait;
use harness_engine_local::{JournalError, RunHistory, RunState};
use harness_subagent::Parent;
use harness_workflow::{
    EngineCapabilities, Error, ErrorKind, Result, RunId, RunResult, StartRun, WorkflowEngine, WorkflowMeta,
    WorkflowObserver, WorkflowRef, WorkflowRun,
};
use ralph_mcp::{LoopError, LoopHost, LoopServer, Refusal, RunFacts, RunWatch, Standing};
use ralph_tool::{CallContext, Envelope, RalphError, RalphTool};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::arguments::{AgentArguments, EngineKind, McpArguments};
use crate::exit::{Exit, Failure};
use crate::launch::{Launch, Wired};
use crate::run;
use crate::settings::Settings;
use crate::shown;
use crate::state::State;
use crate::stops::StopCause;
use crate::workspace_lock::WorkspaceLock;

/// `ralph-loop mcp`.
pub(crate) fn mcp(arguments: McpArguments) -> std::result::Result<Exit, Failure> {
    run::refuse_inside_an_agent()?;
    let workspace = run::workspace(&arguments.workspace.workspace)?;
    let mut settings = Settings::read(&workspace)?;
    let shared_workspace = arguments.allow_shared_workspace;
    let AgentArguments { name, pass_env, .. } = &arguments.agent;
    settings.take_flags(name.clone(), &arguments.limits, pass_env.clone());
    if settings.engine.value == EngineKind::Temporal {
        return Err(Failure::refuse(format!(
            "the MCP server runs its loops in its own process; the engine is set to `temporal` by {}, so set \
             RALPH_LOOP_ENGINE=local for it",
            settings.engine.origin
        )));
    }
    let agent = Agent::choose(&arguments.agent, &settings)?;
    let state = State::open()?;
    let mut launch = Launch::new(workspace, agent, &settings);
    launch.take_choices(&arguments.agent);
    let parent = launch.parent().map_err(Failure::usage)?;

    // Clients keep what a server says here; standard output is for the protocol.
    shown::warn(&format!(
        "ralph-loop: serving {}; the agent is {}; it may {}",
        shown::path(&launch.workspace),
        launch.agent.told(),
        launch.agent.permissions_in_words()
    ));
    // What our children leave behind becomes ours, so that it can be found and ended.
    if let Err(error) = harness_process::become_subreaper() {
        shown::warn(&format!(
            "ralph-loop: processes that leave their agent will be found by their mark only: {error}"
        ));
    }
    // An agent that a killed server has left works on until somebody ends it.
    if !shared_workspace
        && let Some(_lock) = WorkspaceLock::take_abandoned(&state, &launch.workspace, &RunId::from("mcp"))
    {
        run::sweep()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::environment)?;
    // It is large, and stays where it is made.
    let served = pin!(async {
        let Wired { engine, tool } = launch.wire(&state, StopCause::default())?;
        let part = Part { state, launch, shared_workspace, runs: RunThread::default() };
        let host = Arc::new(Host { part: Arc::new(part), engine, parent, tool });
        let signals = Signals::new()?;
        let stop = CancellationToken::new();
        let served = tokio::select! {
            served = LoopServer::new(host.clone()).serve_stdio(stop.clone()) => served,
            () = signals.second(stop) => Ok(()),
        };
        // Whatever a forced end has left.
        host.interrupt().await;
        served.context("the client cannot be served")
    });
    let served = runtime.block_on(served);
    // A read of standard input may be under way that nothing can end.
    runtime.shutdown_background();
    served.map_err(Failure::environment)?;
    Ok(Exit::Complete)
}

/// What asks the server to end.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    /// Cancels `stop` at the first signal, and returns at the second, which is to force the end.
    async fn second(mut self, stop: CancellationToken) {
        for _ in 0..2 {
            let [interrupt, terminate, hangup] = &mut self.0;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            stop.cancel();
        }
    }
}

/// Runs the loops of one server: all in one workspace, with one configuration.
#[derive(Debug)]
struct Host {
    part: Arc<Part>,
    engine: Arc<dyn WorkflowEngine>,
    parent: Parent,
    tool: RalphTool,
}

/// What a run needs of its host.
#[derive(Debug)]
struct Part {
    state: State,
    launch: Launch,
    shared_workspace: bool,
    runs: RunThread,
}

#[async_trait]
impl LoopHost for Host {
    fn tool(&self) -> &RalphTool {
        &self.tool
    }

    async fn run(
        &self,
        run: &RunId,
        args: &Value,
        watch: RunWatch,
    ) -> std::result::Result<Envelope, LoopError> {
        let refusal = Arc::new(OnceLock::new());
        let engine = Admission {
            part: self.part.clone(),
            engine: self.engine.clone(),
            observer: watch.observer,
            refusal: refusal.clone(),
        };
        let tool = self.tool.with_engine(Arc::new(engine)).map_err(|error| unusable(&error))?;
        let context = CallContext::new(self.parent.clone())
            .with_run_id(run.clone())
            .with_cancellation(watch.cancellation);
        let outcome = tool.call(args, context).await;
        match (outcome, refusal.get()) {
            (Err(RalphError::EngineStart(_)), Some(refusal)) => Err(Refusal::clone(refusal).into()),
            (outcome, _) => Ok(outcome?),
        }
    }

    async fn resume(&self, run: &RunId, watch: RunWatch) -> std::result::Result<Envelope, LoopError> {
        let (part, id) = (self.part.clone(), run.clone());
        let (launch, lock, args) = blocking(move || {
            let history =
                RunHistory::read(&**part.state.journals(), &id).map_err(|error| unusable(&error))?;
            if history.state != RunState::Interrupted {
                let message = format!("run {id} is not interrupted, so it cannot be taken up again");
                return Err(Refusal::new("not-interrupted", message));
            }
            run::sweep().map_err(|failure| unusable(&*failure.error))?;
            let launch = part.state.launch(&id).map_err(|error| unusable(&*error))?;
            launch.agent.find().map_err(|failure| unusable(&*failure.error))?;
            let lock = part.admit(&launch, &id)?;
            Ok((launch, lock, history.request.args))
        })
        .await?;
        let wired = launch.wire(&self.part.state, StopCause::default()).map_err(|error| unusable(&*error))?;
        wired.engine.observe(watch.observer);
        let (engine, id) = (wired.engine.clone(), run.clone());
        let started = self.part.runs.spawn(async move { engine.resume(&id).await }).await?;
        let held = Box::new(Held { run: started.map_err(RalphError::EngineStart)?, _lock: lock });
        Ok(wired.tool.follow(held, &args, watch.cancellation).await?)
    }

    async fn look(&self, run: &RunId) -> std::result::Result<Option<RunFacts>, Refusal> {
        let (part, run) = (self.part.clone(), run.clone());
        blocking(move || match RunHistory::read(&**part.state.journals(), &run) {
            Ok(history) => Ok(part.shows(&history).then(|| facts(history))),
            Err(JournalError::Unknown { .. } | JournalError::UnusableId { .. }) => Ok(None),
            Err(error) => Err(unusable(&error)),
        })
        .await
    }

    async fn latest(&self, most: usize) -> std::result::Result<Vec<(RunId, RunFacts)>, Refusal> {
        let part = self.part.clone();
        blocking(move || {
            let all = RunHistory::read_all(&**part.state.journals()).map_err(|error| unusable(&error))?;
            let readable = all.into_iter().filter_map(|listed| Some((listed.run, listed.history.ok()?)));
            let mut ours: Vec<_> = readable.filter(|(_, history)| part.shows(history)).collect();
            ours.sort_by_key(|(_, history)| std::cmp::Reverse(history.started_ms));
            Ok(ours.into_iter().take(most).map(|(run, history)| (run, facts(history))).collect())
        })
        .await
    }

    async fn interrupt(&self) {
        let part = self.part.clone();
        // It fails only if the runtime ends, and then the process does.
        let _ = tokio::task::spawn_blocking(move || part.runs.end()).await;
    }
}

impl Part {
    /// True of a run in the server's workspace: a client of one workspace is not to know of another.
    fn shows(&self, history: &RunHistory) -> bool {
        Some(history.request.parent.workspace.as_str()) == self.launch.workspace.to_str()
    }

    /// Takes the workspace for a run, and ends what a killed runner has left in it.
    fn admit(&self, launch: &Launch, run: &RunId) -> std::result::Result<WorkspaceLock, Refusal> {
        let workspace: &PathBuf = &launch.workspace;
        run::workspace(workspace).map_err(|failure| unusable(&*failure.error))?;
        let lock =
            WorkspaceLock::take(&self.state, workspace, run, self.shared_workspace).map_err(|error| {
                let is_busy = !error.chain().any(<dyn std::error::Error>::is::<io::Error>);
                if is_busy { Refusal::new("workspace-busy", format!("{error:#}")) } else { unusable(&*error) }
            })?;
        if lock.abandoned().is_some() {
            run::sweep().map_err(|failure| unusable(&*failure.error))?;
        }
        Ok(lock)
    }
}

fn facts(history: RunHistory) -> RunFacts {
    let rounds = history.agents_started();
    let standing = match history.state {
        RunState::Running => Standing::Running,
        RunState::Finished(result) => Standing::Ended(Box::new(result)),
        _ => Standing::Interrupted,
    };
    RunFacts::new(history.request.args, standing)
        .with_rounds(rounds, history.checkpoint)
        .with_times(history.started_ms, history.updated_ms)
}

/// This machine lacks something. Causes are told, since only the deployment can do something about it.
fn unusable(error: &(dyn std::error::Error + 'static)) -> Refusal {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        told.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Refusal::new("environment", shown::one_line(&told, 1000))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, Refusal> + Send + 'static,
) -> std::result::Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(unusable(&error)),
    }
}

/// The thread on which runs and their children live, apart from the server.
///
/// Its end kills whatever they have running and writes nothing into their journals: to whoever looks afterwards they
/// were interrupted.
#[derive(Debug, Default)]
struct RunThread {
    started: Mutex<Started>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Started {
    thread: Option<(Handle, thread::JoinHandle<()>)>,
    ended: bool,
}

impl RunThread {
    /// Runs `work` there, and returns what comes of it.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> std::result::Result<T, Refusal> {
        let handle = self.handle().map_err(|error| unusable(&*error))?;
        handle.spawn(work).await.map_err(|error| unusable(&error))
    }

    fn handle(&self) -> anyhow::Result<Handle> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((handle, _)) = &started.thread {
            return Ok(handle.clone());
        }
        anyhow::ensure!(!started.ended, "the server is about to end");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the runs")?;
        let (handle, stop) = (runtime.handle().clone(), self.stop.clone());
        let thread = thread::Builder::new()
            .name("runs".to_owned())
            .spawn(move || runtime.block_on(stop.cancelled_owned()))
            .context("cannot start the thread of the runs")?;
        started.thread = Some((handle.clone(), thread));
        Ok(handle)
    }

    /// Ends the thread, and waits for that.
    fn end(&self) {
        self.stop.cancel();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.ended = true;
        if let Some((_, thread)) = started.thread.take() {
            // A panic in it has been told already.
            let _ = thread.join();
        }
    }
}

/// The engine of one call: what must be done before its run may start, and then the run in its thread.
///
/// The tool calls it when it has found nothing wrong with the call.
#[derive(Debug)]
struct Admission {
    part: Arc<Part>,
    engine: Arc<dyn WorkflowEngine>,
    observer: Arc<dyn WorkflowObserver>,
    refusal: Arc<OnceLock<Refusal>>,
}

impl Admission {
    async fn admit(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> std::result::Result<Result<Held>, Refusal> {
        let run = request.run_id.clone().expect("the host names every run");
        let (part, id) = (self.part.clone(), run.clone());
        let lock = blocking(move || {
            let lock = part.admit(&part.launch, &id)?;
            part.state.keep_launch(&id, &part.launch).map_err(|error| unusable(&*error))?;
            Ok(lock)
        })
        .await?;
        let started = self.start_admitted(request, cancellation).await;
        if !self.part.state.has_run(&run) {
            self.part.state.drop_launch(&run);
        }
        Ok(started?.map(|run| Held { run, _lock: lock }))
    }

    async fn start_admitted(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> std::result::Result<Result<Box<dyn WorkflowRun>>, Refusal> {
        let wired = self
            .part
            .launch
            .wire(&self.part.state, StopCause::default())
            .map_err(|error| unusable(&*error))?;
        wired.engine.observe(self.observer.clone());
        let engine = wired.engine;
        self.part.runs.spawn(async move { engine.start(request, cancellation).await }).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl WorkflowEngine for Admission {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        self.engine.workflow(workflow)
    }

    fn max_agents(&self) -> u64 {
        self.engine.max_agents()
    }

    fn capabilities(&self) -> EngineCapabilities {
        self.engine.capabilities()
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.engine.observe(observer);
    }

    async fn start(
        &self,
        request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        match self.admit(request, cancellation).await {
            Ok(started) => Ok(Box::new(started?)),
            Err(refusal) => {
                let error = Error::new(ErrorKind::Engine, refusal.to_string());
                // There is one start in a call.
                let _ = self.refusal.set(refusal);
                Err(error)
            }
        }
    }
}

/// A run that holds its workspace.
#[derive(Debug)]
struct Held {
    run: Box<dyn WorkflowRun>,
    _lock: WorkspaceLock,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl WorkflowRun for Held {
    fn id(&self) -> &RunId {
        self.run.id()
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        self.run.meta()
    }

    async fn result(&self) -> RunResult {
        self.run.result().await
    }

    fn cancel(&self, reason: &str) {
        self.run.cancel(reason);
    }

    async fn dispose(&self) -> Result<()> {
        self.run.dispose().await
    }
}
