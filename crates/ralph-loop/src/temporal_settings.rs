//! Where a Temporal server is and how to reach it, and what its workers need to know: settings of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::settings::{self, Origin, Setting};
use crate::shown;

/// What one source says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TemporalChoices {
    pub(crate) address: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) heartbeat_timeout: Option<Duration>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) api_key: Option<Secret>,
    pub(crate) workspaces: Option<PathBuf>,
    pub(crate) workspace_hook: Option<Vec<String>>,
    pub(crate) queues: BTreeMap<String, String>,
}

impl TemporalChoices {
    /// The keys with one text each. A variable is one of them behind `RALPH_LOOP_TEMPORAL_`, in capitals.
    pub(crate) const TEXTS: &'static [&'static str] = &[
        "address",
        "namespace",
        "queue",
        "heartbeat-timeout",
        "tls-ca",
        "tls-cert",
        "tls-key",
        "tls-server-name",
        "api-key-file",
        "workspaces",
    ];
    /// The key that is a text in the environment only.
    pub(crate) const API_KEY: &'static str = "api-key";
    /// The keys that only a file has.
    pub(crate) const OF_FILES: &'static [&'static str] = &["workspace-hook", "queues"];

    /// Takes the text of one of [`TEXTS`](Self::TEXTS). Paths are found from `folder`.
    pub(crate) fn take(&mut self, key: &str, text: &str, folder: &Path) -> Result<(), String> {
        if text.is_empty() {
            return Err("must not be empty".to_owned());
        }
        let path = || Some(folder.join(text));
        match key {
            "address" => self.address = Some(text.to_owned()),
            "namespace" => self.namespace = Some(text.to_owned()),
            "queue" => self.queue = Some(queue_name(text)?),
            "heartbeat-timeout" => self.heartbeat_timeout = Some(heartbeat_timeout(text)?),
            "tls-ca" => self.tls_ca = path(),
            "tls-cert" => self.tls_cert = path(),
            "tls-key" => self.tls_key = path(),
            "tls-server-name" => self.tls_server_name = Some(text.to_owned()),
            "api-key-file" => self.api_key_file = path(),
            "workspaces" => self.workspaces = path(),
            _ => {
                let known = Self::TEXTS.iter().chain(Self::OF_FILES);
                return Err(format!("unknown key `{key}`{}", settings::suggestion(key, known)));
            }
        }
        Ok(())
    }
}

/// Checks the name of a task queue.
pub(crate) fn queue_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 200;
    if text.is_empty() || text.len() > LONGEST || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("give the name of a task queue: up to {LONGEST} bytes, without blanks"));
    }
    Ok(text.to_owned())
}

/// Reads how long a worker may be silent.
pub(crate) fn heartbeat_timeout(text: &str) -> Result<Duration, String> {
    // Workers give a sign of life every two seconds.
    const SHORTEST: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(3600);
    match crate::arguments::duration(text)? {
        timeout if (SHORTEST..=LONGEST).contains(&timeout) => Ok(timeout),
        _ => Err("give a duration from 5s to 1h".to_owned()),
    }
}

/// A text that nobody is shown.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    #[cfg(feature = "temporal")]
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// All of it, with the origin of each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TemporalSettings {
    pub(crate) address: Setting<Option<String>>,
    pub(crate) namespace: Setting<String>,
    /// The task queue of the loops. Those of the agents are named after it.
    pub(crate) queue: Setting<String>,
    pub(crate) heartbeat_timeout: Setting<Duration>,
    pub(crate) tls_ca: Setting<Option<PathBuf>>,
    pub(crate) tls_cert: Setting<Option<PathBuf>>,
    pub(crate) tls_key: Setting<Option<PathBuf>>,
    pub(crate) tls_server_name: Setting<Option<String>>,
    pub(crate) api_key_file: Setting<Option<PathBuf>>,
    pub(crate) api_key: Setting<Option<Secret>>,
    /// Below which folder a worker finds the workspaces that runs name.
    pub(crate) workspaces: Setting<Option<PathBuf>>,
    /// The command that brings a worker the workspaces that runs name.
    pub(crate) workspace_hook: Setting<Option<Vec<String>>>,
    /// The task queues of agents that have another one than that which is made of their name.
    pub(crate) queues: BTreeMap<String, (String, Origin)>,
}

impl Default for TemporalSettings {
    fn default() -> Self {
        fn by_default<T>(value: T) -> Setting<T> {
            Setting::new(value, Origin::Default)
        }
        Self {
            address: by_default(None),
            namespace: by_default("default".to_owned()),
            queue: by_default("ralph-loop".to_owned()),
            heartbeat_timeout: by_default(Duration::from_secs(30)),
            tls_ca: by_default(None),
            tls_cert: by_default(None),
            tls_key: by_default(None),
            tls_server_name: by_default(None),
            api_key_file: by_default(None),
            api_key: by_default(None),
            workspaces: by_default(None),
            workspace_hook: by_default(None),
            queues: BTreeMap::new(),
        }
    }
}

