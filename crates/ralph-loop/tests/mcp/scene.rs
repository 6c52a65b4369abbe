//! What a case needs: a home, a workspace, a scripted agent in it, and a server to start.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::processes;

/// The longest that anything of a case may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How long what is to be gone may take to go.
const GRACE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(20);

pub(crate) const COMPLETE: &str = r#"{"status":"complete","summary":"Done.","evidence":["make: all 42 tests pass"],"nextSteps":[],"blocker":""}"#;
pub(crate) const CONTINUE: &str = r#"{"status":"continue","summary":"Private words.","evidence":[],"nextSteps":["More private words."],"blocker":""}"#;

pub(crate) struct Scene {
    root: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Result<Self> {
        let scene = Self { root: tempfile::Builder::new().prefix("ralph-e2e-").tempdir()? };
        for folder in ["home", "state", "config", "workspace", "codex"] {
            fs::create_dir_all(scene.path(folder))?;
        }
        Ok(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes the agent and the script that clients start as their server, and returns the latter.
    pub(crate) fn server(&self, agent: &str) -> Result<PathBuf> {
        self.script("agent.sh", &format!("cat > /dev/null\n{agent}"))?;
        // Clients do not hand all of their environment on.
        let server = format!(
            "export HOME='{home}' XDG_STATE_HOME='{state}' XDG_CONFIG_HOME='{config}'\n\
             exec '{program}' mcp --workspace '{workspace}' --max-rounds 5 -- '{agent}'",
            home = self.path("home").display(),
            state = self.path("state").display(),
            config = self.path("config").display(),
            program = env!("CARGO_BIN_EXE_ralph-loop"),
            workspace = self.path("workspace").display(),
            agent = self.path("agent.sh").display(),
        );
        self.script("serve.sh", &server)
    }

    fn script(&self, name: &str, body: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// A program in this scene's home.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path("workspace"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    /// The text of a file in the workspace, empty where there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path("workspace").join(name)).unwrap_or_default()
    }

    /// The runs, as `runs --json` tells of them.
    pub(crate) fn runs(&self) -> Result<Vec<Value>> {
        let output = self.command(env!("CARGO_BIN_EXE_ralph-loop")).args(["runs", "--json"]).output()?;
        let text = String::from_utf8(output.stdout)?;
        text.lines().map(|line| serde_json::from_str(line).context("a line is JSON")).collect()
    }

    /// Waits until `look` finds something.
    pub(crate) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            ensure!(Instant::now() < until, "waited in vain for {what}");
            thread::sleep(GLANCE);
        }
    }

    /// Fails if anything that the case has started is still alive after a grace.
    pub(crate) fn nothing_is_left(&self) -> Result<()> {
        let until = Instant::now() + GRACE;
        loop {
            let left = processes::alive(self.root.path());
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let lines: Vec<String> = left.iter().map(ToString::to_string).collect();
                bail!("left alive:\n{}", lines.join("\n"))
            }
            thread::sleep(GLANCE);
        }
    }

    /// What the client said last; the directory of the case stays.
    pub(crate) fn autopsy(mut self) -> String {
        let tail = |name: &str| {
            let said = fs::read_to_string(self.path(name)).unwrap_or_default();
            let from = said.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
            format!("--- {name}\n{}\n", &said[from..])
        };
        let told = tail("client.out") + &tail("client.err");
        processes::end_all(self.root.path());
        self.root.disable_cleanup(true);
        format!("{told}--- the rest is in {}", self.root.path().display())
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        processes::end_all(self.root.path());
    }
}
