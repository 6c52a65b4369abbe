//! Programs that play an agent and a capture server. Both are this binary, started anew by a script.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use harness_process::{Limits, Shutdown};
use harness_provider_cli::{AgentHandIn, AgentKind, AgentProvider, CaptureServer};
use harness_subagent::{OutputRule, OutputRuleCatalog, OutputViolation, RuleRef};
use harness_testkit::subagent::CaptureStandIn;
use serde_json::{Value, json};

use super::plays;
use crate::support::Bench;

/// The variable that names the file with what the agent plays.
const PLAY: &str = "HARNESS_TEST_PLAY";

/// An agent that plays a part in a place of its own.
#[derive(Debug)]
pub(crate) struct FakeAgent {
    pub(crate) bench: Bench,
    kind: AgentKind,
}

/// What an agent plays.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    /// What a real one said, and how it ended.
    Recorded { lines: PathBuf, end: End },
    /// What the first line of its prompt says.
    Prompted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Status(i64),
    Signal(i64),
    /// It stays until it is ended, or until its input is.
    Stays,
}

impl FakeAgent {
    pub(crate) fn new(kind: AgentKind, play: &Play) -> Self {
        let fake = Self { bench: Bench::new(), kind };
        let play = match play {
            Play::Recorded { lines, end } => {
                let (how, number) = match end {
                    End::Status(status) => ("status", *status),
                    End::Signal(signal) => ("signal", *signal),
                    End::Stays => ("stays", 0),
                };
                json!({ "kind": kind.as_str(), "lines": lines, "end": how, "number": number })
            }
            Play::Prompted => json!({ "kind": kind.as_str() }),
        };
        fs::write(fake.path("play.json"), play.to_string()).unwrap();
        fake.script("agent", "agents::fake::plays_an_agent");
        fake.script("server", "agents::fake::serves");
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.place().join(name)
    }

    /// Writes a program that is this binary in the part of `test`. It leaves its arguments and its environment behind.
    fn script(&self, name: &str, test: &str) {
        let (binary, place) = (std::env::current_exe().unwrap(), self.bench.place());
        let text = format!(
            "#!/bin/sh\nprintf '%s\\0' \"$@\" > '{place}/{name}.arguments'\nenv -0 > '{place}/{name}.environment'\n\
             ls -A1 \"$CLAUDE_CONFIG_DIR$CODEX_HOME$GEMINI_CLI_HOME$QWEN_HOME$XDG_DATA_HOME\" > '{place}/{name}.home' 2>&1\n\
             cat \"$QWEN_CODE_SYSTEM_SETTINGS_PATH\" > '{place}/{name}.settings' 2>/dev/null\n\
             export {PLAY}='{place}/play.json'\n\
             exec '{binary}' --exact '{test}' --ignored --nocapture --test-threads=1\n",
            place = place.display(),
            binary = binary.display(),
        );
        // Moved there, as a program that is open for writing cannot be started.
        fs::write(self.path("part"), text).unwrap();
        fs::set_permissions(self.path("part"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(self.path("part"), self.path(name)).unwrap();
    }

    /// A provider of it, with limits and graces fit for a test.
    pub(crate) fn provider(&self) -> AgentProvider {
        let seconds = Duration::from_secs;
        let rules = OutputRuleCatalog::new()
            .with("names-next-steps", Arc::new(NamesNextSteps))
            .unwrap()
            .with("refuses-all", Arc::new(RefusesAll))
            .unwrap();
        let provider = AgentProvider::new(self.kind, self.bench.files())
            .with_program(self.path("agent"))
            .with_rules(rules)
            .with_environment(self.bench.environment())
            .with_limits(
                Limits::default()
                    .with_first_byte(seconds(20))
                    .with_idle(seconds(20))
                    .with_deadline(seconds(30)),
            )
            .with_shutdown(
                Shutdown::default().with_graces(Duration::from_millis(500)).with_delivered_grace(seconds(5)),
            );
        match self.kind.features().hand_in.contains(&AgentHandIn::Schema) {
            true => provider.with_hand_in(AgentHandIn::Schema),
            false => provider,
        }
    }

    pub(crate) fn capture_server(&self) -> CaptureServer {
        CaptureServer::new("ralph", "submit_report", self.path("server"))
            .with_arguments(["capture", "it's \"x\""])
    }

    /// The arguments with which the agent was started.
    pub(crate) fn arguments(&self) -> Vec<String> {
        self.left("agent.arguments")
    }

    /// The variables of the agent, or of its server.
    pub(crate) fn variables(&self, of: &str) -> Vec<String> {
        self.left(&format!("{of}.environment"))
    }

    /// The value of one variable of the agent.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let variables = self.variables("agent");
        variables.iter().find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    }

    /// The names of the files that were in the agent's private directory when it began.
    pub(crate) fn home(&self) -> Vec<String> {
        let names = fs::read_to_string(self.path("agent.home")).unwrap();
        names.lines().map(str::to_owned).collect()
    }

    /// The file of settings that outweighs all others, of an agent that has one.
    pub(crate) fn settings(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("agent.settings")).unwrap()).unwrap()
    }

    fn left(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }
}

