//! What a run is started with, from the weakest source to the strongest: the defaults, `ralph-loop.toml` in the
//! workspace, the user's own file, the environment, the flags.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::acp_agent::ACP;
use crate::agent::Way;
use crate::arguments::{EngineArguments, EngineKind, LimitArguments};
use crate::exit::Failure;
use crate::settings_file::{self, FileSettings};
use crate::shown;
use crate::temporal_settings::{Secret, TemporalChoices, TemporalSettings};
use crate::typed;

/// The prefix of all variables that are read.
const PREFIX: &str = "RALPH_LOOP_";

/// The names of the settings, as they stand in files. A variable is [`PREFIX`] and the name in capitals.
pub(crate) const NAMES: &[&str] = &["agent", "max-rounds", "round-limit", "idle-limit", "pass-env", "engine"];

/// The prefix of the variables about a Temporal server, behind [`PREFIX`].
const TEMPORAL: &str = "temporal-";

/// A value and where it came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag,
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "{name} in the environment"),
            Self::Flag => f.write_str("command line"),
        }
    }
}

impl<T> Setting<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// Takes `value` instead, if there is one.
    pub(crate) fn override_with(&mut self, value: Option<T>, origin: &Origin) {
        if let Some(value) = value {
            *self = Self::new(value, origin.clone());
        }
    }
}

/// An agent that a file declares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DeclaredAgent {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) pass_env: Vec<String>,
    pub(crate) way: Way,
    /// The file that declares it. A program with a slash is found from its folder.
    pub(crate) file: PathBuf,
}

/// All settings, with the origin of each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    pub(crate) agent: Setting<Option<String>>,
    pub(crate) max_rounds: Setting<u64>,
    pub(crate) round_limit: Setting<Duration>,
    pub(crate) idle_limit: Setting<Duration>,
    pub(crate) pass_env: Setting<Vec<String>>,
    pub(crate) engine: Setting<EngineKind>,
    pub(crate) temporal: TemporalSettings,
    pub(crate) agents: BTreeMap<String, DeclaredAgent>,
    /// The files that were looked for, and whether they were there.
    pub(crate) files: Vec<(PathBuf, bool)>,
}

impl Default for Settings {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self {
            agent: Setting::new(None, Origin::Default),
            max_rounds: Setting::new(20, Origin::Default),
            round_limit: Setting::new(hours(2), Origin::Default),
            idle_limit: Setting::new(Duration::from_secs(15 * 60), Origin::Default),
            pass_env: Setting::new(Vec::new(), Origin::Default),
            engine: Setting::new(EngineKind::Local, Origin::Default),
            temporal: TemporalSettings::default(),
            agents: BTreeMap::new(),
            files: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads everything but the flags.
    pub(crate) fn read(workspace: &Path) -> Result<Self, Failure> {
        let mut settings = Self::default();
        let files = [Some(workspace.join("ralph-loop.toml")), users_file()];
        for path in files.into_iter().flatten() {
            let file = settings_file::read(&path).map_err(Failure::usage)?;
            settings.files.push((path.clone(), file.is_some()));
            if let Some(file) = file {
                settings.take_file(file, path);
            }
        }
        settings.take_environment(std::env::vars_os()).map_err(Failure::refuse)?;
        Ok(settings)
    }

    /// Takes the flags, which win over all else.
    pub(crate) fn take_flags(
        &mut self,
        agent: Option<String>,
        limits: &LimitArguments,
        pass_env: Vec<String>,
    ) {
        let flag = &Origin::Flag;
        self.agent.override_with(agent.map(Some), flag);
        self.max_rounds.override_with(limits.max_rounds, flag);
        self.round_limit.override_with(limits.round_limit, flag);
        self.idle_limit.override_with(limits.idle_limit, flag);
        self.pass_env.override_with((!pass_env.is_empty()).then_some(pass_env), flag);
    }

    /// Takes the flags that choose an engine, which win over all else.
    pub(crate) fn take_engine(&mut self, arguments: &EngineArguments) -> Result<(), Failure> {
        self.engine.override_with(arguments.engine, &Origin::Flag);
        let choices = arguments.temporal.choices();
        if self.engine.value == EngineKind::Local && choices != TemporalChoices::default() {
            return Err(Failure::refuse(format!(
                "a Temporal server is named, and the engine is `local` ({}); add `--engine temporal`",
                self.engine.origin
            )));
        }
        self.temporal.take(choices, &Origin::Flag);
        Ok(())
    }

    /// Returns the settings of someone who looks for runs, if those are on a Temporal server.
    pub(crate) fn of_temporal(arguments: &EngineArguments) -> Result<Option<Self>, Failure> {
        let here = std::env::current_dir().unwrap_or_default();
        let mut settings = Self::default();
        // Who has said it need not have settings that can be read.
        if arguments.engine != Some(EngineKind::Local) {
            settings = Self::read(&here)?;
        }
        settings.take_engine(arguments)?;
        Ok((settings.engine.value == EngineKind::Temporal).then_some(settings))
    }

