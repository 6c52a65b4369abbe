use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use harness_engine_local::{RunHistory, RunState};
use harness_workflow::{RunId, WorkflowEngine};
use jiff::{Timestamp, ZonedDateTime};
use ralph_tool::{CallContext, EndedRun, Envelope, Handoff, RalphError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::account::{Account, Totals};
use crate::agent::Agent;
use crate::arguments::{
    AgentArguments, ContinueArguments, DisplayArguments, EngineKind, ResumeArguments, RunArguments,
};
use crate::deadline::Deadline;
use crate::exit::{Exit, Failure};
use crate::launch::{Launch, Wired};
use crate::outcome::{self, Ending};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::shown::{self, WARN};
use crate::state::State;
use crate::stops::Stops;
use crate::temporal::{self, Request};
use crate::typed;
use crate::workspace_lock::WorkspaceLock;
use crate::workspace_state::WorkspaceState;

/// `ralph-loop run`.
pub(crate) fn run(arguments: RunArguments) -> Result<Exit, Failure> {
    refuse_inside_an_agent()?;
    let workspace = workspace(&arguments.workspace.workspace);
    // A workspace that only workers have says nothing about this run.
    let here = || std::env::current_dir().unwrap_or_default();
    let mut settings = Settings::read(&workspace.as_ref().map_or_else(|_| here(), Clone::clone))?;
    settings.take_engine(&arguments.engine)?;
    if settings.engine.value == EngineKind::Temporal {
        return temporal::carry_out(Request::Run(arguments), settings);
    }
    let workspace = workspace?;
    let AgentArguments { name, pass_env, .. } = &arguments.agent;
    settings.take_flags(name.clone(), &arguments.limits, pass_env.clone());
    let agent = Agent::choose(&arguments.agent, &settings)?;
    let objective = objective(&arguments)?;
    let state = State::open()?;
    let start = Start {
        objective,
        handoff: None,
        until: arguments.until,
        shared_workspace: arguments.allow_shared_workspace,
        display: arguments.display,
    };
    let mut launch = Launch::new(workspace, agent, &settings);
    launch.take_choices(&arguments.agent);
    start.carry_out(&state, &launch)
}

/// A run that is about to be started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) objective: String,
    pub(crate) handoff: Option<Handoff>,
    pub(crate) until: Option<Deadline>,
    pub(crate) shared_workspace: bool,
    pub(crate) display: DisplayArguments,
}

impl Start {
    /// Starts the run and sees it to its end.
    pub(crate) fn carry_out(self, state: &State, launch: &Launch) -> Result<Exit, Failure> {
        let deadline = resolve(self.until)?;
        let parent = launch.parent().map_err(Failure::usage)?;
        let run = RunId::from(uuid::Uuid::new_v4().to_string());
        let lock = WorkspaceLock::take(state, &launch.workspace, &run, self.shared_workspace)
            .map_err(Failure::environment)?;
        if let Some(abandoned) = lock.abandoned() {
            let short: String = abandoned.chars().take(8).collect();
            shown::warn(&format!(
                "{WARN}run {short} was interrupted here and can be taken up with `{}`; starting another one{WARN:#}",
                typed::command(&format!("resume {short}"))
            ));
            sweep()?;
        }
        state.keep_launch(&run, launch).map_err(Failure::environment)?;
        let mut context = CallContext::new(parent).with_run_id(run.clone());
        if let Some(handoff) = self.handoff {
            context = context.with_handoff(handoff);
        }
        let args = json!({ "objective": self.objective });
        let before = Totals::default();
        let follow = Follow { state, launch, run: &run, before, deadline, display: self.display };
        let followed = follow.to_the_end(launch.max_rounds, async |wired, cancellation| {
            wired.tool.call(&args, context.with_cancellation(cancellation)).await
        });
        if !state.has_run(&run) {
            state.drop_launch(&run);
        }
        followed
    }
}

