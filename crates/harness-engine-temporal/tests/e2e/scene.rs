//! A run whose children are real processes, on workers and from clients that are processes too.
//!
//! A child writes a line to a shared file when it starts and one when it ends, and its worker one with its fencing
//! token, so that what is lost or done twice can be counted from outside.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use harness_engine_temporal::{
    CallEnding, DeclaredRoutes, Endpoint, Route, SharedFolders, TemporalConfig, TemporalEngine,
    TemporalWorker, WorkerConfig, Workplace, WorkspaceError, Workspaces,
};
use harness_process::{Mark, become_subreaper, sweep_leftovers};
use harness_provider_cli::CommandProvider;
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, OutputContract, Parent, ProviderInfo, SubagentRegistry};
use harness_testkit::workflow::{Ask, ScriptedBody, Step};
use harness_workflow::{RunId, RunResult, StartRun, WorkflowEngine, WorkflowRun};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

pub(crate) const ROUNDS: u64 = 5;
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a trial may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const PROVIDER: &str = "shell";

/// A child: its log, its seconds, and the attempt that does not end by itself.
const SCRIPT: &str = r#"
printf 'start %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$1"
if [ "$HARNESS_CALL.$HARNESS_ATTEMPT" = "$3" ]; then sleep 300; else sleep "$2"; fi
printf '{"done":true}' > "$HARNESS_VALUE_FILE"
printf 'end %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$1"
"#;

