//! One file of settings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use harness_provider_cli::AgentKind;
use toml::{Table, Value};

use crate::acp_agent::{ACP, AcpAgent};
use crate::agent::{COMMAND, CommandWay, Way};
use crate::arguments::EngineKind;
use crate::known_agent::KnownAgent;
use crate::settings::{self, DeclaredAgent, NAMES, one_of, suggestion};
use crate::temporal_settings::{TemporalChoices, queue_name};

/// What a file says. What it does not say is left to others.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct FileSettings {
    pub(crate) agent: Option<String>,
    pub(crate) max_rounds: Option<u64>,
    pub(crate) round_limit: Option<Duration>,
    pub(crate) idle_limit: Option<Duration>,
    pub(crate) pass_env: Option<Vec<String>>,
    pub(crate) engine: Option<EngineKind>,
    pub(crate) temporal: TemporalChoices,
    pub(crate) agents: BTreeMap<String, DeclaredAgent>,
}

/// Reads a file, or nothing where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<FileSettings>> {
    const MAX_BYTES: u64 = 1024 * 1024;
    let length = match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(metadata) => metadata.len(),
    };
    if length > MAX_BYTES {
        bail!("{} is longer than {MAX_BYTES} bytes, and no settings are", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text, path).map(Some).with_context(|| path.display().to_string())
}

fn parse(text: &str, path: &Path) -> Result<FileSettings> {
    let table: Table = text.parse()?;
    let mut settings = FileSettings::default();
    for (key, value) in table {
        let within = || format!("`{key}`");
        match key.as_str() {
            "agent" => settings.agent = Some(string(value).with_context(within)?),
            "max-rounds" => {
                let number = value.as_integer().ok_or_else(|| anyhow!(settings::MAX_ROUNDS_RANGE));
                settings.max_rounds = Some(
                    number.and_then(|number| checked(settings::max_rounds(number))).with_context(within)?,
                );
            }
            "round-limit" => settings.round_limit = Some(limit(value).with_context(within)?),
            "idle-limit" => settings.idle_limit = Some(limit(value).with_context(within)?),
            "pass-env" => settings.pass_env = Some(variables(value).with_context(within)?),
            "engine" => {
                let engine = checked(one_of(&string(value).with_context(within)?)).with_context(within)?;
                settings.engine = Some(engine);
            }
            "temporal" => settings.temporal = temporal(value, path).with_context(within)?,
            "agents" => {
                let Value::Table(agents) = value else { bail!("`agents` must be a table of agents") };
                for (name, agent) in agents {
                    let within = || format!("`agents.{name}`");
                    let declared = agent_of(&name, agent, path).with_context(within)?;
                    settings.agents.insert(name, declared);
                }
            }
            _ => {
                let known = NAMES.iter().copied().chain(["temporal", "agents"]);
                bail!("unknown key `{key}`{}", suggestion(&key, known));
            }
        }
    }
    Ok(settings)
}

fn temporal(value: Value, path: &Path) -> Result<TemporalChoices> {
    let Value::Table(table) = value else { bail!("must be a table, `[temporal]`") };
    let folder = path.parent().unwrap_or(path);
    let mut choices = TemporalChoices::default();
    for (key, value) in table {
        let within = || format!("`{key}`");
        match key.as_str() {
            TemporalChoices::API_KEY => bail!(
                "a key does not belong into a file of settings; put it into a file of its own and name that with \
                 `api-key-file`, or into the variable RALPH_LOOP_TEMPORAL_API_KEY"
            ),
            "workspace-hook" => {
                let mut command = strings(value).with_context(within)?;
                match command.first_mut() {
                    Some(program) if !program.is_empty() => {
                        if program.contains('/') {
                            *program = folder.join(&*program).to_string_lossy().into_owned();
                        }
                    }
                    _ => bail!("`{key}` must be an array with the program and its arguments"),
                }
                choices.workspace_hook = Some(command);
            }
            "queues" => {
                let Value::Table(queues) = value else {
                    bail!("`{key}` must be a table of agents and queues")
                };
                for (agent, queue) in queues {
                    let within = || format!("`{key}.{agent}`");
                    let queue =
                        checked(queue_name(&string(queue).with_context(within)?)).with_context(within)?;
                    choices.queues.insert(agent, queue);
                }
            }
            _ => checked(choices.take(&key, &string(value).with_context(within)?, folder))
                .with_context(within)?,
        }
    }
    if choices.workspaces.is_some() && choices.workspace_hook.is_some() {
        bail!("`workspaces` and `workspace-hook` are two answers to one question; give one of them");
    }
    Ok(choices)
}

