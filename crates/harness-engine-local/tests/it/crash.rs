//! A process that is killed loses nothing that had ended.
//!
//! This binary runs itself as the process that is killed. `CRASH_POINTS` says how many times (60 without it), and
//! `CRASH_SEED` repeats a series.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use harness_engine_local::{
    Entry, Journal, JournalError, JournalStore, JsonlStore, LocalConfig, LocalEngine, RunHistory, RunState,
    StoredRun,
};
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    AgentId, Capabilities, StartSubagent, SubagentProvider, SubagentRegistry, SubagentResult, SubagentRun,
};
use harness_workflow::{
    AgentCall, AgentOutcome, RunId, RunResult, RunStopReason, StartRun, WorkflowCatalog, WorkflowContext,
    WorkflowEngine, WorkflowError, WorkflowRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bodies::{Body, plain, request};

const CALLS: u64 = 12;

/// Each call's prompt has in it what all calls before have yielded.
async fn chain(context: WorkflowContext) -> Result<Value, WorkflowError> {
    let mut values = Vec::new();
    for number in 1..=CALLS {
        context.phase(&format!("step {number}"))?;
        let outcome = context.agent(AgentCall::new(format!("{number} after {}", json!(values)))).await?;
        assert!(matches!(outcome, AgentOutcome::Value(_)), "{outcome:?}");
        values.push(plain(outcome));
        context.checkpoint(json!(values))?;
    }
    Ok(json!(values))
}

fn expected() -> Value {
    json!((1..=CALLS).map(|number| format!("value {number}")).collect::<Vec<_>>())
}

/// Where the process is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// While the child of that call is alive.
    Child(u64),
    /// Before or after the journal's operation of that number.
    Journal(u64, bool),
    /// That many microseconds after the process has begun.
    Time(u64),
}

fn kill_this_process() -> ! {
    let this = rustix::process::getpid();
    rustix::process::kill_process(this, rustix::process::Signal::KILL).unwrap();
    unreachable!("nothing survives the signal");
}

/// Its children write into a ledger that they have begun and ended, as a real one's side effects would.
#[derive(Debug)]
struct Children {
    ledger: File,
    killed_at: Option<u64>,
}

#[derive(Debug)]
struct ChildRun {
    id: AgentId,
    ledger: File,
    call: u64,
    is_killed: bool,
}

fn note(mut ledger: &File, what: &str, call: u64) {
    ledger.write_all(format!("{what} {call}\n").as_bytes()).unwrap();
}

#[async_trait]
impl SubagentProvider for Children {
    fn name(&self) -> &str {
        "ledger"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> harness_subagent::Result<Box<dyn SubagentRun>> {
        let origin = request.origin.unwrap();
        note(&self.ledger, "begin", origin.call);
        Ok(Box::new(ChildRun {
            id: AgentId::new(format!("{}/{}", origin.call, origin.attempt)),
            ledger: self.ledger.try_clone().unwrap(),
            call: origin.call,
            is_killed: self.killed_at == Some(origin.call),
        }))
    }
}

#[async_trait]
impl SubagentRun for ChildRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> harness_subagent::Result<SubagentResult> {
        if self.is_killed {
            kill_this_process();
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
        note(&self.ledger, "end", self.call);
        Ok(SubagentResult::completed(format!("value {}", self.call)))
    }

