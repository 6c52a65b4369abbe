//! What a run survives: the loss of workers, of the server and of the client, with children that are real processes.
//!
//! A child writes a line to a shared file when it starts and one when it ends, so that what is lost or done twice can be
//! counted from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness_engine_temporal::{
    DeclaredRoutes, Endpoint, Route, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
};
use harness_process::{Mark, become_subreaper, sweep_leftovers};
use harness_provider_cli::CommandProvider;
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, OutputContract, Parent, ProviderInfo, SubagentRegistry};
use harness_testkit::workflow::{Ask, ScriptedBody, Step};
use harness_workflow::{RunId, RunResult, RunStopReason, StartRun, WorkflowEngine, WorkflowRun};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

const PROVIDER: &str = "shell";
const ROUNDS: u64 = 5;
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a trial may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const SCRIPT: &str = r#"
printf 'start %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$1"
sleep "$2"
printf '{"done":true}' > "$HARNESS_VALUE_FILE"
printf 'end %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$1"
"#;

type Trial = fn(&mut Server) -> Result<(), String>;

/// The trials, by name.
pub(crate) const TRIALS: &[(&str, Trial)] = &[
    ("kill-worker", kill_worker),
    ("lose-one-of-two-workers", lose_one_of_two),
    ("freeze-worker", freeze_worker),
    ("kill-server", kill_server),
    ("kill-client", kill_client),
    ("cancel-elsewhere", cancel_elsewhere),
    ("fresh-history", fresh_history),
];

/// Plays another process: `worker` or `client`, with the address, the queue, the folder and the seconds of a child.
pub(crate) fn role(words: &[String]) -> Option<ExitCode> {
    let [role, address, queue, folder, seconds] = words else { return None };
    let scene = Scene {
        address: address.clone(),
        queue: queue.clone(),
        folder: folder.into(),
        seconds: seconds.clone(),
        history_events: PLENTY,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role.as_str() {
        "worker" => runtime.block_on(scene.work()),
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
struct Scene {
    address: String,
    queue: String,
    folder: PathBuf,
    /// How long a child takes.
    seconds: String,
    /// How many events a history may have.
    history_events: u32,
}

const PLENTY: u32 = 10_000;

impl Scene {
    fn new(server: &Server, folder: &Path, seconds: &str) -> Self {
        Self {
            address: server.address(),
            queue: uuid::Uuid::new_v4().to_string(),
            folder: folder.to_owned(),
            seconds: seconds.to_owned(),
            history_events: PLENTY,
        }
    }

    fn run(&self) -> RunId {
        RunId::from(format!("run-{}", self.queue))
    }

    fn request(&self) -> StartRun {
        let contract = OutputContract::new(json!({ "type": "object", "properties": { "done": { "type": "boolean" } }, "required": ["done"] })).unwrap();
        let steps: Vec<Step> = (1..=ROUNDS)
            .map(|round| Step::Ask(Ask::new(format!("round {round}")).with_output(contract.clone())))
            .collect();
        StartRun::new(ScriptedBody::workflow_ref(), Parent::new("me", self.folder.to_str().unwrap()))
            .with_run_id(self.run())
            .with_args(json!(steps))
    }

    async fn engine(&self) -> TemporalEngine {
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
        // What a worker that was killed has left is ended before anything new begins.
        sweep_leftovers(Mark::VARIABLE).unwrap();
        let provider = CommandProvider::new(PROVIDER, "/bin/sh", self.folder.join("calls")).with_arguments([
            "-c".to_owned(),
            SCRIPT.to_owned(),
            "sh".to_owned(),
            self.log().to_str().unwrap().to_owned(),
            self.seconds.clone(),
        ]);
        let registry = Arc::new(LocalRegistry::new());
        registry.register(Arc::new(provider)).unwrap();
        let config = WorkerConfig::default()
            .with_queue(Some(self.queue.clone()))
            .with_child_queues([self.queue.clone()])
            .with_heartbeat_interval(Duration::from_millis(500))
            .with_cancellation_grace(Duration::from_secs(10));
        let worker =
            TemporalWorker::start(Endpoint::new(&self.address), ScriptedBody::catalog(), registry, config)
                .await
                .unwrap();
        worker.ended().await.unwrap();
    }

    fn spawn(&self, role: &str) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([role, &self.address, &self.queue, self.folder.to_str().unwrap(), &self.seconds])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().filter_map(Line::read).collect()
    }

    fn started(&self, call: u64) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.is_start && line.call == call).collect()
    }

    /// Waits until the child of a call has begun its work.
    fn wait_for_start(&self, call: u64, attempt: u32) -> Result<Line, String> {
        let mut found = None;
        wait(&format!("the start of call {call}, attempt {attempt}"), || {
            found = self.started(call).into_iter().find(|line| line.attempt == attempt);
            found.is_some()
        })?;
        found.ok_or_else(String::new)
    }

    /// Checks that every call ended once, and that the interrupted one alone was tried again.
    fn check(&self, result: &RunResult, interrupted: Option<u64>) -> Result<(), String> {
        let lines = self.lines();
        let told = || format!("{result:?}; {lines:?}");
        if result.stop_reason() != RunStopReason::Completed || result.agents_started() != ROUNDS {
            return Err(told());
        }
        for call in 1..=ROUNDS {
            let starts = self.started(call);
            let ends = lines.iter().filter(|line| !line.is_start && line.call == call).count();
            let is_twice = starts.len() > 1 && interrupted != Some(call);
            let same =
                starts.iter().any(|one| starts.iter().filter(|two| two.attempt == one.attempt).count() > 1);
            if ends != 1 || is_twice || same || starts.len() > 2 {
                return Err(format!("call {call}: {}", told()));
            }
        }
        Ok(())
    }
}

