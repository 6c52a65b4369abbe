//! How each agent is told where its model is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness_process::Environment;
use harness_provider_cli::AgentKind;
use serde_json::json;

/// Where `cargo xtask e2e agents` has installed it.
pub(crate) fn program(kind: AgentKind) -> Result<PathBuf> {
    let variable = format!("NPM_{}", kind.as_str().to_uppercase().replace('-', "_"));
    let modules = std::env::var_os(&variable).with_context(|| {
        format!("{variable} does not say where it is; run `cargo xtask e2e agents --record`")
    })?;
    let (os, arch) = match (std::env::consts::OS, std::env::consts::ARCH) {
        (os, "x86_64") => (os, "x64"),
        (os, "aarch64") => (os, "arm64"),
        other => other,
    };
    let path = match kind {
        // Without its install script the native program is where its package has it.
        AgentKind::ClaudeCode => {
            format!("@anthropic-ai/claude-code-{}-{arch}/claude", os.replace("macos", "darwin"))
        }
        _ => format!(".bin/{}", kind.features().program),
    };
    Ok(Path::new(&modules).join(path))
}

pub(crate) fn model(kind: AgentKind) -> Option<&'static str> {
    match kind {
        AgentKind::ClaudeCode => None,
        // A model that Codex does not know gets its plain tools.
        AgentKind::Codex => Some("gpt-5.2-codex"),
        AgentKind::Gemini => Some("gemini-2.5-flash"),
        AgentKind::Opencode => Some("scripted/scripted"),
        _ => Some("scripted"),
    }
}

/// Describes the scripted model to opencode, which asks no vendor of its own without an account.
fn models_of_opencode(url: &str) -> String {
    let model = json!({
        "tool_call": true, "limit": { "context": 200_000, "output": 8_000 }, "cost": { "input": 1, "output": 2 },
    });
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible", "options": { "baseURL": format!("{url}/v1"), "apiKey": "none" },
        "models": { "scripted": model },
    });
    json!({ "small_model": "scripted/scripted", "provider": { "scripted": provider } }).to_string()
}

pub(crate) fn arguments(kind: AgentKind, url: &str) -> Vec<String> {
    if kind != AgentKind::Codex {
        return Vec::new();
    }
    let provider = format!(
        "model_providers.scripted={{name=\"scripted\", base_url=\"{url}/v1\", env_key=\"SCRIPTED_KEY\", \
         wire_api=\"responses\", request_max_retries=1, stream_max_retries=1}}"
    );
    ["-c", "model_provider=scripted", "-c", &provider].map(ToOwned::to_owned).into()
}

/// Who asks the vendor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials {
    Key,
    /// Somebody with a subscription, whom the vendor tells about its limits.
    Subscriber,
    None,
}

/// Says where the model is and who asks. What is a file is written below `root`.
pub(crate) fn environment(
    kind: AgentKind,
    environment: Environment,
    url: &str,
    credentials: Credentials,
    root: &Path,
) -> Result<Environment> {
    let (place, address, key) = match kind {
        AgentKind::ClaudeCode => ("ANTHROPIC_BASE_URL", url.to_owned(), "ANTHROPIC_API_KEY"),
        AgentKind::Codex => return Ok(with_key(environment, credentials, "SCRIPTED_KEY")),
        AgentKind::Gemini => ("GOOGLE_GEMINI_BASE_URL", url.to_owned(), "GEMINI_API_KEY"),
        AgentKind::Opencode => {
            let file = root.join("models.json");
            std::fs::write(&file, models_of_opencode(url))?;
            return Ok(environment.set("OPENCODE_CONFIG", file));
        }
        _ => ("OPENAI_BASE_URL", format!("{url}/v1"), "OPENAI_API_KEY"),
    };
    Ok(with_key(environment.set(place, address), credentials, key))
}

fn with_key(environment: Environment, credentials: Credentials, key: &str) -> Environment {
    match credentials {
        Credentials::None => environment,
        Credentials::Subscriber => environment.set("CLAUDE_CODE_OAUTH_TOKEN", "none"),
        Credentials::Key => environment.set(key, "none"),
    }
}
