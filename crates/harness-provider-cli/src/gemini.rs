//! Gemini CLI, Google's `gemini`.
//!
//! # How it is started
//!
//! | option | why |
//! |---|---|
//! | `--output-format stream-json` | one event a line, the prompt on standard input |
//! | `--skip-trust` | it works in a folder that nobody has said to trust |
//! | `--approval-mode`, `--allowed-tools` | the permissions; without a person, a tool that would have to ask is not there |
//! | `--extensions none`, `--allowed-mcp-server-names` | no extensions, and no servers but the one for the value |
//!
//! `GEMINI_CLI_HOME` is a directory that only this child has. Settings there choose the way to authenticate, switch off
//! statistics, telemetry, hooks and self-update, name the capture server, and bound the tries at the vendor to 3. The
//! user's login with an account is linked, not copied. `GEMINI_CLI_NO_RELAUNCH` keeps it to one process.
//!
//! Settings of the project (`.gemini/settings.json`) are read and outweigh those, its hooks included: there is no switch for
//! them, and settings that would outweigh them are taken from the system's administrator only. Extensions and servers of
//! the project are not used.
//!
//! # How its end is told apart
//!
//! | event, exit status | stop reason |
//! |---|---|
//! | `result` of `success` | as the value says |
//! | `result` of `error`, type `FatalTurnLimitedError`; or status 53 | `turn-limit` |
//! | type `FatalAuthenticationError`; or status 41 | `authentication` |
//! | `[API Error: …]` around the vendor's JSON, or around words and the exit status is part of an HTTP status | as the HTTP status says |
//! | `[API Error: …]` otherwise | `api-error` |
//!
//! It does not tell that an answer was cut off or held back: such a turn is a success without a value. It heeds no request
//! to stop so that its tools end, so it gets none, and what it leaves is swept.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Told, Way, Words};
use crate::detect::Login;
use crate::features::{AgentHandIn, Features};
use crate::{Permissions, Version, private_home};

#[derive(Debug)]
pub(crate) struct Gemini;

const FEATURES: Features = Features {
    title: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    tested: (Version::new(0, 61, 0), Version::new(0, 61, 0)),
    hand_in: &[AgentHandIn::Capture],
    corrects_in_schema_mode: false,
    usage: true,
    cost: false,
    gentle_cancel: false,
    turn_limit: true,
    budget_limit: false,
    allowed_tools: true,
    max_prompt_characters: None,
    credentials: &[
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_USE_VERTEXAI",
    ],
    instructions: "GEMINI.md",
    left_out: &[
        "the user's settings, extensions, commands, skills and trusted folders",
        "the user's own GEMINI.md and memories",
        "the user's hooks",
        "MCP servers of the user and of the project",
        "session history",
        "usage statistics, telemetry and self-update",
    ],
    permissions: [
        "read files in the workspace and search the web; change nothing, run nothing",
        "change files in the workspace, and run any command that the user could run (Gemini CLI does not confine commands)",
        "do whatever the user could do, without being asked (--approval-mode yolo)",
    ],
};

/// How often Gemini CLI asks its vendor. Whoever called the child has more patience.
const MAX_ATTEMPTS: u32 = 3;
/// A name that no extension and no server has.
const NOTHING: &str = "none";

