//! opencode, by the opencode project.
//!
//! # How it is started
//!
//! `run --format json --pure`: one event a line, the prompt on standard input, no plugins. Everything else is in its
//! environment:
//!
//! | variable | why |
//! |---|---|
//! | `OPENCODE_CONFIG_CONTENT` | the permissions, the capture server, the file of instructions; it outweighs every other setting |
//! | `OPENCODE_DISABLE_PROJECT_CONFIG`, `…_CLAUDE_CODE` | no settings, agents, commands and servers of the project, and nothing that is there for Claude Code |
//! | `OPENCODE_DISABLE_AUTOUPDATE`, `…_DEFAULT_PLUGINS`, `…_LSP_DOWNLOAD`, `…_MODELS_FETCH`, `…_SHARE` | nothing is fetched and nothing is shared |
//! | `XDG_CACHE_HOME`, `XDG_CONFIG_HOME`, `XDG_DATA_HOME`, `XDG_STATE_HOME` | directories that only this child has; the user's credentials are linked there |
//! | `OPENCODE_CONFIG` | let through: the file in which a user describes models of one's own |
//!
//! # How its end is told apart
//!
//! There is no last event. What counts is an `error`, else how the last step ended, and the exit status.
//!
//! | event | stop reason |
//! |---|---|
//! | last step `stop`, status 0 | as the value says |
//! | last step `length`, status 0 | `max-tokens` |
//! | last step `content-filter`, status 0 | `refusal` |
//! | last step `tool-calls`, status 0 | `permission-denied`: it stopped at a tool |
//! | `error` with a `statusCode` | as the HTTP status says |
//! | `ProviderAuthError`, `MessageOutputLengthError`, `APIError` | `authentication`, `max-tokens`, `api-error` |
//! | any other `error` | `error` |
//!
//! It tries a busy vendor again and again and says nothing meanwhile, so that only a limit ends that. It heeds no request to
//! stop so that its tools end, so it gets none, and what it leaves is swept.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle, sanitize};
use harness_subagent::{StopReason, Usage};
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Assignment, Conversation, Launch, Outcome, Told, Way, Words};
use crate::detect::Login;
use crate::features::{AgentHandIn, Features};
use crate::{Permissions, Version};

#[derive(Debug)]
pub(crate) struct Opencode;

const FEATURES: Features = Features {
    title: "opencode",
    program: "opencode",
    package: "opencode-ai",
    tested: (Version::new(1, 18, 33), Version::new(1, 18, 33)),
    hand_in: &[AgentHandIn::Capture],
    corrects_in_schema_mode: false,
    usage: true,
    cost: true,
    gentle_cancel: false,
    turn_limit: false,
    budget_limit: false,
    allowed_tools: false,
    max_prompt_characters: None,
    credentials: &[
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_API_KEY",
        "OPENCODE_API_KEY",
        "OPENCODE_AUTH_CONTENT",
        "OPENROUTER_API_KEY",
    ],
    instructions: "AGENTS.md",
    left_out: &[
        "the user's and the project's settings, agents, commands and plugins",
        "the user's own AGENTS.md, and what is there for Claude Code",
        "MCP servers of the user and of the project",
        "session history",
        "sharing, self-update, downloads of model lists and language servers",
    ],
    permissions: [
        "read files and search in the workspace; change nothing, run nothing",
        "change files in the workspace, and run any command that the user could run (opencode does not confine commands)",
        "do whatever the user could do, without being asked",
    ],
};

/// What the user's environment may say about models, in files of the user's choice.
const LET_THROUGH: &[&str] = &["OPENCODE_CONFIG"];

const SWITCHES: &[(&str, &str)] = &[
    ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ("OPENCODE_DISABLE_CLAUDE_CODE", "1"),
    ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
    ("OPENCODE_DISABLE_SHARE", "1"),
];

