use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use harness_process::{Environment, Limits};
use harness_provider_cli::{AgentKind, CommandProvider, PromptChannel};
use harness_subagent::SubagentProvider;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::acp_agent::{ACP, AcpAgent};
use crate::arguments::{AgentArguments, HandIn, PromptBy};
use crate::exit::Failure;
use crate::known_agent::KnownAgent;
use crate::settings::{DeclaredAgent, Settings, suggestion};
use crate::state::State;
use crate::{shown, typed};

/// The name of the agent that is the program behind `--`.
pub(crate) const COMMAND: &str = "command";

/// The agent of a run, found and ready to be started.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// The program, as an absolute path where it was given as a path.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// What of our environment it gets beside the basic variables.
    pub(crate) pass_env: Vec<String>,
    pub(crate) way: Way,
}

/// How the program of an agent is spoken to.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// As any program that knows the value file.
    Command(CommandWay),
    /// By the Agent Client Protocol.
    Acp(AcpAgent),
    /// As the agent that it is.
    Known(KnownAgent),
}

/// How any program is spoken to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CommandWay {
    pub(crate) output: HandIn,
    pub(crate) prompt: PromptBy,
}

impl Agent {
    /// Chooses the agent of a new run: the program behind `--`, or what the settings name or have alone.
    pub(crate) fn choose(arguments: &AgentArguments, settings: &Settings) -> Result<Self, Failure> {
        let agent = if let Some((program, rest)) = arguments.program.split_first() {
            // A program on the command line is stronger than a name in a file, and contradicts one beside it.
            let is_acp = arguments.name.as_deref() == Some(ACP);
            if !is_acp && arguments.name.as_deref().is_some_and(|name| name != COMMAND) {
                return Err(Failure::refuse(
                    "--agent names one agent and the program behind `--` is another; give one of them",
                ));
            }
            if is_acp {
                refuse_channels(arguments)?;
            }
            let way = if is_acp {
                Way::Acp(AcpAgent::default())
            } else {
                Way::Command(CommandWay {
                    output: arguments.output.unwrap_or_default(),
                    prompt: arguments.prompt.unwrap_or_default(),
                })
            };
            Self {
                name: if is_acp { ACP } else { COMMAND }.to_owned(),
                program: absolute(program, None),
                arguments: rest.to_vec(),
                pass_env: settings.pass_env.value.clone(),
                way,
            }
        } else {
            refuse_channels(arguments)?;
            Self::named(settings.agent.value.as_deref(), settings)?
        };
        let agent = agent.with_choices(arguments)?;
        agent.find()?;
        Ok(agent)
    }

    /// Takes what the command line chooses about the agent.
    fn with_choices(mut self, arguments: &AgentArguments) -> Result<Self, Failure> {
        let is_asked_for = arguments.model.is_some() || arguments.permissions.is_some();
        if let (Some(_), false) = (arguments.when_asked, matches!(self.way, Way::Acp(_))) {
            return Err(Failure::refuse(
                "--when-asked is for agents that speak the Agent Client Protocol, those of `--agent acp` and of \
                 `kind = \"acp\"`",
            ));
        }
        match &mut self.way {
            Way::Known(known) => {
                if let Some(model) = &arguments.model {
                    known.model = Some(model.clone());
                }
                known.permissions = arguments.permissions.unwrap_or(known.permissions);
            }
            Way::Command(_) | Way::Acp(_) if is_asked_for => {
                return Err(Failure::refuse(format!(
                    "--model and --permissions are for the agents known by name, and {:?} is a program of your own; \
                     give it its own arguments",
                    self.name
                )));
            }
            Way::Acp(acp) => acp.when_asked = arguments.when_asked.unwrap_or(acp.when_asked),
            Way::Command(_) => {}
        }
        Ok(self)
    }

