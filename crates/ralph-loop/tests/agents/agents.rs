//! The agents that are run. Another one is another row of the table.

use std::env::consts::{ARCH, OS};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use harness_testkit::model_server::{ToolCall, Turn};
use serde_json::{Value, json};

/// An agent: where npm has put it, and how it is told where its model is.
#[derive(Debug)]
pub(crate) struct Agent {
    /// As ralph-loop calls it, or its command, and as its folder below `npm` is called.
    pub(crate) name: &'static str,
    /// The program that ralph-loop looks for.
    pub(crate) program: &'static str,
    /// The program below `node_modules`, with `{os}` and `{arch}` as npm says them.
    executable: &'static str,
    /// How ralph-loop is told to run it.
    speaks: Speaks,
    /// How its reports can be handed in, its default first.
    pub(crate) ways: &'static [Way],
    /// In which of them a report that breaks the rules comes back to the same child.
    pub(crate) corrects: &'static [Way],
    /// The tool by which a report is handed in to the capture server, of an agent that does not offer it to its model.
    unlisted_tool: Option<&'static str>,
    /// What becomes of a round whose model is overloaded for good.
    pub(crate) overloaded: Overloaded,
    /// It asks a model again that says that it was asked too often.
    pub(crate) asks_again: bool,
    /// Its cases are all run without being asked for.
    pub(crate) all_by_default: bool,
    /// The ways that it does not have, and why.
    pub(crate) not_applicable: &'static [(Way, &'static str)],
    /// Files below the directory of the case, with `{url}` for the address of the model.
    files: &'static [(&'static str, &'static str)],
    /// What is in the environment of ralph-loop for it, with `{url}` too, and `{root}` for the directory of the case.
    environment: &'static [(&'static str, &'static str)],
}

/// How ralph-loop is told to run an agent.
#[derive(Debug)]
enum Speaks {
    /// By its own name. This is what its section of the settings says besides, with `{url}`.
    Cli(&'static str),
    /// By the Agent Client Protocol, with `--agent acp` and these arguments of its own, with `{url}`.
    Acp(&'static [&'static str]),
}

/// What an agent makes of a model that is overloaded for good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Overloaded {
    /// It says so.
    Told,
    /// It says something less precise, for which this is the reason.
    ToldAs(&'static str),
    /// It asks again and again, so that only the limit of the round ends that.
    TriedForEver,
}

/// How a report is handed in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Schema,
    Capture,
}

const NO_SCHEMA_MODE: (Way, &str) =
    (Way::Schema, "it has no schema mode, its reports come by the capture server alone");
const NO_SCHEMA_BY_ACP: (Way, &str) =
    (Way::Schema, "the protocol has no place for a schema, its reports come by the capture server alone");

