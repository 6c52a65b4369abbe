//! What the program costs: a round beside a bare loop of `posix_spawn` and wait, its start beside a hello-world with the
//! same argument parser, its memory and its size.
//!
//! Ours and the anchor take turns, and a row's ratio is the median of the sweeps' own ratios. Both start the same agent,
//! a few lines of C. The last line of the output is a JSON array of rows. Without `--bench`, as under `cargo test`, one
//! short sweep shows that it runs.

#![cfg(target_os = "linux")]

use std::error::Error;
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const OURS: &str = env!("CARGO_BIN_EXE_ralph-loop");
const HELLO: &str = "hello";
const PEAK: &str = "peak";
/// About as long as the prompt of a round.
const PROMPT: [u8; 4096] = [b'x'; 4096];

/// The hello-world: what any program pays that reads arguments as ours does.
#[derive(Parser)]
#[command(version)]
struct Hello {
    mode: String,
    #[arg(long, default_value_t = 20)]
    rounds: u64,
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some(HELLO) => {
            let hello = Hello::parse();
            println!("{} {}", hello.mode, hello.rounds);
            Ok(())
        }
        Some(PEAK) => peak(),
        _ => measure(),
    }
}

fn measure() -> Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (sweeps, few, many) = if is_bench { (9, 20, 220) } else { (1, 1, 3) };
    let tools = tempfile::tempdir()?;
    let agent = compile_agent(tools.path())?;
    // In memory, where the system has such a place: a disk takes its own time to make and to sync files.
    let memory = Path::new("/dev/shm");
    let in_memory = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    // Beside the build, which is on a disk as a rule; a temporary directory often is not.
    let on_disk = tempfile::tempdir_in(Path::new(OURS).parent().ok_or("our program is in no directory")?)?;

    let rounds = many - few;
    let (mut memory_rounds, mut disk_rounds, mut bare_rounds) = (Vec::new(), Vec::new(), Vec::new());
    let (mut starts, mut versions, mut hellos) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sweeps {
        memory_rounds.push(each_round(&in_memory, &agent, few, many)?);
        bare_rounds
            .push(time(|| (0..rounds).try_for_each(|_| bare(&agent)))?.as_secs_f64() / f64::from(rounds));
        disk_rounds.push(each_round(&on_disk, &agent, few, many)?);
        let repeats = if is_bench { 15 } else { 1 };
        starts.push(fastest(repeats, || first_child(&in_memory, &agent))?);
        hellos.push(fastest(repeats, || exits(Command::new(std::env::current_exe()?).arg(HELLO)))?);
        versions.push(fastest(repeats, || exits(Command::new(OURS).arg("--version")))?);
    }
    let peak = peak_megabytes(&in_memory, &agent, many)?;
    let size = stripped_megabytes(tools.path())?;
    let rows = [
        row(
            "ralph-loop: a round with a trivial agent, state in memory, in us",
            &memory_rounds,
            &bare_rounds,
            Some(1.5),
        ),
        row(
            "ralph-loop: a round with a trivial agent, state on disk, in us",
            &disk_rounds,
            &bare_rounds,
            None,
        ),
        row(
            "ralph-loop: from its start to the first agent's first instruction, in us",
            &starts,
            &hellos,
            Some(3.0),
        ),
        row("ralph-loop: --version, in us", &versions, &hellos, Some(1.5)),
        limit("ralph-loop: peak memory of a run, in MB", peak, 12.0),
        limit("ralph-loop: stripped program, in MB", size, 10.0),
    ];
    for row in &rows {
        println!("{row}");
    }
    println!("{}", Value::from(rows.to_vec()));
    Ok(())
}

fn compile_agent(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("agent.c");
    fs::write(&source, include_str!("agent.c"))?;
    let agent = folder.join("agent");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    // Without a static C library the agent is a little slower, on both sides.
    for options in [["-O2", "-static"].as_slice(), &["-O2"]] {
        let compiled = Command::new(&compiler).args(options).arg("-o").arg(&agent).arg(&source).output()?;
        if compiled.status.success() {
            return Ok(agent);
        }
    }
    Err("the agent cannot be compiled".into())
}

