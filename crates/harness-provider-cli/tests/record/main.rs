//! Records what the real agents say, for the fixtures: `cargo xtask e2e agents --record [AGENT] [AGENT/NAME…]`.
//!
//! A fixture's table says what the model answers, how the child is run and what must come of it. The agent is run so by
//! its provider against the scripted model; what it said on standard output, and what of its own records its provider
//! reads, becomes the fixture again, with ids, paths and ports made the same every time. An end that is not the one
//! expected is a failure, and leaves the fixture as it was: either the agent has changed or the provider errs.

mod agents;
mod normal;
mod turns;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use harness_process::{Environment, Limits};
use harness_provider_cli::{
    AgentHandIn, AgentKind, AgentProvider, CaptureServer, Permissions, Version, pid_of,
};
use harness_subagent::{
    AgentId, OutputContract, OutputRule, OutputRuleCatalog, OutputViolation, Parent, RuleRef, StartSubagent,
    SubagentProvider, SubagentResult,
};
use harness_testkit::model_server::{Conversation, Ending, Exchange, ModelServer, Script};
use harness_testkit::subagent::CaptureStandIn;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agents::Credentials;
use crate::normal::Normal;

/// The longest that one child may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// The longest that one may take that would go on for ever.
const SHORT_DEADLINE: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = if words == ["capture"] { capture() } else { record_all(&words) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the capture server of a child.
fn capture() -> Result<()> {
    let stand_in = CaptureStandIn::from_variables(|name| std::env::var(name).ok())?;
    let judge = |value: &Value| NamesNextSteps.check(value, &Value::Null).err().unwrap_or_default();
    Ok(stand_in.serve(std::io::stdin().lock(), std::io::stdout().lock(), judge)?)
}

fn record_all(words: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut passed, mut failed) = (0, 0);
    for kind in AgentKind::ALL {
        for fixture in Fixture::all(*kind)? {
            let name = format!("{kind}/{}", fixture.name);
            let chosen = words.is_empty() || words.iter().any(|word| *word == name || word == kind.as_str());
            if !chosen {
                continue;
            }
            let started = Instant::now();
            let result = runtime.block_on(fixture.record());
            let took = started.elapsed().as_secs_f64();
            match result {
                Ok(()) => {
                    passed += 1;
                    println!("recorded  {took:5.1} s  {name}");
                }
                Err(error) => {
                    failed += 1;
                    println!("FAILED    {took:5.1} s  {name}\n          {error:#}");
                }
            }
        }
    }
    println!("{passed} recorded, {failed} failed");
    ensure!(failed == 0, "some fixtures are as they were");
    ensure!(passed > 0, "no fixture is called so");
    Ok(())
}

/// A fixture as it is.
struct Fixture {
    kind: AgentKind,
    name: String,
    path: PathBuf,
    text: String,
    about: toml::Table,
}

