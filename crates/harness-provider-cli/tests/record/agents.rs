//! How each agent is told where its model is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness_process::Environment;
use harness_provider_cli::AgentKind;

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

/// A model that Codex does not know gets its plain tools.
pub(crate) fn model(kind: AgentKind) -> Option<&'static str> {
    (kind == AgentKind::Codex).then_some("gpt-5.2-codex")
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

pub(crate) fn environment(
    kind: AgentKind,
    environment: Environment,
    url: &str,
    credentials: Credentials,
) -> Environment {
    let environment = environment.set("ANTHROPIC_BASE_URL", url);
    match credentials {
        Credentials::None => environment,
        Credentials::Subscriber => environment.set("CLAUDE_CODE_OAUTH_TOKEN", "none"),
        Credentials::Key if kind == AgentKind::Codex => environment.set("SCRIPTED_KEY", "none"),
        Credentials::Key => environment.set("ANTHROPIC_API_KEY", "none"),
    }
}
