//! Hostile children: small programs with one fault each. However bad, each ends as it must and in time, and leaves
//! no process, no zombie and no file outside its place.
//!
//! The set runs in a process of its own, many children at a time, as it looks at all that the process has started and
//! at the memory it has taken. It runs once as an application that adopts orphans, and once as one that does not.

mod case;
mod endings;
mod leftovers;
mod never_ending;
mod streams;
mod understudy;
mod values;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_process::Shutdown;
use harness_provider_cli::CommandProvider;
use harness_subagent::{Diagnostic, ErrorKind, StopReason, SubagentProvider, SubagentResult};
use tokio::sync::Semaphore;

use self::case::{Cancel, Case, Program};
use crate::support::{Bench, files_below, kill};

/// What every script begins with.
const PRELUDE: &str = r#"v="$HARNESS_VALUE_FILE"; hand_in() { printf '{"a":1}' > "$v"; }; "#;
/// How many children run at a time.
const AT_A_TIME: usize = 6;
/// The gentle step, TERM, and what is waited after a value each get this.
const GRACE: Duration = Duration::from_millis(300);
/// Nothing but a busy machine makes use of it.
const KILL_GRACE: Duration = Duration::from_secs(5);
const DRAIN: Duration = Duration::from_millis(250);
/// What ending and sweeping may take on top of every limit and grace.
const SLACK: Duration = Duration::from_secs(2);
/// The most memory that the process with all these children may have had.
const MEMORY: u64 = 30_000_000;
/// The most time that the set may take.
const TOGETHER: Duration = Duration::from_secs(120);
/// The variable that says how often the soak repeats the set.
const TIMES: &str = "HOSTILE_TIMES";

fn cases() -> Vec<Case> {
    [endings::cases(), values::cases(), never_ending::cases(), leftovers::cases(), streams::cases()].concat()
}

#[test]
fn every_fault_is_told_from_the_others() {
    let cases = cases();
    let mut names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 60);
}

#[test]
fn hostile_children_end_well_where_orphans_are_adopted() {
    alone("hostile::set_adopting").unwrap();
}

#[test]
fn hostile_children_end_well_where_orphans_are_not_adopted() {
    alone("hostile::set_not_adopting").unwrap();
}

#[test]
#[ignore = "runs in a process of its own"]
fn set_adopting() {
    harness_process::become_subreaper().unwrap();
    run_set(cases());
}

#[test]
#[ignore = "runs in a process of its own"]
fn set_not_adopting() {
    run_set(cases().into_iter().filter(|case| !case.needs_adoption).collect());
}

#[test]
#[ignore = "is what `cargo xtask soak hostile` runs"]
fn soak() {
    let times = std::env::var(TIMES).map_or(20, |times| times.parse().expect("a number of repetitions"));
    let mut failed = 0;
    for time in 1..=times {
        let begun = Instant::now();
        let faults: Vec<String> = ["hostile::set_adopting", "hostile::set_not_adopting"]
            .into_iter()
            .filter_map(|set| alone(set).err())
            .collect();
        failed += u32::from(!faults.is_empty());
        println!(
            "{time}: {} in {:.0?}",
            if faults.is_empty() { "passed" } else { "FAILED" },
            begun.elapsed()
        );
        faults.iter().for_each(|fault| println!("{fault}"));
    }
    println!("{} passed, {failed} failed", times - failed);
    assert_eq!(failed, 0);
}

