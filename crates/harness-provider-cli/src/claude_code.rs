//! Claude Code, Anthropic's `claude`.
//!
//! # How it is started
//!
//! | option | why |
//! |---|---|
//! | `-p --input-format stream-json --output-format stream-json --verbose` | one event a line, on a standard input that stays open: the child can be interrupted, and told to go on |
//! | `--setting-sources ""` | no settings of the user or the project, and so none of their hooks, permissions, plugins, skills, agents |
//! | `--add-dir WORKSPACE`, with a variable that has instructions read from there | the workspace's own `CLAUDE.md`, what it imports and `.claude/rules`, without the project's hooks and settings; left out with [`with_instructions(false)`](crate::AgentProvider::with_instructions) |
//! | `--strict-mcp-config` | no MCP servers but the capture server, named in a file by `--mcp-config` |
//! | `--no-session-persistence --disable-slash-commands` | no history, and no text of a prompt taken for a command |
//! | `--permission-mode`, `--allowedTools` | see below |
//! | `--json-schema` | the schema, in the agent's own schema mode |
//! | `--model`, `--max-turns`, `--max-budget-usd` | where they are set |
//!
//! A `CLAUDE.md` in a folder below the workspace, or above it, is not read.
//!
//! Its environment switches off telemetry, error reports, self-update, memories and scheduled work, has it try twice
//! more at most to reach its vendor, and has `CLAUDE_CONFIG_DIR` name a directory that only this child has.
//!
//! # Credentials
//!
//! The variables in [`Features::credentials`](crate::Features::credentials) are let through. What `claude` keeps after a
//! login stays where it is, in the user's own `.credentials.json` or keychain, and is read and refreshed there
//! (`CLAUDE_SECURESTORAGE_CONFIG_DIR`); of `.claude.json` the account and the API key are copied and nothing else. A
//! command in the settings that makes keys (`apiKeyHelper`) is not run.
//!
//! Known offline is only whether there are credentials, not whether they are still good. On macOS they may be in the
//! keychain, where this crate does not look.
//!
//! # Permissions
//!
//! - `read-only`: `dontAsk`, with the tools `Read`, `Glob` and `Grep`. Commands run only as far as Claude Code knows
//!   them to change nothing.
//! - `workspace`: `acceptEdits`, with the tool `Bash`. Files are changed in the workspace alone; a command can do what
//!   the user can.
//! - `unrestricted`: `bypassPermissions`. As root Claude Code refuses this unless `IS_SANDBOX=1` says that nothing
//!   can be broken. The provider never says so itself: the variable is let through, and without it a start as root is
//!   refused.
//!
//! # Handing in
//!
//! By its schema mode unless told otherwise. Claude Code checks the schema itself, hands a refused value back to the
//! model, and ends the turn with the first valid one, without another request. A value that breaks the rule, or a turn
//! without one, is answered by the provider with another message to the same child. In a capture server's mode the
//! server does the former and the provider the latter.
//!
//! # How its ends are told apart
//!
//! By the last `result` event, `is_error` and `api_error_status` first, as `subtype` says "success" of many failures.
//!
//! | event | stop reason |
//! |---|---|
//! | no error, and a value | `completed` |
//! | no error, and no value after all corrections | `permission-denied` where `permission_denials` lists something, else `no-value` |
//! | `api_error_status` 429 | `rate-limited`, with `reset-at` where a `rate_limit_event` told it |
//! | 401, 403 | `authentication` |
//! | 503, 529 | `overloaded`; also where only the tries before had that status |
//! | another status | `api-error` |
//! | `error_max_turns`, `error_max_budget_usd` | `turn-limit`, `budget-limit` |
//! | `error_max_structured_output_retries` | `schema-refused`, with the last value |
//! | `stop_reason` `refusal` | `refusal` |
//! | an answer with the error `max_output_tokens` | `max-tokens` |
//! | an answer with the error `authentication_failed` | `authentication` |
//! | none | by exit status: 0 `no-value`, another `error`, a signal `crashed` |
//!
//! Cancelled or out of time, a child is interrupted by a message, ends its own tools, and still tells what it used.
//! What it used is counted by model over all turns, and its cost is what Claude Code computes from its price list.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Told, Way, Words, timestamp};
use crate::detect::Login;
use crate::features::{AgentHandIn, Features};
use crate::value_file::ValueFile;
use crate::{Permissions, Version, private_home};

