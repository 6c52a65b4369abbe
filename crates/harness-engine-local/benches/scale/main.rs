//! What the engine costs beside a bare tokio program that does the same.
//!
//! Everything is measured in turns, in one go; each figure is the median of the ratios of the single sweeps. The last
//! line is a JSON array of rows.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench talks to its user")]

mod bare;
mod gate;
mod ours;
mod work;

use std::env;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use harness_engine_local::{JournalStore, JsonlStore, LocalEngine};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use gate::{Gate, resident_bytes};

const SWEEPS: usize = 9;
const CONCURRENT_CALLS: u64 = 20;

fn main() {
    let args: Vec<String> = env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--concurrent") {
        let runs = args[at + 2].parse().expect("the number of runs");
        println!("{}", serde_json::to_string(&concurrent(&args[at + 1], runs)).expect("plain data"));
        return;
    }
    let sweeps = env::var("SCALE_SWEEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(SWEEPS);
    let mut rows = Vec::new();
    one_at_a_time(sweeps, &mut rows);
    journaled(sweeps, &mut rows);
    all_at_once(sweeps, &mut rows);
    println!("{}", serde_json::to_string(&rows).expect("plain data"));
}

/// One line of the outcome. A ratio is `ours` over `anchor`.
#[derive(Serialize)]
struct Row {
    what: String,
    ours: f64,
    anchor: f64,
    ratio: f64,
    spread: [f64; 2],
    target: String,
    met: bool,
}

enum Target {
    AtMost(f64),
    AtLeast(f64),
}

fn row(what: &str, target: Target, pairs: &[(f64, f64)]) -> Row {
    let mut ratios: Vec<f64> = pairs.iter().map(|(ours, anchor)| ours / anchor).collect();
    let ratio = median(&mut ratios);
    let (target, met) = match target {
        Target::AtMost(most) => (format!("<= {most}"), ratio <= most),
        Target::AtLeast(least) => (format!(">= {least}"), ratio >= least),
    };
    let row = Row {
        what: what.to_owned(),
        ours: median(&mut pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()),
        anchor: median(&mut pairs.iter().map(|pair| pair.1).collect::<Vec<_>>()),
        ratio,
        spread: [ratios[0], ratios[ratios.len() - 1]],
        target,
        met,
    };
    eprintln!(
        "{what}: {:.3} / {:.3} = {ratio:.3} [{:.3}, {:.3}] {}",
        row.ours, row.anchor, row.spread[0], row.spread[1], row.target
    );
    row
}

/// Sorts `values` and returns the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn runtime(workers: usize) -> Runtime {
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if workers > 1 {
        builder.worker_threads(workers);
    }
    builder.enable_all().build().expect("a runtime")
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the processor time of `work` in microseconds for each of `calls` calls.
fn cpu_per_call(calls: u64, work: impl FnOnce()) -> f64 {
    let before = cpu_seconds();
    work();
    (cpu_seconds() - before) * 1e6 / calls as f64
}

fn one_at_a_time(sweeps: usize, rows: &mut Vec<Row>) {
    const RUNS: u64 = 100;
    const CALLS: u64 = 256;
    const MANY: u64 = 100_000;
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let engine = ours::engine(None);
        let measure_ours = |runs: u64, calls: u64| {
            cpu_per_call(runs * calls, || {
                runtime.block_on(async {
                    for _ in 0..runs {
                        ours::run(&engine, calls).await;
                    }
                });
            })
        };
        let measure_bare = || {
            cpu_per_call(RUNS * CALLS, || {
                runtime.block_on(async {
                    for _ in 0..RUNS {
                        // Like a run of the engine, it is a task of its own.
                        tokio::spawn(bare::run(CALLS, None)).await.expect("a run does not panic");
                    }
                });
            })
        };
        measure_bare();
        measure_ours(RUNS, CALLS);
        let (mut bare, mut node, mut long) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..sweeps {
            let ours = measure_ours(RUNS, CALLS);
            bare.push((ours, measure_bare()));
            if workers == 1 {
                node.extend(node_cpu_per_call(RUNS, CALLS).map(|theirs| (ours, theirs)));
                let short = measure_ours(MANY / 1000, 1000);
                long.push((measure_ours(1, MANY), short));
            }
        }
        rows.push(row(
            &format!("cpu us per call, one run at a time, {workers} worker(s); bare tokio"),
            Target::AtMost(1.3),
            &bare,
        ));
        if workers == 1 {
            rows.push(row(
                "cpu us per call, 100,000 calls in a run; 1,000 calls",
                Target::AtMost(1.1),
                &long,
            ));
            if node.is_empty() {
                eprintln!("no node here: its row is left out");
            } else {
                rows.push(row(
                    "cpu us per call, one run at a time, 1 worker; node",
                    Target::AtMost(0.5),
                    &node,
                ));
            }
        }
    }
}