/// A rule of the recorded values.
#[derive(Debug)]
struct NamesNextSteps;

impl OutputRule for NamesNextSteps {
    fn check(&self, value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        match value["nextSteps"].as_array() {
            Some(steps) if steps.is_empty() => {
                Err(vec![OutputViolation::new("/nextSteps", "empty", "name at least one next step")])
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct RefusesAll;

impl OutputRule for RefusesAll {
    fn check(&self, _value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        Err(vec![OutputViolation::new("", "refused", "is never good enough")])
    }
}

pub(crate) fn rule() -> RuleRef {
    RuleRef::new("names-next-steps")
}

#[test]
#[ignore = "is a child of other tests"]
fn serves() {
    // Whoever runs all ignored tests runs this one too, with nothing to do.
    if std::env::var_os(PLAY).is_none() {
        return;
    }
    say("");
    let stand_in = CaptureStandIn::from_variables(|name| std::env::var(name).ok()).unwrap();
    let judge = |value: &Value| NamesNextSteps.check(value, &Value::Null).err().unwrap_or_default();
    stand_in.serve(std::io::stdin().lock(), std::io::stdout().lock(), judge).unwrap();
    std::process::exit(0);
}

#[test]
#[ignore = "is a child of other tests"]
fn plays_an_agent() {
    let Some(file) = std::env::var_os(PLAY) else { return };
    let play: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let place = Path::new(&file).parent().unwrap();
    let kind = play["kind"].as_str().unwrap();
    // The test harness leaves a line unfinished.
    say("");
    match play["lines"].as_str() {
        Some(lines) => {
            let records = Path::new(lines).with_extension("records.jsonl");
            let lines = fs::read_to_string(lines).unwrap();
            let mut server = None;
            match kind {
                "claude-code" => replay_claude(&lines, place, &mut server),
                "codex" => replay_codex(&lines, &fs::read_to_string(records).unwrap(), place, &mut server),
                kind => plays::replay(kind, &lines, place),
            }
            end(&play);
        }
        None => match kind {
            "claude-code" => perform_claude(),
            "codex" => perform_codex(),
            kind => plays::perform(kind, place),
        },
    }
}

fn end(play: &Value) -> ! {
    let number = play["number"].as_i64().unwrap().try_into().unwrap();
    match play["end"].as_str() {
        Some("status") => std::process::exit(number),
        Some("signal") => {
            let signal = rustix::process::Signal::from_named_raw(number).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        }
        _ => {}
    }
    loop {
        std::thread::sleep(Duration::from_secs(600));
    }
}

pub(super) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
        .unwrap();
}

/// Reads the next message on standard input, or nothing at its end.
fn hear() -> Option<Value> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line).unwrap() {
        0 => None,
        _ => Some(serde_json::from_str(&line).unwrap()),
    }
}

fn replay_claude(lines: &str, place: &Path, server: &mut Option<Server>) {
    assert_eq!(hear().unwrap()["type"], "user");
    let mut over = false;
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if over {
            assert_eq!(hear().expect("another turn was recorded, and was not asked for")["type"], "user");
        }
        if event["type"] == "control_response" {
            assert_eq!(hear().unwrap()["request"]["subtype"], "interrupt");
        }
        for block in event["message"]["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_use" && block["name"] == "mcp__ralph__submit_report" {
                server.get_or_insert_with(|| Server::of_claude(place)).call(&block["input"]);
            }
        }
        say(line);
        over = event["type"] == "result";
    }
    if over {
        assert_eq!(hear(), None, "more turns were asked for than were recorded");
    }
}

fn replay_codex(lines: &str, records: &str, place: &Path, server: &mut Option<Server>) {
    std::io::stdin().lock().read_to_end(&mut Vec::new()).unwrap();
    leave_records(RECORDED_SESSION, records);
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["type"] == "item.completed" && event["item"]["type"] == "mcp_tool_call" {
            server.get_or_insert_with(|| Server::of_codex(place)).call(&event["item"]["arguments"]);
        }
        say(line);
    }
}

/// The session of every recording, which has its own ids replaced.
const RECORDED_SESSION: &str = "00000000-0000-4000-8000-000000000001";

/// Leaves the file in which Codex keeps a session.
fn leave_records(session: &str, records: &str) {
    let folder = Path::new(&std::env::var_os("CODEX_HOME").unwrap()).join("sessions/2026/01/31");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("rollout-2026-01-31T00-00-00-{session}.jsonl")), records).unwrap();
}

