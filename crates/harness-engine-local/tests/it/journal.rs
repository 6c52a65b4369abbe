//! Runs that are interrupted and taken up again.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use harness_engine_local::{
    Answer, Entry, Journal, JournalError, JournalStore, JsonlStore, LocalConfig, LocalEngine, RunHistory,
    RunState, StoredRun,
};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, StopReason, SubagentProvider, SubagentRegistry, Usage};
use harness_testkit::subagent::{MockChild, MockProvider, MockProviderHandle};
use harness_workflow::{
    AgentCall, CallOutcome, ErrorCode, ErrorKind, RunId, RunResult, RunStopReason, StartRun, WorkflowCatalog,
    WorkflowEngine, WorkflowRun,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::bodies::{Bench, Body, ask_in_turn, config, request};

/// Makes a bench like that of a new process: nothing but the store is the old one.
pub(crate) fn bench(store: &Arc<dyn JournalStore>, body: Arc<Body>) -> Bench {
    bench_with(store, body, config())
}

fn bench_with(store: &Arc<dyn JournalStore>, body: Arc<Body>, config: LocalConfig) -> Bench {
    let (provider, handle): (_, MockProviderHandle) = MockProvider::new(Capabilities::ALL);
    let registry = Arc::new(LocalRegistry::default());
    let config = config.with_provider(provider.name());
    registry.register(provider).unwrap();
    let catalog = WorkflowCatalog::new().with(body).unwrap();
    let engine = LocalEngine::durable(Arc::clone(&registry) as _, catalog, config, Arc::clone(store));
    Bench::over(engine, registry, handle)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Folder {
    folder: TempDir,
    store: Arc<dyn JournalStore>,
}

impl Folder {
    fn new() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let store: Arc<dyn JournalStore> = Arc::new(JsonlStore::open(folder.path().join("runs")).unwrap());
        Self { folder, store }
    }

    fn journal(&self) -> PathBuf {
        self.run_dir().join("journal.jsonl")
    }

    fn run_dir(&self) -> PathBuf {
        self.folder.path().join("runs/r")
    }

    fn history(&self) -> RunHistory {
        RunHistory::read(&*self.store, &run_id()).unwrap()
    }

    /// Runs `body` until the child of `call` runs, and then loses the process, as far as the run can tell.
    fn interrupt(&self, body: Arc<Body>, args: Value, call: u64) {
        let runtime = runtime();
        let bench = bench(&self.store, body);
        bench.provider.set_default_with(move |request| scripted(request.origin.as_ref().unwrap().call, call));
        let run = runtime.block_on(async {
            let run = if self.run_dir().exists() {
                bench.engine.resume(&run_id(), CancellationToken::new()).await.unwrap()
            } else {
                bench.start(request().with_run_id("r").with_args(args)).await
            };
            while !bench
                .provider
                .requests()
                .iter()
                .any(|request| request.origin.as_ref().unwrap().call == call)
            {
                tokio::task::yield_now().await;
            }
            run
        });
        assert_eq!(self.history().state, RunState::Running);
        drop(runtime);
        drop(run);
        assert_eq!(self.history().state, RunState::Interrupted);
    }

    /// Takes the run up with `body` and waits for its end.
    fn resume(&self, body: Arc<Body>) -> (RunResult, Bench) {
        let bench = bench(&self.store, body);
        bench.provider.set_default_with(|request| scripted(request.origin.as_ref().unwrap().call, u64::MAX));
        let result = runtime().block_on(async {
            let run = bench.engine.resume(&run_id(), CancellationToken::new()).await.unwrap();
            let result = run.result().await;
            run.dispose().await.unwrap();
            result
        });
        bench.assert_clean();
        (result, bench)
    }
}

fn run_id() -> RunId {
    RunId::from("r")
}

/// The child of a call says which it is; that of `last` never ends.
fn scripted(call: u64, last: u64) -> MockChild {
    if call == last {
        MockChild::hanging()
    } else {
        MockChild::text(format!("answer {call}")).with_usage(Usage::new(1, 2))
    }
}

fn source(error: &harness_workflow::Error) -> &JournalError {
    std::error::Error::source(error).unwrap().downcast_ref().unwrap()
}

#[test]
fn a_run_that_was_interrupted_goes_on_at_the_call_that_has_no_end() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(4), 3);
    let (result, bench) = folder.resume(Body::new(ask_in_turn));
    assert_eq!(result.value(), Some(&json!(["answer 1", "answer 2", "answer 3", "answer 4"])));
    assert_eq!((result.agents_started(), result.attempts()), (4, 5));
    let started: Vec<_> =
        bench.provider.requests().iter().map(|request| request.origin.clone().unwrap()).collect();
    assert_eq!(
        started.iter().map(|origin| (origin.call, origin.attempt)).collect::<Vec<_>>(),
        [(3, 2), (4, 1)]
    );
    assert_eq!(
        bench.events.names(),
        [
            "started",
            "agent-started 3",
            "agent-ended 3 completed",
            "checkpoint",
            "agent-started 4",
            "agent-ended 4 completed",
            "checkpoint",
            "ended",
        ],
        "what the journal answers causes no event"
    );
    let history = folder.history();
    assert_eq!(history.state, RunState::Finished(result));
    assert_eq!((history.resumptions, history.attempts(), history.agents_started()), (1, 5, 4));
    assert_eq!(history.usage(), Usage::new(4, 8));
    assert_eq!(history.checkpoint, Some(json!(4)));
    let third = &history.calls[&3];
    assert_eq!(third.attempts.len(), 2);
    assert_eq!(third.attempts[0].end, None);
    assert_ne!(third.attempts[0].child, None);
    assert_eq!(third.answer, Some(Answer::Value(json!("answer 3"))));
}

