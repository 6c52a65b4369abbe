use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_provider_cli::Permissions;
use serde::{Deserialize, Serialize};

use crate::acp_agent::WhenAsked;
use crate::deadline::Deadline;
use crate::settings;
use crate::temporal_settings::{self, TemporalChoices};

/// Gives one objective to a sequence of fresh agents, and lets one small, validated report cross from each to the
/// next.
#[derive(Debug, Parser)]
#[command(version, about, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  ralph-loop demo
  ralph-loop run \"make the tests pass\" --agent claude-code --max-rounds 20 --until 07:00
  ralph-loop run --objective-file OBJECTIVE.md -- python3 agent.py --model small
  ralph-loop runs
  ralph-loop show 3f2a

A run is named by its id or by the beginning of it.

Settings come from ralph-loop.toml in the workspace, from ralph-loop/config.toml in the user's
configuration directory, from RALPH_LOOP_* in the environment, and from the command line. What is
named later here counts more.

Exit status:
   0  the objective was reported complete; or what was asked for is done
   2  bad usage
  10  a worker reported a blocker              14  the run was cancelled
  11  the round limit was reached              15  the time given by --until was up
  12  a round yielded no report                16  this machine lacks something that is needed
  13  a report was invalid                     17  the run failed in another way";

// Only the command that is named is made whole: a program that starts often should not make the others.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Run a loop in a workspace, from the first round to its end.
    Run(RunArguments),
    /// Show the real thing on a scratch workspace, with scripted agents. Takes seconds, needs no agent and no network.
    Demo(DemoArguments),
    /// List the runs.
    Runs(RunsArguments),
    /// Show one run, round by round.
    Show(ShowArguments),
    /// Print what a run's agents said.
    Logs(LogsArguments),
    /// Take up a run that was interrupted, after a crash or a reboot.
    Resume(ResumeArguments),
    /// Start a new run from the last accepted report of one that ended without being complete.
    Continue(ContinueArguments),
    /// Cancel a run that another process runs, and wait until nothing of it is left.
    Cancel(CancelArguments),
    /// Watch a run on a Temporal server to its end, whoever started it and wherever. Ctrl-C ends the watch only.
    Attach(AttachArguments),
    /// Run the loops and the agents of runs on a Temporal server, on this machine.
    Worker(WorkerArguments),
    /// Serve the `ralph` tool to an MCP client, on standard input and output.
    Mcp(McpArguments),
    /// Print the settings that a run here would have, and where each comes from.
    Config(ConfigArguments),
    /// Look whether this machine has what a run here needs.
    Doctor(ConfigArguments),
    /// Check reports from files, or from standard input.
    Validate(ValidateArguments),
    /// Print the JSON Schema of the report.
    Schema(SchemaArguments),
    /// Print the completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Be the scripted agent of `demo`.
    #[command(hide = true)]
    DemoAgent,
    /// Be the MCP server by which an agent hands in its report.
    #[command(hide = true)]
    Capture,
}

#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// What is to be achieved. Every round gets it word for word.
    #[arg(required_unless_present = "objective_file", conflicts_with = "objective_file")]
    pub(crate) objective: Option<String>,
    /// Read the objective from a file, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) objective_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Cancel the run at a time of day (`07:00`) or after a duration (`8h`).
    #[arg(long, value_name = "TIME", value_parser = crate::deadline::parse)]
    pub(crate) until: Option<Deadline>,
    /// Run even if another loop runs in the workspace.
    #[arg(long)]
    pub(crate) allow_shared_workspace: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

/// The heading of what chooses an engine, in the help.
const ENGINE: &str = "Engine";

// Which engine runs the loop, and where it is. As documentation this would become that of the commands.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EngineArguments {
    /// What runs the loop: `local`, which is this process, or `temporal`, which is a Temporal server with its workers
    /// [default: local]
    #[arg(
        long,
        value_name = "ENGINE",
        value_enum,
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = ENGINE
    )]
    pub(crate) engine: Option<EngineKind>,
    #[command(flatten)]
    pub(crate) temporal: TemporalArguments,
}