    /// Returns the agent of that name, a declared one or one that is known; or the only one there is.
    pub(crate) fn named(name: Option<&str>, settings: &Settings) -> Result<Self, Failure> {
        match name {
            Some(COMMAND) => Err(Failure::refuse(
                "the agent `command` is the program behind `--`; give one, as in `-- ./my-agent.sh`",
            )),
            Some(ACP) => Err(Failure::refuse(
                "the agent `acp` is the program behind `--`; give one, as in `-- my-agent --acp`",
            )),
            Some(name) => {
                if let Some(declared) = settings.agents.get(name) {
                    return Ok(Self::declared(name, declared, settings));
                }
                if let Some(kind) = AgentKind::from_name(name) {
                    return Ok(Self::known(kind, settings));
                }
                let known = AgentKind::ALL.iter().map(|kind| kind.as_str());
                let names = settings.agents.keys().map(String::as_str).chain(known);
                Err(Failure::refuse(format!("no agent is named {name:?}{}", suggestion(name, names))))
            }
            None => Self::only_one(settings),
        }
    }

    /// Returns the only agent that is declared, or else the only known one that is installed.
    fn only_one(settings: &Settings) -> Result<Self, Failure> {
        let mut agents: Vec<_> =
            settings.agents.iter().map(|(name, declared)| Self::declared(name, declared, settings)).collect();
        if agents.len() != 1 {
            agents.extend(Self::installed(settings));
        }
        if agents.len() == 1 {
            return Ok(agents.remove(0));
        }
        if agents.is_empty() {
            let known: Vec<_> = AgentKind::ALL.iter().map(|kind| kind.features().title).collect();
            return Err(Failure::refuse(format!(
                "no agent was given, and none that is known by name is installed ({}); put a program behind `--`, or \
                 declare one: {HOW_TO_DECLARE}\nTo see a loop without any agent: {}",
                known.join(", "),
                typed::command("demo")
            )));
        }
        let list: Vec<_> =
            agents.iter().map(|agent| format!("  --agent {}  ({})", agent.name, agent.told())).collect();
        Err(Failure::refuse(format!("there are several agents; choose one:\n{}", list.join("\n"))))
    }

    /// Returns the known agents that are installed and not declared under their own name.
    pub(crate) fn installed(settings: &Settings) -> Vec<Self> {
        let undeclared = AgentKind::ALL.iter().filter(|kind| !settings.agents.contains_key(kind.as_str()));
        undeclared.map(|kind| Self::known(*kind, settings)).filter(|agent| agent.find().is_ok()).collect()
    }

    /// The known agent of that kind, as it is where nobody has chosen anything.
    pub(crate) fn known(kind: AgentKind, settings: &Settings) -> Self {
        Self {
            name: kind.as_str().to_owned(),
            program: kind.features().program.to_owned(),
            arguments: Vec::new(),
            pass_env: settings.pass_env.value.clone(),
            way: Way::Known(KnownAgent::new(kind)),
        }
    }

    fn declared(name: &str, declared: &DeclaredAgent, settings: &Settings) -> Self {
        Self {
            name: name.to_owned(),
            program: absolute(&declared.program, declared.file.parent()),
            arguments: declared.arguments.clone(),
            pass_env: settings.pass_env.value.iter().chain(&declared.pass_env).cloned().collect(),
            way: declared.way.clone(),
        }
    }

    /// Finds the program, so that a missing one is told before there is a run.
    pub(crate) fn find(&self) -> Result<PathBuf, Failure> {
        harness_process::find_program(OsStr::new(&self.program), std::env::var_os("PATH").as_deref()).map_err(
            |error| {
                let missing = anyhow::Error::from(error);
                Failure::environment(match &self.way {
                    Way::Command(_) | Way::Acp(_) => missing,
                    Way::Known(known) => {
                        let features = known.kind.features();
                        let npm = format!("npm install --global {}", features.package);
                        missing.context(format!("{} is not installed; try `{npm}`", features.title))
                    }
                })
            },
        )
    }