    /// Returns the flags that another command needs to get to the same engine, each after a blank: those that were given
    /// here.
    pub(crate) fn engine_flags(&self) -> String {
        let temporal = &self.temporal;
        let flags = [
            ("--engine", Some("temporal".to_owned()), &self.engine.origin),
            ("--temporal-address", temporal.address.value.clone(), &temporal.address.origin),
            ("--temporal-namespace", Some(temporal.namespace.value.clone()), &temporal.namespace.origin),
            ("--temporal-queue", Some(temporal.queue.value.clone()), &temporal.queue.origin),
        ];
        let given = flags.into_iter().filter(|(.., origin)| **origin == Origin::Flag);
        given.filter_map(|(name, value, _)| Some(format!(" {name} {}", typed::quoted(&value?)))).collect()
    }

    fn take_file(&mut self, file: FileSettings, path: PathBuf) {
        let origin = Origin::File(path);
        self.agent.override_with(file.agent.map(Some), &origin);
        self.max_rounds.override_with(file.max_rounds, &origin);
        self.round_limit.override_with(file.round_limit, &origin);
        self.idle_limit.override_with(file.idle_limit, &origin);
        self.pass_env.override_with(file.pass_env, &origin);
        self.engine.override_with(file.engine, &origin);
        self.temporal.take(file.temporal, &origin);
        self.agents.extend(file.agents);
    }

    fn take_environment(
        &mut self,
        variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<(), String> {
        for (variable, value) in variables {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            let name = variable[PREFIX.len()..].to_ascii_lowercase().replace('_', "-");
            let value =
                value.to_str().ok_or_else(|| format!("the variable {variable} does not hold UTF-8"))?;
            let origin = &Origin::Variable(variable.to_owned());
            let told = |problem: String| format!("{variable}={}: {problem}", shown::one_line(value, 60));
            match name.as_str() {
                "agent" => self.agent.override_with(Some(Some(value.to_owned())), origin),
                "max-rounds" => {
                    let number = value.parse().map_err(|_| told(MAX_ROUNDS_RANGE.to_owned()))?;
                    self.max_rounds.override_with(Some(max_rounds(number).map_err(told)?), origin);
                }
                "round-limit" => self.round_limit.override_with(Some(limit(value).map_err(told)?), origin),
                "idle-limit" => self.idle_limit.override_with(Some(limit(value).map_err(told)?), origin),
                "pass-env" => {
                    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                    let names = names.map(variable_name).collect::<Result<_, _>>().map_err(told)?;
                    self.pass_env.override_with(Some(names), origin);
                }
                "engine" => self.engine.override_with(Some(one_of(value).map_err(told)?), origin),
                name if name.strip_prefix(TEMPORAL) == Some(TemporalChoices::API_KEY) => {
                    let key = (!value.is_empty()).then(|| Secret::new(value));
                    let key = key.ok_or_else(|| format!("{variable} is empty; set the key, or unset it"))?;
                    let choices = TemporalChoices { api_key: Some(key), ..TemporalChoices::default() };
                    self.temporal.take(choices, origin);
                }
                name if name
                    .strip_prefix(TEMPORAL)
                    .is_some_and(|key| TemporalChoices::TEXTS.contains(&key)) =>
                {
                    let mut choices = TemporalChoices::default();
                    let here = std::env::current_dir().unwrap_or_default();
                    choices.take(&name[TEMPORAL.len()..], value, &here).map_err(told)?;
                    self.temporal.take(choices, origin);
                }
                _ => {
                    let temporal = TemporalChoices::TEXTS.iter().chain([&TemporalChoices::API_KEY]);
                    let temporal = temporal.map(|key| variable_of(&format!("{TEMPORAL}{key}")));
                    let known = NAMES.iter().map(|name| variable_of(name)).chain(temporal);
                    return Err(format!(
                        "the variable {variable} means nothing here{}",
                        suggestion(variable, known)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the settings as rows of name, value and origin.
    pub(crate) fn rows(&self) -> Vec<(String, Value, String)> {
        let limit = |setting: &Setting<Duration>| json!(shown::exact(setting.value));
        let mut rows = vec![
            ("agent".to_owned(), json!(self.agent.value), self.agent.origin.to_string()),
            ("max-rounds".to_owned(), json!(self.max_rounds.value), self.max_rounds.origin.to_string()),
            ("round-limit".to_owned(), limit(&self.round_limit), self.round_limit.origin.to_string()),
            ("idle-limit".to_owned(), limit(&self.idle_limit), self.idle_limit.origin.to_string()),
            ("pass-env".to_owned(), json!(self.pass_env.value), self.pass_env.origin.to_string()),
            ("engine".to_owned(), json!(self.engine.value), self.engine.origin.to_string()),
        ];
        if self.engine.value == EngineKind::Temporal || self.temporal != TemporalSettings::default() {
            rows.extend(self.temporal.rows());
        }
        for (name, agent) in &self.agents {
            let file = agent.file.display().to_string();
            let mut row =
                |key: &str, value: Value| rows.push((format!("agents.{name}.{key}"), value, file.clone()));
            match &agent.way {
                Way::Command(way) => {
                    let command: Vec<_> = std::iter::once(&agent.program).chain(&agent.arguments).collect();
                    row("command", json!(command));
                    row("output", json!(way.output));
                    row("prompt", json!(way.prompt));
                }
                Way::Acp(acp) => {
                    let command: Vec<_> = std::iter::once(&agent.program).chain(&agent.arguments).collect();
                    row("kind", json!(ACP));
                    row("command", json!(command));
                    for (name, value) in acp.facts() {
                        row(name, value);
                    }
                }
                Way::Known(known) => {
                    row("kind", json!(known.kind));
                    row("program", json!(agent.program));
                    row("arguments", json!(agent.arguments));
                    for (name, value) in known.facts() {
                        row(name, value);
                    }
                }
            }
            row("pass-env", json!(agent.pass_env));
        }
        rows
    }
}

fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// Returns where the user's own file is looked for.
fn users_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(base.join("ralph-loop/config.toml"))
}

pub(crate) const MAX_ROUNDS_RANGE: &str = "give a whole number from 1 to 1000";

/// Checks a number of rounds.
pub(crate) fn max_rounds(number: i64) -> Result<u64, String> {
    match u64::try_from(number) {
        Ok(number @ 1..=1000) => Ok(number),
        _ => Err(MAX_ROUNDS_RANGE.to_owned()),
    }
}

/// Reads a limit on time, such as `90s` or `1h30m`.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
    match crate::arguments::duration(text)? {
        limit if (SHORTEST..=LONGEST).contains(&limit) => Ok(limit),
        _ => Err("give a duration from 100ms to 720h".to_owned()),
    }
}

/// Checks the name of an environment variable.
pub(crate) fn variable_name(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("give the name of a variable, without its value".to_owned());
    }
    Ok(name.to_owned())
}

/// Reads one of the values of an enumerated setting.
pub(crate) fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names: Vec<_> = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()))
            .collect();
        format!("give one of {}", names.join(", "))
    })
}

