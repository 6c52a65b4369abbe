//! A home and a workspace for one test, and what is needed to look at processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use harness_provider_cli::AgentKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take that is waited for. Nothing takes that long on a machine that is not overrun.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    root: TempDir,
    pub(crate) workspace: PathBuf,
}

/// How a command ended, with what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir())
    }

    /// A stage whose path is as long on every machine, so that lines break at the same places.
    pub(crate) fn of_fixed_length() -> Self {
        let stage = Self::at(tempfile::Builder::new().prefix("ralph-loop-").tempdir_in("/tmp"));
        // Our program is found by its name, as it is once it is installed.
        fs::create_dir(stage.path("bin")).expect("there is room for a directory");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ralph-loop"), stage.path("bin/ralph-loop"))
            .expect("there is room for a link");
        stage
    }

    fn at(root: std::io::Result<TempDir>) -> Self {
        heed_signals();
        let root = root.expect("there is room for a directory");
        let workspace = root.path().canonicalize().expect("it was just made").join("workspace");
        fs::create_dir(&workspace).expect("there is room for a directory");
        Self { root, workspace }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path(".local/state/ralph-loop")
    }

    /// Our program in the workspace, knowing nothing of the home of whoever runs the tests.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command_of(env!("CARGO_BIN_EXE_ralph-loop"));
        command.args(arguments);
        command
    }

    /// Another program, there and likewise.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        let theirs = std::env::var_os("PATH").unwrap_or_default();
        // What agents are installed here must not matter.
        let is_agent = |folder: &PathBuf, kind: &AgentKind| folder.join(kind.features().program).exists();
        let plain = std::env::split_paths(&theirs).filter(|folder| {
            folder.join("sh").exists() || !AgentKind::ALL.iter().any(|kind| is_agent(folder, kind))
        });
        let path = std::env::join_paths(std::iter::once(self.path("bin")).chain(plain));
        let path = path.expect("the folders came from such a list");
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.root.path())
            .env("XDG_STATE_HOME", self.path(".local/state"))
            .env("XDG_CONFIG_HOME", self.path(".config"))
            .stdin(Stdio::null());
        command
    }

    /// Runs our program to its end.
    #[track_caller]
    pub(crate) fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().expect("our program can be started"))
    }

    /// Writes an executable shell script and returns its path.
    pub(crate) fn script(&self, name: &str, body: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("there is room for a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path.to_str().expect("temporary paths are UTF-8").to_owned()
    }

    /// Does something with git in the workspace.
    #[track_caller]
    pub(crate) fn git(&self, arguments: &[&str]) {
        let mut command = self.command_of("git");
        command.args(["-c", "user.name=Ada", "-c", "user.email=ada@localhost"]).args(arguments);
        // The same commit gets the same name every time.
        let when = "2026-01-01T00:00:00Z";
        command.env("GIT_AUTHOR_DATE", when).env("GIT_COMMITTER_DATE", when);
        Said::of(command.output().expect("git is installed")).with_status(0);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.workspace.join(name)
    }

    /// The text of a file in the workspace, empty where there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Starts our program and leaves it running.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("our program can be started")))
    }

    /// The ids of all runs.
    pub(crate) fn runs(&self) -> Vec<String> {
        let said = self.say(&["runs", "--json"]);
        let run = |line: &str| json(line)["run"].as_str().expect("every run has an id").to_owned();
        said.out.lines().map(run).collect()
    }

    /// The only run there is, as `show --json` tells it.
    #[track_caller]
    pub(crate) fn only_run(&self) -> Value {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        json(&self.say(&["show", &runs[0], "--json"]).out)
    }

    /// Waits until a file in the workspace holds something, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str) -> String {
        wait_until(name, || Some(self.text(name)).filter(|text| text.ends_with('\n')))
    }

    #[track_caller]
    pub(crate) fn wait_for_pid(&self, name: &str) -> Process {
        Process::of(self.wait_for(name).trim().parse().expect("the script writes a pid"))
    }
}

/// Sees to it that our program starts with no signal ignored, however these tests were started.
///
/// Under `nohup`, or in the background of a script, this process ignores signals, and so would what it starts. A
/// signal that is listened to has its default meaning again in a new program.
fn heed_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("there is room for a runtime").block_on(async {
            for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
                if ignored & (1 << (kind.as_raw_value() - 1)) != 0 {
                    // What it tells is not wanted; the handler stays.
                    drop(signal(kind).expect("these signals can be listened to"));
                }
            }
        });
    });
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status;
        Self {
            status: status.code().unwrap_or_else(|| -status.signal().expect("it ended")),
            out: String::from_utf8(output.stdout).expect("we print UTF-8"),
            err: String::from_utf8(output.stderr).expect("we print UTF-8"),
        }
    }

    #[track_caller]
    pub(crate) fn with_status(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn with_out(self, part: &str) -> Self {
        assert!(self.out.contains(part), "no {part:?} in stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn with_err(self, part: &str) -> Self {
        assert!(self.err.contains(part), "no {part:?} in stderr:\n{}\nstdout:\n{}", self.err, self.out);
        self
    }
}

/// Our program while it runs. It is killed if the test fails before its end.
pub(crate) struct Running(Option<Child>);

impl Running {
    fn child(&self) -> &Child {
        self.0.as_ref().expect("it is there until it is waited for")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_child(self.child(), signal);
    }

    /// Waits for its end. What does not end is killed, so that its test fails and not the whole suite.
    pub(crate) fn end(mut self) -> Said {
        let child = self.0.take().expect("it is there until here");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let (ended, watched) = mpsc::channel::<()>();
        thread::spawn(move || {
            if watched.recv_timeout(2 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // It may have ended this moment.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output().expect("it can be waited for");
        drop(ended);
        Said::of(output)
    }
}

pub(crate) fn signal_child(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("our child can be signalled");
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The test has failed already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A process that somebody else has started.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    started: Option<String>,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, started: start_time(pid) }
    }

    /// True if it runs: a zombie does not, nor does another one with its pid.
    pub(crate) fn is_alive(&self) -> bool {
        self.started.is_some() && start_time(self.pid) == self.started
    }

    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        wait_until("the end of a process", || (!self.is_alive()).then_some(()));
    }
}

/// When a process that is no zombie was started, in the kernel's own words.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then(|| fields[19].to_owned())
}

#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A line of shell that hands in a report.
pub(crate) fn hand_in(report: &str) -> String {
    format!("cat > /dev/null; printf '%s' '{report}' > \"$HARNESS_VALUE_FILE\"")
}

pub(crate) const COMPLETE: &str =
    r#"{"status":"complete","summary":"Done.","evidence":["make: ok"],"nextSteps":[],"blocker":""}"#;
pub(crate) const CONTINUE: &str =
    r#"{"status":"continue","summary":"Went on.","evidence":[],"nextSteps":["More."],"blocker":""}"#;
pub(crate) const BLOCKED: &str =
    r#"{"status":"blocked","summary":"Stuck.","evidence":[],"nextSteps":[],"blocker":"No key."}"#;

/// An agent that goes on twice and is done in the third round. What it does shows in the file `rounds`.
pub(crate) fn three_rounds() -> String {
    format!(
        "cat > /dev/null; echo \"$HARNESS_CALL\" >> rounds\n\
         if [ \"$HARNESS_CALL\" -lt 3 ]; then printf '%s' '{CONTINUE}'; else printf '%s' '{COMPLETE}'; fi > \"$HARNESS_VALUE_FILE\""
    )
}

pub(crate) fn exists(path: &Path) -> bool {
    path.try_exists().expect("the test's own directories can be looked into")
}
