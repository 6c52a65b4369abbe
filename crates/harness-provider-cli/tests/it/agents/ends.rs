//! Every recorded end of a real agent is told as what it was.
//!
//! A recording is two files: what the agent said on standard output, line by line, and how that came about and what
//! must come of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness_process::Limits;
use harness_provider_cli::{AgentHandIn, AgentKind, Permissions};
use harness_subagent::{OutputContract, StartSubagent, SubagentProvider, SubagentResult};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fake::{End, FakeAgent, Play, rule};

/// What a recording says beside the agent's own lines.
struct Recording {
    name: String,
    lines: PathBuf,
    about: toml::Table,
}

impl Recording {
    fn all(kind: AgentKind) -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind.as_str());
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let about: toml::Table = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                assert_eq!(about["agent"].as_str(), Some(kind.as_str()), "{path:?}");
                let version = about["version"].as_str().and_then(harness_provider_cli::Version::parse);
                assert!(kind.features().is_tested(version.unwrap()), "{path:?} is of an untested version");
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                all.push(Self { name, lines: path.with_extension("jsonl"), about });
            }
        }
        all.sort_by(|one, two| one.name.cmp(&two.name));
        all
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.about.get(name).and_then(toml::Value::as_integer)
    }

    fn end(&self) -> End {
        match (self.number("status"), self.number("signal")) {
            (Some(status), _) => End::Status(status),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Stays,
        }
    }

    /// Has the recording played to its provider.
    async fn play(&self, kind: AgentKind) -> SubagentResult {
        let fake = FakeAgent::new(kind, &Play::Recorded { lines: self.lines.clone(), end: self.end() });
        let mut provider = fake.provider();
        if self.about["hand-in"].as_str() == Some("capture") {
            provider = provider.with_capture(fake.capture_server()).with_hand_in(AgentHandIn::Capture);
        }
        if let Some(permissions) = self.about.get("permissions").and_then(toml::Value::as_str) {
            provider = provider.with_permissions(Permissions::from_name(permissions).unwrap());
        }
        if let Some(turns) = self.number("max-turns") {
            provider = provider.with_max_turns(u32::try_from(turns).ok());
        }
        // It tried again and again, so that only a limit ended it.
        if self.about.contains_key("until-its-deadline") {
            provider = provider.with_limits(Limits::default().with_deadline(Duration::from_secs(3)));
        }
        let cancellation = CancellationToken::new();
        let request = StartSubagent::stopped_by(cancellation.clone(), "go", fake.bench.parent())
            .with_output(contract());
        let run = provider.start(request).await.unwrap();
        if self.about.contains_key("until") {
            // It has said all it says by itself when what it was recorded to do last is heard.
            let transcript = transcript(&fake.bench.files()).await;
            let said = fs::read_to_string(&self.lines).unwrap();
            let before = said.lines().take_while(|line| !line.contains("control_response")).last().unwrap();
            while !fs::read_to_string(&transcript).unwrap().contains(before) {
                tokio::task::yield_now().await;
            }
            cancellation.cancel();
        }
        let result = run.result().await.unwrap();
        run.dispose().await.unwrap();
        fake.bench.assert_nothing_left();
        assert!(
            !crate::support::files_below(&fake.bench.files()).iter().any(|file| file.starts_with("home")),
            "the private directory is left"
        );
        result
    }

    /// Says what is told otherwise than it should be.
    fn differences(&self, result: &SubagentResult) -> Vec<String> {
        let expected = self.about["expected"].as_table().unwrap();
        let text = |name: &str| expected.get(name).and_then(toml::Value::as_str);
        let count = |name: &str| {
            expected.get(name).map(|number| u64::try_from(number.as_integer().unwrap()).unwrap())
        };
        let mut differences = Vec::new();
        let mut compare = |what: &str, expected: Value, found: Value| {
            if expected != found {
                differences.push(format!("{}: {what} is {found} and should be {expected}", self.name));
            }
        };
        compare("reason", text("reason").into(), result.stop_reason.as_str().into());
        let value = text("value").map(|value| serde_json::from_str::<Value>(value).unwrap());
        compare("value", value.into(), result.structured.clone().into());
        let usage = result.usage;
        compare("input", count("input-tokens").into(), usage.map(|usage| usage.input_tokens).into());
        compare("output", count("output-tokens").into(), usage.map(|usage| usage.output_tokens).into());
        let cost = usage.and_then(|usage| usage.cost_usd_micros);
        compare("cost", count("cost-usd-micros").into(), cost.into());
        // Some ends come before there is a session.
        let session = expected.get("session").and_then(toml::Value::as_bool).unwrap_or(true);
        compare("whether a session is told", session.into(), result.session_id.is_some().into());
        let details = result.diagnostic.as_ref().map(harness_subagent::Diagnostic::details);
        for (name, value) in expected.get("details").and_then(toml::Value::as_table).into_iter().flatten() {
            let found = details.and_then(|details| details.get(name)).cloned();
            compare(name, value.as_str().into(), found.into());
        }
        compare(
            "whether it is said why",
            (!result.stop_reason.is_completed()).into(),
            details.is_some().into(),
        );
        differences
    }
}

fn contract() -> OutputContract {
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
    OutputContract::new(schema).unwrap().with_rule(rule())
}

/// Waits for the transcript of the only call.
async fn transcript(files: &Path) -> PathBuf {
    loop {
        let found = crate::support::files_below(files);
        if let Some(transcript) = found.iter().find(|file| file.ends_with("transcript.log")) {
            return transcript.clone();
        }
        tokio::task::yield_now().await;
    }
}

#[track_caller]
fn check(kind: AgentKind) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut differences = Vec::new();
    for recording in Recording::all(kind) {
        let result = runtime.block_on(recording.play(kind));
        let found = recording.differences(&result);
        if !found.is_empty() {
            differences.extend(found);
            differences.push(format!("{}: {:?}", recording.name, result.diagnostic));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn of_claude_code() {
    check(AgentKind::ClaudeCode);
}

#[test]
fn of_codex() {
    check(AgentKind::Codex);
}

#[test]
fn of_gemini() {
    check(AgentKind::Gemini);
}

#[test]
fn of_opencode() {
    check(AgentKind::Opencode);
}

#[test]
fn of_qwen_code() {
    check(AgentKind::QwenCode);
}