impl Fixture {
    fn all(kind: AgentKind) -> Result<Vec<Self>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind.as_str());
        let mut all = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path)?;
                let about = toml::from_str(&text).with_context(|| path.display().to_string())?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                all.push(Self { kind, name, path, text, about });
            }
        }
        all.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(all)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.about.get(name).and_then(toml::Value::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.about.get(name).and_then(toml::Value::as_integer).and_then(|number| number.try_into().ok())
    }

    async fn record(&self) -> Result<()> {
        let place = tempfile::Builder::new().prefix("record-").tempdir()?;
        let root = place.path().canonicalize()?;
        for folder in ["home", "workspace", "files"] {
            fs::create_dir(root.join(folder))?;
        }
        let turns = turns::read(self.text("turns").context("`turns` is missing")?)?;
        let script = Script::new([Conversation::new(turns)]).with_capture_tool("submit_report");
        let server = ModelServer::start(script)?;
        let provider = self.provider(&root, server.url())?;
        let version = provider.detect().await.version.context("the agent does not tell its version")?;

        let cancellation = CancellationToken::new();
        let parent = Parent::new("parent", root.join("workspace").to_str().context("the path is no text")?);
        let request = StartSubagent::stopped_by(cancellation.clone(), "go", parent).with_output(contract()?);
        let run = provider.start(request).await?;
        let mut records = Records::default();
        let ending = async {
            if self.about.contains_key("cancelled-after-seconds") {
                // Seconds are what it takes on an idle machine; what counts is that it is in the middle.
                let in_request =
                    || server.exchanges().iter().any(|one| one.place.is_some() && one.ending.is_none());
                // The later agents tell of no tool before it is done, but have been told to use one by then.
                let is_told = || {
                    let answered =
                        |one: &Exchange| one.place.is_some() && one.ending == Some(Ending::Answered);
                    !matches!(self.kind, AgentKind::ClaudeCode | AgentKind::Codex)
                        && server.exchanges().iter().any(answered)
                };
                let in_the_middle = || in_tool(&root) || in_request() || is_told();
                wait_until(in_the_middle).await;
                cancellation.cancel();
            } else if let Some(signal) = self.text("sent") {
                self.send(signal, run.id(), &root).await?;
            }
            std::future::pending::<Result<SubagentResult>>().await
        };
        let watching = async {
            loop {
                records.look(&root.join("files"));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let result = tokio::select! {
            result = run.result() => result?,
            result = ending => result?,
            result = watching => result,
        };
        let transcript = find(&root.join("files"), "transcript.log").context("there is no transcript")?;
        let said = fs::read_to_string(transcript)?;
        run.dispose().await?;
        self.expect(&result)
            .with_context(|| format!("it said last: {}", said.lines().last().unwrap_or_default()))?;

        let mut normal = Normal::new(&root, server.address().port());
        let lines = said.lines().filter(|line| line.starts_with('{'));
        fs::write(self.path.with_extension("jsonl"), normal.lines(lines))?;
        if self.kind == AgentKind::Codex {
            let kept = records.read()?;
            fs::write(self.path.with_extension("records.jsonl"), normal.lines(kept.lines()))?;
        }
        fs::write(&self.path, self.with_version(version))?;
        Ok(())
    }

    fn provider(&self, root: &Path, url: &str) -> Result<AgentProvider> {
        let environment = Environment::basic().set("HOME", root.join("home"));
        let credentials = match (
            self.about.contains_key("without-credentials"),
            self.about.contains_key("as-subscriber"),
        ) {
            (true, _) => Credentials::None,
            (false, true) => Credentials::Subscriber,
            (false, false) => Credentials::Key,
        };
        let rules = OutputRuleCatalog::new().with("names-next-steps", Arc::new(NamesNextSteps))?;
        let is_endless = self.about.contains_key("until-its-deadline");
        let deadline = if is_endless { SHORT_DEADLINE } else { DEADLINE };
        let mut provider = AgentProvider::new(self.kind, root.join("files"))
            .with_program(agents::program(self.kind)?)
            .with_arguments(agents::arguments(self.kind, url))
            .with_environment(agents::environment(self.kind, environment, url, credentials, root)?)
            .with_rules(rules)
            .with_limits(Limits::default().with_deadline(deadline));
        if let Some(model) = agents::model(self.kind) {
            provider = provider.with_model(model);
        }
        provider = match self.text("hand-in") {
            Some("capture") => {
                let ours = std::env::current_exe()?;
                let server = CaptureServer::new("ralph", "submit_report", ours).with_arguments(["capture"]);
                provider.with_capture(server).with_hand_in(AgentHandIn::Capture)
            }
            Some("schema") => provider.with_hand_in(AgentHandIn::Schema),
            other => bail!("`hand-in` is {other:?}"),
        };
        if let Some(name) = self.text("permissions") {
            let permissions = Permissions::from_name(name);
            provider = provider.with_permissions(permissions.context("`permissions` names none")?);
        }
        if let Some(turns) = self.number("max-turns") {
            provider = provider.with_max_turns(Some(turns.try_into()?));
        }
        if let Some(micros) = self.number("max-cost-usd-micros") {
            provider = provider.with_max_cost_usd_micros(Some(micros));
        }
        Ok(provider)
    }

    /// Sends the agent a signal once it is in its tool.
    async fn send(&self, signal: &str, child: &AgentId, root: &Path) -> Result<()> {
        let signal = match signal {
            "KILL" => rustix::process::Signal::KILL,
            "TERM" => rustix::process::Signal::TERM,
            other => bail!("`sent` is {other}"),
        };
        wait_until(|| in_tool(root)).await;
        let pid = pid_of(child).and_then(|pid| pid.try_into().ok()).and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("the child's id has no pid")?, signal)?;
        Ok(())
    }

    /// Fails unless the child ended as the fixture expects.
    fn expect(&self, result: &SubagentResult) -> Result<()> {
        let expected =
            self.about.get("expected").and_then(toml::Value::as_table).context("`expected` is missing")?;
        let reason = expected.get("reason").and_then(toml::Value::as_str);
        ensure!(
            Some(result.stop_reason.as_str()) == reason,
            "it ended as {}, not as {}: {:?}",
            result.stop_reason,
            reason.unwrap_or_default(),
            result.diagnostic
        );
        let value = expected.get("value").and_then(toml::Value::as_str).map(serde_json::from_str::<Value>);
        let value = value.transpose()?;
        ensure!(result.structured == value, "it handed in {:?}, not {value:?}", result.structured);
        let session = expected.get("session").and_then(toml::Value::as_bool).unwrap_or(true);
        ensure!(result.session_id.is_some() == session, "its session is {:?}", result.session_id);
        let count = |name: &str| expected.get(name).and_then(toml::Value::as_integer);
        let usage =
            result.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.cost_usd_micros));
        let numbers = ["input-tokens", "output-tokens", "cost-usd-micros"]
            .map(|name| count(name).map(i64::cast_unsigned));
        let told = [usage.map(|usage| usage.0), usage.map(|usage| usage.1), usage.and_then(|usage| usage.2)];
        ensure!(told == numbers, "it used {told:?}, not {numbers:?}");
        let details = expected.get("details").and_then(toml::Value::as_table).into_iter().flatten();
        for (name, value) in details {
            let found = result.diagnostic.as_ref().and_then(|diagnostic| diagnostic.details().get(name));
            ensure!(found.map(String::as_str) == value.as_str(), "`{name}` is {found:?}, not {value:?}");
        }
        Ok(())
    }

    fn with_version(&self, version: Version) -> String {
        let line = |line: &str| match line.starts_with("version = ") {
            true => format!("version = \"{version}\"\n"),
            false => format!("{line}\n"),
        };
        self.text.lines().map(line).collect()
    }
}