/// `ralph-loop resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<Exit, Failure> {
    refuse_inside_an_agent()?;
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return Err(Failure::refuse(format!(
            "a run on Temporal needs nobody to take it up: it goes on by itself as soon as a worker is there. `{}` \
             watches it. A run of this machine needs --engine local",
            typed::command(&format!("attach {}{}", arguments.run, settings.engine_flags()))
        )));
    }
    let state = State::open()?;
    let run = state.find(&arguments.run)?;
    let history = RunHistory::read(&**state.journals(), &run)?;
    match &history.state {
        RunState::Finished(_) => {
            let outcome = Account::of_journal(&run, history).outcome_name();
            let next = if outcome == "complete" { "show" } else { "continue" };
            return Err(Failure::refuse(format!(
                "run {run} has ended ({outcome}) and is not run again; try `{}`",
                typed::command(&format!("{next} {}", arguments.run))
            )));
        }
        RunState::Running => {
            return Err(Failure::refuse(format!(
                "run {run} is under way in another process; `{}` shows it, `{}` ends it",
                typed::command(&format!("show {}", arguments.run)),
                typed::command(&format!("cancel {}", arguments.run))
            )));
        }
        _ => {}
    }
    let launch = state.launch(&run).map_err(Failure::environment)?;
    let deadline = resolve(arguments.until)?;
    workspace(&launch.workspace)?;
    launch.agent.find()?;
    let _lock = WorkspaceLock::take(&state, &launch.workspace, &run, arguments.allow_shared_workspace)
        .map_err(Failure::environment)?;
    let mut changes = launch.changes(&Settings::read(&launch.workspace)?);
    if let Some(start) = state.round_starts(&run).last() {
        changes.extend(start.changes(WorkspaceState::look_now(&launch.workspace).as_ref()));
    }
    for change in changes {
        shown::warn(&format!("{WARN}since then: {}{WARN:#}", harness_process::sanitize(&change)));
    }
    sweep()?;
    let args = history.request.args.clone();
    let max_rounds = args["maxRounds"].as_u64().unwrap_or(launch.max_rounds);
    let before = Totals {
        rounds_started: history.agents_started(),
        lasted: shown::since(history.started_ms),
        usage: history.usage(),
    };
    let display = arguments.display;
    let follow = Follow { state: &state, launch: &launch, run: &run, before, deadline, display };
    follow.to_the_end(max_rounds, async |wired, cancellation| {
        let resumed = wired.engine.resume(&run).await.map_err(RalphError::EngineStart)?;
        wired.tool.follow(resumed, &args, cancellation).await
    })
}

/// `ralph-loop continue`.
pub(crate) fn go_on(arguments: ContinueArguments) -> Result<Exit, Failure> {
    refuse_inside_an_agent()?;
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return temporal::carry_out(Request::Continue(arguments), settings);
    }
    let state = State::open()?;
    let earlier = state.find(&arguments.run)?;
    let mut launch = state.launch(&earlier).map_err(Failure::environment)?;
    let earlier = Account::of_journal(&earlier, RunHistory::read(&**state.journals(), &earlier)?);
    let handoff = handoff(&earlier, &format!("resume {}", arguments.run))?;
    workspace(&launch.workspace)?;
    launch.agent.find()?;
    launch.take_limits(&arguments.limits);
    let start = Start {
        objective: earlier.objective().to_owned(),
        handoff: Some(handoff),
        until: arguments.until,
        shared_workspace: arguments.allow_shared_workspace,
        display: arguments.display,
    };
    start.carry_out(&state, &launch)
}

/// Returns the report to go on from. `unended` is what to type for a run that has not ended.
pub(crate) fn handoff(earlier: &Account, unended: &str) -> Result<Handoff, Failure> {
    let run = &earlier.run;
    if !earlier.is_over() {
        return Err(Failure::refuse(format!(
            "run {run} has not ended; take it up again with `{}`",
            typed::command(unended)
        )));
    }
    if earlier.outcome_name() == "complete" {
        return Err(Failure::refuse(format!(
            "run {run} ended complete, so there is nothing to go on with; start a new run"
        )));
    }
    earlier.handoff().ok_or_else(|| {
        Failure::refuse(format!(
            "no report of run {run} was accepted, so there is nothing to go on from; start a new run"
        ))
    })
}

/// A run that is followed to its end.
struct Follow<'a> {
    state: &'a State,
    launch: &'a Launch,
    run: &'a RunId,
    /// What the run was before it was taken up.
    before: Totals,
    deadline: Option<Timestamp>,
    display: DisplayArguments,
}

