//! `run`, `continue` and `attach` on a Temporal server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness_engine_temporal::{DeclaredRoutes, TemporalConfig};
use harness_registry_local::LocalRegistry;
use harness_subagent::Parent;
use harness_workflow::{RunId, WorkflowEngine};
use jiff::Timestamp;
use ralph_tool::{CallContext, Handoff, RalphConfig, RalphTool};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::server::{self, new_runtime, refused};
use super::watch::{self, Needed};
use crate::account::Account;
use crate::arguments::{
    AgentArguments, AttachArguments, ContinueArguments, DisplayArguments, LimitArguments, RunArguments,
};
use crate::exit::{Exit, Failure};
use crate::outcome::{self, Ending};
use crate::progress::Progress;
use crate::run;
use crate::settings::Settings;
use crate::shown;
use crate::stoppable::StoppableEngine;
use crate::stops::{Stops, TIME_IS_UP};
use crate::typed;

/// `ralph-loop run --engine temporal`.
pub(super) fn run(arguments: &RunArguments, mut settings: Settings) -> Result<Exit, Failure> {
    refuse_what_workers_decide(&arguments.agent)?;
    refuse_idle_limit(&arguments.limits)?;
    settings.take_flags(arguments.agent.name.clone(), &arguments.limits, Vec::new());
    let start = Start {
        agent: agent(&settings)?,
        workspace: workspace(&arguments.workspace.workspace)?,
        objective: run::objective(arguments)?,
        handoff: None,
        max_rounds: settings.max_rounds.value,
        round_limit: settings.round_limit.value,
        deadline: run::resolve(arguments.until)?,
        display: arguments.display,
    };
    start.carry_out(&settings)
}

/// `ralph-loop continue --engine temporal`.
pub(super) fn go_on(arguments: &ContinueArguments, settings: Settings) -> Result<Exit, Failure> {
    refuse_idle_limit(&arguments.limits)?;
    let (earlier, round_limit) = new_runtime()?.block_on(async {
        let engine = server::look_at(&settings).await?;
        let run = server::find(&engine, &arguments.run).await?;
        let record = engine.read(&run).await.map_err(refused)?;
        let round_limit = record.call_limit;
        Ok::<_, Failure>((server::account(&run, record), round_limit))
    })?;
    let flags = settings.engine_flags();
    if !earlier.is_over() {
        return Err(Failure::refuse(format!(
            "run {} has not ended; `{}` watches it, `{}` ends it",
            earlier.run,
            typed::command(&format!("attach {}{flags}", arguments.run)),
            typed::command(&format!("cancel {}{flags}", arguments.run)),
        )));
    }
    let handoff = run::handoff(&earlier, "")?;
    let max_rounds = earlier.request.args["maxRounds"].as_u64();
    let start = Start {
        agent: earlier.request.provider.clone().unwrap_or_default(),
        workspace: earlier.request.parent.workspace.clone(),
        objective: earlier.objective().to_owned(),
        handoff: Some(handoff),
        max_rounds: arguments.limits.max_rounds.or(max_rounds).unwrap_or(settings.max_rounds.value),
        round_limit: arguments.limits.round_limit.unwrap_or(round_limit),
        deadline: run::resolve(arguments.until)?,
        display: arguments.display,
    };
    start.carry_out(&settings)
}

/// A run that is about to be started.
#[derive(Debug)]
struct Start {
    /// The name of the agent, which workers resolve.
    agent: String,
    /// The name of the workspace, which workers resolve.
    workspace: String,
    objective: String,
    handoff: Option<Handoff>,
    max_rounds: u64,
    round_limit: Duration,
    deadline: Option<Timestamp>,
    display: DisplayArguments,
}

