//! Codex, OpenAI's `codex`.
//!
//! # How it is started
//!
//! Installed with npm, `codex` is a script around a native program. The native one is started, so that signals reach it.
//!
//! | option | why |
//! |---|---|
//! | `exec --json -` | one event a line, the prompt on standard input |
//! | `--ignore-user-config --ignore-rules` | no settings, profiles or rules of the user |
//! | `--disable plugins --disable apps` | no plugins and apps, and no look for them on the network |
//! | `-c features.hooks=false`, `goals`, `memories` | no hooks, and no goals or memories that would go on by themselves |
//! | `-c skills.include_instructions=false` | no skills of the user, which lie outside of Codex's own directory |
//! | `-c analytics.enabled=false` | no metrics; offline they would hold up the end for seconds |
//! | `-c project_doc_max_bytes=0` | with [`with_instructions(false)`](crate::AgentProvider::with_instructions) only: the workspace's `AGENTS.md` is not read |
//! | `--skip-git-repo-check -C WORKSPACE` | any workspace will do |
//! | `-s read-only`, `-s workspace-write`, `--dangerously-bypass-approvals-and-sandbox` | the permissions; nobody is asked in any of them |
//! | `--output-schema`, `-c mcp_servers.…` | the one or the other way to hand in a value |
//! | `-m` | the model, where one is set |
//!
//! `CODEX_HOME` names a directory that only this child has. Codex keeps its session there; it is read when the child
//! has ended, and removed with the directory.
//!
//! How often Codex itself tries again can be set for vendors that the user configures (`request_max_retries`,
//! `stream_max_retries`, by [`with_arguments`](crate::AgentProvider::with_arguments)), and not for the built-in one,
//! which gives up on a failing server after about half a minute.
//!
//! # Credentials
//!
//! The variables in [`Features::credentials`](crate::Features::credentials) are let through, and the user's
//! `auth.json` is linked into the private directory, so that a token that is refreshed is refreshed for the user too. A
//! keyring is not looked into. Known offline is only whether there are credentials, not whether they are still good.
//!
//! # Permissions
//!
//! - `read-only`, `workspace`: commands run in Codex's own sandbox, without network. Where the machine allows no such
//!   sandbox, commands fail, and the child says so or not.
//! - `unrestricted`: no sandbox.
//!
//! # Handing in
//!
//! By a capture server where there is one: it hands a refused value back in the same turn. Codex's own schema mode only
//! passes the schema on to the vendor; the value is then the whole last message, which may be prose, and a child that
//! has ended its turn cannot be spoken to again.
//!
//! # How its ends are told apart
//!
//! By the events `turn.completed` and `turn.failed`; an `error` event is a warning. Events have no field for the kind of
//! a failure, but the session file has, in `codex_error_info`.
//!
//! | recorded | stop reason |
//! |---|---|
//! | `turn.completed`, and a value | `completed` |
//! | `turn.completed`, and a last message that is not one JSON document | `unreadable-value` |
//! | `turn.completed`, and nothing | `permission-denied` where an item was declined, else `no-value` |
//! | HTTP status 429, `usage_limit_exceeded` | `rate-limited`, with `reset-at` where a limit that is used up tells it |
//! | 401, 403, `unauthorized` | `authentication` |
//! | 503, 529, `server_overloaded` | `overloaded` |
//! | `cyber_policy` | `refusal` |
//! | an answer that was cut off, which has no kind and one fixed text | `max-tokens` |
//! | another failure | `api-error` |
//! | no closing event | by exit status: 0 `no-value`, another `error`, a signal `crashed` |
//!
//! Cancelled or out of time, a child gets SIGINT and ends its own tools. What it used is in its session file up to its
//! last answer, those of agents within it included; what it cost is not known. A child that is killed may not have
//! written it down yet.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Records, Told, Way, Words, timestamp};
use crate::capture::Capture;
use crate::detect::Login;
use crate::features::{AgentHandIn, Features};
use crate::value_file::{self, ValueFile};
use crate::{Permissions, Version};

#[derive(Debug)]
pub(crate) struct Codex;

const FEATURES: Features = Features {
    title: "Codex",
    program: "codex",
    package: "@openai/codex",
    tested: (Version::new(0, 171, 0), Version::new(0, 171, 0)),
    hand_in: &[AgentHandIn::Capture, AgentHandIn::Schema],
    corrects_in_schema_mode: false,
    usage: true,
    cost: false,
    gentle_cancel: true,
    turn_limit: false,
    budget_limit: false,
    allowed_tools: false,
    max_prompt_characters: Some(1_048_576),
    credentials: &["CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY"],
    instructions: "AGENTS.md",
    left_out: &[
        "the user's config.toml, profiles, rules and hooks",
        "the user's own AGENTS.md, skills and memories",
        "plugins, apps and MCP servers",
        "session history",
        "analytics and metrics",
    ],
    permissions: [
        "read files and run commands that change nothing (Codex's sandbox, without network)",
        "change files and run commands in the workspace and in temporary directories (Codex's sandbox, without network)",
        "do whatever the user could do, without being asked (--dangerously-bypass-approvals-and-sandbox)",
    ],
};