/// Runs an ignored test of this binary in a process of its own.
fn alone(test: &str) -> Result<(), String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.contains("1 passed") {
        return Ok(());
    }
    Err(format!("{test}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs all of `cases` and panics with every fault found.
fn run_set(cases: Vec<Case>) {
    let begun = Instant::now();
    let count = cases.len();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut faults = runtime.block_on(async {
        let (alone, together): (Vec<Case>, Vec<Case>) =
            cases.into_iter().partition(|case| case.needs_adoption);
        let places = Arc::new(Semaphore::new(AT_A_TIME));
        let tasks: Vec<_> = together
            .into_iter()
            .map(|case| {
                let places = Arc::clone(&places);
                tokio::spawn(async move {
                    let _place = places.acquire().await.unwrap();
                    run(case).await
                })
            })
            .collect();
        let mut faults = Vec::new();
        for task in tasks {
            faults.extend(task.await.unwrap());
        }
        for case in alone {
            faults.extend(run(case).await);
        }
        faults
    });
    let children =
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
    if !children.trim().is_empty() {
        faults.push(format!("children are left at the end, dead or alive: {children}"));
    }
    let memory = peak_memory();
    if memory > MEMORY {
        faults.push(format!("{memory} bytes of memory were taken"));
    }
    let together = begun.elapsed();
    if together > TOGETHER {
        faults.push(format!("the set took {together:.0?}"));
    }
    println!("{count} children, {:.1} MB, {together:.1?}", memory as f64 / 1e6);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Runs one child and returns what was wrong about it.
async fn run(case: Case) -> Vec<String> {
    let bench = Bench::new();
    let begun = Instant::now();
    let ending = tokio::time::timeout(Duration::from_secs(100), end(&case, &bench)).await;
    let took = begun.elapsed();

    let mut faults = Vec::new();
    match ending {
        Err(_) => faults.push("it never ended".to_owned()),
        Ok(Err(fault)) => faults.push(fault),
        Ok(Ok(None)) if case.ends.is_none() => {
            let files = files_below(&bench.files());
            if !files.is_empty() {
                faults.push(format!("its refusal left {files:?}"));
            }
        }
        Ok(Ok(None)) => faults.push("it was refused".to_owned()),
        Ok(Ok(Some(result))) => faults.extend(misjudged(&case, &result)),
    }
    let delivered =
        if case.ends.as_ref().is_some_and(StopReason::is_completed) { GRACE } else { Duration::ZERO };
    let bound = case.within + delivered + 2 * GRACE + KILL_GRACE + DRAIN + SLACK;
    if took > bound {
        faults.push(format!("it took {took:.1?} of {bound:.1?}"));
    }
    let alive = bench.alive();
    if !alive.is_empty() {
        faults.push(format!("processes are left: {alive:?}"));
        alive.into_iter().for_each(kill);
    }
    faults.extend(misplaced(&bench));
    faults.into_iter().map(|fault| format!("a child that {}: {fault}", case.name)).collect()
}

/// Sees the child to its end and its disposal. `None` is a refusal to start it.
async fn end(case: &Case, bench: &Bench) -> Result<Option<SubagentResult>, String> {
    let mut request = bench.request("");
    request.prompt = (case.prompt)();
    let cancellation = request.cancellation.clone();
    let run = match provider(case, bench).start(request).await {
        Ok(run) => run,
        Err(error) if error.kind() == ErrorKind::Provider => return Ok(None),
        Err(error) => return Err(format!("{error:?}")),
    };
    match case.cancel {
        None => {}
        Some(Cancel::AtOnce) => cancellation.cancel(),
        Some(Cancel::WhenReady) => {
            while !bench.workspace().join("ready").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            cancellation.cancel();
        }
    }
    let result = run.result().await;
    run.dispose().await.map_err(|error| format!("{error:?}"))?;
    result.map(Some).map_err(|error| format!("{error:?}"))
}

fn provider(case: &Case, bench: &Bench) -> CommandProvider {
    let mut environment = bench.environment();
    let (program, arguments) = match &case.program {
        Program::Script(script) => {
            // One who starts it anew is told by this name.
            ("sh".into(), vec!["-c".to_owned(), format!("{PRELUDE}{script}"), bench.token().to_owned()])
        }
        Program::Helper(what) => {
            environment = environment.set(understudy::WHAT, *what);
            (std::env::current_exe().unwrap(), understudy::arguments(bench.token()))
        }
        Program::Path(path) => (path.into(), Vec::new()),
        Program::File(content) => (executable(&bench.workspace().join("program"), content), Vec::new()),
    };
    let mut shutdown = Shutdown::default().with_graces(GRACE).with_delivered_grace(GRACE).with_drain(DRAIN);
    shutdown.kill_grace = KILL_GRACE;
    CommandProvider::new("hostile", program, bench.files())
        .with_arguments(arguments)
        .with_environment(environment)
        .with_hand_in(case.hand_in)
        .with_limits(case.limits)
        .with_shutdown(shutdown)
        .with_transcript_cap(1_000_000)
}

fn executable(path: &Path, content: &str) -> std::path::PathBuf {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// Says what is wrong about how the child's end was judged.
fn misjudged(case: &Case, result: &SubagentResult) -> Option<String> {
    let details = result.diagnostic.as_ref().map(Diagnostic::details);
    let as_expected = case.ends.as_ref() == Some(&result.stop_reason)
        && case.details.iter().all(|(name, value)| {
            details.and_then(|details| details.get(*name)).is_some_and(|found| found == value)
        })
        && (!result.stop_reason.is_completed() || result.structured == Some(serde_json::json!({ "a": 1 })))
        && !result
            .output
            .chars()
            .any(|character| character.is_control() && !matches!(character, '\n' | '\t'));
    let mut shown = result.clone();
    shown.output.truncate(shown.output.floor_char_boundary(200));
    (!as_expected).then(|| format!("it ended as {shown:?}"))
}

/// Says what there is beside the workspace and the directory of the call.
fn misplaced(bench: &Bench) -> Option<String> {
    let names = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let place = bench.workspace().parent().map(names).unwrap_or_default();
    let (files, run) = (names(&bench.files()), names(&bench.files().join("run")));
    let expected = |found: &[String], most: &[&str]| found.iter().all(|name| most.contains(&name.as_str()));
    let of_a_run = |name: &String| name == "1-1" || name.starts_with("schema-");
    let in_place = expected(&place, &["files", "workspace"])
        && expected(&files, &["run"])
        && run.len() <= 2
        && run.iter().all(of_a_run);
    (!in_place).then(|| format!("there are files outside its place: {place:?}, {files:?}, {run:?}"))
}

/// The most memory in bytes that this process has had.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}
