use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness_process::{Environment, Limits, Shutdown};
use harness_provider_cli::CommandProvider;
use harness_subagent::{Origin, OutputContract, Parent, StartSubagent, SubagentProvider, SubagentResult};
use serde_json::json;

/// The variable by which a test finds the processes of its own children.
const TOKEN: &str = "HARNESS_TEST_TOKEN";

/// A place for the children of one test: a workspace, a directory for the files of calls, and a token.
#[derive(Debug)]
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    token: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        let token = format!("token-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { directory, token }
    }

    /// Where everything of this bench is.
    pub(crate) fn place(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    pub(crate) fn parent(&self) -> Parent {
        Parent::new("parent", self.workspace().to_str().unwrap())
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment::basic().set(TOKEN, &self.token)
    }

    /// A provider of `sh -c script` with limits and graces fit for a test.
    pub(crate) fn shell(&self, script: &str) -> CommandProvider {
        let seconds = |seconds| Duration::from_secs(seconds);
        CommandProvider::new("shell", "sh", self.files())
            .with_arguments(["-c", script])
            .with_environment(self.environment())
            .with_limits(
                Limits::default()
                    .with_first_byte(seconds(20))
                    .with_idle(seconds(20))
                    .with_deadline(seconds(30)),
            )
            .with_shutdown(
                Shutdown::default()
                    .with_graces(Duration::from_millis(300))
                    .with_delivered_grace(Duration::from_millis(300)),
            )
    }

    /// A request for an object, of a call that is made once in each bench.
    pub(crate) fn request(&self, prompt: &str) -> StartSubagent {
        StartSubagent::new(prompt, self.parent())
            .with_origin(Origin::new("run", 1, 1))
            .with_output(any_object())
    }

    /// Runs a child to its end and its disposal, and asserts that nothing of it is left.
    pub(crate) async fn run(&self, provider: &CommandProvider, request: StartSubagent) -> SubagentResult {
        let run = provider.start(request).await.unwrap();
        let result = run.result().await.unwrap();
        run.dispose().await.unwrap();
        self.assert_nothing_left();
        result
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The processes that carry this bench's token in their environment or their arguments, or are in its place.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let mark = format!("{TOKEN}={}", self.token);
        let has = |pid: u32, file: &str, text: &str| {
            std::fs::read(format!("/proc/{pid}/{file}"))
                .is_ok_and(|content| content.split(|&byte| byte == 0).any(|entry| entry == text.as_bytes()))
        };
        processes()
            .filter(|&pid| {
                has(pid, "environ", &mark)
                    || has(pid, "cmdline", &self.token)
                    || std::fs::read_link(format!("/proc/{pid}/cwd"))
                        .is_ok_and(|place| place.starts_with(self.directory.path()))
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.alive(), [0_u32; 0], "processes are left");
    }
}

/// Kills what should not be there, so that nothing outlives the tests.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may be gone by now.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn processes() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

pub(crate) fn any_object() -> OutputContract {
    OutputContract::new(json!({ "type": "object", "additionalProperties": true })).unwrap()
}

pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