/// The package that brings the native program, and the folder in it.
const NATIVE: Option<(&str, &str)> = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
    Some(("codex-linux-x64", "x86_64-unknown-linux-musl"))
} else if cfg!(all(target_os = "linux", target_arch = "aarch64")) {
    Some(("codex-linux-arm64", "aarch64-unknown-linux-musl"))
} else if cfg!(all(target_os = "macos", target_arch = "x86_64")) {
    Some(("codex-darwin-x64", "x86_64-apple-darwin"))
} else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
    Some(("codex-darwin-arm64", "aarch64-apple-darwin"))
} else {
    None
};

impl Agent for Codex {
    fn features(&self) -> &'static Features {
        &FEATURES
    }

    fn native(&self, found: PathBuf) -> PathBuf {
        past_the_shim(&found).unwrap_or(found)
    }

    fn how_to_hand_in(&self, way: &Way) -> String {
        match way {
            Way::Schema { schema, .. } => format!(
                "as your last message, which must be exactly one JSON document without a code fence or any other word \
                 around it. The document must match this JSON Schema: {schema}"
            ),
            Way::Capture(capture) => format!(
                "by calling the tool `{}` of the server `{}`; nothing you say elsewhere counts as your result",
                capture.tool, capture.server
            ),
        }
    }

    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch> {
        let Assignment { options, prompt, model, way, workspace, home, .. } = assignment;
        let mut arguments: Vec<OsString> = [
            "exec",
            "--json",
            "--ignore-user-config",
            "--ignore-rules",
            "--skip-git-repo-check",
            "--disable",
            "plugins",
            "--disable",
            "apps",
        ]
        .map(OsString::from)
        .into();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
        for setting in [
            "analytics.enabled=false",
            "features.hooks=false",
            "features.goals=false",
            "features.memories=false",
            "skills.include_instructions=false",
        ] {
            add("-c", setting.into());
        }
        if !options.instructions {
            add("-c", "project_doc_max_bytes=0".into());
        }
        match way {
            Some(Way::Schema { file, .. }) => add("--output-schema", file.into()),
            Some(Way::Capture(capture)) => add("-c", mcp_server(capture).into()),
            None => {}
        }
        if let Some(model) = model {
            add("-m", (*model).into());
        }
        add("-C", workspace.as_os_str().to_owned());
        match options.permissions {
            Permissions::ReadOnly => add("-s", "read-only".into()),
            Permissions::Workspace => add("-s", "workspace-write".into()),
            Permissions::Unrestricted => {
                arguments.push("--dangerously-bypass-approvals-and-sandbox".into());
            }
        }
        arguments.extend(options.arguments.iter().cloned());
        arguments.push("-".into());
        carry_over(&assignment.environment, home)?;
        Ok(Launch {
            arguments,
            environment: assignment.environment.clone().set("CODEX_HOME", home),
            words: Words::Once(prompt.as_bytes().to_vec()),
            gentle: Gentle::Interrupt,
        })
    }

    fn conversation(&self, way: Option<&Way>) -> Box<dyn Conversation> {
        Box::new(CodexConversation { schema_mode: matches!(way, Some(Way::Schema { .. })) })
    }

    fn version(&self, said: &str) -> Option<Version> {
        // "codex-cli 0.171.0"
        Version::parse(said.split_whitespace().nth(1)?)
    }

    fn login(&self, environment: &Environment) -> Login {
        let variables = ["CODEX_API_KEY", "CODEX_ACCESS_TOKEN"];
        if let Some(name) =
            variables.into_iter().find(|name| environment.value(name).is_some_and(|value| !value.is_empty()))
        {
            return Login::Present(name.to_owned());
        }
        match credentials(environment).filter(|file| file.is_file()) {
            Some(file) => Login::Present(file.display().to_string()),
            None => Login::Absent,
        }
    }
}

/// Finds the native program behind the script that npm installs.
fn past_the_shim(found: &Path) -> Option<PathBuf> {
    let (package, triple) = NATIVE?;
    let script = std::fs::canonicalize(found).ok()?;
    if script.file_name() != Some(OsStr::new("codex.js")) {
        return None;
    }
    // It is `@openai/codex/bin/codex.js`; the other package is within that one or beside it.
    let codex = script.parent()?.parent()?;
    let within = codex.join("node_modules/@openai").join(package);
    let beside = codex.parent()?.join(package);
    let places = [within.join("vendor"), beside.join("vendor"), codex.join("vendor")];
    places.into_iter().map(|vendor| vendor.join(triple).join("bin/codex")).find(|program| program.is_file())
}