impl Start {
    /// Starts the run and sees it to its end.
    fn carry_out(self, settings: &Settings) -> Result<Exit, Failure> {
        let run = RunId::from(uuid::Uuid::new_v4().to_string());
        let mut context =
            CallContext::new(Parent::new("ralph-loop", &self.workspace)).with_run_id(run.clone());
        if let Some(handoff) = self.handoff.clone() {
            context = context.with_handoff(handoff);
        }
        let args = json!({ "objective": self.objective });
        let progress = Arc::new(Progress::of_a_remote_run(self.display, self.max_rounds));
        let runtime = new_runtime()?;
        let ended = runtime.block_on(async {
            let routes = server::routes(&settings.temporal, &self.agent);
            let config =
                TemporalConfig::default().with_provider(&self.agent).with_call_limit(self.round_limit);
            let engine = Arc::new(server::connect(settings, routes.clone(), config).await?);
            let needed = self.needs(settings);
            // From here on a signal cancels the run. Before that there is nothing to cancel.
            let stops = Stops::new(self.deadline)?;
            let cause = stops.cause.clone();
            let stoppable = Arc::new(StoppableEngine::new(Arc::clone(&engine), cause.clone()));
            stoppable.observe(progress.clone());
            let ralph = RalphConfig::default()
                .with_subagent_provider(&self.agent)
                .and_then(|ralph| ralph.with_max_rounds(self.max_rounds))
                .map_err(Failure::usage)?;
            let tool = tool(ralph, stoppable, &routes)?;
            progress.begin(&run, Path::new(&self.workspace), &self.told(settings));
            let call = tool.call(&args, context.with_cancellation(stops.cancellation.clone()));
            let outcome = tokio::select! {
                outcome = call => outcome,
                () = stops.watch(|text| progress.say(text)) => return Ok(None),
                never = watch::tell_of_workers(&engine, &needed, &progress) => never,
            };
            let account = server::account_soon(&engine, &run).await;
            Ok::<_, Failure>(Some((outcome, cause.is_deadline(), account)))
        });
        progress.finish();
        let flags = settings.engine_flags();
        let Some((outcome, is_deadline, account)) = ended? else {
            // What is asked of the server in the background is given up.
            runtime.shutdown_background();
            let short: String = run.as_str().chars().take(8).collect();
            shown::warn(&format!(
                "ralph-loop: forced to end; run {run} is left to the server, and `{}` asks again to end it",
                typed::command(&format!("cancel {short}{flags}"))
            ));
            return Ok(Exit::Cancelled);
        };
        let exit = Exit::of(&outcome, is_deadline);
        let totals = account.as_ref().map(Account::totals);
        let ending = Ending { run: &run, totals, files: None, flags };
        // The run is over, and its status counts whether or not anybody reads this.
        let _ = outcome::tell(&ending, &outcome, exit, self.display);
        Ok(exit)
    }

    fn needs(&self, settings: &Settings) -> [Needed; 2] {
        let temporal = &settings.temporal;
        Needed::by_a_run(&temporal.queue.value, &temporal.queue_of(&self.agent), &self.agent)
    }

    /// What it is, for people.
    fn told(&self, settings: &Settings) -> Vec<(&'static str, String)> {
        let queue = settings.temporal.queue_of(&self.agent);
        facts(settings, &self.agent, &queue, self.max_rounds, self.round_limit)
    }
}

/// What a run on a server is, for people.
pub(super) fn facts(
    settings: &Settings,
    agent: &str,
    queue: &str,
    max_rounds: u64,
    round_limit: Duration,
) -> Vec<(&'static str, String)> {
    vec![
        ("agent", format!("{agent}, on the workers of the queue {queue}")),
        ("engine", server::told(&settings.temporal)),
        ("limits", format!("{}; {} a round", shown::rounds(max_rounds), shown::exact(round_limit))),
    ]
}

fn tool(
    ralph: RalphConfig,
    engine: Arc<dyn WorkflowEngine>,
    routes: &DeclaredRoutes,
) -> Result<RalphTool, Failure> {
    let registry = Arc::new(LocalRegistry::new());
    routes.register(&*registry).map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    RalphTool::new(ralph, engine, registry).map_err(|error| Failure::from(anyhow::Error::from(error)))
}