pub(crate) const AGENTS: &[Agent] = &[
    Agent {
        name: "claude-code",
        program: "claude",
        executable: "@anthropic-ai/claude-code-{os}-{arch}/claude",
        speaks: Speaks::Cli("permissions = 'unrestricted'\n"),
        ways: &[Way::Schema, Way::Capture],
        corrects: &[Way::Schema, Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::Told,
        asks_again: true,
        all_by_default: true,
        not_applicable: &[],
        files: &[],
        // The machine may run this as root; the case's own network and home are the sandbox.
        environment: &[("ANTHROPIC_BASE_URL", "{url}"), ("ANTHROPIC_API_KEY", "none"), ("IS_SANDBOX", "1")],
    },
    Agent {
        name: "codex",
        program: "codex",
        // The script that npm installs; ralph-loop finds the native program behind it.
        executable: "@openai/codex/bin/codex.js",
        // A model that Codex does not know gets its plain tools.
        speaks: Speaks::Cli(
            "model = 'scripted'\n\
             permissions = 'unrestricted'\n\
             pass-env = ['SCRIPTED_KEY']\n\
             arguments = ['-c', 'model_provider=scripted', '-c', \
             'model_providers.scripted={name=\"scripted\", base_url=\"{url}/v1\", env_key=\"SCRIPTED_KEY\", \
             wire_api=\"responses\", request_max_retries=1, stream_max_retries=1}']\n",
        ),
        ways: &[Way::Capture, Way::Schema],
        corrects: &[Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::Told,
        asks_again: true,
        all_by_default: true,
        not_applicable: &[],
        files: &[],
        environment: &[("SCRIPTED_KEY", "none")],
    },
    Agent {
        name: "gemini",
        program: "gemini",
        executable: "@google/gemini-cli/bundle/gemini.js",
        // Left to itself it asks a model which model to ask.
        speaks: Speaks::Cli("model = 'gemini-2.5-flash'\npermissions = 'unrestricted'\n"),
        ways: &[Way::Capture],
        corrects: &[Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::Told,
        asks_again: true,
        all_by_default: false,
        not_applicable: &[NO_SCHEMA_MODE],
        files: &[],
        environment: &[("GOOGLE_GEMINI_BASE_URL", "{url}"), ("GEMINI_API_KEY", "none")],
    },
    Agent {
        name: "opencode",
        program: "opencode",
        // What stands there without its install script; ralph-loop finds the native program behind it.
        executable: "opencode-ai/bin/opencode.exe",
        speaks: Speaks::Cli("model = 'scripted/scripted'\npermissions = 'unrestricted'\n"),
        ways: &[Way::Capture],
        corrects: &[Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::TriedForEver,
        asks_again: true,
        all_by_default: false,
        not_applicable: &[NO_SCHEMA_MODE],
        files: &[(
            "opencode.json",
            r#"{"small_model": "scripted/scripted", "provider": {"scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": "{url}/v1", "apiKey": "none"},
                "models": {"scripted": {"tool_call": true, "limit": {"context": 200000, "output": 8000}}}}}}"#,
        )],
        environment: &[("OPENCODE_CONFIG", "{root}/opencode.json")],
    },
    Agent {
        name: "qwen-code",
        program: "qwen",
        executable: "@qwen-code/qwen-code/cli.js",
        speaks: Speaks::Cli("model = 'scripted'\npermissions = 'unrestricted'\n"),
        ways: &[Way::Capture, Way::Schema],
        corrects: &[Way::Capture],
        // Its model is to search for tools of servers first, but may call them without.
        unlisted_tool: Some("mcp__ralph__submit_report"),
        overloaded: Overloaded::TriedForEver,
        asks_again: true,
        all_by_default: false,
        not_applicable: &[],
        files: &[],
        environment: &[("OPENAI_BASE_URL", "{url}/v1"), ("OPENAI_API_KEY", "none")],
    },
    Agent {
        name: "claude-agent-acp",
        program: "claude-agent-acp",
        executable: "@agentclientprotocol/claude-agent-acp/dist/index.js",
        speaks: Speaks::Acp(&[]),
        ways: &[Way::Capture],
        corrects: &[Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::ToldAs("api-error"),
        asks_again: true,
        all_by_default: false,
        not_applicable: &[NO_SCHEMA_BY_ACP],
        files: &[],
        environment: &[
            ("ANTHROPIC_BASE_URL", "{url}"),
            ("ANTHROPIC_API_KEY", "none"),
            ("IS_SANDBOX", "1"),
            // Ten tries take longer than a case may.
            ("CLAUDE_CODE_MAX_RETRIES", "2"),
        ],
    },
    Agent {
        name: "codex-acp",
        program: "codex-acp",
        // The native program: of a script around it nothing that it is told would arrive.
        executable: "@zed-industries/codex-acp-{os}-{arch}/bin/codex-acp",
        speaks: Speaks::Acp(&[
            "-c",
            "model=scripted",
            "-c",
            "model_provider=scripted",
            "-c",
            "model_providers.scripted={name=\"scripted\", base_url=\"{url}/v1\", env_key=\"SCRIPTED_KEY\", \
             wire_api=\"responses\", request_max_retries=1, stream_max_retries=1}",
            // Its own sandbox needs a program that does not come with it.
            "-c",
            "sandbox_mode=danger-full-access",
            "-c",
            "approval_policy=never",
        ]),
        ways: &[Way::Capture],
        corrects: &[Way::Capture],
        unlisted_tool: None,
        overloaded: Overloaded::ToldAs("error"),
        asks_again: false,
        all_by_default: false,
        not_applicable: &[NO_SCHEMA_BY_ACP],
        files: &[],
        environment: &[("SCRIPTED_KEY", "none")],
    },
];

impl Agent {
    /// Where npm has put the program.
    pub(crate) fn installed(&self) -> Result<PathBuf> {
        let variable = format!("NPM_{}", self.name.to_uppercase().replace('-', "_"));
        let modules = std::env::var_os(&variable)
            .with_context(|| format!("{variable} does not say where it is; run `cargo xtask e2e agents`"))?;
        let os = if OS == "macos" { "darwin" } else { OS };
        let arch = match ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let path = Path::new(&modules).join(self.executable.replace("{os}", os).replace("{arch}", arch));
        ensure!(path.is_file(), "there is no `{}`", path.display());
        Ok(path)
    }

    /// The settings of ralph-loop for a case.
    pub(crate) fn settings(&self, way: Way, url: &str) -> String {
        match self.speaks {
            Speaks::Cli(settings) => {
                format!("[agents.{}]\nreport = '{way}'\n{}", self.name, settings.replace("{url}", url))
            }
            // It lets through what it is told to, and that is not much without a name.
            Speaks::Acp(_) => {
                let names: Vec<String> =
                    self.environment.iter().map(|(name, _)| format!("'{name}'")).collect();
                format!("pass-env = [{}]\n", names.join(", "))
            }
        }
    }

    /// The options and the program by which `ralph-loop run` is told to run the agent.
    pub(crate) fn chosen(&self, url: &str) -> (Vec<String>, Vec<String>) {
        let text = ToOwned::to_owned;
        match self.speaks {
            Speaks::Cli(_) => (["--agent", self.name].map(text).into(), Vec::new()),
            Speaks::Acp(arguments) => {
                let options = ["--agent", "acp", "--when-asked", "allow"].map(text).into();
                let arguments = arguments.iter().map(|argument| argument.replace("{url}", url));
                let behind = ["--".to_owned(), self.program.to_owned()].into_iter().chain(arguments);
                (options, behind.collect())
            }
        }
    }

    /// Files below the directory of the case.
    pub(crate) fn files(&self, url: &str) -> impl Iterator<Item = (&'static str, String)> {
        self.files.iter().map(move |(name, text)| (*name, text.replace("{url}", url)))
    }

    /// What the environment of ralph-loop has for the agent.
    pub(crate) fn environment(&self, url: &str, root: &Path) -> impl Iterator<Item = (&'static str, String)> {
        let root = root.display().to_string();
        self.environment
            .iter()
            .map(move |(name, value)| (*name, value.replace("{url}", url).replace("{root}", &root)))
    }

    /// The model hands in a report.
    pub(crate) fn hands_in(&self, way: Way, report: Value) -> Turn {
        match self.unlisted_tool {
            Some(tool) if way == Way::Capture => Turn::call(tool, report),
            _ => Turn::value(report),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schema => "schema",
            Self::Capture => "capture",
        })
    }
}

/// The model wants `command` to be run by a shell, by whatever tool the agent has for that.
pub(crate) fn shell(command: &str) -> Turn {
    Turn::first_offered(shell_calls(command))
}

fn shell_calls(command: &str) -> [ToolCall; 5] {
    let described = || json!({"command": command, "description": "work"});
    [
        ToolCall::new("Bash", described()),
        ToolCall::new("exec_command", json!({"cmd": command})),
        ToolCall::new(
            "run_shell_command",
            json!({"command": command, "description": "work", "is_background": false}),
        ),
        ToolCall::new("bash", described()),
        ToolCall::new("shell", json!({"command": ["sh", "-c", command]})),
    ]
}

/// The model wants to read a file, by the tool that the agent has for that, or by a shell.
pub(crate) fn read(file: &Path) -> Turn {
    let calls = [
        ToolCall::new("Read", json!({"file_path": file})),
        ToolCall::new("read_file", json!({"file_path": file})),
        ToolCall::new("read", json!({"filePath": file})),
    ];
    Turn::first_offered(calls.into_iter().chain(shell_calls(&format!("cat '{}'", file.display()))))
}

/// The model wants a file to have this text, by the tool that the agent has for that, or by a shell.
pub(crate) fn write(file: &Path, text: &str) -> Turn {
    let by_shell = format!("cat > '{}' <<'END'\n{text}END", file.display());
    let calls = [
        ToolCall::new("Write", json!({"file_path": file, "content": text})),
        ToolCall::new("write_file", json!({"file_path": file, "content": text})),
        ToolCall::new("write", json!({"filePath": file, "content": text})),
    ];
    Turn::first_offered(calls.into_iter().chain(shell_calls(&by_shell)))
}
