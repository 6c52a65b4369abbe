//! The command line of the Ralph loop: one objective, a sequence of fresh agents, one small report between them.
//!
//! This is a program and has no library. Everything it does is made of the crates it depends on: `ralph-tool` has the
//! loop, `harness-engine-local` runs it and keeps its journal, `harness-provider-cli` runs the agents.
//!
//! `ralph-loop demo` shows the real thing in seconds; `ralph-loop --help` lists the rest.

mod account;
mod acp_agent;
mod agent;
mod arguments;
mod cancel;
mod capture;
mod config;
mod deadline;
mod demo;
mod doctor;
mod exit;
mod known_agent;
mod launch;
mod library_errors;
mod logs;
mod mcp;
mod outcome;
mod output;
mod progress;
mod run;
mod runs;
mod settings;
mod settings_file;
mod show;
mod shown;
mod state;
mod stoppable;
mod stops;
#[cfg(feature = "temporal")]
mod temporal;
#[cfg(not(feature = "temporal"))]
#[path = "temporal_lacking.rs"]
mod temporal;
mod temporal_settings;
mod typed;
mod validate;
mod watched;
mod workspace_lock;
mod workspace_state;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{AttachArguments, Cli, Command, WorkerArguments};
use crate::exit::{Exit, Failure};
use crate::settings::{Origin, Settings};
use crate::temporal::Request;

fn main() -> ExitCode {
    let command = parse();
    library_errors::print();
    match carry_out(command) {
        Ok(exit) => exit.into(),
        // Whoever closed our output has seen enough.
        Err(failure) if failure.is_lost_reader() => Exit::Complete.into(),
        Err(Failure { exit, error }) => {
            shown::fail(&format!("{error:#}"));
            exit.into()
        }
    }
}

/// Reads the command line, or ends the program.
#[inline(never)]
fn parse() -> Command {
    Cli::parse().command
}

/// Carries out a command in a stack frame of its own. In one for all of them each would pay for the largest.
#[inline(never)]
fn alone(command: impl FnOnce() -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    command()
}

fn carry_out(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => alone(|| run::run(arguments)),
        Command::Demo(arguments) => alone(|| demo::demo(arguments.display)),
        Command::Runs(arguments) => alone(|| runs::runs(&arguments)),
        Command::Show(arguments) => alone(|| show::show(arguments)),
        Command::Logs(arguments) => alone(|| logs::logs(&arguments)),
        Command::Resume(arguments) => alone(|| run::resume(&arguments)),
        Command::Continue(arguments) => alone(|| run::go_on(arguments)),
        Command::Cancel(arguments) => alone(|| cancel::cancel(&arguments)),
        Command::Attach(arguments) => alone(|| attach(arguments)),
        Command::Worker(arguments) => alone(|| worker(arguments)),
        Command::Mcp(arguments) => alone(|| mcp::mcp(arguments)),
        Command::Config(arguments) => alone(|| config::config(&arguments)),
        Command::Doctor(arguments) => alone(|| doctor::doctor(&arguments)),
        Command::Validate(arguments) => alone(|| validate::validate(&arguments)),
        Command::Schema(arguments) => alone(|| validate::schema(&arguments)),
        Command::Completions { shell } => alone(|| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ralph-loop", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Complete)
        }),
        Command::DemoAgent => alone(demo::agent),
        Command::Capture => alone(capture::capture),
    }
}

/// `ralph-loop attach`.
fn attach(arguments: AttachArguments) -> Result<Exit, Failure> {
    match Settings::of_temporal(&arguments.engine)? {
        Some(settings) => temporal::carry_out(Request::Attach(arguments), settings),
        None => Err(Failure::refuse(format!(
            "a run of this machine is watched with `{}`; to watch one on a Temporal server, add `--engine temporal`",
            typed::command(&format!("logs {} --follow", arguments.run))
        ))),
    }
}

/// `ralph-loop worker`.
fn worker(arguments: WorkerArguments) -> Result<Exit, Failure> {
    run::refuse_inside_an_agent()?;
    let here = std::env::current_dir().unwrap_or_default();
    let mut settings = Settings::read(&here)?;
    settings.temporal.take(arguments.choices(&here), &Origin::Flag);
    temporal::carry_out(Request::Worker(arguments), settings)
}
