//! What supervision costs: calls of a trivial program beside a bare loop of `posix_spawn` and wait.
//!
//! Both start the same program with the same prompt and read what it prints; ours also writes a
//! transcript and sweeps. They take turns, and each figure is the median of the sweeps' own ratios. The
//! last line of the output is a JSON array of rows. Without `--bench`, as under `cargo test`, one short
//! sweep shows that it runs.

#![cfg(target_os = "linux")]

use std::{
    error::Error,
    ffi::CString,
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use harness_process::{ChildSpec, Environment, Input, Output, Transcript, start};
use nix::{
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn},
    sys::{
        resource::{UsageWho, getrusage},
        wait::{WaitStatus, waitpid},
    },
};

const PROGRAM: &str = "/bin/cat";
const PROMPT: &[u8] = &[b'x'; 556];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    harness_process::become_subreaper()?;
    if std::env::args().any(|argument| argument == FLOOD) {
        return runtime.block_on(flood());
    }
    let (sweeps, calls) =
        if std::env::args().any(|argument| argument == "--bench") { (11, 150) } else { (1, 3) };
    // In memory, where the system has such a place: a disk's file system takes its own time to make files,
    // and more so when many have just been deleted. That is not what is measured here.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let mut next = 0..;
    let mut ours = || {
        let path = directory.path().join(next.next().unwrap_or(0).to_string());
        runtime.block_on(supervised(path))
    };

    let light = measure(sweeps, calls, &mut ours)?;
    // Touched, so that it is really there.
    let ballast = vec![1u8; 1 << 30];
    let heavy = measure(sweeps, calls, &mut ours)?;
    drop(std::hint::black_box(ballast));
    let peak = Command::new(std::env::current_exe()?).arg(FLOOD).output()?;
    let peak: f64 = String::from_utf8(peak.stdout)?.trim().parse()?;

    let rows = [
        row("wall time of a call, in us", &light, |sample| (sample.ours.wall, sample.bare.wall), 1.3),
        row("processor time of a call, in us", &light, |sample| (sample.ours.cpu, sample.bare.cpu), 1.5),
        row(
            "wall time of a call with 1 GB resident, in us",
            &heavy,
            |sample| (sample.ours.wall, sample.bare.wall),
            1.3,
        ),
        growth(&light, &heavy, 1.1),
        format!(
            r#"{{"what":"peak memory during a flood of 1 GB, in MB","ours":{peak:.1},"anchor":20,"ratio":{:.3},"spread":[{:.3},{:.3}],"target":1,"met":{}}}"#,
            peak / 20.0,
            peak / 20.0,
            peak / 20.0,
            peak <= 20.0
        ),
    ];
    println!("[{}]", rows.join(","));
    Ok(())
}

/// Seconds for one call.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

struct Sample {
    ours: Cost,
    bare: Cost,
}

fn measure(sweeps: usize, calls: u32, ours: &mut impl FnMut() -> Result<()>) -> Result<Vec<Sample>> {
    ours()?;
    bare()?;
    (0..sweeps).map(|_| Ok(Sample { ours: cost(calls, &mut *ours)?, bare: cost(calls, bare)? })).collect()
}

fn cost(calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<Cost> {
    let (begun, used) = (Instant::now(), processor_time()?);
    for _ in 0..calls {
        call()?;
    }
    let each = |time: Duration| time.as_secs_f64() / f64::from(calls);
    Ok(Cost { wall: each(begun.elapsed()), cpu: each(processor_time()? - used) })
}

/// Ours and that of the children we have reaped.
fn processor_time() -> Result<Duration> {
    let mut total = Duration::ZERO;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        for time in [usage.user_time(), usage.system_time()] {
            total += Duration::new(u64::try_from(time.tv_sec())?, u32::try_from(time.tv_usec())? * 1000);
        }
    }
    Ok(total)
}

async fn supervised(transcript: std::path::PathBuf) -> Result<()> {
    let spec = ChildSpec::new(PROGRAM)
        .with_environment(Environment::empty())
        .with_input(Input::Bytes(PROMPT.to_vec()))
        .with_output(Output::Collect { max: 64 * 1024 })
        .with_transcript(Transcript::new(transcript));
    let report = start(spec)?.wait().await;
    let collected = report.collected.as_ref().ok_or("nothing was collected")?;
    if !report.succeeded() || collected.bytes != PROMPT {
        return Err(format!("{report:?}").into());
    }
    Ok(())
}

/// The least that can be done to start a program, give it its prompt, read its answer and wait.
fn bare() -> Result<()> {
    let (stdin_theirs, stdin) = std::io::pipe()?;
    let (mut stdout, stdout_theirs) = std::io::pipe()?;
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_dup2(stdin_theirs.as_raw_fd(), 0)?;
    actions.add_dup2(stdout_theirs.as_raw_fd(), 1)?;
    let attributes = PosixSpawnAttr::init()?;
    let program = CString::new(PROGRAM)?;
    let pid = posix_spawn(program.as_c_str(), &actions, &attributes, &[&program], &[] as &[CString])?;
    drop((stdin_theirs, stdout_theirs));
    (&stdin).write_all(PROMPT)?;
    drop(stdin);
    let mut answer = Vec::new();
    stdout.read_to_end(&mut answer)?;
    match waitpid(pid, None)? {
        WaitStatus::Exited(_, 0) if answer == PROMPT => Ok(()),
        status => Err(format!("{status:?}").into()),
    }
}

const FLOOD: &str = "--flood";

/// Takes in 1 GB and prints the most memory, in MB, that this process has had.
async fn flood() -> Result<()> {
    let spec = ChildSpec::new("/usr/bin/head").with_arguments(["-c", "1000000000", "/dev/zero"]);
    let directory = tempfile::tempdir()?;
    let spec = spec.with_transcript(Transcript::new(directory.path().join("transcript")));
    let report = start(spec)?.wait().await;
    if report.stdout_bytes != 1_000_000_000 {
        return Err(format!("{report:?}").into());
    }
    let mut status = String::new();
    File::open("/proc/self/status")?.read_to_string(&mut status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    println!("{:.1}", kilobytes / 1024.0);
    Ok(())
}

fn row(what: &str, samples: &[Sample], pick: impl Fn(&Sample) -> (f64, f64), target: f64) -> String {
    let ratios = samples.iter().map(|sample| pick(sample).0 / pick(sample).1).collect();
    let ours = median(samples.iter().map(|sample| pick(sample).0).collect());
    let anchor = median(samples.iter().map(|sample| pick(sample).1).collect());
    line(what, ours, anchor, ratios, target)
}

/// How much dearer a call gets when this process is large, corrected by how much the bare loop does.
fn growth(light: &[Sample], heavy: &[Sample], target: f64) -> String {
    let relative = |sample: &Sample| sample.ours.wall / sample.bare.wall;
    let ratios = light.iter().zip(heavy).map(|(light, heavy)| relative(heavy) / relative(light)).collect();
    let wall = |samples: &[Sample]| median(samples.iter().map(|sample| sample.ours.wall).collect());
    line(
        "wall time of a call with 1 GB resident beside one without, in us",
        wall(heavy),
        wall(light),
        ratios,
        target,
    )
}

fn line(what: &str, ours: f64, anchor: f64, ratios: Vec<f64>, target: f64) -> String {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let ratio = median(ratios);
    format!(
        r#"{{"what":"{what}","ours":{:.1},"anchor":{:.1},"ratio":{ratio:.3},"spread":[{least:.3},{most:.3}],"target":{target},"met":{}}}"#,
        ours * 1e6,
        anchor * 1e6,
        ratio <= target
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
