//! The agents that `ralph-loop` knows by name, and what can be chosen about them.

use anyhow::{Context, Result, anyhow, bail};
use harness_process::{Environment, Limits};
use harness_provider_cli::{AgentHandIn, AgentKind, AgentProvider, CaptureServer, Permissions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::suggestion;
use crate::state::State;

/// What is chosen about an agent that is known by name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct KnownAgent {
    pub(crate) kind: AgentKind,
    /// The agent's own choice where there is none.
    pub(crate) model: Option<String>,
    pub(crate) permissions: Permissions,
    /// How it hands in its report; the best way it has where there is none.
    pub(crate) report: Option<AgentHandIn>,
    /// How often a report is handed back to the agent that wrote it.
    pub(crate) corrections: u32,
    /// Whether it reads the workspace's own file of instructions.
    pub(crate) instructions: bool,
    pub(crate) allowed_tools: Vec<String>,
    pub(crate) max_turns: Option<u32>,
    /// The most that one round may cost, in millionths of a US dollar.
    pub(crate) max_cost_usd_micros: Option<u64>,
}

impl KnownAgent {
    /// The keys by which a file chooses, beside those of every agent.
    pub(crate) const KEYS: &'static [&'static str] = &[
        "model",
        "permissions",
        "report",
        "corrections",
        "instructions",
        "allowed-tools",
        "max-turns",
        "max-cost-usd",
    ];

    pub(crate) fn new(kind: AgentKind) -> Self {
        Self {
            kind,
            model: None,
            permissions: Permissions::default(),
            report: None,
            corrections: AgentProvider::CORRECTIONS,
            instructions: true,
            allowed_tools: Vec::new(),
            max_turns: None,
            max_cost_usd_micros: None,
        }
    }

    /// Takes what a file says under one of [`KEYS`](Self::KEYS).
    pub(crate) fn take(&mut self, key: &str, value: &toml::Value) -> Result<()> {
        let features = self.kind.features();
        let only_if = |able: bool| {
            if able { Ok(()) } else { Err(anyhow!("{} has no such choice; leave it out", features.title)) }
        };
        match key {
            "model" => self.model = Some(text(value)?.to_owned()),
            "permissions" => self.permissions = permissions(text(value)?).map_err(anyhow::Error::msg)?,
            "report" => {
                let names = || AgentHandIn::ALL.iter().map(|way| way.as_str());
                let way = AgentHandIn::from_name(text(value)?).ok_or_else(|| one_of(names()))?;
                if !features.hand_in.contains(&way) {
                    let ways = features.hand_in.iter().map(|way| way.as_str());
                    bail!("{} does not hand in reports like that; {}", features.title, one_of(ways));
                }
                self.report = Some(way);
            }
            "corrections" => self.corrections = number(value, 0..=10)?,
            "instructions" => {
                self.instructions = value.as_bool().ok_or_else(|| anyhow!("must be true or false"))?;
            }
            "allowed-tools" => {
                only_if(features.allowed_tools)?;
                let tools = value.as_array().ok_or_else(|| anyhow!("must be an array of strings"))?;
                self.allowed_tools =
                    tools.iter().map(|tool| Ok(text(tool)?.to_owned())).collect::<Result<_>>()?;
            }
            "max-turns" => {
                only_if(features.turn_limit)?;
                self.max_turns = Some(number(value, 1..=100_000)?);
            }
            "max-cost-usd" => {
                only_if(features.budget_limit)?;
                self.max_cost_usd_micros = Some(micros(value)?);
            }
            _ => bail!("unknown key{}", suggestion(key, Self::KEYS.iter())),
        }
        Ok(())
    }

    /// What was chosen, as names and values. A choice that the agent does not offer is left out.
    pub(crate) fn facts(&self) -> Vec<(&'static str, Value)> {
        let features = self.kind.features();
        let mut facts = vec![
            ("model", json!(self.model)),
            ("permissions", json!(self.permissions)),
            ("report", json!(self.report)),
            ("corrections", json!(self.corrections)),
            ("instructions", json!(self.instructions)),
        ];
        if features.allowed_tools {
            facts.push(("allowed-tools", json!(self.allowed_tools)));
        }
        if features.turn_limit {
            facts.push(("max-turns", json!(self.max_turns)));
        }
        if features.budget_limit {
            let dollars = self.max_cost_usd_micros.map(|micros| micros as f64 / MICROS);
            facts.push(("max-cost-usd", json!(dollars)));
        }
        facts
    }

    /// Makes the provider. Reports are captured by this very program.
    pub(crate) fn provider(
        &self,
        name: &str,
        state: &State,
        environment: Environment,
        limits: Limits,
    ) -> Result<AgentProvider> {
        let ours = std::env::current_exe().context("cannot find this program")?;
        let capture = CaptureServer::new("ralph", "submit_report", ours).with_arguments(["capture"]);
        let mut provider = AgentProvider::new(self.kind, state.calls())
            .with_name(name)
            .with_permissions(self.permissions)
            .with_allowed_tools(&self.allowed_tools)
            .with_capture(capture)
            .with_instructions(self.instructions)
            .with_rules(ralph_tool::rules())
            .with_corrections(self.corrections)
            .with_max_turns(self.max_turns)
            .with_max_cost_usd_micros(self.max_cost_usd_micros)
            .with_environment(environment)
            .with_limits(limits);
        if let Some(model) = &self.model {
            provider = provider.with_model(model);
        }
        if let Some(report) = self.report {
            provider = provider.with_hand_in(report);
        }
        Ok(provider)
    }

    /// Tells, in words for people, what the agent may do without being asked.
    pub(crate) fn permissions_in_words(&self) -> String {
        let mut words = self.kind.features().permissions_in_words(self.permissions).to_owned();
        if !self.allowed_tools.is_empty() {
            words.push_str("; and use ");
            words.push_str(&self.allowed_tools.join(", "));
        }
        words
    }
}

