//! The agents that are run. Another one is another row of the table.

use std::env::consts::{ARCH, OS};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use harness_testkit::model_server::{ToolCall, Turn};
use serde_json::json;

/// An agent: where npm has put it, and how it is told where its model is.
#[derive(Debug)]
pub(crate) struct Agent {
    /// As ralph-loop calls it, and as its folder below `npm` is called.
    pub(crate) name: &'static str,
    /// The program that ralph-loop looks for.
    pub(crate) program: &'static str,
    /// The program below `node_modules`, with `{os}` and `{arch}` as npm says them.
    executable: &'static str,
    /// How its reports can be handed in, its default first.
    pub(crate) ways: &'static [Way],
    /// In which of them a report that breaks the rules comes back to the same child.
    pub(crate) corrects: &'static [Way],
    /// What its section of the settings says besides, with `{url}` for the address of the model.
    settings: &'static str,
    /// What is in the environment of ralph-loop for it, with `{url}` too.
    environment: &'static [(&'static str, &'static str)],
}

/// How a report is handed in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Schema,
    Capture,
}

pub(crate) const AGENTS: &[Agent] = &[
    Agent {
        name: "claude-code",
        program: "claude",
        executable: "@anthropic-ai/claude-code-{os}-{arch}/claude",
        ways: &[Way::Schema, Way::Capture],
        corrects: &[Way::Schema, Way::Capture],
        settings: "permissions = 'unrestricted'\n",
        // The machine may run this as root; the case's own network and home are the sandbox.
        environment: &[("ANTHROPIC_BASE_URL", "{url}"), ("ANTHROPIC_API_KEY", "none"), ("IS_SANDBOX", "1")],
    },
    Agent {
        name: "codex",
        program: "codex",
        // The script that npm installs; ralph-loop finds the native program behind it.
        executable: "@openai/codex/bin/codex.js",
        ways: &[Way::Capture, Way::Schema],
        corrects: &[Way::Capture],
        // A model that Codex does not know gets its plain tools.
        settings: "model = 'scripted'\n\
                   permissions = 'unrestricted'\n\
                   pass-env = ['SCRIPTED_KEY']\n\
                   arguments = ['-c', 'model_provider=scripted', '-c', \
                   'model_providers.scripted={name=\"scripted\", base_url=\"{url}/v1\", env_key=\"SCRIPTED_KEY\", \
                   wire_api=\"responses\", request_max_retries=1, stream_max_retries=1}']\n",
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
        let common = format!("[agents.{}]\nreport = '{way}'\n", self.name);
        common + &self.settings.replace("{url}", url)
    }

    /// What the environment of ralph-loop has for the agent.
    pub(crate) fn environment(&self, url: &str) -> impl Iterator<Item = (&'static str, String)> {
        self.environment.iter().map(move |(name, value)| (*name, value.replace("{url}", url)))
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
        ToolCall::new("run_shell_command", described()),
        ToolCall::new("bash", described()),
        ToolCall::new("shell", json!({"command": ["sh", "-c", command]})),
    ]
}

/// The model wants to read a file, by the tool that the agent has for that, or by a shell.
pub(crate) fn read(file: &Path) -> Turn {
    let calls = [ToolCall::new("Read", json!({"file_path": file}))];
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