#[test]
fn a_run_that_has_ended_is_not_run_again() {
    let folder = Folder::new();
    let ended = runtime().block_on(async {
        let bench = bench(&folder.store, Body::new(ask_in_turn));
        bench.provider.set_default(MockChild::failing(StopReason::REFUSAL));
        let ended = bench.run(request().with_run_id("r")).await;
        let error =
            bench.engine.start(request().with_run_id("r"), CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RunExists);
        ended
    });
    let written = fs::read(folder.journal()).unwrap();
    let (result, bench) = folder.resume(Body::new(|_| async { panic!("the body must not begin") }));
    assert_eq!(result, ended);
    assert_eq!(bench.events.names(), [] as [&str; 0]);
    assert_eq!(fs::read(folder.journal()).unwrap(), written);
}

#[test]
fn a_crash_loop_ends_when_a_call_was_tried_as_often_as_it_may_be() {
    let folder = Folder::new();
    for _ in 0..3 {
        folder.interrupt(Body::new(ask_in_turn), json!(2), 2);
    }
    let (result, bench) = folder.resume(Body::new(ask_in_turn));
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::ATTEMPTS_EXHAUSTED);
    assert_eq!(error.details(), Some(&json!({ "call": 2, "attempts": 3 })));
    assert_eq!((result.agents_started(), result.attempts()), (2, 4));
    assert_eq!(result.checkpoint(), Some(&json!(1)));
    assert_eq!(bench.provider.starts(), 0);
    assert_eq!(folder.history().state, RunState::Finished(result));
}

#[test]
fn a_run_that_needs_all_its_calls_still_gets_them_after_a_crash() {
    let folder = Folder::new();
    let body = || Body::new(ask_in_turn);
    let runtime = runtime();
    let first = bench(&folder.store, body());
    first.provider.set_default_with(|request| scripted(request.origin.as_ref().unwrap().call, 3));
    runtime.block_on(async {
        let run = first.start(request().with_run_id("r").with_args(json!(3)).with_max_agents(3)).await;
        first.provider.wait_for_child(3).await;
        std::mem::forget(run);
    });
    drop(runtime);
    let (result, _) = folder.resume(body());
    assert_eq!(result.stop_reason(), RunStopReason::Completed);
    assert_eq!((result.agents_started(), result.attempts()), (3, 4));
}