fn node_cpu_per_call(runs: u64, calls: u64) -> Option<f64> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/scale/loop.mjs");
    let output =
        Command::new("node").arg(script).args([runs.to_string(), calls.to_string()]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

#[derive(Deserialize, Serialize)]
struct Concurrent {
    runs_per_second: f64,
    cpu_us_per_call: f64,
    bytes_per_run: f64,
}

/// Carries out `runs` runs at once in this process, which has done nothing else.
fn concurrent(who: &str, runs: usize) -> Concurrent {
    let runtime = runtime(2);
    let before = resident_bytes();
    let gate = Arc::new(Gate::new(runs));
    let begun = Instant::now();
    let cpu = cpu_per_call(runs as u64 * CONCURRENT_CALLS, || match who {
        "bare" => runtime.block_on(bare::runs(runs, CONCURRENT_CALLS, Some(Arc::clone(&gate)))),
        _ => runtime.block_on(ours::runs(runs, CONCURRENT_CALLS, Some(Arc::clone(&gate)))),
    });
    Concurrent {
        runs_per_second: runs as f64 / begun.elapsed().as_secs_f64(),
        cpu_us_per_call: cpu,
        bytes_per_run: gate.resident().saturating_sub(before) as f64 / runs as f64,
    }
}

fn in_fresh_process(who: &str, runs: usize) -> Concurrent {
    let this = env::current_exe().expect("a bench knows where it is");
    let output =
        Command::new(this).args(["--concurrent", who, &runs.to_string()]).output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the process says what it measured")
}

fn all_at_once(sweeps: usize, rows: &mut Vec<Row>) {
    const FEW: usize = 10_000;
    const MANY: usize = 100_000;
    let (mut memory, mut speed, mut cpu, mut cpu_few, mut growth) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sweeps {
        let (few, few_bare) = (in_fresh_process("ours", FEW), in_fresh_process("bare", FEW));
        let (many, many_bare) = (in_fresh_process("ours", MANY), in_fresh_process("bare", MANY));
        memory.push((many.bytes_per_run, many_bare.bytes_per_run));
        speed.push((many.runs_per_second, many_bare.runs_per_second));
        cpu.push((many.cpu_us_per_call, many_bare.cpu_us_per_call));
        cpu_few.push((few.cpu_us_per_call, few_bare.cpu_us_per_call));
        growth.push((many.runs_per_second, few.runs_per_second));
    }
    rows.push(row(
        "cpu us per call, 10,000 runs at once, 2 workers; bare tokio",
        Target::AtMost(1.3),
        &cpu_few,
    ));
    rows.push(row("cpu us per call, 100,000 runs at once, 2 workers; bare tokio", Target::AtMost(1.3), &cpu));
    rows.push(row("bytes per run, 100,000 runs at once; bare tokio", Target::AtMost(2.0), &memory));
    rows.push(row("runs per second, 100,000 runs at once; bare tokio", Target::AtLeast(0.67), &speed));
    rows.push(row("runs per second, 100,000 runs at once; 10,000 at once", Target::AtLeast(0.85), &growth));
}

/// The cost of a journal: that of a call with one, over that of the same lines written and synced alone.
fn journaled(sweeps: usize, rows: &mut Vec<Row>) {
    const CALLS: u64 = 100;
    // Beside this file's own build, so that it is the disk that is measured and not memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let store = Arc::new(JsonlStore::open(folder.path().join("runs")).expect("a store"));
    let (registry, catalog, config) = ours::parts(None);
    let engine = LocalEngine::durable(registry, catalog, config, Arc::clone(&store) as _);
    let runtime = runtime(1);
    let mut pairs = Vec::new();
    for sweep in 0..=sweeps {
        let begun = Instant::now();
        runtime.block_on(ours::run(&engine, CALLS));
        let ours = begun.elapsed();
        let run = store.runs().expect("a list").pop().expect("the run is there");
        let dir = store.run_dir(&run).expect("the id is short");
        let lines = std::fs::read(dir.join("journal.jsonl")).expect("the journal is there");
        std::fs::remove_dir_all(dir).expect("nobody uses it");
        let begun = Instant::now();
        append_alone(&folder.path().join("alone"), &lines);
        let alone = begun.elapsed();
        // The first sweep warms up.
        if sweep > 0 {
            let per_call = |time: std::time::Duration| time.as_secs_f64() * 1e6 / CALLS as f64;
            pairs.push((per_call(ours), per_call(alone)));
        }
    }
    rows.push(row("us per call with a journal; the same lines and syncs alone", Target::AtMost(1.3), &pairs));
}

/// Writes the lines one by one and syncs when the engine does: before a child is started, and at the end.
fn append_alone(path: &Path, lines: &[u8]) {
    let mut file = File::create(path).expect("a file");
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        file.write_all(line).expect("there is space");
        let is_synced = |kind: &str| has(line, format!(r#""kind":"{kind}""#).as_bytes());
        if is_synced("run-started") || is_synced("agent-started") || is_synced("run-finished") {
            file.sync_data().expect("the disk works");
        }
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
