//! What a call of the command provider costs, beside a bare loop of `posix_spawn` and wait.
//!
//! Both start the same program with the same prompt: a shell that writes a report of some 560 bytes to the file that it
//! is told. Ours goes the whole way: a registry finds the provider, the child is supervised, a transcript is written,
//! the value is read back and judged by the schema, and what is left of the child is swept. They take turns, and each
//! figure is the median of the sweeps' own ratios. The last line of the output is a JSON array of rows. Without
//! `--bench`, as under `cargo test`, one short sweep shows that it runs.

#![cfg(target_os = "linux")]

use std::error::Error;
use std::ffi::CString;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_process::Environment;
use harness_provider_cli::CommandProvider;
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Origin, OutputContract, Parent, StartSubagent, SubagentRegistry, SubagentRegistryExt,
};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::{WaitStatus, waitpid};
use serde_json::{Value, json};

const SHELL: &str = "/bin/sh";
const SCRIPT: &str = r#"printf %s "$1" > "$HARNESS_VALUE_FILE""#;
const GIGABYTE: usize = 1_000_000_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    harness_process::become_subreaper()?;
    if std::env::args().any(|argument| argument == FLOOD) {
        return runtime.block_on(flood());
    }
    let full = std::env::args().any(|argument| argument == "--bench");
    let (sweeps, calls) = if full { (11, 60) } else { (1, 3) };

    let place = Place::new()?;
    let registry = place.registry(CommandProvider::new("bench", SHELL, place.files()).with_arguments([
        "-c",
        SCRIPT,
        SHELL,
        &report().to_string(),
    ]))?;
    let contract = OutputContract::new(schema())?;
    let mut number = 0;
    let mut ours = || {
        number += 1;
        runtime.block_on(call(&registry, &contract, &place, number))
    };
    let bare = Bare::new(&place)?;
    let mut number = 0;
    let mut bare = || {
        number += 1;
        bare.call(number)
    };

    ours()?;
    bare()?;
    let mut samples = Vec::new();
    for _ in 0..sweeps {
        let (light, floor) = (cost(calls, &mut ours)?, cost(calls, &mut bare)?);
        // Touched, so that it is really there.
        let ballast = black_box(vec![1u8; GIGABYTE]);
        let heavy = cost(calls, &mut ours)?;
        drop(black_box(ballast));
        samples.push(Sample { light, floor, heavy });
    }
    let flood = Command::new(std::env::current_exe()?).arg(FLOOD).output()?;
    let peak: f64 = String::from_utf8(flood.stdout)?.trim().parse()?;

    let rows = [
        row("wall time of a call", &samples, |sample| (sample.light.wall, sample.floor.wall), 1.3),
        row("processor time of a call", &samples, |sample| (sample.light.cpu, sample.floor.cpu), 1.5),
        row(
            "wall time of a call with 1 GB resident, beside one without",
            &samples,
            |sample| (sample.heavy.wall, sample.light.wall),
            1.1,
        ),
        row(
            "processor time of a call with 1 GB resident, beside one without",
            &samples,
            |sample| (sample.heavy.cpu, sample.light.cpu),
            1.1,
        ),
        json!({
            "what": "peak memory during a flood of 1 GB, in MB",
            "ours": round(peak),
            "anchor": 20,
            "ratio": round(peak / 20.0),
            "spread": [round(peak / 20.0), round(peak / 20.0)],
            "target": 1,
            "met": peak < 20.0,
        }),
    ];
    println!("{}", Value::from(rows.to_vec()));
    Ok(())
}

/// Where the files are: in memory, where the system has such a place. A disk's file system takes its own time to make
/// files, and more so when many have just been deleted. That is not what is measured here.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        std::fs::create_dir(directory.path().join("workspace"))?;
        Ok(Self(directory))
    }

    fn files(&self) -> std::path::PathBuf {
        self.0.path().join("files")
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.0.path().join("workspace")
    }

    fn registry(&self, provider: CommandProvider) -> Result<LocalRegistry> {
        let registry = LocalRegistry::new();
        registry.register(Arc::new(provider.with_environment(Environment::empty())))?;
        Ok(registry)
    }
}

/// The five keys of a handoff between two calls.
fn schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["continue", "complete", "blocked"] },
            "summary": text,
            "evidence": { "type": "array", "items": text },
            "next": { "type": "array", "items": text },
            "blocker": text,
        },
        "required": ["status", "summary", "evidence", "next"],
        "additionalProperties": false,
    })
}

