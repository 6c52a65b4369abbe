//! Homes, a workspace, a queue of its own, and the processes of one case.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;

/// How long anything may take that is waited for. Nothing takes that long on a machine that is not overrun.
const PATIENCE: Duration = Duration::from_secs(120);

/// An agent that goes on until its round `LAST` and is complete then. It writes down when it starts and when it ends, and
/// waits while there is a file `hold-ROUND` in the workspace.
const AGENT: &str = r#"
cat > /dev/null
printf 'start %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$LOG"
while [ -e "hold-$HARNESS_CALL" ]; do sleep 0.05; done
if [ "$HARNESS_CALL" -lt "$LAST" ]
then report='{"status":"continue","summary":"Went on.","evidence":[],"nextSteps":["More."],"blocker":""}'
else report='{"status":"complete","summary":"Done.","evidence":["make: ok"],"nextSteps":[],"blocker":""}'
fi
printf '%s' "$report" > "$HARNESS_VALUE_FILE"
printf 'end %s %s %s\n' "$HARNESS_CALL" "$HARNESS_ATTEMPT" "$$" >> "$LOG"
"#;

pub(crate) struct Scene {
    root: TempDir,
    pub(crate) address: String,
    queue: String,
    pub(crate) workspace: PathBuf,
}

impl Scene {
    /// A scene whose workers have the agent `mine`, which is done in round `last`.
    pub(crate) fn new(server: &Server, last: u64) -> Result<Self> {
        let scene = Self::at(server.address())?;
        let log = scene.log();
        let script = AGENT.replace("$LOG", log.to_str().context("temporary paths are UTF-8")?);
        scene.declare("mine", &script.replace("$LAST", &last.to_string()))?;
        Ok(scene)
    }

    /// A scene for a server at `address`, without any agent.
    pub(crate) fn at(address: String) -> Result<Self> {
        let root = tempfile::tempdir()?;
        let workspace = root.path().canonicalize()?.join("workspace");
        fs::create_dir(&workspace)?;
        Ok(Self { root, address, queue: uuid::Uuid::new_v4().to_string(), workspace })
    }

    /// Declares an agent for workers: a shell script.
    pub(crate) fn declare(&self, name: &str, script: &str) -> Result<()> {
        let path = self.path(&format!("{name}.sh"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        self.configure(&format!("[agents.{name}]\ncommand = [{path:?}]\npass-env = [\"SECRET\"]\n"))
    }

    /// Adds to the settings of workers.
    pub(crate) fn configure(&self, text: &str) -> Result<()> {
        let folder = self.path("worker/.config/ralph-loop");
        fs::create_dir_all(&folder)?;
        let file = folder.join("config.toml");
        let before = fs::read_to_string(&file).unwrap_or_default();
        fs::write(file, before + text)?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    /// Our program, with the home of that name and with nothing else of ours.
    pub(crate) fn command(&self, home: &str, arguments: &[&str]) -> Result<Command> {
        let folder = self.path(home);
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ralph-loop"));
        command
            .args(arguments)
            .current_dir(&folder)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &folder)
            .env("RALPH_LOOP_ENGINE", "temporal")
            .env("RALPH_LOOP_TEMPORAL_ADDRESS", &self.address)
            .env("RALPH_LOOP_TEMPORAL_QUEUE", &self.queue)
            .env("RALPH_LOOP_TEMPORAL_HEARTBEAT_TIMEOUT", "5s")
            .stdin(Stdio::null());
        Ok(command)
    }

    pub(crate) fn start(&self, home: &str, arguments: &[&str]) -> Result<Process> {
        Process::start(self.command(home, arguments)?, &self.path(&uuid::Uuid::new_v4().to_string()))
    }

    /// Runs our program to its end.
    pub(crate) fn say(&self, home: &str, arguments: &[&str]) -> Result<Said> {
        self.start(home, arguments)?.end()
    }

    /// A worker that serves.
    pub(crate) fn worker(&self) -> Result<Process> {
        let worker = self.start("worker", &["worker"])?;
        worker.wait_for_out("serving")?;
        Ok(worker)
    }

    /// A run in the workspace, by the home `client`.
    pub(crate) fn run(&self, agent: &str, more: &[&str]) -> Result<Process> {
        let workspace = self.workspace.to_str().context("temporary paths are UTF-8")?;
        let mut arguments = vec!["run", "do it", "--agent", agent, "--workspace", workspace];
        arguments.extend(more);
        self.start("client", &arguments)
    }

    pub(crate) fn hold(&self, round: u64) -> Result<()> {
        Ok(fs::write(self.workspace.join(format!("hold-{round}")), "")?)
    }

    pub(crate) fn release(&self, round: u64) -> Result<()> {
        Ok(fs::remove_file(self.workspace.join(format!("hold-{round}")))?)
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().filter_map(Line::read).collect()
    }

    /// Waits until an attempt at a round has begun its work.
    pub(crate) fn wait_for_start(&self, round: u64, attempt: u64) -> Result<Line> {
        wait(&format!("round {round}, attempt {attempt}"), || {
            self.lines()
                .into_iter()
                .find(|line| line.is_start && (line.round, line.attempt) == (round, attempt))
        })
    }

    /// How often each round ended.
    pub(crate) fn ends(&self, round: u64) -> usize {
        self.lines().iter().filter(|line| !line.is_start && line.round == round).count()
    }

    /// The only run that there is with the objective of this scene, as `show --json` tells it.
    pub(crate) fn shown(&self, home: &str, run: &str) -> Result<Value> {
        let said = self.say(home, &["show", run, "--json"])?.with_status(0)?;
        Ok(serde_json::from_str(&said.out)?)
    }
}

/// A line that an agent has written.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) is_start: bool,
    pub(crate) round: u64,
    pub(crate) attempt: u64,
    pid: i32,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            is_start: words.next()? == "start",
            round: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        // A process that is dead and not yet waited for does nothing any more.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    pub(crate) fn wait_for_end(&self) -> Result<Duration> {
        let begin = Instant::now();
        wait(&format!("the end of process {}", self.pid), || (!self.is_alive()).then_some(()))?;
        Ok(begin.elapsed())
    }
}

