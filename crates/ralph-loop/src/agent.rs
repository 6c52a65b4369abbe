use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::arguments::{HandIn, PromptBy, RunArguments};
use crate::exit::Failure;
use crate::settings::{DeclaredAgent, Settings, suggestion};
use crate::typed;

/// The name of the agent that is the program behind `--`.
const COMMAND: &str = "command";

/// The agent of a run, found and ready to be started.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// The program, as an absolute path where it was given as a path.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) output: HandIn,
    pub(crate) prompt: PromptBy,
    /// What of our environment it gets beside the basic variables.
    pub(crate) pass_env: Vec<String>,
}

impl Agent {
    /// Chooses the agent of a new run: the program behind `--`, or what the settings name or have alone.
    pub(crate) fn choose(arguments: &RunArguments, settings: &Settings) -> Result<Self, Failure> {
        let named = settings.agent.value.as_deref();
        if let Some((program, rest)) = arguments.program.split_first() {
            // A program on the command line is stronger than a name in a file, and contradicts one beside it.
            if arguments.agent.as_deref().is_some_and(|name| name != COMMAND) {
                return Err(Failure::refuse(
                    "--agent names one agent and the program behind `--` is another; give one of them",
                ));
            }
            let agent = Self {
                name: COMMAND.to_owned(),
                program: absolute(program, None),
                arguments: rest.to_vec(),
                output: arguments.output.unwrap_or_default(),
                prompt: arguments.prompt.unwrap_or_default(),
                pass_env: settings.pass_env.value.clone(),
            };
            agent.find()?;
            return Ok(agent);
        }
        if arguments.output.is_some() || arguments.prompt.is_some() {
            return Err(Failure::refuse(
                "--output and --prompt belong to a program behind `--`; declared agents have their own",
            ));
        }
        let agent = Self::declared(named, settings)?;
        agent.find()?;
        Ok(agent)
    }

    /// Returns the declared agent of that name, or the only one there is.
    pub(crate) fn declared(name: Option<&str>, settings: &Settings) -> Result<Self, Failure> {
        let all = &settings.agents;
        let found = match name {
            Some(COMMAND) => {
                return Err(Failure::refuse(
                    "the agent `command` is the program behind `--`; give one, as in `-- ./my-agent.sh`",
                ));
            }
            Some(name) => all.get_key_value(name).ok_or_else(|| {
                if all.is_empty() {
                    format!("no agent is named {name:?}: none is declared; {HOW_TO_DECLARE}")
                } else {
                    format!("no agent is named {name:?}{}", suggestion(name, all.keys()))
                }
            }),
            None if all.len() == 1 => all.first_key_value().ok_or_else(String::new),
            None if all.is_empty() => Err(format!(
                "no agent was given; put its program behind `--`, or declare one: {HOW_TO_DECLARE}\n\
                 To see a loop without any agent: {}",
                typed::command("demo")
            )),
            None => {
                let list: Vec<_> = all
                    .iter()
                    .map(|(name, agent)| format!("  --agent {name}  ({})", agent.command.join(" ")))
                    .collect();
                Err(format!("several agents are declared; choose one:\n{}", list.join("\n")))
            }
        };
        let (name, declared) = found.map_err(Failure::refuse)?;
        Ok(Self::of(name, declared, settings))
    }

    fn of(name: &str, declared: &DeclaredAgent, settings: &Settings) -> Self {
        let (program, arguments) =
            declared.command.split_first().expect("a declared agent has a program, or its file is refused");
        Self {
            name: name.to_owned(),
            program: absolute(program, declared.file.parent()),
            arguments: arguments.to_vec(),
            output: declared.output,
            prompt: declared.prompt,
            pass_env: settings.pass_env.value.iter().chain(&declared.pass_env).cloned().collect(),
        }
    }

    /// Finds the program, so that a missing one is told before there is a run.
    pub(crate) fn find(&self) -> Result<PathBuf, Failure> {
        harness_process::find_program(OsStr::new(&self.program), std::env::var_os("PATH").as_deref())
            .map_err(Failure::environment)
    }

    /// The program and its arguments, as a shell would take them.
    pub(crate) fn command_line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words.map(|word| typed::quoted(word)).collect::<Vec<_>>().join(" ")
    }
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