impl Agent for Gemini {
    fn features(&self) -> &'static Features {
        &FEATURES
    }

    fn how_to_hand_in(&self, way: &Way) -> String {
        match way {
            Way::Capture(capture) => format!(
                "by calling the tool `mcp_{}_{}`; nothing you say elsewhere counts as your result",
                capture.server, capture.tool
            ),
            Way::Schema { .. } => unreachable!("there is no schema mode among the features"),
        }
    }

    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch> {
        let Assignment { options, prompt, model, way, home, environment, .. } = assignment;
        let mut arguments: Vec<OsString> =
            ["--output-format", "stream-json", "--skip-trust", "--extensions", NOTHING]
                .map(Into::into)
                .into();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
        let mut allowed = options.allowed_tools.clone();
        match options.permissions {
            Permissions::ReadOnly => add("--approval-mode", "default".into()),
            Permissions::Workspace => {
                add("--approval-mode", "auto_edit".into());
                allowed.push("run_shell_command".to_owned());
            }
            Permissions::Unrestricted => add("--approval-mode", "yolo".into()),
        }
        for tool in allowed {
            add("--allowed-tools", tool.into());
        }
        let mut servers = Map::new();
        if let Some(Way::Capture(capture)) = way {
            let variables: Map<_, _> = capture
                .environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
                .collect();
            servers.insert(
                capture.server.clone(),
                json!({
                    "command": capture.program, "args": capture.arguments, "env": variables, "trust": true,
                }),
            );
        }
        let server = servers.keys().next().map_or(NOTHING, String::as_str);
        add("--allowed-mcp-server-names", server.into());
        if let Some(model) = model {
            add("--model", (*model).into());
        }
        arguments.extend(options.arguments.iter().cloned());

        let mut settings = json!({
            "security": { "auth": { "selectedType": way_to_authenticate(environment) } },
            "privacy": { "usageStatisticsEnabled": false },
            "telemetry": { "enabled": false },
            "general": { "enableAutoUpdate": false, "maxAttempts": MAX_ATTEMPTS },
            "hooksConfig": { "enabled": false },
            "mcpServers": servers,
        });
        if let Some(turns) = options.max_turns {
            settings["model"] = json!({ "maxSessionTurns": turns });
        }
        if !options.instructions {
            settings["context"] = json!({ "fileName": "no-instructions-are-read" });
        }
        let own = home.join(".gemini");
        std::fs::create_dir(&own)?;
        private_home::write(&own.join("settings.json"), settings.to_string().as_bytes())?;
        carry_over(environment, &own)?;
        Ok(Launch {
            arguments,
            environment: environment
                .clone()
                .set("GEMINI_CLI_HOME", home)
                // A second process would only start a third one of the same.
                .set("GEMINI_CLI_NO_RELAUNCH", "true")
                .set("NO_COLOR", "1"),
            words: Words::Once(prompt.as_bytes().to_vec()),
            // It heeds no request: it exits, and its commands go on.
            gentle: Gentle::None,
        })
    }

    fn conversation(&self, _way: Option<&Way>) -> Box<dyn Conversation> {
        Box::new(GeminiConversation::default())
    }

    fn version(&self, said: &str) -> Option<Version> {
        said.lines().find_map(|line| Version::parse(line.trim()))
    }

    fn login(&self, environment: &Environment) -> Login {
        let variables = ["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"];
        if let Some(name) = variables.into_iter().find(|name| is_set(environment, name)) {
            return Login::Present(name.to_owned());
        }
        match credentials(environment).filter(|file| file.is_file()) {
            Some(file) => Login::Present(file.display().to_string()),
            None => Login::Absent,
        }
    }
}

fn is_set(environment: &Environment, name: &str) -> bool {
    environment.value(name).is_some_and(|value| !value.is_empty())
}

/// Without being told, Gemini CLI refuses to work unasked.
fn way_to_authenticate(environment: &Environment) -> &'static str {
    if is_set(environment, "GEMINI_API_KEY") {
        "gemini-api-key"
    } else if is_set(environment, "GOOGLE_GENAI_USE_VERTEXAI") || is_set(environment, "GOOGLE_API_KEY") {
        "vertex-ai"
    } else {
        "oauth-personal"
    }
}

/// Where the user's login with an account is.
fn credentials(environment: &Environment) -> Option<PathBuf> {
    let own = std::env::var_os("GEMINI_CLI_HOME").filter(|directory| !directory.is_empty());
    let home = own.or_else(|| environment.value("HOME"))?;
    Some(std::path::absolute(home).ok()?.join(".gemini/oauth_creds.json"))
}

/// Links the user's login, so that a refreshed token is the user's own.
fn carry_over(environment: &Environment, own: &std::path::Path) -> io::Result<()> {
    let Some(file) = credentials(environment).filter(|file| file.is_file()) else { return Ok(()) };
    let accounts = file.with_file_name("google_accounts.json");
    std::os::unix::fs::symlink(file, own.join("oauth_creds.json"))?;
    if accounts.is_file() {
        std::os::unix::fs::symlink(accounts, own.join("google_accounts.json"))?;
    }
    Ok(())
}

/// What one child of Gemini CLI has said.
#[derive(Debug, Default)]
struct GeminiConversation {
    /// The message that comes in pieces at the moment.
    message: String,
    /// What it said of an error of its vendor without the status.
    statusless: Option<String>,
}