/// Waits until something is so, and a little longer, as agents say what they do before they do it.
async fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// True if the child has begun to use a tool.
fn in_tool(root: &Path) -> bool {
    let said = find(&root.join("files"), "transcript.log").and_then(|file| fs::read_to_string(file).ok());
    said.is_some_and(|said| said.contains("task_started") || said.contains("item.started"))
}

/// What a child hands in.
fn contract() -> Result<OutputContract> {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let schema = json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["continue", "complete", "blocked"] },
            "summary": { "type": "string" },
            "evidence": texts,
            "nextSteps": texts,
            "blocker": { "type": "string" },
        },
        "required": ["status", "summary", "evidence", "nextSteps", "blocker"],
        "additionalProperties": false,
    });
    Ok(OutputContract::new(schema)?.with_rule(RuleRef::new("names-next-steps")))
}

/// The rule of the recorded values.
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

/// The session files of Codex, which are gone when the child is: each is held open from when it is there.
#[derive(Debug, Default)]
struct Records {
    held: Vec<(PathBuf, File)>,
}

impl Records {
    fn look(&mut self, files: &Path) {
        for path in below(files) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_record = name.starts_with("rollout-") && name.ends_with(".jsonl");
            if is_record && !self.held.iter().any(|(held, _)| *held == path) {
                // It may be gone by now.
                self.held.extend(File::open(&path).map(|file| (path, file)));
            }
        }
    }

    /// The lines in them that the provider looks at.
    fn read(self) -> Result<String> {
        const KINDS: [&str; 3] = ["token_count", "task_complete", "turn_aborted"];
        let mut kept = String::new();
        for (_, mut file) in self.held {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            for line in text.lines() {
                let record: Value = serde_json::from_str(line)?;
                if record["payload"]["type"].as_str().is_some_and(|kind| KINDS.contains(&kind)) {
                    kept.push_str(line);
                    kept.push('\n');
                }
            }
        }
        Ok(kept)
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    below(folder).into_iter().find(|path| path.file_name().is_some_and(|found| found == name))
}

/// All files below a folder; what vanishes meanwhile is left out.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(below(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}