/// Plays another process: `worker`, `worker-again` or `client`, with what [`Scene::spawn`] gives it.
pub(crate) fn role(words: &[String]) -> Option<ExitCode> {
    let [role, address, queue, folder, seconds, stuck] = words else { return None };
    let scene = Scene {
        address: address.clone(),
        queue: queue.clone(),
        folder: folder.into(),
        seconds: seconds.clone(),
        stuck: stuck.clone(),
        history_events: PLENTY,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role.as_str() {
        "worker" => runtime.block_on(scene.work()),
        "worker-again" => {
            // What a worker that was killed has left on this machine is ended before anything new begins. The other
            // workers of a trial stand for other machines.
            sweep_leftovers(Mark::VARIABLE).unwrap();
            runtime.block_on(scene.work());
        }
        "client" => runtime.block_on(async {
            let engine = scene.engine().await;
            let run = engine.start(scene.request(), CancellationToken::new()).await.unwrap();
            fs::write(scene.folder.join("started"), "").unwrap();
            run.result().await;
        }),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// One run with what surrounds it.
pub(crate) struct Scene {
    address: String,
    queue: String,
    folder: PathBuf,
    /// How long a child takes.
    seconds: String,
    /// The attempt that takes for ever, as `CALL.ATTEMPT`, or nothing.
    stuck: String,
    /// How many events a history may have.
    pub(crate) history_events: u32,
}

const PLENTY: u32 = 10_000;

impl Scene {
    pub(crate) fn new(server: &Server, folder: &Path, seconds: &str) -> Self {
        Self {
            address: server.address(),
            queue: uuid::Uuid::new_v4().to_string(),
            folder: folder.to_owned(),
            seconds: seconds.to_owned(),
            stuck: String::new(),
            history_events: PLENTY,
        }
    }

    /// Lets the first attempt at a call take for ever, so that only somebody else can end it.
    pub(crate) fn with_stuck(mut self, call: u64) -> Self {
        self.stuck = format!("{call}.1");
        self
    }

    pub(crate) fn run(&self) -> RunId {
        RunId::from(format!("run-{}", self.queue))
    }

    pub(crate) fn request(&self) -> StartRun {
        let contract = OutputContract::new(json!({ "type": "object", "properties": { "done": { "type": "boolean" } }, "required": ["done"] })).unwrap();
        let steps: Vec<Step> = (1..=ROUNDS)
            .map(|round| Step::Ask(Ask::new(format!("round {round}")).with_output(contract.clone())))
            .collect();
        StartRun::new(ScriptedBody::workflow_ref(), Parent::new("me", self.folder.to_str().unwrap()))
            .with_run_id(self.run())
            .with_args(json!(steps))
    }

    pub(crate) async fn engine(&self) -> TemporalEngine {
        let provider = ProviderInfo::new(PROVIDER, Capabilities::NONE.with_output_contract(true));
        let routes = DeclaredRoutes::default().with(Route::new(&self.queue, provider));
        let config = TemporalConfig::default()
            .with_provider(PROVIDER)
            .with_queue(&self.queue)
            .with_heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .with_max_history_events(self.history_events);
        let endpoint = Endpoint::new(&self.address);
        TemporalEngine::connect(&endpoint, ScriptedBody::catalog(), Arc::new(routes), config).await.unwrap()
    }

    async fn work(&self) {
        become_subreaper().unwrap();
        let provider = CommandProvider::new(PROVIDER, "/bin/sh", self.folder.join("calls")).with_arguments([
            "-c".to_owned(),
            SCRIPT.to_owned(),
            "sh".to_owned(),
            self.log().to_str().unwrap().to_owned(),
            self.seconds.clone(),
            self.stuck.clone(),
        ]);
        let registry = Arc::new(LocalRegistry::new());
        registry.register(Arc::new(provider)).unwrap();
        let config = WorkerConfig::default()
            .with_queue(Some(self.queue.clone()))
            .with_child_queues([self.queue.clone()])
            .with_heartbeat_interval(HEARTBEAT_INTERVAL)
            .with_cancellation_grace(Duration::from_secs(10))
            .with_workspaces(Fenced { log: self.log() });
        let worker =
            TemporalWorker::start(Endpoint::new(&self.address), ScriptedBody::catalog(), registry, config)
                .await
                .unwrap();
        worker.ended().await.unwrap();
    }

    pub(crate) fn spawn(&self, role: &str) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([role, &self.address, &self.queue, self.folder.to_str().unwrap()])
            .args([&self.seconds, &self.stuck])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().filter_map(Line::read).collect()
    }

    pub(crate) fn started(&self, call: u64) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.what == What::Start && line.call == call).collect()
    }

    /// Waits until the child of a call has begun its work.
    pub(crate) fn wait_for_start(&self, call: u64, attempt: u32) -> Result<Line, String> {
        let mut found = None;
        wait(&format!("the start of call {call}, attempt {attempt}"), || {
            found = self.started(call).into_iter().find(|line| line.attempt == attempt);
            found.is_some()
        })?;
        found.ok_or_else(String::new)
    }

    /// Returns the processes that work for the run.
    pub(crate) fn alive(&self) -> Vec<i32> {
        let mark = format!("HARNESS_RUN={}", self.run());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()) && is_alive(*pid)
        })
        .collect()
    }

    /// Waits until nothing works for the run any more, and returns how long that took.
    pub(crate) fn wait_until_nothing_lives(&self, limit: Duration) -> Result<Duration, String> {
        let begin = Instant::now();
        loop {
            // Before the look, which takes a while where there are many processes.
            let elapsed = begin.elapsed();
            let alive = self.alive();
            if alive.is_empty() {
                return Ok(elapsed);
            }
            if elapsed > limit {
                return Err(format!("processes {alive:?} live after {limit:?}"));
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// Folders that are the same everywhere; the fencing token of each attempt is written down.
#[derive(Debug)]
struct Fenced {
    log: PathBuf,
}

#[async_trait]
impl Workspaces for Fenced {
    async fn prepare(&self, place: &Workplace) -> Result<String, WorkspaceError> {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let line = format!("fence {} {} {}\n", place.call, place.attempt, place.fence);
        log.write_all(line.as_bytes()).unwrap();
        SharedFolders::anywhere().prepare(place).await
    }

    async fn publish(
        &self,
        place: &Workplace,
        folder: &str,
        ending: CallEnding,
    ) -> Result<(), WorkspaceError> {
        SharedFolders::anywhere().publish(place, folder, ending).await
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// The worker has the attempt; the number is its fencing token.
    Fence,
    /// The child began; the number is its process id.
    Start,
    /// The child ended by itself; the number is its process id.
    End,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: What,
    pub(crate) call: u64,
    pub(crate) attempt: u32,
    pub(crate) number: i32,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            what: match words.next()? {
                "fence" => What::Fence,
                "start" => What::Start,
                _ => What::End,
            },
            call: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            number: words.next()?.parse().ok()?,
        })
    }

    /// Waits until the process of the line is no more, and returns how long that took.
    pub(crate) fn wait_until_gone(&self, limit: Duration) -> Result<Duration, String> {
        let begin = Instant::now();
        while is_alive(self.number) {
            if begin.elapsed() > limit {
                return Err(format!("process {} lives after {limit:?}: {self:?}", self.number));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(begin.elapsed())
    }
}

fn is_alive(pid: i32) -> bool {
    // A process that is dead and not yet waited for does nothing any more.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Says whether a process has another one above it.
pub(crate) fn is_below(pid: i32, above: u32) -> bool {
    let mut pid = pid.unsigned_abs();
    while pid > 1 {
        if pid == above {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        pid = parent.unwrap_or(0);
    }
    false
}

/// A process of the trial, which dies with it.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn wait(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{what}: not within {PATIENCE:?}"));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Starts the run in this process, plays the trial meanwhile, and returns the run's result.
pub(crate) fn play(
    scene: &Scene,
    trial: impl FnOnce(&dyn WorkflowRun) -> Result<(), String>,
) -> Result<RunResult, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = runtime.block_on(scene.engine());
    let run = runtime.block_on(engine.start(scene.request(), CancellationToken::new())).unwrap();
    trial(&*run)?;
    runtime.block_on(finish(&*run))
}

/// Waits for the run's result and lets go of it.
pub(crate) async fn finish(run: &dyn WorkflowRun) -> Result<RunResult, String> {
    let result = tokio::time::timeout(PATIENCE, run.result()).await.map_err(|_| "the run has no end")?;
    run.dispose().await.map_err(|error| error.to_string())?;
    Ok(result)
}