impl Conversation for GeminiConversation {
    fn hear(&mut self, event: &Value, told: &mut Told) {
        match event["type"].as_str() {
            Some("init") => told.session_id = event["session_id"].as_str().map(ToOwned::to_owned),
            Some("message") if event["role"] == "assistant" => {
                let text = event["content"].as_str().unwrap_or_default();
                if event["delta"] != true {
                    self.message.clear();
                }
                self.message.push_str(text);
                told.activity =
                    self.message.lines().rfind(|line| !line.trim().is_empty()).map(ToOwned::to_owned);
                self.message.clone_into(&mut told.said);
            }
            Some("tool_use") => {
                self.message.clear();
                told.activity = event["tool_name"].as_str().map(|name| in_words(name, &event["parameters"]));
            }
            Some("tool_result") if event["error"]["type"] == "tool_not_registered" => {
                // The tools that are not permitted are not there.
                if let Some(name) = event["tool_id"].as_str().and_then(|id| id.split("__").next())
                    && !told.denied.iter().any(|denied| denied == name)
                {
                    told.denied.push(name.to_owned());
                }
            }
            Some("result") => {
                let count = |name: &str| event["stats"][name].as_u64();
                if let (Some(input), Some(output)) = (count("input_tokens"), count("output_tokens")) {
                    let cached = count("cached").unwrap_or_default();
                    told.usage = Some(Usage::new(input, output).with_cached_input_tokens(cached));
                }
                told.turn = Some(match event["status"].as_str() {
                    Some("success") => Outcome::Completed,
                    _ => self.failure(&event["error"]),
                });
            }
            _ => {}
        }
    }

    fn over(&mut self, code: i32) -> Option<Outcome> {
        match code {
            41 => Some(Outcome::failed(StopReason::AUTHENTICATION, "it has no credentials that it can use")),
            53 => Some(Outcome::failed(StopReason::TURN_LIMIT, "it used all the turns it may take")),
            code => Some(Outcome::of_status(http_status(code)?, &self.statusless.take()?, None)),
        }
    }
}

/// The first line of what a tool is used for.
fn in_words(name: &str, parameters: &Value) -> String {
    let of = ["command", "file_path", "path", "pattern", "query"];
    match of.iter().find_map(|key| parameters[key].as_str()?.lines().next()) {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    }
}

impl GeminiConversation {
    /// Judges the error of a result.
    ///
    /// Errors of the program have a type. One of the vendor's is told as `[API Error: …]`, made by the program around
    /// the vendor's own JSON, whose code is the HTTP status, or around words, and then the exit status tells.
    fn failure(&mut self, error: &Value) -> Outcome {
        let message = error["message"].as_str().unwrap_or_default();
        let said = sanitize(message.trim()).into_owned();
        match error["type"].as_str() {
            Some("FatalTurnLimitedError") => return Outcome::failed(StopReason::TURN_LIMIT, &said),
            Some("FatalAuthenticationError") => return Outcome::failed(StopReason::AUTHENTICATION, &said),
            Some("FatalCancellationError") => return Outcome::failed(StopReason::ABORTED, &said),
            _ => {}
        }
        let Some(inner) = message.strip_prefix("[API Error: ") else {
            return Outcome::failed(StopReason::ERROR, &said);
        };
        let inner = inner.strip_suffix(']').and_then(|inner| serde_json::from_str::<Value>(inner).ok());
        if let Some(status) = inner.and_then(|inner| inner["error"]["code"].as_u64()) {
            return Outcome::of_status(status, &said, None);
        }
        let outcome = Outcome::failed(StopReason::API_ERROR, &said);
        self.statusless = Some(said);
        outcome
    }
}

/// Finds the HTTP status of which an exit status has the lower eight bits.
fn http_status(code: i32) -> Option<u64> {
    const STATUSES: &[u64] = &[400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529];
    STATUSES.iter().copied().find(|status| i32::try_from(status % 256) == Ok(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_tells_the_status_of_which_it_is_a_part() {
        for (code, status) in [(144, 400), (173, 429), (247, 503), (17, 529)] {
            assert_eq!(http_status(code), Some(status));
        }
        // Those of the program itself, and of signals.
        for code in [0, 1, 41, 42, 53, 137, 143] {
            assert_eq!(http_status(code), None, "{code}");
        }
    }
}
