//! Qwen Code, Alibaba's `qwen`.
//!
//! # How it is started
//!
//! | option | why |
//! |---|---|
//! | `--output-format stream-json` | one event a line, the prompt on standard input |
//! | `--chat-recording=false` | no session history |
//! | `--approval-mode`, `--allowed-tools` | the permissions; what would have to be asked for is denied |
//! | `--extensions none`, `--allowed-mcp-server-names`, `--mcp-config` | no extensions, and no servers but the one for the value |
//! | `--json-schema` | the schema mode, where it is chosen |
//! | `--auth-type` | `openai` with a key in the environment, else the user's account |
//!
//! `QWEN_HOME` is a directory that only this child has. Settings there switch off statistics, telemetry, hooks, the
//! sessions that gather memories afterwards, and self-update. The user's login with an account is linked, not copied. Settings of the project (`.qwen/settings.json`) are
//! read, as there is no switch for them, but `QWEN_CODE_SYSTEM_SETTINGS_PATH` makes ours outweigh them: no hooks, no
//! extensions, no servers.
//!
//! # How its end is told apart
//!
//! | event, exit status | stop reason |
//! |---|---|
//! | `result` that is no error | as the value says |
//! | the last answer was counted no tokens: the program's own `[API Error: …]`, whatever the `result` says | as the HTTP status in it says, else `api-error` |
//! | `result` of `error_during_execution` in schema mode | `no-value` |
//! | status 53 | `turn-limit` |
//! | any other `result` that is an error | `error` |
//!
//! In schema mode the value is in `structured_result`, and some children stay after it: they are ended after the
//! delivered grace. It heeds no request to stop so that its tools end, so it gets none, and what it leaves is swept.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Told, Way, Words};
use crate::detect::Login;
use crate::features::{AgentHandIn, Features};
use crate::value_file::ValueFile;
use crate::{Permissions, Version, private_home};

#[derive(Debug)]
pub(crate) struct QwenCode;