/// `ralph-loop attach`.
///
/// No signal is listened to: what ends this process ends the watch, and nothing of the run.
pub(super) fn attach(arguments: &AttachArguments, settings: &Settings) -> Result<Exit, Failure> {
    let runtime = new_runtime()?;
    runtime.block_on(async {
        let engine = Arc::new(server::look_at(settings).await?);
        let run = server::find(&engine, &arguments.run).await?;
        let record = engine.read(&run).await.map_err(refused)?;
        let (queue, round_limit) = (record.child_queue.clone(), record.call_limit);
        let before = server::account(&run, record);
        let max_rounds = before.request.args["maxRounds"].as_u64().unwrap_or(0);
        let agent = before.request.provider.clone().unwrap_or_default();
        let progress = Arc::new(Progress::of_a_remote_run(arguments.display, max_rounds));
        engine.observe(progress.clone());
        let facts = facts(settings, &agent, &queue, max_rounds, round_limit);
        progress.begin(&run, Path::new(&before.request.parent.workspace), &facts);
        let ended = before.rounds.values().filter(|round| round.is_answered).count() as u64;
        if ended > 0 && !before.is_over() {
            progress.say(&format!("{} had ended before", shown::rounds(ended)));
        }
        let attached = engine.attach(&run).await.map_err(refused)?;
        let needed = Needed::by_a_run(&settings.temporal.queue.value, &queue, &agent);
        let tool = tool(RalphConfig::default(), engine.clone(), &DeclaredRoutes::default())?;
        let follow = tool.follow(attached, &before.request.args, CancellationToken::new());
        let outcome = match before.is_over() {
            true => follow.await,
            false => tokio::select! {
                outcome = follow => outcome,
                never = watch::tell_of_workers(&engine, &needed, &progress) => never,
            },
        };
        progress.finish();
        let account = server::account_soon(&engine, &run).await;
        let reason = account.as_ref().and_then(|account| account.cancel_reason.as_deref());
        let exit = Exit::of(&outcome, reason == Some(TIME_IS_UP));
        let totals = account.as_ref().map(Account::totals);
        let ending = Ending { run: &run, totals, files: None, flags: settings.engine_flags() };
        // The run is over, and its status counts whether or not anybody reads this.
        let _ = outcome::tell(&ending, &outcome, exit, arguments.display);
        Ok(exit)
    })
}

/// Returns the name of the agent that a new run has.
fn agent(settings: &Settings) -> Result<String, Failure> {
    let declared = (settings.agents.len() == 1).then(|| settings.agents.keys().next().cloned()).flatten();
    settings.agent.value.clone().or(declared).ok_or_else(|| {
        Failure::refuse(
            "say which agent of the workers is to do the rounds, as in `--agent claude-code`; `ralph-loop worker` \
             prints the names of its agents when it starts",
        )
    })
}

/// Returns the name of a workspace: what begins with a dot is a path from here, all else is left to the workers.
fn workspace(given: &Path) -> Result<String, Failure> {
    let is_from_here = given.as_os_str().as_encoded_bytes().starts_with(b".");
    let path = if is_from_here { run::workspace(given)? } else { given.to_owned() };
    path.into_os_string()
        .into_string()
        .map_err(|_| Failure::refuse("the name of the workspace must be UTF-8"))
}

/// Refuses what is said of an agent by someone who has none.
fn refuse_what_workers_decide(arguments: &AgentArguments) -> Result<(), Failure> {
    let said = [
        ("a program behind `--`", !arguments.program.is_empty()),
        ("--model", arguments.model.is_some()),
        ("--permissions", arguments.permissions.is_some()),
        ("--when-asked", arguments.when_asked.is_some()),
        ("--output", arguments.output.is_some()),
        ("--prompt", arguments.prompt.is_some()),
        ("--pass-env", !arguments.pass_env.is_empty()),
    ];
    match said.iter().find(|(_, is_said)| *is_said) {
        None => Ok(()),
        Some((what, _)) => Err(Failure::refuse(format!(
            "{what} is not for a run on Temporal: the agents are those of the workers, as their own settings declare \
             them. Declare one there, and name it here with --agent"
        ))),
    }
}

fn refuse_idle_limit(limits: &LimitArguments) -> Result<(), Failure> {
    match limits.idle_limit {
        None => Ok(()),
        Some(_) => Err(Failure::refuse(
            "--idle-limit is not for a run on Temporal: each worker has its own; set `idle-limit` there",
        )),
    }
}