    async fn dispose(&self) -> harness_subagent::Result<()> {
        Ok(())
    }
}

/// Kills the process at one of its operations.
#[derive(Debug)]
struct KilledStore {
    store: JsonlStore,
    killed_at: Option<(u64, bool)>,
}

#[derive(Debug)]
struct KilledJournal {
    journal: Box<dyn Journal>,
    killed_at: Option<(u64, bool)>,
    operations: AtomicU64,
}

impl KilledStore {
    fn wrap(&self, journal: Box<dyn Journal>) -> Box<dyn Journal> {
        Box::new(KilledJournal { journal, killed_at: self.killed_at, operations: AtomicU64::new(0) })
    }
}

impl KilledJournal {
    fn operate(
        &mut self,
        operation: impl FnOnce(&mut dyn Journal) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        if self.killed_at == Some((number, false)) {
            kill_this_process();
        }
        operation(&mut *self.journal)?;
        if self.killed_at == Some((number, true)) {
            kill_this_process();
        }
        Ok(())
    }
}

impl Journal for KilledJournal {
    fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        self.operate(|journal| journal.append(entries))
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.operate(|journal| journal.sync())
    }
}

impl JournalStore for KilledStore {
    fn create(&self, request: &StartRun, first: &Entry) -> Result<Box<dyn Journal>, JournalError> {
        Ok(self.wrap(self.store.create(request, first)?))
    }

    fn open(&self, run: &RunId) -> Result<(StoredRun, Box<dyn Journal>), JournalError> {
        let (stored, journal) = JournalStore::open(&self.store, run)?;
        Ok((stored, self.wrap(journal)))
    }

    fn read(&self, run: &RunId) -> Result<StoredRun, JournalError> {
        self.store.read(run)
    }

    fn runs(&self) -> Result<Vec<RunId>, JournalError> {
        self.store.runs()
    }
}

fn run_id() -> RunId {
    RunId::from("killed")
}

/// Starts or resumes the run in `folder`, and sees it through unless the process is killed.
fn run_to_the_end(folder: &Path, max_agents: u64, point: Option<Point>) -> RunResult {
    let ledger = OpenOptions::new().create(true).append(true).open(folder.join("ledger")).unwrap();
    let killed_at = match point {
        Some(Point::Child(call)) => Some(call),
        _ => None,
    };
    let registry = LocalRegistry::default();
    registry.register(Arc::new(Children { ledger, killed_at })).unwrap();
    let killed_at = match point {
        Some(Point::Journal(operation, after)) => Some((operation, after)),
        _ => None,
    };
    let store = Arc::new(KilledStore { store: JsonlStore::open(folder.join("runs")).unwrap(), killed_at });
    let catalog = WorkflowCatalog::new().with(Body::new(chain)).unwrap();
    let config =
        LocalConfig::default().with_provider("ledger").with_max_agents(NonZeroU64::new(100).unwrap());
    let engine = LocalEngine::durable(Arc::new(registry), catalog, config, Arc::clone(&store) as _);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let known = store.runs().unwrap().contains(&run_id());
        let run: Box<dyn WorkflowRun> = if known {
            engine.resume(&run_id(), CancellationToken::new()).await.unwrap()
        } else {
            let request = request().with_run_id(run_id()).with_max_agents(max_agents);
            engine.start(request, CancellationToken::new()).await.unwrap()
        };
        let result = run.result().await;
        run.dispose().await.unwrap();
        result
    })
}

/// What the process that is killed does. It is no test of its own.
#[test]
#[ignore = "it is run by the test of this module, as a process of its own"]
fn the_process_that_is_killed() {
    let Ok(order) = env::var("CRASH_ORDER") else { return };
    let order: Value = serde_json::from_str(&order).unwrap();
    let number = |key: &str| order[key].as_u64();
    let point = match (number("child"), number("operation"), number("time")) {
        (Some(call), _, _) => Some(Point::Child(call)),
        (_, Some(operation), _) => Some(Point::Journal(operation, order["after"] == json!(true))),
        (_, _, Some(micros)) => Some(Point::Time(micros)),
        _ => None,
    };
    if let Some(Point::Time(micros)) = point {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            kill_this_process();
        });
    }
    let folder = PathBuf::from(order["folder"].as_str().unwrap());
    let result = run_to_the_end(&folder, number("max_agents").unwrap(), point);
    fs::write(folder.join("result"), serde_json::to_vec(&result).unwrap()).unwrap();
}