// Where a Temporal server is.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TemporalArguments {
    /// The Temporal server, such as `http://127.0.0.1:7233`
    #[arg(
        long,
        value_name = "URL",
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        help_heading = ENGINE
    )]
    pub(crate) temporal_address: Option<String>,
    /// The namespace on the server [default: default]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        help_heading = ENGINE
    )]
    pub(crate) temporal_namespace: Option<String>,
    /// The task queue of the loops; the agents' are named after it [default: ralph-loop]
    #[arg(
        long,
        visible_alias = "queue",
        value_name = "NAME",
        value_parser = temporal_settings::queue_name,
        help_heading = ENGINE
    )]
    pub(crate) temporal_queue: Option<String>,
}

impl TemporalArguments {
    pub(crate) fn choices(&self) -> TemporalChoices {
        TemporalChoices {
            address: self.temporal_address.clone(),
            namespace: self.temporal_namespace.clone(),
            queue: self.temporal_queue.clone(),
            ..TemporalChoices::default()
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineKind {
    /// This process.
    Local,
    /// A Temporal server with its workers.
    Temporal,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) temporal: TemporalArguments,
    /// Serve this agent. May be given again. Without it those are served that are declared, and those that are known
    /// by name and installed.
    #[arg(long = "agent", value_name = "NAME")]
    pub(crate) agents: Vec<String>,
    /// The folder below which the workspaces of runs are, as relative paths. Without it, and without a hook, a
    /// workspace is a path that is the same on every machine.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "workspace_hook")]
    pub(crate) workspaces: Option<PathBuf>,
    /// The program that prepares and publishes the workspaces of runs
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) workspace_hook: Option<String>,
    /// The most rounds of each agent at once
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) max_children: NonZeroUsize,
    /// The longest a round may take here, whatever its run allows [default: what its run allows]
    #[arg(long, value_name = "DURATION", value_parser = settings::limit)]
    pub(crate) round_limit: Option<Duration>,
    /// The longest an agent may say nothing [default: 15m]
    #[arg(long, value_name = "DURATION", value_parser = settings::limit)]
    pub(crate) idle_limit: Option<Duration>,
    /// Let a variable of this environment through to the agents. May be given again.
    #[arg(long = "pass-env", value_name = "NAME", value_parser = settings::variable_name)]
    pub(crate) pass_env: Vec<String>,
}