impl Follow<'_> {
    /// Runs the loop, whatever comes in between, and tells of it.
    fn to_the_end<F>(&self, max_rounds: u64, work: F) -> Result<Exit, Failure>
    where
        F: AsyncFnOnce(&Wired, CancellationToken) -> Result<Envelope, RalphError>,
    {
        // What our children leave behind becomes ours, so that it can be found and ended.
        if let Err(error) = harness_process::become_subreaper() {
            shown::warn(&format!(
                "ralph-loop: processes that leave their agent will be found by their mark only: {error}"
            ));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")
            .map_err(Failure::environment)?;
        let progress = Arc::new(Progress::new(self.display, max_rounds));
        let begun = Instant::now();
        let (ended, is_deadline) = runtime.block_on(async {
            // From here on a signal cancels the run. Before that there is nothing to cancel.
            let stops = Stops::new(self.deadline)?;
            let cause = stops.cause.clone();
            let wired = self.launch.wire(self.state, cause.clone())?;
            wired.engine.observe(progress.clone());
            tokio::spawn(progress.clone().print_meanwhile());
            progress.begin(self.run, &self.launch.workspace, &self.launch.told());
            let cancellation = stops.cancellation.clone();
            let ended = tokio::select! {
                outcome = work(&wired, cancellation) => Some(outcome),
                () = stops.watch(|text| progress.say(text)) => None,
            };
            anyhow::Ok((ended, cause.is_deadline()))
        })?;
        // Kills what is left of an agent after a forced end.
        drop(runtime);
        progress.finish();
        let Some(outcome) = ended else {
            let short: String = self.run.as_str().chars().take(8).collect();
            let resume = typed::command(&format!("resume {short}"));
            shown::warn(&format!(
                "ralph-loop: forced to end; `{resume}` closes the cancelled run, which can then be continued"
            ));
            return Ok(Exit::Cancelled);
        };
        let exit = Exit::of(&outcome, is_deadline);
        let started = match &outcome {
            Ok(envelope) => Some(envelope.agents_started()),
            Err(error) => error.run().map(EndedRun::agents_started),
        };
        let totals = match started {
            Some(rounds_started) => Some(Totals {
                rounds_started,
                lasted: self.before.lasted + begun.elapsed(),
                usage: self.before.usage.plus(progress.usage()),
            }),
            None => {
                let history = RunHistory::read(&**self.state.journals(), self.run).ok();
                history.map(|history| Account::of_journal(self.run, history).totals())
            }
        };
        // The run is over, and its status counts whether or not anybody reads this.
        let ending = Ending {
            run: self.run,
            totals,
            files: Some(self.state.calls().join(self.run.as_str())),
            flags: String::new(),
        };
        let _ = outcome::tell(&ending, &outcome, exit, self.display);
        Ok(exit)
    }
}

/// Ends what a runner has left that was itself killed. Nothing may be started beside what cannot be ended.
pub(crate) fn sweep() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    {
        let leftovers = harness_process::sweep_leftovers(harness_process::Mark::VARIABLE)
            .context("cannot look for what a killed runner may have left")
            .map_err(Failure::environment)?;
        if !leftovers.survivors.is_empty() {
            return Err(Failure::environment(anyhow::anyhow!(
                "{}, which a killed runner has left, cannot be ended; end that first",
                processes(&leftovers.survivors)
            )));
        }
        if !leftovers.killed.is_empty() {
            shown::warn(&format!(
                "{WARN}ended what a killed runner had left: {}{WARN:#}",
                processes(&leftovers.killed)
            ));
        }
    }
    Ok(())
}

/// `process 1`, `processes 1, 2`.
#[cfg(target_os = "linux")]
fn processes(pids: &[u32]) -> String {
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if pids.len() == 1 { format!("process {list}") } else { format!("processes {list}") }
}

pub(crate) fn objective(arguments: &RunArguments) -> Result<String, Failure> {
    let text = match &arguments.objective_file {
        None => arguments.objective.clone().unwrap_or_default(),
        Some(path) => read_objective(path)?,
    };
    if ralph_report::text::trim(&text).is_empty() {
        return Err(Failure::refuse("the objective is empty; say what is to be achieved"));
    }
    Ok(text)
}

fn read_objective(path: &Path) -> Result<String, Failure> {
    const MAX_BYTES: u64 = 16 * 1024 * 1024;
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read the objective from {name}")).map_err(Failure::usage)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::refuse(format!(
            "the objective in {name} is longer than {MAX_BYTES} bytes; shorten it"
        )));
    }
    String::from_utf8(bytes)
        .with_context(|| format!("the objective in {name} is not UTF-8"))
        .map_err(Failure::usage)
}

/// Returns the absolute path of a workspace that is there.
pub(crate) fn workspace(path: &Path) -> Result<PathBuf, Failure> {
    let workspace = path
        .canonicalize()
        .with_context(|| format!("the workspace {} cannot be found", path.display()))
        .map_err(Failure::usage)?;
    if !workspace.is_dir() {
        return Err(Failure::refuse(format!("the workspace {} is no directory", path.display())));
    }
    Ok(workspace)
}

/// Refuses a loop that an agent of a loop starts.
pub(crate) fn refuse_inside_an_agent() -> Result<(), Failure> {
    match std::env::var_os(harness_provider_cli::DEPTH) {
        None => Ok(()),
        Some(depth) => Err(Failure::refuse(format!(
            "this is an agent's own session ({}={}), and a loop inside a loop is refused; do the work here",
            harness_provider_cli::DEPTH,
            shown::one_line(&depth.to_string_lossy(), 20)
        ))),
    }
}

pub(crate) fn resolve(until: Option<Deadline>) -> Result<Option<Timestamp>, Failure> {
    until.map(|deadline| deadline.resolve(&ZonedDateTime::now())).transpose().map_err(Failure::usage)
}