fn in_a_process(folder: &Path, max_agents: u64, point: Point) -> ExitStatus {
    let mut order = json!({ "folder": folder, "max_agents": max_agents });
    match point {
        Point::Child(call) => order["child"] = json!(call),
        Point::Journal(operation, after) => {
            order["operation"] = json!(operation);
            order["after"] = json!(after);
        }
        Point::Time(micros) => order["time"] = json!(micros),
    }
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::the_process_that_is_killed", "--ignored", "--quiet"])
        .env("CRASH_ORDER", order.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .status()
        .unwrap()
}

/// How many times the children of each call have begun and ended.
fn ledger(folder: &Path) -> Vec<(usize, usize)> {
    let text = fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    let count = |line: String| text.lines().filter(|known| **known == line).count();
    (1..=CALLS).map(|call| (count(format!("begin {call}")), count(format!("end {call}")))).collect()
}

fn check(point: Point, max_agents: u64) -> bool {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    let was_killed = !in_a_process(folder, max_agents, point).success();
    let store = JsonlStore::open(folder.join("runs")).unwrap();
    let before = RunHistory::read(&store, &run_id()).ok();
    let ledger_before = ledger(folder);
    // Nobody but this process is left to run it.
    let result = run_to_the_end(folder, max_agents, None);
    assert_eq!(result.stop_reason(), RunStopReason::Completed, "{point:?}: {:?}", result.error());
    assert_eq!(result.value(), Some(&expected()), "{point:?}");
    assert_eq!(result.checkpoint(), Some(&expected()), "{point:?}");
    assert_eq!(result.agents_started(), CALLS, "{point:?}");
    let history = RunHistory::read(&store, &run_id()).unwrap();
    assert_eq!(history.state, RunState::Finished(result.clone()));
    assert_eq!(history.calls.len() as u64, CALLS);
    assert!(history.calls.values().all(|call| call.answer.is_some()));
    assert_eq!(history.attempts(), result.attempts());
    let after = ledger(folder);
    let mut tried_again = 0;
    for call in 1..=CALLS {
        let index = usize::try_from(call - 1).unwrap();
        let had_ended = before
            .as_ref()
            .and_then(|before| before.calls.get(&call))
            .is_some_and(|call| call.answer.is_some());
        assert!(after[index].1 >= 1, "{point:?}: call {call} is missing");
        if had_ended {
            assert_eq!(
                after[index], ledger_before[index],
                "{point:?}: call {call} had ended and was run again"
            );
            assert_eq!(after[index], (1, 1), "{point:?}: call {call}");
        }
        assert!(after[index].0 <= 2, "{point:?}: call {call} began {} times", after[index].0);
        tried_again += usize::from(after[index].0 == 2);
    }
    assert!(tried_again <= 1, "{point:?}: only the call that was under way is run again");
    was_killed
}

#[test]
fn a_killed_process_loses_nothing_that_had_ended() {
    let points: u64 = env::var("CRASH_POINTS").ok().map_or(60, |text| text.parse().unwrap());
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed: u64 = env::var("CRASH_SEED").ok().map_or_else(now, |text| text.parse().unwrap());
    eprintln!("CRASH_SEED={seed}");
    let mut state = seed;
    let mut random = move |below: u64| {
        // The constants are Knuth's; the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut killed = 0;
    for index in 0..points {
        let point = match index % 3 {
            0 => Point::Child(1 + random(CALLS)),
            // Each call has five writes and a sync.
            1 => Point::Journal(1 + random(6 * CALLS), random(2) == 1),
            _ => Point::Time(random(250_000)),
        };
        let max_agents = if index % 2 == 0 { CALLS } else { 2 * CALLS };
        killed += u64::from(check(point, max_agents));
    }
    eprintln!("{killed} of {points} processes were killed before their run had ended");
    assert!(killed * 2 >= points, "only {killed} of {points} processes were killed before their end");
}