#[track_caller]
fn check_mismatch(other: Arc<Body>, fragment: &str) {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(3), 3);
    let before = fs::read(folder.journal()).unwrap();
    let (result, bench) = folder.resume(other);
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::REPLAY_MISMATCH);
    assert!(error.message().contains(fragment), "{error}");
    assert_eq!(bench.provider.starts(), 0);
    // The journal has nothing new but that somebody tried, so the right body can go on.
    assert!(fs::read(folder.journal()).unwrap().starts_with(&before));
    let (result, _) = folder.resume(Body::new(ask_in_turn));
    assert_eq!(result.stop_reason(), RunStopReason::Completed);
}

#[test]
fn a_body_that_makes_other_calls_is_refused_and_the_journal_stays() {
    check_mismatch(
        Body::new(
            |context| async move { context.agent(AgentCall::new("another")).await.map(|_| Value::Null) },
        ),
        "call 1 of the body is not the one in the journal",
    );
    check_mismatch(
        Body::new(|context| async move {
            let call =
                AgentCall::new("question 1").with_tools(harness_subagent::ToolRestriction::deny(["x"]));
            context.agent(call).await.map(|_| Value::Null)
        }),
        "call 1 of the body",
    );
    // One that swallows the refusal gains nothing by it.
    check_mismatch(
        Body::new(|context| async move {
            let _ = context.agent(AgentCall::new("another")).await;
            Ok(json!("all is well"))
        }),
        "call 1 of the body",
    );
    check_mismatch(
        Body::new(|context| async move {
            context.agent(AgentCall::new("question 1")).await.map(|_| json!("enough"))
        }),
        "the body never made call 2 of the journal",
    );
}

#[test]
fn an_unknown_workflow_is_refused_and_lets_the_run_be() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(3), 2);
    let registry = Arc::new(LocalRegistry::default());
    let engine = LocalEngine::durable(registry, WorkflowCatalog::new(), config(), Arc::clone(&folder.store));
    let error = runtime().block_on(engine.resume(&run_id(), CancellationToken::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownWorkflow);
    assert_eq!(folder.resume(Body::new(ask_in_turn)).0.stop_reason(), RunStopReason::Completed);
}

#[test]
fn a_run_that_was_cancelled_before_the_crash_ends_as_cancelled() {
    let folder = Folder::new();
    let runtime = runtime();
    let first = bench(&folder.store, Body::new(ask_in_turn));
    first.provider.set_default(MockChild::hanging().ignoring_cancellation());
    runtime.block_on(async {
        let run = first.start(request().with_run_id("r")).await;
        first.provider.wait_for_child(1).await;
        run.cancel("enough");
        std::mem::forget(run);
    });
    drop(runtime);
    assert_eq!(folder.history().cancel_reason.as_deref(), Some("enough"));
    let (result, bench) = folder.resume(Body::new(|_| async { panic!("the body must not begin") }));
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
    assert_eq!(result.error().unwrap().details(), Some(&json!({ "reason": "enough" })));
    assert_eq!((result.agents_started(), result.attempts()), (1, 1));
    assert_eq!(bench.events.names(), ["started", "ended"]);
    assert_eq!(folder.history().state, RunState::Finished(result));
}

#[test]
fn what_a_cancelled_child_used_is_recorded_though_its_call_has_no_answer() {
    let folder = Folder::new();
    let bench = bench(&folder.store, Body::new(ask_in_turn));
    let usage = Usage::new(3, 4);
    bench.provider.set_default(MockChild::hanging().with_usage(usage).with_session_id("s-1"));
    runtime().block_on(async {
        let run = bench.start(request().with_run_id("r")).await;
        bench.provider.wait_for_child(1).await;
        run.cancel("enough");
        run.result().await;
        run.dispose().await.unwrap();
    });
    let history = folder.history();
    let call = &history.calls[&1];
    assert_eq!(call.answer, None);
    let end = call.attempts[0].end.as_ref().unwrap();
    assert_eq!((end.outcome, end.usage), (CallOutcome::Cancelled, Some(usage)));
    assert_eq!(end.session_id.as_deref(), Some("s-1"));
    assert_eq!(history.usage(), usage);
    let lines = fs::read_to_string(folder.journal()).unwrap();
    assert_eq!(lines.matches("agent-stopped").count(), 1, "{lines}");
    bench.assert_clean();
}