/// Where the user's credentials are.
fn credentials(environment: &Environment) -> Option<PathBuf> {
    let own = std::env::var_os("CODEX_HOME").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let home = own.or_else(|| Some(PathBuf::from(environment.value("HOME")?).join(".codex")))?;
    Some(std::path::absolute(home).ok()?.join("auth.json"))
}

/// Links the user's credentials, so that a refreshed token is the user's own: a copy would be used up by one of the
/// two and fail the other.
fn carry_over(environment: &Environment, home: &Path) -> io::Result<()> {
    match credentials(environment).filter(|file| file.is_file()) {
        Some(file) => std::os::unix::fs::symlink(file, home.join("auth.json")),
        None => Ok(()),
    }
}

/// The configuration of a capture server, as one TOML value.
fn mcp_server(capture: &Capture) -> String {
    let arguments: Vec<_> = capture.arguments.iter().map(|argument| toml_string(argument)).collect();
    let variables: Vec<_> =
        capture.environment.iter().map(|(name, value)| format!("{name}={}", toml_string(value))).collect();
    format!(
        "mcp_servers.{}={{command={},args=[{}],env={{{}}},required=true,default_tools_approval_mode=\"approve\"}}",
        capture.server,
        toml_string(&capture.program),
        arguments.join(","),
        variables.join(",")
    )
}

/// TOML's basic strings are JSON's, but for one character that must be escaped too.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// What one child of Codex has said.
#[derive(Debug)]
struct CodexConversation {
    schema_mode: bool,
}

impl Conversation for CodexConversation {
    fn look_back(&self) -> Option<fn(&Path, Option<&str>) -> Records> {
        Some(read_records)
    }

    fn hear(&mut self, event: &Value, told: &mut Told) {
        match event["type"].as_str() {
            Some("thread.started") => {
                told.session_id = event["thread_id"].as_str().map(ToOwned::to_owned);
            }
            Some("item.started") => told.activity = item_in_words(&event["item"]),
            Some("item.completed") => hear_item(&event["item"], told),
            // A warning; what is final comes with the turn.
            Some("error") => told.activity = event["message"].as_str().map(ToOwned::to_owned),
            Some("turn.completed") => {
                let count = |name: &str| event["usage"][name].as_u64();
                if let (Some(input), Some(output)) = (count("input_tokens"), count("output_tokens")) {
                    let cached = count("cached_input_tokens").unwrap_or_default();
                    told.usage = Some(Usage::new(input, output).with_cached_input_tokens(cached));
                }
                if self.schema_mode {
                    told.value = Some(match told.said.trim() {
                        "" => ValueFile::Absent,
                        said => value_file::from_bytes(said.as_bytes()),
                    });
                }
                told.turn = Some(Outcome::Completed);
            }
            Some("turn.failed") => {
                let message = event["error"]["message"].as_str().unwrap_or_default();
                told.turn = Some(failure(message));
            }
            _ => {}
        }
    }
}

fn hear_item(item: &Value, told: &mut Told) {
    match item["type"].as_str() {
        Some("agent_message") => {
            let text = item["text"].as_str().unwrap_or_default();
            told.activity = text.lines().find(|line| !line.trim().is_empty()).map(ToOwned::to_owned);
            text.clone_into(&mut told.said);
        }
        Some("command_execution" | "file_change" | "mcp_tool_call") if item["status"] == "declined" => {
            let what = item_in_words(item).unwrap_or_default();
            if !told.denied.contains(&what) {
                told.denied.push(what);
            }
        }
        _ => {}
    }
}

fn item_in_words(item: &Value) -> Option<String> {
    let text = |name: &str| item[name].as_str().and_then(|text| text.lines().next());
    match item["type"].as_str()? {
        "command_execution" => Some(text("command")?.to_owned()),
        "mcp_tool_call" => Some(format!("{}: {}", text("server")?, text("tool")?)),
        "web_search" => Some(format!("searches the web: {}", text("query")?)),
        "file_change" => {
            let changes = item["changes"].as_array()?;
            let paths = changes.iter().filter_map(|change| change["path"].as_str());
            Some(format!("changes {}", paths.collect::<Vec<_>>().join(", ")))
        }
        _ => None,
    }
}

