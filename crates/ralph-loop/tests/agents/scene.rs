//! What one case needs: a home, a repository, a scripted model, and ralph-loop between them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use harness_testkit::model_server::{Conversation, Exchange, ModelServer, Script};
use serde_json::Value;
use tempfile::TempDir;

use crate::agents::{Agent, Way};
use crate::processes;

/// The longest that a case may take: a start of opencode alone takes half a minute where much else goes on.
const DEADLINE: Duration = Duration::from_secs(300);
/// How long what is to end may take to do so.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

pub(crate) struct Scene {
    root: TempDir,
    pub(crate) agent: &'static Agent,
    pub(crate) way: Way,
    pub(crate) server: ModelServer,
    deadline: Instant,
}

/// How ralph-loop ended, with what it said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Negative for a signal.
    pub(crate) status: i32,
    pub(crate) out: String,
}

/// ralph-loop while it runs.
pub(crate) struct Running<'a> {
    scene: &'a Scene,
    name: String,
    child: Child,
}

impl Scene {
    /// Sets one up in which the model plays `conversations`, one after the other.
    pub(crate) fn new(
        agent: &'static Agent,
        way: Way,
        conversations: impl FnOnce(&Path) -> Vec<Conversation>,
    ) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("ralph-e2e-").tempdir()?;
        let script = Script::in_order(conversations(&root.path().join("workspace")));
        let server = ModelServer::start(script.with_capture_tool("submit_report"))?;
        Self { root, agent, way, server, deadline: Instant::now() + DEADLINE }.furnished()
    }

    fn furnished(self) -> Result<Self> {
        for folder in ["home", "state", "config/ralph-loop", "bin", "workspace"] {
            fs::create_dir_all(self.path(folder))?;
        }
        std::os::unix::fs::symlink(self.agent.installed()?, self.path("bin").join(self.agent.program))?;
        fs::write(
            self.path("config/ralph-loop/config.toml"),
            self.agent.settings(self.way, self.server.url()),
        )?;
        for (name, text) in self.agent.files(self.server.url()) {
            fs::write(self.path(name), text)?;
        }
        for (name, text) in REPOSITORY {
            fs::write(self.file(name), text)?;
        }
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "Begin"]] {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]).args(arguments);
            git.current_dir(self.path("workspace")).env("HOME", self.path("home"));
            let status = git.status();
            ensure!(status.context("git cannot be started")?.success(), "git {arguments:?} failed");
        }
        Ok(self)
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A file of the workspace.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path("workspace").join(name)
    }

    /// True if the tests of the repository pass.
    pub(crate) fn repository_passes(&self) -> Result<bool> {
        let status = Command::new("sh")
            .arg("test.sh")
            .current_dir(self.path("workspace"))
            .stdout(Stdio::null())
            .status();
        Ok(status.context("sh cannot be started")?.success())
    }

    /// Runs ralph-loop to its end.
    pub(crate) fn say(&self, arguments: &[&str]) -> Result<Said> {
        self.start(arguments)?.end()
    }

    /// Runs the loop to its end, in `rounds` rounds at most.
    pub(crate) fn run(&self, objective: &str, rounds: u32) -> Result<Said> {
        self.start_run(objective, rounds, &[])?.end()
    }

    pub(crate) fn start_run(&self, objective: &str, rounds: u32, options: &[&str]) -> Result<Running<'_>> {
        let (chosen, behind) = self.agent.chosen(self.server.url());
        let rounds = rounds.to_string();
        let mut arguments = vec!["run", objective, "--max-rounds", &rounds];
        arguments.extend(options);
        arguments.extend(chosen.iter().chain(&behind).map(String::as_str));
        self.start(&arguments)
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running<'_>> {
        let name = format!("said-{}", arguments[0]);
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(self.path("bin")).chain(std::env::split_paths(&paths));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ralph-loop"));
        command
            .args(arguments)
            .current_dir(self.path("workspace"))
            .env_clear()
            .env("PATH", std::env::join_paths(paths)?)
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .envs(self.agent.environment(self.server.url(), self.root()))
            .stdin(Stdio::null())
            .stdout(File::create(self.path(&format!("{name}.out")))?)
            .stderr(File::create(self.path(&format!("{name}.err")))?);
        Ok(Running { scene: self, name, child: command.spawn().context("ralph-loop cannot be started")? })
    }

    /// The ids of all runs.
    pub(crate) fn runs(&self) -> Result<Vec<String>> {
        let said = self.say(&["runs", "--json"])?.with_status(0)?;
        said.out
            .lines()
            .map(|line| Ok(json(line)?["run"].as_str().context("a run has an id")?.to_owned()))
            .collect()
    }

    /// The only run there is, as `show --json` tells it.
    pub(crate) fn only_run(&self) -> Result<Value> {
        let runs = self.runs()?;
        ensure!(runs.len() == 1, "there are {} runs, not one", runs.len());
        json(&self.say(&["show", &runs[0], "--json"])?.with_status(0)?.out)
    }

    /// Waits until `look` finds something, at most until the deadline of the case.
    pub(crate) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            ensure!(Instant::now() < self.deadline, "waited in vain for {what}");
            thread::sleep(GLANCE);
        }
    }

    /// Fails if anything that the case has started is alive.
    pub(crate) fn nothing_is_left(&self) -> Result<()> {
        let left = processes::alive(self.root());
        if left.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = left.iter().map(ToString::to_string).collect();
        bail!("left alive:\n{}", lines.join("\n"))
    }

    /// Everything that helps to find out what went wrong; the directory of the case stays.
    pub(crate) fn autopsy(mut self) -> String {
        let mut text = String::new();
        for command in ["run", "cancel", "resume", "show"] {
            for stream in ["out", "err"] {
                let said =
                    fs::read_to_string(self.path(&format!("said-{command}.{stream}"))).unwrap_or_default();
                if !said.is_empty() {
                    let _ = writeln!(text, "--- ralph-loop {command}, {stream}\n{}", tail(&said, 4000));
                }
            }
        }
        let _ = writeln!(text, "--- what the model was asked");
        let mut bodies = String::new();
        for exchange in self.server.exchanges() {
            let _ = writeln!(text, "{}", line(&exchange));
            let _ = writeln!(bodies, "{}", exchange.body);
        }
        // Without them there is still the rest.
        let _ = fs::write(self.path("requests.jsonl"), bodies);
        self.root.disable_cleanup(true);
        let _ = writeln!(
            text,
            "--- the rest is in {}, the whole requests in requests.jsonl there",
            self.root().display()
        );
        text
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        processes::end_all(self.root.path());
    }
}