#[test]
fn what_the_body_says_is_recorded_once() {
    let folder = Folder::new();
    let body = || {
        Body::new(|context| async move {
            context.phase("one")?;
            context.log("said")?;
            context.agent(AgentCall::new("question 1")).await?;
            context.phase("two")?;
            context.agent(AgentCall::new("question 2")).await?;
            context.log("bye")?;
            Ok(Value::Null)
        })
    };
    folder.interrupt(body(), Value::Null, 2);
    let (_, bench) = folder.resume(body());
    assert_eq!(
        bench.events.names(),
        ["started", "agent-started 2", "agent-ended 2 completed", "log", "ended"]
    );
    let kinds: Vec<String> = fs::read_to_string(folder.journal())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        kinds,
        [
            "run-started",
            "phase",
            "log",
            "agent-started",
            "agent-spawned",
            "agent-ended",
            "phase",
            "agent-started",
            "agent-spawned",
            "run-resumed",
            "agent-started",
            "agent-spawned",
            "agent-ended",
            "log",
            "run-finished",
        ]
    );
}

fn side_by_side(calls: u64) -> Arc<Body> {
    Body::new(move |context| async move {
        let branches = (1..=calls).map(|number| {
            let context = context.clone();
            async move {
                context.agent(AgentCall::new(format!("question {number}"))).await.map(crate::bodies::plain)
            }
        });
        Ok(json!(context.parallel(branches).await?))
    })
}

#[test]
fn calls_side_by_side_are_answered_each_by_its_own() {
    let folder = Folder::new();
    folder.interrupt(side_by_side(5), Value::Null, 5);
    let (result, _) = folder.resume(side_by_side(5));
    assert_eq!(result.value(), Some(&json!(["answer 1", "answer 2", "answer 3", "answer 4", "answer 5"])));
    assert!(folder.history().calls.values().all(|call| call.answer.is_some()));
}

#[test]
fn calls_side_by_side_start_in_their_order_whichever_thread_syncs_first() {
    const CALLS: u64 = 8;
    let folder = Folder::new();
    let runtime = runtime();
    for _ in 0..25 {
        let config = config().with_max_concurrent_agents(NonZeroUsize::new(8));
        let bench = bench_with(&folder.store, side_by_side(CALLS), config);
        runtime.block_on(bench.run(request()));
        let starts = bench.provider.requests().into_iter().map(|asked| asked.origin.unwrap().call);
        assert!(starts.eq(1..=CALLS));
    }
}

#[test]
fn a_run_has_one_process_at_a_time() {
    let folder = Folder::new();
    let bench = bench(&folder.store, Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging());
    runtime().block_on(async {
        let run = bench.start(request().with_run_id("r")).await;
        let error = bench.engine.resume(&run_id(), CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Engine);
        let JournalError::Locked { holder, .. } = source(&error) else { panic!("{error:?}") };
        assert_eq!(*holder, Some(std::process::id()));
        run.dispose().await.unwrap();
        let ended = bench.engine.resume(&run_id(), CancellationToken::new()).await.unwrap();
        assert_eq!(ended.result().await.stop_reason(), RunStopReason::Cancelled);
        ended.cancel("it has ended");
        ended.dispose().await.unwrap();
        let error = bench.engine.resume(&RunId::from("nobody"), CancellationToken::new()).await.unwrap_err();
        assert!(matches!(source(&error), JournalError::Unknown { .. }), "{error:?}");
    });
    bench.assert_clean();
}

