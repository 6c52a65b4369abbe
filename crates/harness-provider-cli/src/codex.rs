//! Codex, OpenAI's `codex`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde_json::Value;

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Told, Way, Words};
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
        "the user's config.toml, profiles, rules, hooks and goals",
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
            "--ephemeral",
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

/// Judges the message of a failed turn.
///
/// Codex has no field for the kind of a failure. Its own errors have a few fixed forms, made by the program and not
/// by the model; those are read from their beginning, and whatever has another form is an `api-error` without a
/// status.
fn failure(message: &str) -> Outcome {
    let said = sanitize(message.trim()).into_owned();
    for form in ["unexpected status ", "exceeded retry limit, last status: "] {
        let status = message.strip_prefix(form).and_then(|rest| rest.split(' ').next());
        if let Some(status) = status.and_then(|status| status.trim_end_matches(':').parse().ok()) {
            return Outcome::of_status(status, &said, None);
        }
    }
    let reason = match message {
        "Incomplete response returned, reason: max_output_tokens" => StopReason::MAX_TOKENS,
        "Incomplete response returned, reason: content_filter" => StopReason::REFUSAL,
        _ if message.starts_with("You’ve hit your usage limit") => StopReason::RATE_LIMITED,
        _ if message.starts_with("Selected model is at capacity.") => StopReason::OVERLOADED,
        _ => StopReason::API_ERROR,
    };
    Outcome::failed(reason, &said)
}