/// How a command ended, with what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn with_status(self, status: i32) -> Result<Self> {
        ensure!(self.status == status, "status {} instead of {status}: {self}", self.status);
        Ok(self)
    }

    pub(crate) fn with_out(self, part: &str) -> Result<Self> {
        ensure!(self.out.contains(part), "no {part:?} in the output: {self}");
        Ok(self)
    }

    pub(crate) fn with_err(self, part: &str) -> Result<Self> {
        ensure!(self.err.contains(part), "no {part:?} in what was said: {self}");
        Ok(self)
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\nstdout:\n{}\nstderr:\n{}", self.out, self.err)
    }
}

/// Our program while it runs. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Process {
    /// Starts a command whose output goes to files beginning with `place`.
    pub(crate) fn start(mut command: Command, place: &Path) -> Result<Self> {
        let (out, err) = (place.with_extension("out"), place.with_extension("err"));
        command.stdout(fs::File::create(&out)?).stderr(fs::File::create(&err)?);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, out, err })
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    pub(crate) fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    pub(crate) fn wait_for_out(&self, part: &str) -> Result<()> {
        self.wait_for(part, || self.out())
    }

    pub(crate) fn wait_for_err(&self, part: &str) -> Result<()> {
        self.wait_for(part, || self.err())
    }

    fn wait_for(&self, part: &str, text: impl Fn() -> String) -> Result<()> {
        wait(&format!("{part:?}"), || text().contains(part).then_some(()))
            .with_context(|| format!("it said: {} {}", self.out(), self.err()))
    }

    /// The id of the run that it has begun.
    pub(crate) fn run_id(&self) -> Result<String> {
        self.wait_for_out("limits")?;
        let out = self.out();
        let run = out.lines().find_map(|line| line.strip_prefix("run "));
        Ok(run.context("a run tells its id")?.trim().to_owned())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Said> {
        use std::os::unix::process::ExitStatusExt;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                bail!("it does not end; it said: {} {}", self.out(), self.err());
            }
            sleep(Duration::from_millis(10));
        };
        let status = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        Ok(Said { status, out: self.out(), err: self.err() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
}
