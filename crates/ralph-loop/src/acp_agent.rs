//! Any agent that speaks the Agent Client Protocol, and what can be chosen about it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use harness_process::{Environment, Limits};
use harness_provider_acp::{AcpProvider, Permissions};
use harness_provider_cli::CaptureServer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::suggestion;
use crate::state::State;

/// The name of the agent behind `--` that speaks the protocol, and the kind of those that are declared.
pub(crate) const ACP: &str = "acp";

/// What is chosen about an agent that speaks the protocol.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AcpAgent {
    pub(crate) when_asked: WhenAsked,
    mode: Option<String>,
    authentication: Option<String>,
    options: BTreeMap<String, String>,
    /// How often a report is handed back to the agent that wrote it.
    corrections: u32,
}

/// What an agent is told that asks for a permission. There is nobody to ask.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WhenAsked {
    /// No.
    #[default]
    Reject,
    /// Yes, whatever it asks for.
    Allow,
}

impl Default for AcpAgent {
    fn default() -> Self {
        Self {
            when_asked: WhenAsked::default(),
            mode: None,
            authentication: None,
            options: BTreeMap::new(),
            corrections: AcpProvider::CORRECTIONS,
        }
    }
}

impl AcpAgent {
    /// The keys by which a file chooses, beside those of every agent.
    pub(crate) const KEYS: &'static [&'static str] =
        &["when-asked", "mode", "authentication", "options", "corrections"];

    /// Takes what a file says under one of [`KEYS`](Self::KEYS).
    pub(crate) fn take(&mut self, key: &str, value: &toml::Value) -> Result<()> {
        match key {
            "when-asked" => {
                self.when_asked = crate::settings::one_of(text(value)?).map_err(anyhow::Error::msg)?;
            }
            "mode" => self.mode = Some(text(value)?.to_owned()),
            "authentication" => self.authentication = Some(text(value)?.to_owned()),
            "options" => {
                let options = value.as_table().ok_or_else(|| anyhow!("must be a table of strings"))?;
                for (name, value) in options {
                    let value = text(value).with_context(|| format!("`{name}`"))?;
                    self.options.insert(name.clone(), value.to_owned());
                }
            }
            "corrections" => {
                let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
                let number = number.filter(|number| *number <= 10);
                self.corrections = number.ok_or_else(|| anyhow!("give a whole number from 0 to 10"))?;
            }
            _ => bail!("unknown key{}", suggestion(key, Self::KEYS.iter())),
        }
        Ok(())
    }

    /// What was chosen, as names and values.
    pub(crate) fn facts(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("when-asked", json!(self.when_asked)),
            ("mode", json!(self.mode)),
            ("authentication", json!(self.authentication)),
            ("options", json!(self.options)),
            ("corrections", json!(self.corrections)),
        ]
    }

    /// Makes the provider of an agent that runs `program`. Reports are captured by this very program.
    pub(crate) fn provider(
        &self,
        name: &str,
        program: &str,
        state: &State,
        environment: Environment,
        limits: Limits,
    ) -> Result<AcpProvider> {
        let ours = std::env::current_exe().context("cannot find this program")?;
        let capture = CaptureServer::new("ralph", "submit_report", ours).with_arguments(["capture"]);
        let permissions = match self.when_asked {
            WhenAsked::Reject => Permissions::Reject,
            WhenAsked::Allow => Permissions::Allow,
        };
        let mut provider = AcpProvider::new(name, program, state.calls())
            .with_capture(capture)
            .with_corrections(self.corrections)
            .with_permissions(permissions)
            .with_environment(environment)
            .with_limits(limits);
        if let Some(mode) = &self.mode {
            provider = provider.with_mode(mode);
        }
        if let Some(method) = &self.authentication {
            provider = provider.with_authentication(method);
        }
        for (option, value) in &self.options {
            provider = provider.with_option(option, value);
        }
        Ok(provider)
    }

    /// Tells, in words for people, what the agent may do without being asked.
    pub(crate) fn permissions_in_words(&self) -> String {
        let mode = match &self.mode {
            Some(mode) => format!("its mode {mode}"),
            None => "its own configuration".to_owned(),
        };
        let asked = match self.when_asked {
            WhenAsked::Reject => "refused",
            WhenAsked::Allow => "granted",
        };
        format!("do what {mode} lets it do unasked; whatever it asks for is {asked}")
    }
}

fn text(value: &toml::Value) -> Result<&str> {
    match value.as_str() {
        Some("") => bail!("must not be empty"),
        Some(text) => Ok(text),
        None => bail!("must be a string, not {}", value.type_str()),
    }
}