/// Runs a loop of so many rounds, each of them with a fresh state directory.
fn run(home: &TempDir, agent: &Path, rounds: u32, stamp: Option<&Path>) -> Result<()> {
    let state = tempfile::tempdir_in(home.path())?;
    let workspace = tempfile::tempdir_in(home.path())?;
    let mut command = Command::new(OURS);
    command
        .args(["run", "move the tests over", "--max-rounds", &rounds.to_string(), "--"])
        .arg(agent)
        .args(stamp)
        .current_dir(workspace.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_STATE_HOME", state.path());
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.code() == Some(11) { Ok(()) } else { Err(format!("{output:?}").into()) }
}

/// Seconds for one round: those of many less those of few.
fn each_round(home: &TempDir, agent: &Path, few: u32, many: u32) -> Result<f64> {
    let short = time(|| run(home, agent, few, None))?;
    let long = time(|| run(home, agent, many, None))?;
    Ok((long.as_secs_f64() - short.as_secs_f64()) / f64::from(many - few))
}

/// From the start of our program to the first instruction of its first agent.
fn first_child(home: &TempDir, agent: &Path) -> Result<Duration> {
    let stamp = home.path().join("stamp");
    let begun = monotonic()?;
    run(home, agent, 1, Some(&stamp))?;
    let nanoseconds: u64 = fs::read_to_string(&stamp)?.parse()?;
    Ok(Duration::from_nanos(nanoseconds) - begun)
}

fn monotonic() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

fn exits(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(begun.elapsed()) } else { Err(format!("{output:?}").into()) }
}

/// The least that can be done to start the agent, give it its prompt, read its report and wait.
fn bare(agent: &Path) -> Result<()> {
    let (stdin_theirs, stdin) = std::io::pipe()?;
    let (mut stdout, stdout_theirs) = std::io::pipe()?;
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_dup2(stdin_theirs.as_raw_fd(), 0)?;
    actions.add_dup2(stdout_theirs.as_raw_fd(), 1)?;
    let attributes = PosixSpawnAttr::init()?;
    let program = CString::new(agent.as_os_str().as_encoded_bytes())?;
    let pid = posix_spawn(program.as_c_str(), &actions, &attributes, &[&program], &[] as &[CString])?;
    drop((stdin_theirs, stdout_theirs));
    (&stdin).write_all(&PROMPT)?;
    drop(stdin);
    let mut answer = Vec::new();
    stdout.read_to_end(&mut answer)?;
    match waitpid(pid, None)? {
        WaitStatus::Exited(_, 0) if !answer.is_empty() => Ok(()),
        status => Err(format!("{status:?}").into()),
    }
}

fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

/// Seconds of the fastest of several: what is left is what it takes.
fn fastest(repeats: u32, mut work: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..repeats {
        best = best.min(work()?);
    }
    Ok(best.as_secs_f64())
}

/// Asks a small process of its own to run the loop: a child's peak begins with that of its parent.
fn peak_megabytes(home: &TempDir, agent: &Path, rounds: u32) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .arg(PEAK)
        .arg(home.path())
        .arg(agent)
        .arg(rounds.to_string())
        .output()?;
    String::from_utf8(output.stdout)?
        .trim()
        .parse()
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into())
}

fn peak() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let home = tempfile::tempdir_in(&arguments[2])?;
    run(&home, Path::new(&arguments[3]), arguments[4].parse()?, None)?;
    let kilobytes = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    println!("{:.2}", Duration::from_millis(u64::try_from(kilobytes)?).as_secs_f64() * 1000.0 / 1024.0);
    Ok(())
}

fn stripped_megabytes(folder: &Path) -> Result<Option<f64>> {
    let stripped = folder.join("stripped");
    match Command::new("strip").arg("-o").arg(&stripped).arg(OURS).status() {
        Ok(status) if status.success() => {
            let bytes = u32::try_from(fs::metadata(&stripped)?.len())?;
            Ok(Some(f64::from(bytes) / 1024.0 / 1024.0))
        }
        _ => Ok(None),
    }
}

fn row(what: &str, ours: &[f64], anchor: &[f64], target: Option<f64>) -> Value {
    let ratios: Vec<f64> = ours.iter().zip(anchor).map(|(ours, anchor)| ours / anchor).collect();
    let ratio = median(&ratios);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    json!({
        "what": what,
        "ours": rounded(median(ours) * 1e6),
        "anchor": rounded(median(anchor) * 1e6),
        "ratio": rounded(ratio),
        "spread": [rounded(least), rounded(most)],
        "target": target,
        "met": target.map(|target| ratio <= target),
    })
}

fn limit(what: &str, ours: impl Into<Option<f64>>, most: f64) -> Value {
    let ours: Option<f64> = ours.into();
    let ratio = ours.map(|ours| rounded(ours / most));
    json!({
        "what": what, "ours": ours.map(rounded), "anchor": most, "ratio": ratio,
        "spread": ratio.map(|ratio| [ratio, ratio]), "target": 1.0, "met": ours.map(|ours| ours <= most),
    })
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