fn agent_of(name: &str, value: Value, path: &Path) -> Result<DeclaredAgent> {
    if [COMMAND, ACP].contains(&name) {
        bail!("this name stands for the program behind `--`; choose another one");
    }
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        bail!("an agent's name is made of ASCII letters, digits, `-`, `_` and `.`");
    }
    let Value::Table(table) = value else { bail!("an agent is a table with a `command` or a `kind`") };
    if table.get("kind").and_then(Value::as_str) == Some(ACP) {
        return acp_agent(table, path);
    }
    match kind_of(name, &table)? {
        None => command_agent(table, path),
        Some(kind) => known_agent(kind, table, path),
    }
}

/// Returns the kind of a known agent. An agent that bears the name of one need not say its kind.
fn kind_of(name: &str, table: &Table) -> Result<Option<AgentKind>> {
    let kind = match table.get("kind") {
        None if table.contains_key("command") => return Ok(None),
        None => return Ok(AgentKind::from_name(name)),
        Some(kind) => string(kind.clone()).context("`kind`")?,
    };
    if table.contains_key("command") {
        bail!("`kind` names an agent and `command` is another; give one of them");
    }
    let known = || AgentKind::ALL.iter().map(|kind| kind.as_str()).chain([ACP]);
    let kind = AgentKind::from_name(&kind)
        .ok_or_else(|| anyhow!("`kind`: no agent is known as {kind:?}{}", suggestion(&kind, known())))?;
    Ok(Some(kind))
}

fn command_agent(table: Table, path: &Path) -> Result<DeclaredAgent> {
    const KEYS: &[&str] = &["command", "output", "prompt", "pass-env", "kind"];
    let mut command = Vec::new();
    let mut pass_env = Vec::new();
    let mut way = CommandWay::default();
    for (key, value) in table {
        let within = || format!("`{key}`");
        match key.as_str() {
            "command" => command = strings(value).with_context(within)?,
            "output" => {
                way.output = checked(one_of(&string(value).with_context(within)?)).with_context(within)?;
            }
            "prompt" => {
                way.prompt = checked(one_of(&string(value).with_context(within)?)).with_context(within)?;
            }
            "pass-env" => pass_env = variables(value).with_context(within)?,
            _ => bail!("unknown key `{key}`{}", suggestion(&key, KEYS.iter())),
        }
    }
    declared(&command, pass_env, Way::Command(way), path)
}

fn declared(command: &[String], pass_env: Vec<String>, way: Way, path: &Path) -> Result<DeclaredAgent> {
    match command.split_first() {
        Some((program, arguments)) if !program.is_empty() => Ok(DeclaredAgent {
            program: program.clone(),
            arguments: arguments.to_vec(),
            pass_env,
            way,
            file: path.to_owned(),
        }),
        _ => bail!("`command` must be an array with the program and its arguments"),
    }
}

fn acp_agent(table: Table, path: &Path) -> Result<DeclaredAgent> {
    const KEYS: &[&str] = &["kind", "command", "pass-env"];
    let (mut command, mut pass_env, mut acp) = (Vec::new(), Vec::new(), AcpAgent::default());
    for (key, value) in table {
        let within = || format!("`{key}`");
        match key.as_str() {
            "kind" => {}
            "command" => command = strings(value).with_context(within)?,
            "pass-env" => pass_env = variables(value).with_context(within)?,
            key if AcpAgent::KEYS.contains(&key) => acp.take(key, &value).with_context(within)?,
            _ => {
                let keys = KEYS.iter().chain(AcpAgent::KEYS);
                bail!("unknown key `{key}`{}", suggestion(&key, keys));
            }
        }
    }
    declared(&command, pass_env, Way::Acp(acp), path)
}

fn known_agent(kind: AgentKind, table: Table, path: &Path) -> Result<DeclaredAgent> {
    const KEYS: &[&str] = &["kind", "program", "arguments", "pass-env"];
    let mut known = KnownAgent::new(kind);
    let mut agent = DeclaredAgent {
        program: kind.features().program.to_owned(),
        arguments: Vec::new(),
        pass_env: Vec::new(),
        way: Way::Known(known.clone()),
        file: path.to_owned(),
    };
    for (key, value) in table {
        let within = || format!("`{key}`");
        match key.as_str() {
            "kind" => {}
            "program" => {
                agent.program = string(value).with_context(within)?;
                if agent.program.is_empty() {
                    bail!("`program` must not be empty");
                }
            }
            "arguments" => agent.arguments = strings(value).with_context(within)?,
            "pass-env" => agent.pass_env = variables(value).with_context(within)?,
            key if KnownAgent::KEYS.contains(&key) => known.take(key, &value).with_context(within)?,
            _ => {
                let keys = KEYS.iter().chain(KnownAgent::KEYS);
                bail!("unknown key `{key}`{}", suggestion(&key, keys));
            }
        }
    }
    agent.way = Way::Known(known);
    Ok(agent)
}