#[test]
fn a_start_that_is_dropped_leaves_a_cancelled_run() {
    let folder = Folder::new();
    let bench = bench(&folder.store, Body::new(ask_in_turn));
    bench.provider.set_default(MockChild::hanging());
    let runtime = runtime();
    runtime.block_on(async {
        let mut start = bench.engine.start(request().with_run_id("r"), CancellationToken::new());
        assert!(
            start.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
        );
        drop(start);
        loop {
            if let Ok(history) = RunHistory::read(&*folder.store, &run_id())
                && let RunState::Finished(result) = history.state
            {
                assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
                if bench.invariants.open_runs().is_empty() {
                    break;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    bench.assert_clean();
}

#[test]
fn a_torn_last_line_is_dropped_and_anything_else_is_refused_with_its_line() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(3), 3);
    let whole = fs::read(folder.journal()).unwrap();
    let line_ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();

    let mut changed = whole.clone();
    changed[line_ends[1] + 20] ^= 1;
    fs::write(folder.journal(), &changed).unwrap();
    let error = folder.store.open(&run_id()).unwrap_err();
    let JournalError::Corrupt { line, path, .. } = &error else { panic!("{error}") };
    assert_eq!((*line, path), (3, &folder.journal()));
    assert_eq!(fs::read(folder.journal()).unwrap(), changed, "a refused journal is left as it is");

    for missing in [1, 3] {
        let mut lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        lines.remove(missing);
        fs::write(folder.journal(), lines.concat()).unwrap();
        let error = folder.store.read(&run_id()).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { line, .. } if line == missing as u64 + 1), "{error}");
    }

    for cut in [line_ends[4] + 1, line_ends[4] + 2, line_ends[5] - 1, line_ends[5]] {
        fs::write(folder.journal(), &whole[..cut]).unwrap();
        assert_eq!(folder.store.read(&run_id()).unwrap().records.len(), 5);
        let (stored, journal) = folder.store.open(&run_id()).unwrap();
        assert_eq!(stored.records.len(), 5);
        assert_eq!(fs::read(folder.journal()).unwrap(), whole[..=line_ends[4]]);
        drop(journal);
    }
    let (result, bench) = folder.resume(Body::new(ask_in_turn));
    assert_eq!(result.value(), Some(&json!(["answer 1", "answer 2", "answer 3"])));
    assert_eq!(bench.provider.starts(), 2, "call 2 has lost its start but not call 1 its end");
}

#[test]
fn a_request_that_was_changed_is_refused() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(3), 2);
    let path = folder.run_dir().join("request.json");
    let text = fs::read_to_string(&path).unwrap();
    let request: StartRun = serde_json::from_str(&text).unwrap();
    assert_eq!((request.args, request.max_agents), (json!(3), Some(100)));
    fs::write(&path, text.replace("\"args\":3", "\"args\":4")).unwrap();
    let error = RunHistory::read(&*folder.store, &run_id()).unwrap_err();
    assert!(matches!(error, JournalError::RequestChanged { .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn files_are_private_and_none_stays_open() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let bench = bench(&folder.store, Body::new(ask_in_turn));
    runtime().block_on(bench.run(request().with_run_id("r")));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.folder.path().join("runs")), 0o700);
    assert_eq!(mode(&folder.run_dir()), 0o700);
    let mut names: Vec<_> =
        fs::read_dir(folder.run_dir()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 3);
    for path in names {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let ours: Vec<_> = open.filter(|path| path.starts_with(folder.folder.path())).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// A store that fails on demand.
#[derive(Debug)]
struct Failing {
    inner: Arc<dyn JournalStore>,
    fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct FailingJournal(Box<dyn Journal>, Arc<AtomicBool>);

fn no_space() -> JournalError {
    let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
    JournalError::Io { action: "write", path: PathBuf::from("journal.jsonl"), source }
}

impl Journal for FailingJournal {
    fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        if self.1.load(Ordering::Relaxed) { Err(no_space()) } else { self.0.append(entries) }
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.0.sync()
    }
}

impl JournalStore for Failing {
    fn create(&self, request: &StartRun, first: &Entry) -> Result<Box<dyn Journal>, JournalError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(no_space());
        }
        Ok(Box::new(FailingJournal(self.inner.create(request, first)?, Arc::clone(&self.fails))))
    }

    fn open(&self, run: &RunId) -> Result<(StoredRun, Box<dyn Journal>), JournalError> {
        let (stored, journal) = self.inner.open(run)?;
        Ok((stored, Box::new(FailingJournal(journal, Arc::clone(&self.fails)))))
    }

    fn read(&self, run: &RunId) -> Result<StoredRun, JournalError> {
        self.inner.read(run)
    }

    fn runs(&self) -> Result<Vec<RunId>, JournalError> {
        self.inner.runs()
    }
}