const FEATURES: Features = Features {
    title: "Qwen Code",
    program: "qwen",
    package: "@qwen-code/qwen-code",
    tested: (Version::new(0, 15, 10), Version::new(0, 15, 10)),
    hand_in: &[AgentHandIn::Capture, AgentHandIn::Schema],
    corrects_in_schema_mode: false,
    usage: true,
    cost: false,
    gentle_cancel: false,
    turn_limit: true,
    budget_limit: false,
    allowed_tools: true,
    max_prompt_characters: None,
    credentials: &["DASHSCOPE_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
    instructions: "QWEN.md",
    left_out: &[
        "the user's and the machine's settings, extensions, commands, skills, agents and trusted folders",
        "the user's own QWEN.md and memories",
        "hooks",
        "MCP servers of the user and of the project",
        "session history",
        "usage statistics, telemetry and self-update",
    ],
    permissions: [
        "read files in the workspace; change nothing, run nothing",
        "change files in the workspace, and run any command that the user could run (Qwen Code does not confine commands)",
        "do whatever the user could do, without being asked (--approval-mode yolo)",
    ],
};

/// A name that no extension and no server has.
const NOTHING: &str = "none";

impl Agent for QwenCode {
    fn features(&self) -> &'static Features {
        &FEATURES
    }

    fn how_to_hand_in(&self, way: &Way) -> String {
        match way {
            Way::Schema { .. } => "by calling the tool `structured_output`".to_owned(),
            Way::Capture(capture) => format!(
                "by calling the tool `mcp__{}__{}`; nothing you say elsewhere counts as your result",
                capture.server, capture.tool
            ),
        }
    }

    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch> {
        let Assignment { options, prompt, model, way, home, files, environment, .. } = assignment;
        let mut arguments: Vec<OsString> =
            ["--output-format", "stream-json", "--chat-recording=false", "--extensions", NOTHING]
                .map(Into::into)
                .into();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
        let mut allowed = options.allowed_tools.clone();
        match options.permissions {
            Permissions::ReadOnly => add("--approval-mode", "default".into()),
            Permissions::Workspace => {
                add("--approval-mode", "auto-edit".into());
                allowed.push("run_shell_command".to_owned());
            }
            Permissions::Unrestricted => add("--approval-mode", "yolo".into()),
        }
        for tool in allowed {
            add("--allowed-tools", tool.into());
        }
        let mut server = NOTHING;
        match way {
            Some(Way::Schema { file, .. }) => {
                let mut schema = OsString::from("@");
                schema.push(file);
                add("--json-schema", schema);
            }
            Some(Way::Capture(capture)) => {
                let variables: Map<_, _> = capture
                    .environment
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
                    .collect();
                let mut servers = Map::new();
                servers.insert(
                    capture.server.clone(),
                    json!({
                        "command": capture.program, "args": capture.arguments, "env": variables, "trust": true,
                    }),
                );
                let config = json!({ "mcpServers": servers }).to_string();
                add("--mcp-config", files.write("servers.json", config.as_bytes())?.into());
                server = &capture.server;
            }
            None => {}
        }
        add("--allowed-mcp-server-names", server.into());
        if let Some(turns) = options.max_turns {
            add("--max-session-turns", turns.to_string().into());
        }
        if let Some(model) = model {
            add("--model", (*model).into());
        }
        let kind = way_to_authenticate(environment);
        add("--auth-type", kind.into());
        arguments.extend(options.arguments.iter().cloned());

        let mut settings = json!({
            "security": { "auth": { "selectedType": kind } },
            "privacy": { "usageStatisticsEnabled": false },
            "telemetry": { "enabled": false },
            "general": { "enableAutoUpdate": false, "disableAutoUpdate": true },
            "disableAllHooks": true,
            // A session of its own after each prompt, of which nobody would be told: it has a shell, and asks the vendor.
            "memory": {
                "enableManagedAutoMemory": false, "enableManagedAutoDream": false, "enableAutoSkill": false,
            },
        });
        if !options.instructions {
            settings["context"] = json!({ "fileName": "no-instructions-are-read" });
        }
        let file = home.join("system-settings.json");
        private_home::write(&file, settings.to_string().as_bytes())?;
        carry_over(environment, home)?;
        Ok(Launch {
            arguments,
            environment: environment
                .clone()
                .set("QWEN_HOME", home)
                // The machine's own outweigh those of the project, so ours are in their place.
                .set("QWEN_CODE_SYSTEM_SETTINGS_PATH", file)
                .set("QWEN_RUNTIME_DIR", home)
                // A second process would only start a third one of the same.
                .set("QWEN_CODE_NO_RELAUNCH", "true")
                .set("QWEN_DISABLE_AUTO_TITLE", "1")
                .set("NO_COLOR", "1"),
            words: Words::Once(prompt.as_bytes().to_vec()),
            // It heeds no request to end its tools.
            gentle: Gentle::None,
        })
    }

    fn conversation(&self, way: Option<&Way>) -> Box<dyn Conversation> {
        let schema_mode = matches!(way, Some(Way::Schema { .. }));
        Box::new(QwenConversation { schema_mode, ..QwenConversation::default() })
    }

    fn version(&self, said: &str) -> Option<Version> {
        said.lines().find_map(|line| Version::parse(line.trim()))
    }

    fn login(&self, environment: &Environment) -> Login {
        let variables = ["OPENAI_API_KEY", "DASHSCOPE_API_KEY"];
        let set = |name: &&str| environment.value(name).is_some_and(|value| !value.is_empty());
        if let Some(name) = variables.into_iter().find(set) {
            return Login::Present(name.to_owned());
        }
        match credentials(environment).filter(|file| file.is_file()) {
            Some(file) => Login::Present(file.display().to_string()),
            None => Login::Absent,
        }
    }
}

fn way_to_authenticate(environment: &Environment) -> &'static str {
    match environment.value("OPENAI_API_KEY").filter(|key| !key.is_empty()) {
        Some(_) => "openai",
        None => "qwen-oauth",
    }
}

/// Where the user's login with an account is.
fn credentials(environment: &Environment) -> Option<PathBuf> {
    let own = std::env::var_os("QWEN_HOME").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let home = own.or_else(|| Some(PathBuf::from(environment.value("HOME")?).join(".qwen")))?;
    Some(std::path::absolute(home).ok()?.join("oauth_creds.json"))
}

/// Links the user's login, so that a refreshed token is the user's own.
fn carry_over(environment: &Environment, home: &Path) -> io::Result<()> {
    match credentials(environment).filter(|file| file.is_file()) {
        Some(file) => std::os::unix::fs::symlink(file, home.join("oauth_creds.json")),
        None => Ok(()),
    }
}