fn checked<T>(result: Result<T, String>) -> Result<T> {
    result.map_err(anyhow::Error::msg)
}

fn string(value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        other => bail!("must be a string, not {}", other.type_str()),
    }
}

fn strings(value: Value) -> Result<Vec<String>> {
    match value {
        Value::Array(values) => values.into_iter().map(string).collect(),
        other => bail!("must be an array of strings, not {}", other.type_str()),
    }
}

fn variables(value: Value) -> Result<Vec<String>> {
    strings(value)?.iter().map(|name| checked(settings::variable_name(name))).collect()
}

fn limit(value: Value) -> Result<Duration> {
    checked(settings::limit(&string(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = parse(text, Path::new("ralph-loop.toml")).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }

    #[test]
    fn what_means_nothing_is_refused_with_a_suggestion() {
        check("max-round = 3", "unknown key `max-round`; did you mean max-rounds?");
        check("colour = 'red'", "there are agent, max-rounds");
        check(
            "[agents.a]\ncommand = ['x']\noutputs = 'file'",
            "`agents.a`: unknown key `outputs`; did you mean output?",
        );
    }

    #[test]
    fn values_that_cannot_be_name_what_can() {
        check("max-rounds = 0", "`max-rounds`: give a whole number from 1 to 1000");
        check("max-rounds = '3'", "from 1 to 1000");
        check("round-limit = 5", "`round-limit`: must be a string, not integer");
        check("idle-limit = '0s'", "longer than zero");
        check("pass-env = ['A=b']", "without its value");
        check("agents = 3", "a table of agents");
        check("[agents.command]\ncommand = ['x']", "choose another one");
        check("[agents.' ']\ncommand = ['x']", "made of ASCII letters");
        check("[agents.a]", "`command` must be an array");
        check("[agents.a]\ncommand = []", "`command` must be an array");
        check("[agents.a]\ncommand = ['x']\noutput = 'smoke'", "give one of file, stdout");
        check("max-rounds = ", "TOML");
        check("max-rounds = 1\nmax-rounds = 2", "duplicate");
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
            agent = "mine"
            max-rounds = 5
            round-limit = "45m"
            pass-env = ["TOKEN"]
            [agents.mine]
            command = ["./mine.sh", "--fast"]
            output = "stdout"
            prompt = "file"
        "#;
        let settings = parse(text, Path::new("/w/ralph-loop.toml")).unwrap();
        assert_eq!(settings.max_rounds, Some(5));
        assert_eq!(settings.round_limit, Some(Duration::from_secs(2700)));
        assert_eq!(settings.idle_limit, None);
        assert_eq!(settings.agents["mine"].program, "./mine.sh");
        assert_eq!(settings.agents["mine"].arguments, ["--fast"]);
    }

    #[test]
    fn known_agents_are_declared_by_their_name_or_kind() {
        let text = r#"
            [agents.claude-code]
            model = "sonnet"
            permissions = "read-only"
            [agents.night]
            kind = "codex"
            report = "schema"
            program = "/opt/codex"
        "#;
        let settings = parse(text, Path::new("/w/ralph-loop.toml")).unwrap();
        let known = |name: &str| match &settings.agents[name].way {
            Way::Known(known) => known.clone(),
            _ => panic!("{name} is known"),
        };
        assert_eq!(known("claude-code").model.as_deref(), Some("sonnet"));
        assert_eq!(settings.agents["claude-code"].program, "claude");
        assert_eq!(known("night").kind, AgentKind::Codex);
        assert_eq!(settings.agents["night"].program, "/opt/codex");
    }

    #[test]
    fn what_a_known_agent_does_not_have_is_refused() {
        check("[agents.a]\nkind = 'claude'", "no agent is known as \"claude\"; did you mean claude-code?");
        check("[agents.a]\nkind = 'codex'\ncommand = ['x']", "give one of them");
        check("[agents.codex]\nmodle = 'x'", "unknown key `modle`; did you mean model?");
        check("[agents.codex]\nmax-turns = 3", "`max-turns`: Codex has no such choice");
        check("[agents.codex]\noutput = 'file'", "unknown key `output`");
    }
}