/// Reads the session files that Codex keeps in its home, which tell more than its events: what a failed or cancelled
/// child used, and the kind of a failure.
fn read_records(home: &Path, session: Option<&str>) -> Records {
    let mut files = Vec::new();
    find_records(&home.join("sessions"), 0, &mut files);
    let mut records = Records::default();
    for path in files {
        let Ok(file) = File::open(&path) else { continue };
        let own = session.is_some_and(|session| path.to_string_lossy().contains(session));
        let mut reset_at = None;
        let mut usage = None;
        for line in BufReader::new(file).take(MAX_RECORDS).split(b'\n').map_while(Result::ok) {
            // Most lines are what the model and the tools said, and only some are looked at.
            let Ok(Record { payload }) = serde_json::from_slice::<Record>(&line) else { continue };
            match payload {
                Payload::TokenCount { info, rate_limits } => {
                    usage = info.map(|info| info.total_token_usage).or(usage);
                    reset_at = rate_limits.and_then(RateLimits::reset_at).or(reset_at);
                }
                Payload::TaskComplete { error } if own => {
                    records.failure = error.map(|error| error.judge(reset_at));
                }
                Payload::TaskComplete { .. } | Payload::Other => {}
            }
        }
        if let Some(tokens) = usage {
            let tokens = Usage::new(tokens.input_tokens, tokens.output_tokens)
                .with_cached_input_tokens(tokens.cached_input_tokens);
            records.usage = Some(records.usage.map_or(tokens, |sum| sum.plus(tokens)));
        }
    }
    records
}

/// How much of one session file is read.
const MAX_RECORDS: u64 = 256 * 1024 * 1024;

/// Finds session files, of the child and of agents within it. They lie in a folder for the day.
fn find_records(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) {
    const DEEPEST: u32 = 4;
    const MOST: usize = 256;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth < DEEPEST {
            find_records(&entry.path(), depth + 1, files);
        } else if kind.is_file() && files.len() < MOST {
            files.push(entry.path());
        }
    }
}

#[derive(Deserialize)]
struct Record {
    payload: Payload,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Payload {
    TokenCount {
        #[serde(default)]
        info: Option<TokenInfo>,
        #[serde(default)]
        rate_limits: Option<RateLimits>,
    },
    TaskComplete {
        #[serde(default)]
        error: Option<TaskError>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct TokenInfo {
    total_token_usage: Tokens,
}

#[derive(Clone, Copy, Deserialize)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
    #[serde(default)]
    cached_input_tokens: u64,
}

#[derive(Deserialize)]
struct RateLimits {
    #[serde(default)]
    primary: Option<Window>,
    #[serde(default)]
    secondary: Option<Window>,
}

#[derive(Deserialize)]
struct Window {
    used_percent: f64,
    #[serde(default)]
    resets_at: Option<i64>,
}

impl RateLimits {
    /// When the last of the limits that are used up begins anew.
    fn reset_at(self) -> Option<i64> {
        let windows = [self.primary, self.secondary].into_iter().flatten();
        windows.filter(|window| window.used_percent >= 100.0).filter_map(|window| window.resets_at).max()
    }
}

#[derive(Deserialize)]
struct TaskError {
    #[serde(default)]
    message: String,
    /// A name, or an object with the name as its key.
    #[serde(default)]
    codex_error_info: Value,
}

impl TaskError {
    fn judge(&self, reset_at: Option<i64>) -> Outcome {
        let said = sanitize(self.message.trim()).into_owned();
        let reset_at = reset_at.and_then(timestamp);
        let (kind, details) = match &self.codex_error_info {
            Value::String(kind) => (kind.as_str(), &Value::Null),
            Value::Object(object) => {
                object.iter().next().map_or(("", &Value::Null), |(kind, details)| (kind.as_str(), details))
            }
            _ => ("", &Value::Null),
        };
        if let Some(status) = details["http_status_code"].as_u64() {
            return Outcome::of_status(status, &said, reset_at.as_deref());
        }
        match kind {
            "unauthorized" => Outcome::failed(StopReason::AUTHENTICATION, &said),
            "usage_limit_exceeded" => {
                Outcome::failed(StopReason::RATE_LIMITED, &said).with_reset(reset_at.as_deref())
            }
            "server_overloaded" => Outcome::failed(StopReason::OVERLOADED, &said),
            "cyber_policy" => Outcome::failed(StopReason::REFUSAL, &said),
            _ => failure(&self.message),
        }
    }
}

/// Judges the message of a failed turn of whose kind nothing is recorded.
///
/// The program itself makes it, not the model. One of its fixed texts has a stop reason of its own.
fn failure(message: &str) -> Outcome {
    let reason = match message {
        "Incomplete response returned, reason: max_output_tokens" => StopReason::MAX_TOKENS,
        "Incomplete response returned, reason: content_filter" => StopReason::REFUSAL,
        _ => StopReason::API_ERROR,
    };
    Outcome::failed(reason, &sanitize(message.trim()))
}