impl Agent for Opencode {
    fn features(&self) -> &'static Features {
        &FEATURES
    }

    fn native(&self, found: PathBuf) -> PathBuf {
        past_the_shim(&found).unwrap_or(found)
    }

    fn how_to_hand_in(&self, way: &Way) -> String {
        match way {
            Way::Capture(capture) => format!(
                "by calling the tool `{}_{}`; nothing you say elsewhere counts as your result",
                capture.server, capture.tool
            ),
            Way::Schema { .. } => unreachable!("there is no schema mode among the features"),
        }
    }

    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch> {
        let Assignment { options, prompt, model, way, workspace, home, environment, .. } = assignment;
        let mut arguments: Vec<OsString> = ["run", "--format", "json", "--pure"].map(Into::into).into();
        if let Some(model) = model {
            arguments.extend(["--model".into(), (*model).into()]);
        }
        arguments.extend(options.arguments.iter().cloned());

        let mut servers = Map::new();
        let mut permission = match options.permissions {
            Permissions::ReadOnly => json!({
                "*": "deny", "read": "allow", "glob": "allow", "grep": "allow", "list": "allow", "todowrite": "allow",
                "external_directory": "deny",
            }),
            Permissions::Workspace => json!({ "*": "allow", "external_directory": "deny" }),
            Permissions::Unrestricted => json!({ "*": "allow" }),
        };
        if let Some(Way::Capture(capture)) = way {
            let mut command = vec![capture.program.clone()];
            command.extend(capture.arguments.iter().cloned());
            let variables: Map<_, _> = capture
                .environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
                .collect();
            servers.insert(
                capture.server.clone(),
                json!({ "type": "local", "command": command, "environment": variables }),
            );
            permission[format!("{}_{}", capture.server, capture.tool)] = "allow".into();
        }
        // The project's file is named to it, as it is not to look at the project by itself.
        let instructions: Vec<_> = options
            .instructions
            .then(|| workspace.join(FEATURES.instructions))
            .filter(|file| file.is_file())
            .and_then(|file| file.to_str().map(ToOwned::to_owned))
            .into_iter()
            .collect();
        let config = json!({
            "autoupdate": false,
            "share": "disabled",
            "permission": permission,
            "mcp": servers,
            "instructions": instructions,
        });
        let mut environment = SWITCHES
            .iter()
            .fold(environment.clone(), |environment, (name, value)| environment.set(*name, *value))
            .set("OPENCODE_CONFIG_CONTENT", config.to_string());
        for name in LET_THROUGH {
            environment = environment.allow(*name);
        }
        carry_over(&environment, home)?;
        for (name, place) in [
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
        ] {
            environment = environment.set(name, home.join(place));
        }
        Ok(Launch {
            arguments,
            environment,
            words: Words::Once(prompt.as_bytes().to_vec()),
            // It heeds no request to end its tools.
            gentle: Gentle::None,
        })
    }

    fn conversation(&self, _way: Option<&Way>) -> Box<dyn Conversation> {
        Box::new(OpencodeConversation::default())
    }

    fn version(&self, said: &str) -> Option<Version> {
        Version::parse(said.lines().next()?.trim())
    }

    fn login(&self, environment: &Environment) -> Login {
        let set = |name: &&&str| environment.value(name).is_some_and(|value| !value.is_empty());
        if let Some(name) = FEATURES.credentials.iter().find(set) {
            return Login::Present((*name).to_owned());
        }
        match credentials(environment).filter(|file| file.is_file()) {
            Some(file) => Login::Present(file.display().to_string()),
            None => Login::Unknown("a model of one's own may need none".to_owned()),
        }
    }
}

/// Finds the native program behind the one that npm installs, where that is a script: before 1.18 it starts the program,
/// and since then it is what stands in the program's place until the package's install script has run.
fn past_the_shim(found: &Path) -> Option<PathBuf> {
    let script = std::fs::canonicalize(found).ok()?;
    let is_named = |name: &OsStr| name == "opencode" || name == "opencode.exe";
    if !script.file_name().is_some_and(is_named) || !is_text(&script) {
        return None;
    }
    let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    // It is `opencode-ai/bin/opencode.exe`; the other package is beside that one or within it.
    let package = script.parent()?.parent()?;
    let name = format!("opencode-{system}-{machine}");
    let baseline = format!("{name}-baseline");
    let names = if has_new_instructions() { [&name, &baseline] } else { [&baseline, &name] };
    let places = names.into_iter().flat_map(|name| {
        [package.parent().map(|beside| beside.join(name)), Some(package.join("node_modules").join(name))]
    });
    places.flatten().map(|place| place.join("bin/opencode")).find(|program| program.is_file())
}

/// True for a script or the like: native programs have a zero in their first bytes.
fn is_text(program: &Path) -> bool {
    let mut beginning = [0; 16];
    let read = std::fs::File::open(program).and_then(|mut file| file.read(&mut beginning));
    read.is_ok_and(|length| !beginning[..length].contains(&0))
}

/// True if this machine runs the program that is not called `baseline`.
fn has_new_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return true;
}

/// Where the user's credentials are.
fn credentials(environment: &Environment) -> Option<PathBuf> {
    let own = std::env::var_os("XDG_DATA_HOME").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let data = own.or_else(|| Some(PathBuf::from(environment.value("HOME")?).join(".local/share")))?;
    Some(std::path::absolute(data).ok()?.join("opencode/auth.json"))
}

/// Links the user's credentials, so that a refreshed token is the user's own.
fn carry_over(environment: &Environment, home: &Path) -> io::Result<()> {
    let Some(file) = credentials(environment).filter(|file| file.is_file()) else { return Ok(()) };
    let own = home.join("data/opencode");
    std::fs::create_dir_all(&own)?;
    std::os::unix::fs::symlink(file, own.join("auth.json"))
}

/// What one child of opencode has said. There is no last event: its last step says how it ended, and its exit that it
/// did.
#[derive(Debug, Default)]
struct OpencodeConversation {
    /// How its last step ended, of one that is over.
    last_step: Option<String>,
    /// What its last error was.
    failure: Option<Outcome>,
}