#[test]
fn a_journal_that_cannot_be_written_ends_the_run_and_loses_nothing() {
    for swallows in [false, true] {
        let folder = Folder::new();
        let fails = Arc::new(AtomicBool::new(false));
        let store: Arc<dyn JournalStore> =
            Arc::new(Failing { inner: Arc::clone(&folder.store), fails: Arc::clone(&fails) });
        let bench = bench(
            &store,
            Body::new(move |context| async move {
                match ask_in_turn(context).await {
                    Err(_) if swallows => Ok(json!("all is well")),
                    other => other,
                }
            }),
        );
        let switch = Arc::clone(&fails);
        bench.provider.set_default_with(move |request| {
            let call = request.origin.as_ref().unwrap().call;
            switch.store(call == 2, Ordering::Relaxed);
            scripted(call, u64::MAX)
        });
        let result = runtime().block_on(bench.run(request().with_run_id("r").with_args(json!(3))));
        let error = result.error().unwrap();
        assert_eq!(*error.code(), ErrorCode::JOURNAL);
        assert!(error.message().contains("cannot write journal.jsonl: "), "{error}");
        assert_eq!(folder.history().state, RunState::Interrupted);
        let error = runtime().block_on(bench.engine.start(request(), CancellationToken::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Engine);
        fails.store(false, Ordering::Relaxed);
        let (result, bench) = folder.resume(Body::new(ask_in_turn));
        assert_eq!(result.value(), Some(&json!(["answer 1", "answer 2", "answer 3"])));
        assert_eq!(bench.provider.request(1).origin.unwrap().call, 2);
    }
}

#[test]
fn every_run_is_listed_and_one_that_cannot_be_read_hides_no_other() {
    let folder = Folder::new();
    let bench = bench(&folder.store, Body::new(ask_in_turn));
    runtime().block_on(async {
        for id in ["b", "a/ü", "c"] {
            bench.run(request().with_run_id(id)).await;
        }
    });
    fs::write(folder.folder.path().join("runs/b/journal.jsonl"), "x\n").unwrap();
    fs::create_dir(folder.folder.path().join("runs/.new-left")).unwrap();
    fs::create_dir(folder.folder.path().join("runs/other")).unwrap();
    let runs = RunHistory::read_all(&*folder.store).unwrap();
    let states: Vec<_> = runs.iter().map(|listed| (listed.run.as_str(), listed.history.is_ok())).collect();
    assert_eq!(states, [("a/ü", true), ("b", false), ("c", true)]);
}

#[test]
fn the_limit_of_attempts_is_the_engines() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(1), 1);
    let config = config().with_max_attempts_per_call(NonZeroU32::MIN);
    let bench = bench_with(&folder.store, Body::new(ask_in_turn), config);
    let result = runtime().block_on(async {
        let run: Box<dyn WorkflowRun> =
            bench.engine.resume(&run_id(), CancellationToken::new()).await.unwrap();
        run.result().await
    });
    assert_eq!(*result.error().unwrap().code(), ErrorCode::ATTEMPTS_EXHAUSTED);
}

/// Two sides of one lock: a reader never keeps a writer out for long.
#[test]
fn looking_at_a_run_does_not_keep_it_from_being_resumed() {
    let folder = Folder::new();
    folder.interrupt(Body::new(ask_in_turn), json!(2), 2);
    let store = Arc::clone(&folder.store);
    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let states = Mutex::new(0);
            while !stop.load(Ordering::Relaxed) {
                RunHistory::read(&*store, &run_id()).unwrap();
                *states.lock().unwrap() += 1;
            }
            states.into_inner().unwrap()
        }
    });
    for _ in 0..20 {
        drop(folder.store.open(&run_id()).unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}