/// What one child of Qwen Code has said.
#[derive(Debug, Default)]
struct QwenConversation {
    schema_mode: bool,
    /// The last thing that was said as an answer and by no model: no tokens were counted for it. That is how errors
    /// of the vendor are told.
    not_the_models: Option<String>,
    /// What was offered last as the value.
    offered: Option<Value>,
}

impl Conversation for QwenConversation {
    fn hear(&mut self, event: &Value, told: &mut Told) {
        if let Some(id) = event["session_id"].as_str().filter(|_| told.session_id.is_none()) {
            told.session_id = Some(id.to_owned());
        }
        match event["type"].as_str() {
            Some("assistant") => self.hear_answer(&event["message"], told),
            Some("result") => self.hear_result(event, told),
            _ => {}
        }
    }

    fn over(&mut self, code: i32) -> Option<Outcome> {
        // The error is told on standard error only.
        (code == 53).then(|| Outcome::failed(StopReason::TURN_LIMIT, "it used all the turns it may take"))
    }
}

impl QwenConversation {
    fn hear_answer(&mut self, message: &Value, told: &mut Told) {
        let count = |name: &str| message["usage"][name].as_u64().unwrap_or_default();
        let by_a_model = count("input_tokens") > 0 || count("output_tokens") > 0;
        self.not_the_models = None;
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => {
                    let text = block["text"].as_str().unwrap_or_default();
                    told.activity = text.lines().find(|line| !line.trim().is_empty()).map(ToOwned::to_owned);
                    text.clone_into(&mut told.said);
                    if !by_a_model {
                        self.not_the_models = Some(text.to_owned());
                    }
                }
                Some("tool_use") => {
                    let name = block["name"].as_str().unwrap_or("a tool");
                    if self.schema_mode && name == "structured_output" {
                        self.offered = Some(block["input"].clone());
                    }
                    told.activity = Some(in_words(name, &block["input"]));
                }
                _ => {}
            }
        }
    }

    fn hear_result(&mut self, event: &Value, told: &mut Told) {
        let count = |name: &str| event["usage"][name].as_u64();
        if let (Some(input), Some(output)) = (count("input_tokens"), count("output_tokens")) {
            let cached = count("cache_read_input_tokens").unwrap_or_default();
            told.usage = Some(Usage::new(input, output).with_cached_input_tokens(cached));
        }
        for denial in event["permission_denials"].as_array().into_iter().flatten() {
            let name = denial["tool_name"].as_str().unwrap_or("a tool").to_owned();
            if !told.denied.contains(&name) {
                told.denied.push(name);
            }
        }
        let failed = event["is_error"].as_bool().unwrap_or(event["subtype"] != "success");
        let offered = self.offered.take();
        if self.schema_mode {
            told.value = match event.get("structured_result").filter(|_| !failed) {
                Some(value) => Some(ValueFile::Value(value.clone())),
                None => offered.map(ValueFile::Value),
            };
        }
        told.turn = Some(match self.not_the_models.take() {
            Some(words) => api_error(&words),
            None if !failed => Outcome::Completed,
            None => self.failure(event),
        });
    }

    fn failure(&self, event: &Value) -> Outcome {
        let message = event["error"]["message"].as_str().unwrap_or_default();
        let reason = match event["subtype"].as_str() {
            Some("error_max_turns") => StopReason::TURN_LIMIT,
            // The one way in which a turn with a schema ends that was not answered by its tool.
            Some("error_during_execution") if self.schema_mode => StopReason::NO_VALUE,
            _ => StopReason::ERROR,
        };
        Outcome::failed(reason, &sanitize(message.trim()))
    }
}

/// Judges what the program itself says in place of a model: `[API Error: ` and, for most of them, the HTTP status.
fn api_error(words: &str) -> Outcome {
    let said = sanitize(words.trim()).into_owned();
    let status = words.strip_prefix("[API Error: ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    match status {
        Some(status @ 400..=599) => Outcome::of_status(status, &said, None),
        _ => Outcome::failed(StopReason::API_ERROR, &said),
    }
}

fn in_words(name: &str, input: &Value) -> String {
    let of = ["command", "file_path", "path", "pattern", "query"];
    match of.iter().find_map(|key| input[key].as_str()?.lines().next()) {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    }
}