/// A capture server that the played agent has started as it was told to.
pub(super) struct Server {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Server {
    pub(super) fn of_claude(place: &Path) -> Self {
        let arguments = fs::read_to_string(place.join("agent.arguments")).unwrap();
        let mut arguments = arguments.split('\0').skip_while(|argument| *argument != "--mcp-config");
        let config = fs::read(arguments.nth(1).unwrap()).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        Self::start(&config["mcpServers"]["ralph"])
    }

    fn of_codex(place: &Path) -> Self {
        let arguments = fs::read_to_string(place.join("agent.arguments")).unwrap();
        let setting = arguments.split('\0').find(|argument| argument.starts_with("mcp_servers.")).unwrap();
        let config: toml::Table = toml::from_str(setting).unwrap();
        Self::start(&serde_json::to_value(&config["mcp_servers"]["ralph"]).unwrap())
    }

    /// Starts a server with no more of an environment than agents give it.
    pub(super) fn start(config: &Value) -> Self {
        let mut command = Command::new(config["command"].as_str().unwrap());
        command.args(config["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        for (name, value) in config["env"].as_object().unwrap() {
            command.env(name, value.as_str().unwrap());
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    pub(super) fn call(&mut self, value: &Value) {
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "submit_report", "arguments": value },
        });
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{call}").unwrap();
        // The test harness around the server has a few words to say first.
        let mut lines = (&mut self.answers).lines().map(|line| line.unwrap());
        let answer = lines.find(|line| line.starts_with('{')).unwrap();
        assert!(serde_json::from_str::<Value>(&answer).unwrap()["result"]["isError"].is_boolean());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends with its input; when it does not, the provider sweeps it.
        let _ = self.child.wait();
    }
}

fn perform_claude() {
    let result = |failed: bool| {
        json!({
            "type": "result", "subtype": "success", "is_error": failed, "session_id": "s", "total_cost_usd": 0.5,
            "modelUsage": { "m": { "inputTokens": 3, "outputTokens": 2 } },
        })
    };
    say(r#"{"type":"system","subtype":"init","session_id":"s"}"#);
    let prompt = hear().unwrap()["message"]["content"].as_str().unwrap().to_owned();
    let text = |text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        let message =
            json!({ "id": "a", "content": content, "usage": { "input_tokens": 3, "output_tokens": 2 } });
        say(&json!({ "type": "assistant", "session_id": "s", "message": message }).to_string());
    };
    let mut lines = prompt.lines();
    match lines.next().unwrap() {
        "completes" => {
            text("all done");
            say(&result(false).to_string());
            hear();
            std::process::exit(0);
        }
        "hands-in" => {
            let value: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            loop {
                let mut result = result(false);
                result["structured_output"] = value.clone();
                say(&result.to_string());
                if hear().is_none() {
                    std::process::exit(0);
                }
            }
        }
        "fails" => {
            let mut result = result(true);
            result["api_error_status"] = 400.into();
            say(&result.to_string());
            std::process::exit(1);
        }
        "hangs" => {
            std::thread::spawn(move || {
                assert_eq!(hear().unwrap()["type"], "control_request");
                let mut result = result(true);
                result["terminal_reason"] = "aborted_tools".into();
                say(&result.to_string());
                assert_eq!(hear(), None);
                std::process::exit(1);
            });
            babble(|| text("still here"))
        }
        "stubborn" => stubborn(|| text("still here")),
        other => unreachable!("nobody asks for {other}"),
    }
}

fn perform_codex() {
    let mut prompt = String::new();
    std::io::stdin().lock().read_to_string(&mut prompt).unwrap();
    say(r#"{"type":"thread.started","thread_id":"s"}"#);
    leave_records(
        "s",
        r#"{"payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":3,"output_tokens":2}}}}"#,
    );
    let text = |text: &str| {
        let item = json!({ "type": "agent_message", "text": text });
        say(&json!({ "type": "item.completed", "item": item }).to_string());
    };
    let done = || say(r#"{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":2}}"#);
    let mut lines = prompt.lines();
    match lines.next().unwrap() {
        "completes" => {
            text("all done");
            done();
        }
        "hands-in" => {
            text(lines.next().unwrap());
            done();
        }
        "fails" => {
            say(r#"{"type":"turn.failed","error":{"message":"unexpected status 400 Bad Request: no"}}"#);
            std::process::exit(1);
        }
        "hangs" => babble(|| text("still here")),
        "stubborn" => stubborn(|| text("still here")),
        other => unreachable!("nobody asks for {other}"),
    }
    std::process::exit(0);
}

pub(super) fn babble(word: impl Fn()) -> ! {
    loop {
        word();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Takes no notice of any request to end.
pub(super) fn stubborn(word: impl Fn()) -> ! {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let _heard = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).unwrap());
    babble(word)
}
