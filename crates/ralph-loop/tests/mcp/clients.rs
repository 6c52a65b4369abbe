//! The clients: where npm has put them, and how each is started with our server.

use std::env::consts::{ARCH, OS};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use harness_testkit::model_server::ModelServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::scene::{PATIENCE, Scene};

/// An agent that is a client here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
}

/// A client while it runs.
pub(crate) struct Running {
    child: Child,
}

impl Agent {
    /// Starts the agent with our server and a model that plays a script. A call of a tool may take `call_seconds`.
    pub(crate) fn start(
        self,
        scene: &Scene,
        model: &ModelServer,
        server: &Path,
        call_seconds: u32,
    ) -> Result<Running> {
        let mut command = match self {
            Self::ClaudeCode => claude_code(scene, model, server, call_seconds)?,
            Self::Codex => codex(scene, model, server, call_seconds)?,
        };
        command
            .stdout(File::create(scene.path("client.out"))?)
            .stderr(File::create(scene.path("client.err"))?);
        Ok(Running { child: command.spawn().context("the client cannot be started")? })
    }
}

/// What the user asks for. The model's script does not care.
const PROMPT: &str = "Please run a Ralph loop.";

fn claude_code(scene: &Scene, model: &ModelServer, server: &Path, call_seconds: u32) -> Result<Command> {
    let program =
        modules("NPM_CLAUDE_CODE")?.join(format!("@anthropic-ai/claude-code-{}/claude", platform()));
    let servers = json!({ "mcpServers": { "ralph": { "command": server } } });
    let mut command = scene.command(program);
    command
        .args(["-p", PROMPT, "--output-format", "json", "--dangerously-skip-permissions"])
        .args(["--setting-sources", "", "--no-session-persistence", "--strict-mcp-config"])
        .arg("--mcp-config")
        .arg(servers.to_string())
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "none")
        .env("MCP_TOOL_TIMEOUT", (call_seconds * 1000).to_string())
        // The machine may run this as root; the case's own network and home are the sandbox.
        .env("IS_SANDBOX", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1");
    Ok(command)
}

fn codex(scene: &Scene, model: &ModelServer, server: &Path, call_seconds: u32) -> Result<Command> {
    let package = modules("NPM_CODEX")?.join(format!("@openai/codex-{}/vendor", platform()));
    let found =
        std::fs::read_dir(&package).with_context(|| format!("nothing is in {}", package.display()))?;
    let found = found.flatten().map(|entry| entry.path().join("bin/codex")).find(|path| path.is_file());
    let program = found.with_context(|| format!("no codex is in {}", package.display()))?;
    let provider = format!(
        "model_providers.scripted={{name=\"scripted\", base_url=\"{}/v1\", env_key=\"SCRIPTED_KEY\", \
         wire_api=\"responses\", request_max_retries=1, stream_max_retries=1}}",
        model.url()
    );
    let server = format!(
        "mcp_servers.ralph={{command={:?}, tool_timeout_sec={call_seconds}}}",
        server.to_str().context("a path in UTF-8")?
    );
    let mut command = scene.command(program);
    command
        .args(["exec", PROMPT, "--json", "--ephemeral", "--skip-git-repo-check"])
        .args(["--dangerously-bypass-approvals-and-sandbox", "--disable", "plugins", "--disable", "apps"])
        .args(["-m", "scripted", "-c", "analytics.enabled=false", "-c", "model_provider=scripted"])
        .args(["-c", &provider, "-c", &server])
        .env("CODEX_HOME", scene.path("codex"))
        .env("SCRIPTED_KEY", "none");
    Ok(command)
}

/// Asks the MCP Inspector, which starts our server for this alone, and returns the result.
pub(crate) fn inspector(scene: &Scene, server: &Path, arguments: &[&str]) -> Result<Value> {
    let program =
        modules("NPM_INSPECTOR")?.join("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let mut command = scene.command("node");
    command
        .arg(program)
        .arg("--cli")
        .arg(server)
        .args(["--format", "json"])
        .args(arguments)
        .stdout(File::create(scene.path("client.out"))?)
        .stderr(File::create(scene.path("client.err"))?);
    let mut running = Running { child: command.spawn().context("node cannot be started")? };
    running.end(scene)?;
    let said = std::fs::read_to_string(scene.path("client.out"))?;
    let said: Value = serde_json::from_str(&said).with_context(|| format!("the Inspector says {said:?}"))?;
    Ok(said["result"].clone())
}

/// Calls a tool with the Inspector.
pub(crate) fn inspect_call(
    scene: &Scene,
    server: &Path,
    era: &str,
    tool: &str,
    arguments: &Value,
) -> Result<Value> {
    let arguments = arguments.to_string();
    let call = ["--protocol-era", era, "--method", "tools/call", "--tool-name", tool];
    let call: Vec<&str> = call.into_iter().chain(["--tool-args-json", &arguments]).collect();
    inspector(scene, server, &call)
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a child has a pid")?, signal)?)
    }

    /// Waits for the client's end.
    pub(crate) fn end(&mut self, scene: &Scene) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        scene.wait("the end of the client", || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)).then_some(())
        })?;
        ensure!(Instant::now() < until, "the client does not end");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the case has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where npm has put what a folder asks for.
pub(crate) fn modules(variable: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(variable);
    let folder =
        folder.with_context(|| format!("{variable} does not say where it is; run `cargo xtask e2e mcp`"))?;
    Ok(folder.into())
}

fn platform() -> String {
    let os = if OS == "macos" { "darwin" } else { OS };
    let arch = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}-{arch}")
}