#[derive(Debug)]
pub(crate) struct ClaudeCode;

/// The tool that Claude Code makes of a schema.
const SCHEMA_TOOL: &str = "StructuredOutput";

const FEATURES: Features = Features {
    title: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    tested: (Version::new(2, 1, 197), Version::new(2, 1, 197)),
    hand_in: &[AgentHandIn::Schema, AgentHandIn::Capture],
    corrects_in_schema_mode: true,
    usage: true,
    cost: true,
    gentle_cancel: true,
    turn_limit: true,
    budget_limit: true,
    allowed_tools: true,
    max_prompt_characters: None,
    credentials: &[
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ],
    instructions: "CLAUDE.md",
    left_out: &[
        "the user's and the project's settings, hooks, permissions, plugins, skills, commands and agents",
        "the user's own CLAUDE.md and memories",
        "MCP servers of the user and of the project",
        "session history",
        "telemetry, error reports, self-update",
    ],
    permissions: [
        "read files; change nothing, run nothing but what Claude Code knows to be harmless",
        "change files in the workspace, and run any command that the user could run (Claude Code does not confine commands)",
        "do whatever the user could do, without being asked (--dangerously-skip-permissions)",
    ],
};

/// Asks for an end of what is going on. The answer is the result of the turn, and the tools are ended first.
const INTERRUPT: &str =
    concat!(r#"{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}"#, "\n");

/// How often Claude Code tries again to reach its vendor. Whoever called the child has more patience.
const MAX_RETRIES: &str = "2";

const SWITCHES: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_CRON", "1"),
    ("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES),
];

impl Agent for ClaudeCode {
    fn features(&self) -> &'static Features {
        &FEATURES
    }

    fn how_to_hand_in(&self, way: &Way) -> String {
        match way {
            Way::Schema { .. } => format!("by calling the tool `{SCHEMA_TOOL}`"),
            Way::Capture(capture) => format!(
                "by calling the tool `mcp__{}__{}`; nothing you say elsewhere counts as your result",
                capture.server, capture.tool
            ),
        }
    }

    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch> {
        let Assignment { options, prompt, model, way, workspace, home, files, .. } = assignment;
        let mut environment = assignment.environment.clone().allow("IS_SANDBOX");
        let mut arguments: Vec<OsString> = [
            "-p",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--verbose",
            "--setting-sources",
            "",
            "--strict-mcp-config",
            "--no-session-persistence",
            "--disable-slash-commands",
        ]
        .map(OsString::from)
        .into();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);

        let mut allowed = Vec::new();
        match options.permissions {
            Permissions::ReadOnly => {
                add("--permission-mode", "dontAsk".into());
                allowed.extend(["Read", "Glob", "Grep"].map(ToOwned::to_owned));
            }
            Permissions::Workspace => {
                add("--permission-mode", "acceptEdits".into());
                allowed.push("Bash".to_owned());
            }
            Permissions::Unrestricted => {
                check_root(&environment)?;
                add("--permission-mode", "bypassPermissions".into());
            }
        }
        allowed.extend(options.allowed_tools.iter().cloned());
        match way {
            Some(Way::Schema { schema, .. }) => add("--json-schema", schema.into()),
            Some(Way::Capture(capture)) => {
                let variables: Map<_, _> = capture
                    .environment
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
                    .collect();
                let mut servers = Map::new();
                servers.insert(
                    capture.server.clone(),
                    json!({ "command": capture.program, "args": capture.arguments, "env": variables }),
                );
                let config = json!({ "mcpServers": servers }).to_string();
                add("--mcp-config", files.write("mcp.json", config.as_bytes())?.into());
                allowed.push(format!("mcp__{}__{}", capture.server, capture.tool));
            }
            None => {}
        }
        if !allowed.is_empty() {
            add("--allowedTools", allowed.join(",").into());
        }
        if let Some(model) = model {
            add("--model", (*model).into());
        }
        if let Some(turns) = options.max_turns {
            add("--max-turns", turns.to_string().into());
        }
        if let Some(micros) = options.max_cost_usd_micros {
            add("--max-budget-usd", format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000).into());
        }
        if options.instructions {
            // The one way to have the project's CLAUDE.md without the project's hooks and settings.
            add("--add-dir", workspace.as_os_str().to_owned());
            environment = environment.set("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1");
        }
        arguments.extend(options.arguments.iter().cloned());

        for (name, value) in SWITCHES {
            environment = environment.set(name, value);
        }
        environment = environment
            .set("CLAUDE_CONFIG_DIR", home)
            .set("MAX_STRUCTURED_OUTPUT_RETRIES", options.corrections.saturating_add(1).to_string());
        // Where credentials are kept is left as the user has it, refreshed tokens included. Empty means the usual place.
        let store = std::env::var_os("CLAUDE_CONFIG_DIR").unwrap_or_default();
        environment = environment.set("CLAUDE_SECURESTORAGE_CONFIG_DIR", store);
        carry_over(&environment, home)?;
        Ok(Launch {
            arguments,
            environment,
            words: Words::First(user_message(prompt)),
            gentle: Gentle::Write(INTERRUPT.into()),
        })
    }

    fn conversation(&self, way: Option<&Way>) -> Box<dyn Conversation> {
        let schema_mode = matches!(way, Some(Way::Schema { .. }));
        Box::new(ClaudeConversation { schema_mode, ..ClaudeConversation::default() })
    }

    fn version(&self, said: &str) -> Option<Version> {
        // "2.1.197 (Claude Code)"
        Version::parse(said.split_whitespace().next()?)
    }

    fn login(&self, environment: &Environment) -> Login {
        let variables = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
        if let Some(name) =
            variables.into_iter().find(|name| environment.value(name).is_some_and(|value| !value.is_empty()))
        {
            return Login::Present(name.to_owned());
        }
        let own = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|directory| !directory.is_empty());
        let home = environment.value("HOME").map(PathBuf::from);
        let store = own.map(PathBuf::from).or_else(|| home.map(|home| home.join(".claude")));
        if let Some(file) = store.map(|store| store.join(".credentials.json")).filter(|file| file.is_file()) {
            return Login::Present(file.display().to_string());
        }
        if let Some(file) = config_file(environment).filter(|file| !credentials_in(file).is_empty()) {
            return Login::Present(file.display().to_string());
        }
        if cfg!(target_os = "macos") {
            return Login::Unknown("they may be in the keychain, where Claude Code keeps them".to_owned());
        }
        Login::Absent
    }
}