/// A line of a child.
#[derive(Clone, Debug)]
struct Line {
    is_start: bool,
    call: u64,
    attempt: u32,
    pid: i32,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            is_start: words.next()? == "start",
            call: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
        })
    }

    fn is_alive(&self) -> bool {
        // A process that is dead and not yet waited for does nothing any more.
        let state = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = state.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        state.is_some_and(|state| state != 'Z')
    }

    fn wait_until_gone(&self, limit: Duration) -> Result<Duration, String> {
        let begin = Instant::now();
        while self.is_alive() {
            if begin.elapsed() > limit {
                return Err(format!("process {} lives after {limit:?}: {self:?}", self.pid));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(begin.elapsed())
    }
}

struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
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
fn play(
    scene: &Scene,
    trial: impl FnOnce(&dyn WorkflowRun) -> Result<(), String>,
) -> Result<RunResult, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = runtime.block_on(scene.engine());
    let run = runtime.block_on(engine.start(scene.request(), CancellationToken::new())).unwrap();
    trial(&*run)?;
    runtime.block_on(async {
        let result = tokio::time::timeout(PATIENCE, run.result()).await.map_err(|_| "the run has no end")?;
        run.dispose().await.map_err(|error| error.to_string())?;
        Ok(result)
    })
}

fn kill_worker(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1");
    let mut first = scene.spawn("worker");
    let mut second = None;
    let result = play(&scene, |_| {
        let child = scene.wait_for_start(2, 1)?;
        first.kill();
        second = Some(scene.spawn("worker"));
        // The restarted worker ends what the killed one has left, before its child would have ended by itself.
        child.wait_until_gone(PATIENCE).map(drop)
    })?;
    scene.check(&result, Some(2))
}