impl TemporalSettings {
    /// Takes what a source says that counts more than all before.
    pub(crate) fn take(&mut self, choices: TemporalChoices, origin: &Origin) {
        self.address.override_with(choices.address.map(Some), origin);
        self.namespace.override_with(choices.namespace, origin);
        self.queue.override_with(choices.queue, origin);
        self.heartbeat_timeout.override_with(choices.heartbeat_timeout, origin);
        self.tls_ca.override_with(choices.tls_ca.map(Some), origin);
        self.tls_cert.override_with(choices.tls_cert.map(Some), origin);
        self.tls_key.override_with(choices.tls_key.map(Some), origin);
        self.tls_server_name.override_with(choices.tls_server_name.map(Some), origin);
        self.api_key_file.override_with(choices.api_key_file.map(Some), origin);
        self.api_key.override_with(choices.api_key.map(Some), origin);
        // They are two answers to one question.
        if choices.workspaces.is_some() || choices.workspace_hook.is_some() {
            self.workspaces = Setting::new(choices.workspaces, origin.clone());
            self.workspace_hook = Setting::new(choices.workspace_hook, origin.clone());
        }
        let queues = choices.queues.into_iter().map(|(agent, queue)| (agent, (queue, origin.clone())));
        self.queues.extend(queues);
    }

    /// Returns the task queue of the workers that have an agent.
    #[cfg(feature = "temporal")]
    pub(crate) fn queue_of(&self, agent: &str) -> String {
        match self.queues.get(agent) {
            Some((queue, _)) => queue.clone(),
            None => format!("{}.{agent}", self.queue.value),
        }
    }

    /// Returns the settings as rows of name, value and origin. Of the key nothing is told but whether there is one.
    pub(crate) fn rows(&self) -> Vec<(String, Value, String)> {
        fn row<T>(name: &str, setting: &Setting<T>, value: Value) -> (String, Value, String) {
            (format!("temporal.{name}"), value, setting.origin.to_string())
        }
        let mut rows = vec![
            row("address", &self.address, json!(self.address.value)),
            row("namespace", &self.namespace, json!(self.namespace.value)),
            row("queue", &self.queue, json!(self.queue.value)),
            row(
                "heartbeat-timeout",
                &self.heartbeat_timeout,
                json!(shown::exact(self.heartbeat_timeout.value)),
            ),
            row("tls-ca", &self.tls_ca, json!(self.tls_ca.value)),
            row("tls-cert", &self.tls_cert, json!(self.tls_cert.value)),
            row("tls-key", &self.tls_key, json!(self.tls_key.value)),
            row("tls-server-name", &self.tls_server_name, json!(self.tls_server_name.value)),
            row("api-key-file", &self.api_key_file, json!(self.api_key_file.value)),
            row("api-key", &self.api_key, json!(self.api_key.value.as_ref().map(|_| "set, and not shown"))),
            row("workspaces", &self.workspaces, json!(self.workspaces.value)),
            row("workspace-hook", &self.workspace_hook, json!(self.workspace_hook.value)),
        ];
        for (agent, (queue, origin)) in &self.queues {
            rows.push((format!("temporal.queues.{agent}"), json!(queue), origin.to_string()));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_to_nobody() {
        let mut settings = TemporalSettings::default();
        let choices = TemporalChoices { api_key: Some(Secret::new("hush")), ..TemporalChoices::default() };
        settings.take(choices, &Origin::Variable("RALPH_LOOP_TEMPORAL_API_KEY".to_owned()));
        let told = format!("{settings:?} {:?}", settings.rows());
        assert!(told.contains("not shown") && !told.contains("hush"), "{told}");
    }

    #[test]
    fn a_stronger_source_of_workspaces_replaces_the_weaker_one_whole() {
        let mut settings = TemporalSettings::default();
        let hook =
            TemporalChoices { workspace_hook: Some(vec!["hook".to_owned()]), ..TemporalChoices::default() };
        settings.take(hook, &Origin::File("config.toml".into()));
        let folder = TemporalChoices { workspaces: Some("/srv".into()), ..TemporalChoices::default() };
        settings.take(folder, &Origin::Flag);
        assert_eq!(settings.workspace_hook.value, None);
        assert_eq!(settings.workspaces.value, Some("/srv".into()));
    }

    #[test]
    fn texts_that_cannot_be_say_what_can() {
        let told = |key: &str, text: &str| {
            TemporalChoices::default().take(key, text, Path::new("/etc")).unwrap_err()
        };
        assert!(told("heartbeat-timeout", "1s").contains("from 5s to 1h"));
        assert!(told("queue", "two words").contains("without blanks"));
        assert!(told("address", "").contains("empty"));
        assert!(told("adress", "x").contains("did you mean address?"));
    }
}