/// Claude Code refuses to run without permissions as root unless it is told that this is a sandbox. Only the user can
/// know that, so it is never said in the user's place.
fn check_root(environment: &Environment) -> io::Result<()> {
    let sandbox = environment.value("IS_SANDBOX").is_some_and(|value| value == "1");
    if sandbox || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "Claude Code does not run unrestricted as root; run it as another user, or set IS_SANDBOX=1 where this is a \
         sandbox in which it may do anything",
    ))
}

fn user_message(text: &str) -> Vec<u8> {
    let mut line = json!({ "type": "user", "message": { "role": "user", "content": text } }).to_string();
    line.push('\n');
    line.into_bytes()
}

/// The file in which Claude Code keeps its state, some credentials among it.
fn config_file(environment: &Environment) -> Option<PathBuf> {
    let own = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|directory| !directory.is_empty());
    Some(PathBuf::from(own.or_else(|| environment.value("HOME"))?).join(".claude.json"))
}

/// Returns what of that file says who the user is, and nothing else of it.
fn credentials_in(file: &Path) -> Map<String, Value> {
    const KEYS: &[&str] = &["oauthAccount", "primaryApiKey", "customApiKeyResponses"];
    let state = std::fs::read(file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let Some(Value::Object(state)) = state else { return Map::new() };
    state.into_iter().filter(|(key, value)| KEYS.contains(&key.as_str()) && !value.is_null()).collect()
}

fn carry_over(environment: &Environment, home: &Path) -> io::Result<()> {
    let credentials = config_file(environment).map(|file| credentials_in(&file)).unwrap_or_default();
    if credentials.is_empty() {
        return Ok(());
    }
    private_home::write(&home.join(".claude.json"), Value::Object(credentials).to_string().as_bytes())
}

/// What one child of Claude Code has said.
#[derive(Debug, Default)]
struct ClaudeConversation {
    schema_mode: bool,
    /// What the model last gave to the tool of the schema.
    offered: Option<Value>,
    /// The kind of the last error that an answer stands for.
    error: Option<String>,
    /// With which status the vendor answered the last try, while there was no answer since.
    retried: Option<u64>,
    /// When the vendor's limit ends.
    reset_at: Option<String>,
    /// What the turns before this one used, for a result that tells of its own turn only.
    before: Usage,
    /// What the answers so far used, for a child that never gets to a result.
    answers: Answers,
}

#[derive(Debug, Default)]
struct Answers {
    done: Usage,
    current: Option<(String, Usage)>,
}

impl Conversation for ClaudeConversation {
    fn hear(&mut self, event: &Value, told: &mut Told) {
        if let Some(id) = event["session_id"].as_str()
            && told.session_id.as_deref() != Some(id)
        {
            told.session_id = Some(id.to_owned());
        }
        match event["type"].as_str() {
            Some("system") => self.hear_system(event, told),
            Some("assistant") => self.hear_answer(event, told),
            Some("rate_limit_event") => {
                let info = &event["rate_limit_info"];
                if info["status"] == "rejected" {
                    self.reset_at = info["resetsAt"].as_i64().and_then(timestamp);
                }
            }
            Some("result") => self.hear_result(event, told),
            _ => {}
        }
    }

    fn say(&self, text: &str) -> Option<Vec<u8>> {
        Some(user_message(text))
    }
}

impl ClaudeConversation {
    fn hear_system(&mut self, event: &Value, told: &mut Told) {
        if event["subtype"] == "api_retry" {
            self.retried = event["error_status"].as_u64();
            let status =
                self.retried.map_or_else(|| "no answer".to_owned(), |status| format!("HTTP {status}"));
            let attempt = event["attempt"].as_u64().unwrap_or_default();
            told.activity = Some(format!("tries again after {status}, for the {attempt}. time"));
        }
    }

    fn hear_answer(&mut self, event: &Value, told: &mut Told) {
        let message = &event["message"];
        match event["error"].as_str() {
            Some(error) => self.error = Some(error.to_owned()),
            None => self.retried = None,
        }
        if let Some(id) = message["id"].as_str() {
            self.answers.count(id, tokens(&message["usage"]));
            told.usage = Some(self.before_or(self.answers.sum()));
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => {
                    let text = block["text"].as_str().unwrap_or_default();
                    told.activity = text.lines().find(|line| !line.trim().is_empty()).map(ToOwned::to_owned);
                    // What an agent within the agent says is not the child's own word.
                    if event["parent_tool_use_id"].is_null() {
                        text.clone_into(&mut told.said);
                    }
                }
                Some("tool_use") => {
                    let name = block["name"].as_str().unwrap_or("a tool");
                    if self.schema_mode && name == SCHEMA_TOOL {
                        self.offered = Some(block["input"].clone());
                    }
                    told.activity = Some(tool_in_words(name, &block["input"]));
                }
                _ => {}
            }
        }
    }

    fn hear_result(&mut self, event: &Value, told: &mut Told) {
        let offered = self.offered.take();
        let error = self.error.take();
        let retried = self.retried.take();
        let subtype = event["subtype"].as_str().unwrap_or_default();
        let failed = event["is_error"].as_bool().unwrap_or(subtype != "success");
        self.hear_usage(event, told);
        for denial in event["permission_denials"].as_array().into_iter().flatten() {
            let name = denial["tool_name"].as_str().unwrap_or("a tool").to_owned();
            if !told.denied.contains(&name) {
                told.denied.push(name);
            }
        }
        if !failed {
            if let Some(text) = event["result"].as_str().filter(|_| !self.schema_mode) {
                text.clone_into(&mut told.said);
            }
            let value = event.get("structured_output").filter(|_| self.schema_mode);
            told.value = value.cloned().map(ValueFile::Value);
            told.turn = Some(Outcome::Completed);
            return;
        }
        told.value = offered.map(ValueFile::Value);
        let errors = event["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let message =
            event["result"].as_str().map_or_else(|| errors.collect::<Vec<_>>().join("; "), ToOwned::to_owned);
        let message = sanitize(message.trim()).into_owned();
        // After several overloads in a row there is no status in the result, only in what was said of each try.
        let retried = retried.filter(|_| error.as_deref().is_some_and(|error| error != "max_output_tokens"));
        told.turn = Some(match event["api_error_status"].as_u64().or(retried) {
            Some(status) => Outcome::of_status(status, &message, self.reset_at.as_deref()),
            None => Outcome::failed(self.reason(event, subtype, error.as_deref()), &message),
        });
    }

    fn reason(&self, event: &Value, subtype: &str, error: Option<&str>) -> StopReason {
        let aborted = |reason: &str| reason.starts_with("aborted");
        match subtype {
            "error_max_turns" => StopReason::TURN_LIMIT,
            "error_max_budget_usd" => StopReason::BUDGET_LIMIT,
            "error_max_structured_output_retries" => StopReason::SCHEMA_REFUSED,
            _ if event["stop_reason"] == "refusal" => StopReason::REFUSAL,
            _ if event["terminal_reason"].as_str().is_some_and(aborted) => StopReason::ABORTED,
            _ => match error {
                Some("max_output_tokens") => StopReason::MAX_TOKENS,
                Some("authentication_failed" | "oauth_org_not_allowed") => StopReason::AUTHENTICATION,
                Some("rate_limit") => StopReason::RATE_LIMITED,
                Some("overloaded") => StopReason::OVERLOADED,
                Some(_) => StopReason::API_ERROR,
                None => StopReason::ERROR,
            },
        }
    }

    /// The counts by model are of the whole session, those of the result of its own turn.
    fn hear_usage(&mut self, event: &Value, told: &mut Told) {
        let models = event["modelUsage"].as_object().into_iter().flatten();
        let mut usage = models.map(|(_, of)| tokens_of_model(of)).fold(Usage::default(), Usage::plus);
        if usage == Usage::default() {
            usage = self.before.plus(tokens(&event["usage"]));
        }
        self.before = usage;
        self.answers = Answers::default();
        if let Some(cost) = event["total_cost_usd"].as_f64().and_then(micros) {
            usage = usage.with_cost_usd_micros(cost);
        }
        told.usage = Some(usage);
    }

    fn before_or(&self, answers: Usage) -> Usage {
        self.before.plus(answers)
    }
}

impl Answers {
    /// Counts an answer, which comes in several events that all tell of the same tokens.
    fn count(&mut self, id: &str, usage: Usage) {
        match &mut self.current {
            Some((current, counted)) if current == id => *counted = usage,
            current => {
                if let Some((_, counted)) = current.replace((id.to_owned(), usage)) {
                    self.done = self.done.plus(counted);
                }
            }
        }
    }

    fn sum(&self) -> Usage {
        self.current.as_ref().map_or(self.done, |(_, usage)| self.done.plus(*usage))
    }
}

fn tokens(usage: &Value) -> Usage {
    counts(usage, ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"])
}

fn tokens_of_model(usage: &Value) -> Usage {
    counts(usage, ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens"])
}

fn counts(usage: &Value, names: [&str; 4]) -> Usage {
    let [new, cached, cache_written, output] = names.map(|name| usage[name].as_u64().unwrap_or_default());
    Usage::new(new.saturating_add(cached).saturating_add(cache_written), output)
        .with_cached_input_tokens(cached)
}

/// Dollars in millionths, where they are an amount.
fn micros(dollars: f64) -> Option<u64> {
    let micros = (dollars * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between the bounds")]
    (0.0..1e18).contains(&micros).then_some(micros as u64)
}

/// What a call of a tool is about, as far as one of the usual inputs tells.
fn tool_in_words(name: &str, input: &Value) -> String {
    let about = ["command", "file_path", "path", "pattern", "url", "query", "description"];
    match about.into_iter().find_map(|key| input[key].as_str()) {
        Some(about) => format!("{name}: {}", about.lines().next().unwrap_or_default()),
        None => name.to_owned(),
    }
}