    /// Makes the provider that starts the agent.
    pub(crate) fn provider(&self, state: &State, limits: Limits) -> Result<Arc<dyn SubagentProvider>> {
        let environment = self.environment();
        match &self.way {
            Way::Command(way) => {
                let hand_in = match way.output {
                    HandIn::File => harness_provider_cli::HandIn::File,
                    HandIn::Stdout => harness_provider_cli::HandIn::StandardOutput,
                };
                let prompt = match way.prompt {
                    PromptBy::Stdin => PromptChannel::StandardInput,
                    PromptBy::File => PromptChannel::File,
                };
                let provider = CommandProvider::new(&self.name, &self.program, state.calls())
                    .with_arguments(&self.arguments)
                    .with_hand_in(hand_in)
                    .with_prompt(prompt)
                    .with_environment(environment)
                    .with_limits(limits);
                Ok(Arc::new(provider))
            }
            Way::Acp(acp) => {
                let provider = acp.provider(&self.name, &self.program, state, environment, limits)?;
                Ok(Arc::new(provider.with_arguments(&self.arguments)))
            }
            Way::Known(known) => {
                let provider = known.provider(&self.name, state, environment, limits)?;
                Ok(Arc::new(provider.with_program(&self.program).with_arguments(&self.arguments)))
            }
        }
    }

    /// What of our environment it gets.
    pub(crate) fn environment(&self) -> Environment {
        self.pass_env.iter().fold(Environment::basic(), Environment::allow)
    }

    /// What was chosen about it, as names and values.
    pub(crate) fn facts(&self) -> Vec<(&'static str, Value)> {
        let mut facts = vec![
            ("agent", json!(self.name)),
            ("the agent's command", json!(self.command_line())),
            ("pass-env", json!(self.pass_env)),
        ];
        match &self.way {
            Way::Command(way) => {
                facts.push(("the agent's output", json!(way.output)));
                facts.push(("the agent's prompt", json!(way.prompt)));
            }
            Way::Acp(acp) => {
                facts.push(("the agent's kind", json!(ACP)));
                facts.extend(acp.facts());
            }
            Way::Known(known) => {
                facts.push(("the agent's kind", json!(known.kind)));
                facts.extend(known.facts());
            }
        }
        facts
    }

    /// Names the agent for people: what it is, and with which model.
    pub(crate) fn told(&self) -> String {
        match &self.way {
            Way::Command(_) => self.command_line(),
            Way::Acp(_) => format!("{}, by the Agent Client Protocol", self.command_line()),
            Way::Known(known) => {
                let title = known.kind.features().title;
                let model = known.model.as_ref().map_or_else(String::new, |model| format!(", model {model}"));
                format!("{title}, as {}{model}", self.command_line())
            }
        }
    }

    /// Tells what the agent may do without being asked, as the end of a sentence that begins with "it may".
    pub(crate) fn permissions_in_words(&self) -> String {
        match &self.way {
            Way::Command(_) => "do whatever you may".to_owned(),
            Way::Acp(acp) => acp.permissions_in_words(),
            Way::Known(known) => known.permissions_in_words(),
        }
    }

    /// The program and its arguments, as a shell would take them.
    pub(crate) fn command_line(&self) -> String {
        let arguments: Vec<_> = self.arguments.iter().map(|word| typed::quoted(word)).collect();
        // The agent of the demo.
        if self.program.contains('/')
            && std::env::current_exe().is_ok_and(|ours| ours == Path::new(&self.program))
        {
            return typed::command(&arguments.join(" "));
        }
        let program = shown::path(Path::new(&self.program));
        let program = match program.strip_prefix("~/") {
            // A quoted tilde would mean itself.
            Some(rest) => format!("~/{}", typed::quoted(rest)),
            None => typed::quoted(&program),
        };
        std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

/// Refuses the ways in and out of a program that is no such agent.
fn refuse_channels(arguments: &AgentArguments) -> Result<(), Failure> {
    if arguments.output.is_some() || arguments.prompt.is_some() {
        return Err(Failure::refuse(
            "--output and --prompt belong to a program behind `--`; other agents have their own",
        ));
    }
    Ok(())
}

const HOW_TO_DECLARE: &str =
    "write `[agents.NAME]` and `command = [\"PROGRAM\", \"ARGUMENT\"]` into ralph-loop.toml";

/// A program with a slash is a path from `folder`, or from here; any other is left to be found in PATH.
fn absolute(program: &str, folder: Option<&Path>) -> String {
    if !program.contains('/') {
        return program.to_owned();
    }
    let path = folder.map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
    std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
}