/// Reads the name of what an agent may do.
pub(crate) fn permissions(name: &str) -> Result<Permissions, String> {
    let names = || Permissions::ALL.iter().map(|permissions| permissions.as_str());
    Permissions::from_name(name).ok_or_else(|| one_of(names()).to_string())
}

const MICROS: f64 = 1_000_000.0;

fn micros(value: &toml::Value) -> Result<u64> {
    const LARGEST: f64 = 100_000.0;
    let dollars = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    match dollars {
        Some(dollars) if (0.01..=LARGEST).contains(&dollars) => Ok((dollars * MICROS).round() as u64),
        _ => bail!("give an amount from 0.01 to {LARGEST}"),
    }
}

fn number(value: &toml::Value, range: std::ops::RangeInclusive<u32>) -> Result<u32> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| anyhow!("give a whole number from {} to {}", range.start(), range.end()))
}

fn text(value: &toml::Value) -> Result<&str> {
    match value.as_str() {
        Some("") => bail!("must not be empty"),
        Some(text) => Ok(text),
        None => bail!("must be a string, not {}", value.type_str()),
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    anyhow!("give one of {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(kind: AgentKind, key: &str, value: impl Into<toml::Value>, expected: &str) {
        let error = KnownAgent::new(kind).take(key, &value.into()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }

    #[test]
    fn choices_that_cannot_be_say_what_can() {
        let kind = AgentKind::ClaudeCode;
        refused(kind, "permissions", "all", "give one of read-only, workspace, unrestricted");
        refused(kind, "report", "smoke", "give one of schema, capture");
        refused(kind, "corrections", 11, "from 0 to 10");
        refused(kind, "corrections", -1, "from 0 to 10");
        refused(kind, "instructions", "yes", "true or false");
        refused(kind, "max-cost-usd", 0.0, "from 0.01");
        refused(kind, "model", "", "must not be empty");
        refused(kind, "model", 3, "must be a string, not integer");
        refused(kind, "allowed-tools", "Bash", "array of strings");
        refused(AgentKind::Codex, "max-turns", 5, "Codex has no such choice");
    }

    #[test]
    fn money_is_counted_in_millionths() {
        let mut agent = KnownAgent::new(AgentKind::ClaudeCode);
        agent.take("max-cost-usd", &toml::Value::Float(2.5)).unwrap();
        assert_eq!(agent.max_cost_usd_micros, Some(2_500_000));
        agent.take("max-cost-usd", &toml::Value::Integer(3)).unwrap();
        assert_eq!(agent.max_cost_usd_micros, Some(3_000_000));
    }
}
