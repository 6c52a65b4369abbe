use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness_process::{Environment, Limits, Shutdown};
use harness_provider_acp::AcpProvider;
use harness_provider_cli::CaptureServer;
use harness_subagent::{
    Origin, OutputContract, Parent, StartSubagent, SubagentProvider, SubagentResult, SubagentRun,
};
use serde_json::{Value, json};

use crate::agent;

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

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    pub(crate) fn parent(&self) -> Parent {
        Parent::new("parent", self.workspace().to_str().unwrap())
    }

    /// A provider of the agent that plays `script`, with limits and graces fit for a test.
    pub(crate) fn provider(&self, script: &str) -> AcpProvider {
        let seconds = Duration::from_secs;
        let environment = Environment::basic()
            .set(TOKEN, &self.token)
            .set(agent::SCRIPT, script)
            .set(agent::HEARD, self.directory.path().join("heard"));
        AcpProvider::new("scripted", std::env::current_exe().unwrap(), self.files())
            .with_arguments(agent::arguments())
            .with_environment(environment)
            // It is told to the agent and started by nobody: the agents of these tests stand in for it themselves.
            .with_capture(CaptureServer::new("kit", "hand_in", "/no/such/server").with_arguments(["capture"]))
            .with_limits(
                Limits::default()
                    .with_first_byte(seconds(30))
                    .with_idle(seconds(30))
                    .with_deadline(seconds(60)),
            )
            .with_shutdown(
                Shutdown::default()
                    .with_graces(Duration::from_millis(500))
                    .with_delivered_grace(Duration::from_millis(500)),
            )
    }

    /// A request for a value, of a call that is made once in each bench.
    pub(crate) fn request(&self, prompt: &str) -> StartSubagent {
        self.plain_request(prompt).with_output(any_object())
    }

    /// A request for nothing but words.
    pub(crate) fn plain_request(&self, prompt: &str) -> StartSubagent {
        StartSubagent::new(prompt, self.parent()).with_origin(Origin::new("run", 1, 1))
    }

    /// Has the agent play `script` to its end, asked for a value, and asserts that nothing of it is left.
    pub(crate) async fn play(&self, script: &str) -> SubagentResult {
        self.run(&self.provider(script), self.request("do it")).await
    }

    /// Runs a child to its end and its disposal, and asserts that nothing of it is left.
    pub(crate) async fn run(&self, provider: &AcpProvider, request: StartSubagent) -> SubagentResult {
        let run = provider.start(request).await.unwrap();
        self.see_off(&*run).await
    }

    pub(crate) async fn see_off(&self, run: &dyn SubagentRun) -> SubagentResult {
        let result = run.result().await.unwrap();
        run.dispose().await.unwrap();
        assert_eq!(self.alive(), [0_u32; 0], "processes are left");
        result
    }

    /// What the agent heard, message by message.
    pub(crate) fn heard(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.path().join("heard")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The parameters of what the agent heard under the name `method`.
    pub(crate) fn heard_as(&self, method: &str) -> Vec<Value> {
        let heard = self.heard().into_iter();
        heard.filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }

    /// The answers that the agent heard.
    pub(crate) fn answers(&self) -> Vec<Value> {
        self.heard().into_iter().filter(|message| message.get("method").is_none()).collect()
    }

    /// The processes that carry this bench's token in their environment, or are in its place.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let mark = format!("{TOKEN}={}", self.token);
        let is_ours = |pid: &u32| {
            // A program that has only just begun has a place before it has an environment.
            std::fs::read_link(format!("/proc/{pid}/cwd"))
                .is_ok_and(|place| place.starts_with(self.directory.path()))
                || std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|content| {
                    content.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes())
                })
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
    }
}

/// Waits until the child tells that it does `what`.
pub(crate) async fn until(run: &dyn SubagentRun, what: &str) {
    let mut activity = run.activity();
    while let Some(activity) = activity.next().await {
        if activity.text == what {
            return;
        }
    }
    panic!("the child ended before it was {what}: {:?}", run.result().await);
}

pub(crate) fn any_object() -> OutputContract {
    OutputContract::new(json!({ "type": "object", "additionalProperties": true })).unwrap()
}

/// A detail of the result's diagnostic.
#[track_caller]
pub(crate) fn detail<'a>(result: &'a SubagentResult, name: &str) -> &'a str {
    let diagnostic = result.diagnostic.as_ref().expect("there is a diagnostic");
    diagnostic.details().get(name).unwrap_or_else(|| panic!("no detail {name}: {diagnostic:?}"))
}