fn line(exchange: &Exchange) -> String {
    let place = match exchange.place {
        Some(place) => format!("conversation {} turn {}", place.conversation, place.turn),
        None => "aside".to_owned(),
    };
    let last = exchange.question().map_or("", |question| question.last());
    let last: String = last.chars().take(200).collect();
    let ending = exchange.ending.map_or_else(|| "open".to_owned(), |ending| format!("{ending:?}"));
    format!("{} {} {} ({place}) {ending}: {last:?}", exchange.number, exchange.method, exchange.path)
}

/// The last `most` characters.
fn tail(text: &str, most: usize) -> &str {
    let from = text.char_indices().rev().nth(most).map_or(0, |(at, _)| at);
    &text[from..]
}

impl Running<'_> {
    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; past the deadline of the case it is killed.
    pub(crate) fn end(mut self) -> Result<Said> {
        use std::os::unix::process::ExitStatusExt as _;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Said {
                    status: status.code().unwrap_or_else(|| -status.signal().unwrap_or_default()),
                    out: fs::read_to_string(self.scene.path(&format!("{}.out", self.name)))?,
                });
            }
            if Instant::now() > self.scene.deadline {
                bail!("ralph-loop has not ended within {DEADLINE:?}");
            }
            thread::sleep(GLANCE);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // It has ended already, unless the case has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    pub(crate) fn with_status(self, status: i32) -> Result<Self> {
        ensure!(self.status == status, "ralph-loop ended with {}, not {status}", self.status);
        Ok(self)
    }
}

pub(crate) fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| anyhow!("{error} in {text}"))
}

/// A program with two faults, and the test that finds them.
const REPOSITORY: &[(&str, &str)] = &[
    ("greet.sh", "#!/bin/sh\necho \"Hullo, $1\"\n"),
    ("README.md", "# greet\n"),
    (
        "test.sh",
        "#!/bin/sh\n\
         said=$(sh greet.sh world)\n\
         [ \"$said\" = 'Hello, world!' ] || { echo \"FAILED: greet says '$said'\"; exit 1; }\n\
         grep -q Usage README.md || { echo 'FAILED: README.md does not say how to use it'; exit 1; }\n\
         echo 'all tests passed'\n",
    ),
];
