//! A disk that is full or cannot be written is a clear error, and nothing is lost.
//!
//! The tests mount file systems of their own, in a mount namespace that ends with them. Where that is not allowed, they
//! say so and do nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use harness_engine_local::{JournalStore, JsonlStore, LocalEngine, RunHistory, RunState};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, SubagentProvider, SubagentRegistry};
use harness_testkit::subagent::{MockChild, MockProvider};
use harness_workflow::{ErrorCode, ErrorKind, RunId, RunResult, WorkflowCatalog, WorkflowEngine};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bodies::{Body, ask_in_turn, config, request};

/// Runs the ignored test `name` of this module in a mount namespace of its own.
fn in_a_namespace(name: &str) {
    let allowed =
        Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !allowed {
        eprintln!("SKIPPED: {name}: no mounts are allowed here");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new("unshare")
        .arg("--mount")
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("disk::{name}"), "--ignored", "--nocapture"])
        .env("DISK_FOLDER", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_full_disk_loses_nothing() {
    in_a_namespace("on_a_full_disk");
}

#[test]
fn a_read_only_disk_loses_nothing() {
    in_a_namespace("on_a_read_only_disk");
}

fn mount(arguments: &[&str], folder: &Path) {
    assert!(Command::new("mount").args(arguments).arg(folder).status().unwrap().success());
}

/// The folder on which the namespace's own file system is mounted.
fn mounted() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("DISK_FOLDER")?);
    mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"], &folder);
    Some(folder)
}

const CALLS: u64 = 40;

/// Runs or resumes the run of the folder. `hook` is called with the number of each call when its child starts.
async fn run(
    folder: &Path,
    hook: impl Fn(u64) + Send + Sync + 'static,
) -> harness_workflow::Result<RunResult> {
    let store: Arc<dyn JournalStore> = Arc::new(JsonlStore::open(folder.join("runs")).unwrap());
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    handle.set_default_with(move |request| {
        let call = request.origin.as_ref().unwrap().call;
        hook(call);
        MockChild::text(format!("{call}{}", "x".repeat(2000)))
    });
    let registry = LocalRegistry::default();
    let config = config().with_provider(provider.name());
    registry.register(provider).unwrap();
    let catalog = WorkflowCatalog::new().with(Body::new(ask_in_turn)).unwrap();
    let engine = LocalEngine::durable(Arc::new(registry), catalog, config, Arc::clone(&store));
    let run = if store.runs().unwrap().is_empty() {
        let request = request().with_run_id("r").with_args(json!(CALLS));
        engine.start(request, CancellationToken::new()).await?
    } else {
        engine.resume(&RunId::from("r"), CancellationToken::new()).await?
    };
    let result = run.result().await;
    run.dispose().await.unwrap();
    handle.assert_nothing_left();
    Ok(result)
}

fn history(folder: &Path) -> RunHistory {
    RunHistory::read(&JsonlStore::open(folder.join("runs")).unwrap(), &RunId::from("r")).unwrap()
}

/// The number of the last call that has its answer in the journal.
fn answered(history: &RunHistory) -> u64 {
    history.calls.values().filter(|call| call.answer.is_some()).count() as u64
}

fn assert_ended_well(result: &RunResult, first: u64, started: &std::sync::Mutex<Vec<u64>>) {
    let values = result.value().unwrap().as_array().unwrap();
    assert_eq!(values.len() as u64, CALLS);
    assert!(
        values
            .iter()
            .zip(1_u64..)
            .all(|(value, call)| value.as_str().unwrap().trim_end_matches('x') == call.to_string())
    );
    assert_eq!(*started.lock().unwrap(), (first..=CALLS).collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "it is run by the test of this module, in a mount namespace"]
async fn on_a_full_disk() {
    let Some(folder) = mounted() else { return };
    let result = run(&folder, |_| {}).await.unwrap();
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::JOURNAL);
    assert!(error.message().contains("No space left on device"), "{error}");
    let before = history(&folder);
    assert_eq!(before.state, RunState::Interrupted);
    let answers = answered(&before);
    assert!(answers > 5, "{answers}");

    // A full disk refuses a new run as well, and leaves nothing of it.
    let ballast = folder.join("ballast");
    while fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&ballast)
        .is_ok_and(|mut file| std::io::Write::write_all(&mut file, &[0; 512]).is_ok())
    {}
    let error = run(&folder, |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Engine);
    fs::remove_file(&ballast).unwrap();
    mount(&["-o", "remount,size=4m"], &folder);

    let started = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&started);
    let result = run(&folder, move |call| seen.lock().unwrap().push(call)).await.unwrap();
    assert_ended_well(&result, answers + 1, &started);
}

#[tokio::test]
#[ignore = "it is run by the test of this module, in a mount namespace"]
async fn on_a_read_only_disk() {
    let Some(folder) = mounted() else { return };
    mount(&["-o", "remount,size=4m"], &folder);
    // The run is interrupted by a journal that fills up, as above, but the disk turns read-only.
    mount(&["-o", "remount,size=64k"], &folder);
    let result = run(&folder, |_| {}).await.unwrap();
    assert_eq!(*result.error().unwrap().code(), ErrorCode::JOURNAL);
    let answers = answered(&history(&folder));

    mount(&["-o", "remount,ro"], &folder);
    let error = run(&folder, |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Engine);
    let source = std::error::Error::source(&error).unwrap();
    let cause = std::error::Error::source(source).unwrap();
    assert!(cause.to_string().contains("Read-only file system"), "{cause}");
    // It can still be looked at.
    assert_eq!(history(&folder).state, RunState::Interrupted);
    assert_eq!(answered(&history(&folder)), answers);

    mount(&["-o", "remount,rw,size=4m"], &folder);
    let started = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&started);
    let result = run(&folder, move |call| seen.lock().unwrap().push(call)).await.unwrap();
    assert_ended_well(&result, answers + 1, &started);
}