fn report() -> Value {
    let lines = |count: usize| vec!["the tests of the parser pass, all 214"; count];
    json!({ "status": "continue", "summary": "x".repeat(180), "evidence": lines(4), "next": lines(3) })
}

fn prompt() -> String {
    "Do what is next, and say what you did. ".repeat(15)
}

async fn call(registry: &LocalRegistry, contract: &OutputContract, place: &Place, number: u64) -> Result<()> {
    let workspace = place.workspace();
    let parent = Parent::new("bench", workspace.to_str().ok_or("a path in UTF-8")?);
    let request = StartSubagent::new(prompt(), parent)
        .with_origin(Origin::new("bench", number, 1))
        .with_output(contract.clone());
    let run = registry.start("bench", request).await?;
    let result = run.result().await?;
    run.dispose().await?;
    if result.stop_reason.is_completed() { Ok(()) } else { Err(format!("{result:?}").into()) }
}

/// The least that can be done to start a program, give it its prompt, hear what it says and wait.
struct Bare<'a> {
    place: &'a Place,
    program: CString,
    arguments: Vec<CString>,
    prompt: String,
}

impl<'a> Bare<'a> {
    fn new(place: &'a Place) -> Result<Self> {
        let report = report().to_string();
        let words = [SHELL, "-c", SCRIPT, SHELL, &report];
        let arguments = words.into_iter().map(CString::new).collect::<std::result::Result<_, _>>()?;
        Ok(Self { place, program: CString::new(SHELL)?, arguments, prompt: prompt() })
    }

    fn call(&self, number: u64) -> Result<()> {
        let (stdin_theirs, stdin) = std::io::pipe()?;
        let (mut stdout, stdout_theirs) = std::io::pipe()?;
        // It fits the empty pipe.
        (&stdin).write_all(self.prompt.as_bytes())?;
        drop(stdin);
        let mut actions = PosixSpawnFileActions::init()?;
        actions.add_dup2(stdin_theirs.as_raw_fd(), 0)?;
        actions.add_dup2(stdout_theirs.as_raw_fd(), 1)?;
        let attributes = PosixSpawnAttr::init()?;
        let value = self.place.workspace().join(format!("value-{number}"));
        let environment = [CString::new(format!("HARNESS_VALUE_FILE={}", value.display()))?];
        let program = self.program.as_c_str();
        let pid = posix_spawn(program, &actions, &attributes, &self.arguments, &environment)?;
        drop((stdin_theirs, stdout_theirs));
        let mut said = Vec::new();
        stdout.read_to_end(&mut said)?;
        match waitpid(pid, None)? {
            WaitStatus::Exited(_, 0) if said.is_empty() => Ok(()),
            status => Err(format!("{status:?}").into()),
        }
    }
}

/// Seconds for one call.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

struct Sample {
    light: Cost,
    floor: Cost,
    heavy: Cost,
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

const FLOOD: &str = "--flood";

/// Takes in 1 GB and prints the most memory, in MB, that this process has had.
async fn flood() -> Result<()> {
    let place = Place::new()?;
    let script = format!(r#"head -c {GIGABYTE} /dev/zero; {SCRIPT}"#);
    let report = report().to_string();
    let provider = CommandProvider::new("bench", SHELL, place.files());
    let registry = place.registry(provider.with_arguments(["-c", &script, SHELL, &report]))?;
    call(&registry, &OutputContract::new(schema())?, &place, 1).await?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    println!("{:.2}", kilobytes * 1024.0 / 1e6);
    Ok(())
}

/// One row, with times in microseconds.
fn row(what: &str, samples: &[Sample], pick: impl Fn(&Sample) -> (f64, f64), target: f64) -> Value {
    let mut ratios: Vec<f64> = samples.iter().map(|sample| pick(sample).0 / pick(sample).1).collect();
    ratios.sort_by(f64::total_cmp);
    let ours = median(samples.iter().map(|sample| pick(sample).0).collect());
    let anchor = median(samples.iter().map(|sample| pick(sample).1).collect());
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let ratio = median(ratios);
    json!({
        "what": format!("{what}, in us"),
        "ours": round(ours * 1e6),
        "anchor": round(anchor * 1e6),
        "ratio": round(ratio),
        "spread": [round(least), round(most)],
        "target": target,
        "met": ratio <= target,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
