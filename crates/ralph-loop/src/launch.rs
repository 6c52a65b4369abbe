use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use harness_engine_local::{LocalConfig, LocalEngine};
use harness_process::Limits;
use harness_registry_local::LocalRegistry;
use harness_subagent::{Parent, SubagentRegistry};
use ralph_tool::{RalphConfig, RalphTool};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::acp_agent::ACP;
use crate::agent::{Agent, COMMAND};
use crate::arguments::{AgentArguments, LimitArguments};
use crate::settings::{Origin, Settings};
use crate::shown;
use crate::state::State;
use crate::stoppable::StoppableEngine;
use crate::stops::StopCause;
use crate::watched::WatchedProvider;

/// Everything that a run is started with. `resume` and `continue` use it again.
///
/// Of the environment it has names only, never values.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Launch {
    /// The version of this program that started the run.
    pub(crate) version: String,
    /// Where the agents work, as an absolute path.
    pub(crate) workspace: PathBuf,
    pub(crate) agent: Agent,
    pub(crate) max_rounds: u64,
    pub(crate) round_limit_ms: u64,
    pub(crate) idle_limit_ms: u64,
    /// Where each setting came from.
    pub(crate) origins: BTreeMap<String, String>,
}

/// How long a cancelled run may take to end. Longer than an agent's own way out, which is TERM, KILL and a sweep.
const CANCELLATION_GRACE: Duration = Duration::from_secs(40);

impl Launch {
    pub(crate) fn new(workspace: PathBuf, agent: Agent, settings: &Settings) -> Self {
        let origins = settings.rows().into_iter();
        let origins = origins.filter(|(name, ..)| !name.contains('.') && name != "engine");
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workspace,
            agent,
            max_rounds: settings.max_rounds.value,
            round_limit_ms: milliseconds(settings.round_limit.value),
            idle_limit_ms: milliseconds(settings.idle_limit.value),
            origins: origins.map(|(name, _, origin)| (name, origin)).collect(),
        }
    }

    /// Remembers what the command line has chosen about the agent.
    pub(crate) fn take_choices(&mut self, arguments: &AgentArguments) {
        let chosen = [
            ("model", arguments.model.is_some()),
            ("permissions", arguments.permissions.is_some()),
            ("when-asked", arguments.when_asked.is_some()),
        ];
        for (name, _) in chosen.into_iter().filter(|(_, is_chosen)| *is_chosen) {
            self.origins.insert(name.to_owned(), Origin::Flag.to_string());
        }
    }

    pub(crate) fn parent(&self) -> Result<Parent> {
        let workspace = self
            .workspace
            .to_str()
            .ok_or_else(|| anyhow::anyhow!("the path of the workspace must be UTF-8"))?;
        Ok(Parent::new("ralph-loop", workspace))
    }

    pub(crate) fn round_limit(&self) -> Duration {
        Duration::from_millis(self.round_limit_ms)
    }

    pub(crate) fn idle_limit(&self) -> Duration {
        Duration::from_millis(self.idle_limit_ms)
    }

    /// What it is, for people.
    pub(crate) fn told(&self) -> Vec<(&'static str, String)> {
        let limits = format!(
            "{}; {} a round, {} of silence",
            shown::rounds(self.max_rounds),
            shown::exact(self.round_limit()),
            shown::exact(self.idle_limit()),
        );
        vec![("agent", self.agent.told()), ("it may", self.agent.permissions_in_words()), ("limits", limits)]
    }

    /// Takes new limits for a run that continues this one.
    pub(crate) fn take_limits(&mut self, limits: &LimitArguments) {
        let mut take = |name: &str, value: Option<u64>, place: &mut u64| {
            if let Some(value) = value {
                *place = value;
                self.origins.insert(name.to_owned(), Origin::Flag.to_string());
            }
        };
        take("max-rounds", limits.max_rounds, &mut self.max_rounds);
        take("round-limit", limits.round_limit.map(milliseconds), &mut self.round_limit_ms);
        take("idle-limit", limits.idle_limit.map(milliseconds), &mut self.idle_limit_ms);
    }

    /// The settings as names and values, those of the agent among them.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        let mut facts = self.agent.facts();
        facts.push(("max-rounds", json!(self.max_rounds)));
        facts.push(("round-limit", json!(shown::exact(self.round_limit()))));
        facts.push(("idle-limit", json!(shown::exact(self.idle_limit()))));
        facts
    }

    /// Says what a run that started now, without flags, would have otherwise. What a flag decided is left out.
    pub(crate) fn changes(&self, now: &Settings) -> Vec<String> {
        let mut changes = Vec::new();
        let ours = env!("CARGO_PKG_VERSION");
        if self.version != ours {
            changes.push(format!("the run was started by ralph-loop {}, and this is {ours}", self.version));
        }
        let by_flag =
            |name: &str| self.origins.get(name).is_some_and(|origin| *origin == Origin::Flag.to_string());
        // An agent that came from the command line has nothing to be compared with.
        let agent = (![COMMAND, ACP].contains(&self.agent.name.as_str()))
            .then(|| Agent::named(Some(&self.agent.name), now));
        let agent = match agent {
            None => self.agent.clone(),
            Some(Ok(agent)) => agent,
            Some(Err(_)) => {
                changes
                    .push(format!("the agent {:?} is no longer declared; the run keeps it", self.agent.name));
                self.agent.clone()
            }
        };
        let now = Self::new(self.workspace.clone(), agent, now).facts();
        for (name, then) in self.facts() {
            let now = now.iter().find(|(other, _)| *other == name).map_or(&Value::Null, |(_, value)| value);
            if then != *now && !by_flag(name) {
                changes.push(format!("{name} is {now} now; the run keeps {then}"));
            }
        }
        changes
    }

    /// Makes the engine and the tool that run the loop.
    pub(crate) fn wire(&self, state: &State, cause: StopCause) -> Result<Wired> {
        let limits = Limits::default()
            .with_first_byte(self.idle_limit())
            .with_idle(self.idle_limit())
            .with_deadline(self.round_limit());
        let registry = Arc::new(LocalRegistry::default());
        let provider = self.agent.provider(state, limits)?;
        registry.register(Arc::new(WatchedProvider::new(provider, state.clone())))?;

        let agent = &self.agent;
        let config = LocalConfig::default()
            .with_provider(&agent.name)
            .with_cancellation_grace(CANCELLATION_GRACE)
            // Rounds come one after the other.
            .with_max_concurrent_agents(Some(NonZeroUsize::MIN));
        let engine =
            LocalEngine::durable(registry.clone(), ralph_tool::workflows(), config, state.journals().clone());
        let engine = Arc::new(StoppableEngine::new(Arc::new(engine), cause));
        let ralph =
            RalphConfig::default().with_subagent_provider(&agent.name)?.with_max_rounds(self.max_rounds)?;
        let tool = RalphTool::new(ralph, engine.clone(), registry)?;
        Ok(Wired { engine, tool })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The parts that run a loop.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) engine: Arc<StoppableEngine>,
    pub(crate) tool: RalphTool,
}