impl WorkerArguments {
    /// What the flags say of the server and of workspaces. Paths are found from `folder`.
    pub(crate) fn choices(&self, folder: &Path) -> TemporalChoices {
        let hook = self.workspace_hook.clone().map(|program| match program.contains('/') {
            true => folder.join(program).to_string_lossy().into_owned(),
            false => program,
        });
        TemporalChoices {
            workspaces: self.workspaces.as_ref().map(|path| folder.join(path)),
            workspace_hook: hook.map(|program| vec![program]),
            ..self.temporal.choices()
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct AttachArguments {
    /// The run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct McpArguments {
    #[command(flatten)]
    pub(crate) workspace: WorkspaceArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Run even if another loop runs in the workspace.
    #[arg(long)]
    pub(crate) allow_shared_workspace: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AgentArguments {
    /// The agent: one that `ralph-loop.toml` declares, or one that is known by name, such as `claude-code`. Not needed
    /// when there is one only, or with `--`. `acp` says that the program behind `--` speaks the Agent Client Protocol.
    #[arg(id = "agent", long = "agent", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The model of an agent that is known by name
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// What an agent that is known by name may do without being asked: `read-only`, `workspace` or `unrestricted`
    /// [default: workspace]
    #[arg(long, value_name = "PERMISSIONS", value_parser = crate::known_agent::permissions)]
    pub(crate) permissions: Option<Permissions>,
    /// What an agent that speaks the Agent Client Protocol is told when it asks for a permission: `reject` or `allow`
    /// [default: reject]
    #[arg(long, value_name = "ANSWER", value_enum, hide_default_value = true, hide_possible_values = true)]
    pub(crate) when_asked: Option<WhenAsked>,
    /// How the program behind `--` hands in its report [default: file]
    #[arg(long, value_enum, hide_default_value = true)]
    pub(crate) output: Option<HandIn>,
    /// How the program behind `--` gets its prompt [default: stdin]
    #[arg(long, value_enum, hide_default_value = true)]
    pub(crate) prompt: Option<PromptBy>,
    /// Let a variable of this environment through to the agent. May be given again.
    #[arg(long = "pass-env", value_name = "NAME", value_parser = settings::variable_name)]
    pub(crate) pass_env: Vec<String>,
    /// The agent: a program and its arguments. No shell is involved.
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct WorkspaceArguments {
    /// Where the agents work.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) workspace: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LimitArguments {
    /// The most rounds, 1 to 1000 [default: 20]
    #[arg(long, value_name = "N", value_parser = rounds)]
    pub(crate) max_rounds: Option<u64>,
    /// The longest a round may take, such as `90s`, `45m` or `2h` [default: 2h]
    #[arg(long, value_name = "DURATION", value_parser = settings::limit)]
    pub(crate) round_limit: Option<Duration>,
    /// The longest an agent may say nothing [default: 15m]
    #[arg(long, value_name = "DURATION", value_parser = settings::limit)]
    pub(crate) idle_limit: Option<Duration>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DisplayArguments {
    /// Print one JSON object for each event on standard output, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    pub(crate) workspace: WorkspaceArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct RunsArguments {
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// The run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArguments {
    /// The run.
    pub(crate) run: String,
    /// One round only.
    #[arg(long, value_name = "N", value_parser = from_one)]
    pub(crate) round: Option<u64>,
    /// Go on until the run ends.
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ResumeArguments {
    /// The run.
    pub(crate) run: String,
    /// Cancel the run at a time of day (`07:00`) or after a duration (`8h`).
    #[arg(long, value_name = "TIME", value_parser = crate::deadline::parse)]
    pub(crate) until: Option<Deadline>,
    /// Run even if another loop runs in the workspace.
    #[arg(long)]
    pub(crate) allow_shared_workspace: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ContinueArguments {
    /// The run to go on from.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Cancel the run at a time of day (`07:00`) or after a duration (`8h`).
    #[arg(long, value_name = "TIME", value_parser = crate::deadline::parse)]
    pub(crate) until: Option<Deadline>,
    /// Run even if another loop runs in the workspace.
    #[arg(long)]
    pub(crate) allow_shared_workspace: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct CancelArguments {
    /// The run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ValidateArguments {
    /// Files with one report each, or with one report on each line if they end in `.jsonl` or `.ndjson`. `-` is
    /// standard input, with one report on each line.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) files: Vec<PathBuf>,
    /// The longest report, in UTF-16 units of its compact JSON.
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = from_one)]
    pub(crate) max_chars: u64,
    #[command(flatten)]
    pub(crate) display: DisplayArguments,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArguments {
    /// Which schema.
    #[arg(value_enum, default_value = "full")]
    pub(crate) which: WhichSchema,
}

/// How a program hands in its report.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HandIn {
    /// In the file that `HARNESS_VALUE_FILE` names.
    #[default]
    File,
    /// As the whole of its standard output.
    Stdout,
}

/// How a program gets its prompt.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PromptBy {
    /// On its standard input.
    #[default]
    Stdin,
    /// In the file that `HARNESS_PROMPT_FILE` names.
    File,
}

/// One of the two schemas of a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum WhichSchema {
    /// The schema that states the whole contract.
    Full,
    /// The schema that is given to agents.
    Child,
}

fn rounds(text: &str) -> Result<u64, String> {
    let number = text.parse().map_err(|_| settings::MAX_ROUNDS_RANGE.to_owned())?;
    settings::max_rounds(number)
}

/// Reads a number of things that are counted from one.
fn from_one(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("give a whole number from 1".to_owned()),
    }
}

/// Reads a duration such as `90s`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = text
        .parse::<jiff::SignedDuration>()
        .map_err(|_| "give a duration such as 90s, 45m or 1h30m".to_owned())?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("give a duration longer than zero".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_and_nonsense_is_refused() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for text in ["", "0s", "-5m", "90", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