/// Returns `; did you mean …?` with the most similar of `known`, or the list of them.
pub(crate) fn suggestion<S: AsRef<str>>(unknown: &str, known: impl Iterator<Item = S> + Clone) -> String {
    let likeness = |name: &S| (strsim::jaro_winkler(unknown, name.as_ref()) * 1000.0) as u32;
    match known.clone().max_by_key(likeness) {
        Some(best) if likeness(&best) > 800 => format!("; did you mean {}?", best.as_ref()),
        _ => {
            let all: Vec<_> = known.map(|name| name.as_ref().to_owned()).collect();
            format!("; there are {}", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[track_caller]
    fn environment(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let pairs = pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        settings.take_environment(pairs).map(|()| settings)
    }

    #[test]
    fn variables_that_mean_nothing_are_refused_with_a_suggestion() {
        let error = environment(&[("RALPH_LOOP_MAX_ROUND", "3")]).unwrap_err();
        assert!(error.ends_with("did you mean RALPH_LOOP_MAX_ROUNDS?"), "{error}");
    }

    #[test]
    fn values_out_of_range_name_the_range() {
        for (name, value, told) in [
            ("RALPH_LOOP_MAX_ROUNDS", "0", "from 1 to 1000"),
            ("RALPH_LOOP_MAX_ROUNDS", "1001", "from 1 to 1000"),
            ("RALPH_LOOP_MAX_ROUNDS", "many", "from 1 to 1000"),
            ("RALPH_LOOP_ROUND_LIMIT", "1ms", "from 100ms to 720h"),
            ("RALPH_LOOP_IDLE_LIMIT", "soon", "such as 90s"),
            ("RALPH_LOOP_PASS_ENV", "A=b", "without its value"),
        ] {
            let error = environment(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name) && error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_stronger_source_wins_and_is_named() {
        let mut settings =
            environment(&[("RALPH_LOOP_MAX_ROUNDS", "7"), ("RALPH_LOOP_PASS_ENV", "A, B")]).unwrap();
        let limits = LimitArguments { max_rounds: Some(9), round_limit: None, idle_limit: None };
        settings.take_flags(None, &limits, Vec::new());
        assert_eq!(settings.max_rounds, Setting::new(9, Origin::Flag));
        assert_eq!(settings.pass_env.value, ["A", "B"]);
        assert_eq!(settings.pass_env.origin, Origin::Variable("RALPH_LOOP_PASS_ENV".to_owned()));
        assert_eq!(settings.round_limit.origin, Origin::Default);
    }
}