fn lose_one_of_two(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "2");
    let mut workers = [scene.spawn("worker"), scene.spawn("worker")];
    let mut lost = None;
    let result = play(&scene, |_| {
        let child = scene.wait_for_start(2, 1)?;
        // The one that has the child.
        let index = usize::from(is_below(child.pid, workers[1].0.id()));
        workers[index].kill();
        lost = Some(child);
        Ok(())
    })?;
    let lost = lost.ok_or("there was no child")?;
    // A child of a killed worker lives until a worker is started on its machine; here it ends by itself.
    lost.wait_until_gone(Duration::from_secs(10))?;
    let ends = scene.lines().into_iter().filter(|line| !line.is_start && line.call == 2).count();
    if result.stop_reason() != RunStopReason::Completed || scene.started(2).len() != 2 || ends > 2 {
        return Err(format!("{result:?}; {:?}", scene.lines()));
    }
    let others = [1, 3, 4, 5].iter().all(|call| scene.started(*call).len() == 1);
    if others { Ok(()) } else { Err(format!("{:?}", scene.lines())) }
}

/// Says whether a process has another one above it.
fn is_below(pid: i32, above: u32) -> bool {
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

fn freeze_worker(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "300");
    let frozen = scene.spawn("worker");
    let mut other = None;
    let mut ended_in = Duration::ZERO;
    let result = play(&scene, |run| {
        let child = scene.wait_for_start(1, 1)?;
        frozen.signal(Signal::STOP);
        other = Some(scene.spawn("worker"));
        // The server may have handed the next attempt to the frozen worker too, since a poll of it was open.
        wait("the next attempt's start", || scene.started(1).len() > 1)?;
        frozen.signal(Signal::CONT);
        // Long before it would have ended by itself.
        ended_in = child.wait_until_gone(Duration::from_secs(4))?;
        run.cancel("the trial is over");
        Ok(())
    })?;
    println!("  a thawed worker's lost child was gone after {ended_in:?}");
    let starts = scene.started(1);
    let same = starts.windows(2).any(|two| two[0].attempt == two[1].attempt);
    let alive = starts.iter().any(Line::is_alive);
    if result.stop_reason() != RunStopReason::Cancelled || alive || same || result.attempts() > 3 {
        return Err(format!("{result:?}; {:?}", scene.lines()));
    }
    Ok(())
}

fn kill_server(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1");
    let _worker = scene.spawn("worker");
    let result = play(&scene, |_| {
        scene.wait_for_start(2, 1)?;
        server.kill_and_start_again().map_err(|error| error.to_string())
    })?;
    scene.check(&result, Some(2))
}

fn kill_client(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1");
    let _worker = scene.spawn("worker");
    let mut client = scene.spawn("client");
    scene.wait_for_start(2, 1)?;
    client.kill();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let engine = scene.engine().await;
        let run = engine.attach(&scene.run()).await.map_err(|error| error.to_string())?;
        let result = tokio::time::timeout(PATIENCE, run.result()).await.map_err(|_| "the run has no end")?;
        run.dispose().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(result)
    })?;
    scene.check(&result, None)
}

fn cancel_elsewhere(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "300");
    let _worker = scene.spawn("worker");
    let mut reached_in = Duration::ZERO;
    let result = play(&scene, |run| {
        let child = scene.wait_for_start(1, 1)?;
        run.cancel("enough");
        reached_in = child.wait_until_gone(HEARTBEAT_TIMEOUT + Duration::from_secs(1))?;
        Ok(())
    })?;
    println!("  a cancel reached a child of another process, and it was gone, after {reached_in:?}");
    let reason = result.error().and_then(|error| error.details()).map(|details| details["reason"].clone());
    if reason == Some(json!("enough")) { Ok(()) } else { Err(format!("{result:?}")) }
}

/// A run that has filled its history goes on with a fresh one, and makes no call twice.
fn fresh_history(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(server, folder.path(), "0");
    scene.history_events = 12;
    let _worker = scene.spawn("worker");
    let result = play(&scene, |_| Ok(()))?;
    scene.check(&result, None)?;
    if result.attempts() != ROUNDS {
        return Err(format!("{result:?}"));
    }
    let mut histories = 0;
    wait("several histories of the run", || {
        histories = server.histories(scene.run().as_str());
        histories > 1
    })?;
    println!("  {ROUNDS} rounds took {histories} histories");
    Ok(())
}