impl Conversation for OpencodeConversation {
    fn hear(&mut self, event: &Value, told: &mut Told) {
        if let Some(id) = event["sessionID"].as_str().filter(|_| told.session_id.is_none()) {
            told.session_id = Some(id.to_owned());
        }
        let part = &event["part"];
        match event["type"].as_str() {
            Some("step_start") => {
                self.last_step = None;
                self.failure = None;
            }
            Some("text") => {
                let text = part["text"].as_str().unwrap_or_default();
                told.activity = text.lines().find(|line| !line.trim().is_empty()).map(ToOwned::to_owned);
                text.clone_into(&mut told.said);
            }
            Some("tool_use") => {
                told.activity = part["tool"].as_str().map(|name| in_words(name, &part["state"]));
            }
            Some("step_finish") => {
                self.last_step = part["reason"].as_str().map(ToOwned::to_owned);
                let step = tokens(part);
                told.usage = Some(told.usage.map_or(step, |before| before.plus(step)));
            }
            Some("error") => self.failure = Some(failure(&event["error"])),
            _ => {}
        }
    }

    fn over(&mut self, code: i32) -> Option<Outcome> {
        if code != 0 || self.failure.is_some() {
            return self.failure.take();
        }
        match self.last_step.as_deref()? {
            "stop" => Some(Outcome::Completed),
            "length" => {
                Some(Outcome::failed(StopReason::MAX_TOKENS, "the model's answer was cut off at its limit"))
            }
            "content-filter" => {
                Some(Outcome::failed(StopReason::REFUSAL, "the model's vendor held its answer back"))
            }
            // It was not permitted to use a tool, and stopped instead of being asked.
            "tool-calls" => Some(Outcome::failed(
                StopReason::PERMISSION_DENIED,
                "it stopped at a tool that it was not permitted to use",
            )),
            _ => None,
        }
    }
}

fn in_words(name: &str, state: &Value) -> String {
    let of = ["command", "filePath", "path", "pattern", "query", "url"];
    match of.iter().find_map(|key| state["input"][key].as_str()?.lines().next()) {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    }
}

/// What one step used. Cached tokens stand beside those of the input.
fn tokens(step: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let of = &step["tokens"];
    let cached = count(&of["cache"]["read"]);
    let input = count(&of["input"]).saturating_add(cached).saturating_add(count(&of["cache"]["write"]));
    let output = count(&of["output"]).saturating_add(count(&of["reasoning"]));
    let usage = Usage::new(input, output).with_cached_input_tokens(cached);
    match step["cost"]
        .as_f64()
        .map(|dollars| (dollars * 1e6).round())
        .filter(|micros| (0.0..1e15).contains(micros))
    {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole and in bounds"
        )]
        Some(micros) => usage.with_cost_usd_micros(micros as u64),
        None => usage,
    }
}

fn failure(error: &Value) -> Outcome {
    let data = &error["data"];
    let message = data["message"].as_str().or(error["message"].as_str()).unwrap_or_default();
    let said = sanitize(message.trim()).into_owned();
    if let Some(status) = data["statusCode"].as_u64() {
        return Outcome::of_status(status, &said, None);
    }
    let reason = match error["name"].as_str() {
        Some("ProviderAuthError") => StopReason::AUTHENTICATION,
        Some("MessageOutputLengthError" | "ContextOverflowError") => StopReason::MAX_TOKENS,
        Some("MessageAbortedError") => StopReason::ABORTED,
        Some("APIError") => StopReason::API_ERROR,
        _ => StopReason::ERROR,
    };
    Outcome::failed(reason, &said)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Makes what npm installs: `program` in the package, and the package with the native program.
    fn installed(program: &[u8], native: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
        let native = root.path().join(format!("opencode-{system}-{machine}{native}/bin"));
        for folder in [&root.path().join("opencode-ai/bin"), &native, &root.path().join(".bin")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(native.join("opencode"), b"\x7fELF\0").unwrap();
        fs::write(root.path().join("opencode-ai/bin/opencode.exe"), program).unwrap();
        let link = root.path().join(".bin/opencode");
        std::os::unix::fs::symlink("../opencode-ai/bin/opencode.exe", &link).unwrap();
        (root, link)
    }

    #[test]
    fn what_stands_there_without_an_install_script_is_passed_by() {
        for native in ["", "-baseline"] {
            let (_root, link) = installed(b"echo \"postinstall was not run\" >&2\nexit 1\n", native);
            let found = Opencode.native(link);
            assert_eq!(fs::read(&found).unwrap(), b"\x7fELF\0", "{}", found.display());
        }
    }

    #[test]
    fn a_native_program_is_run_as_it_is() {
        let (_root, link) = installed(b"\x7fELF\x02\x01\x01\0native", "");
        assert_eq!(Opencode.native(link.clone()), link);
    }
}
