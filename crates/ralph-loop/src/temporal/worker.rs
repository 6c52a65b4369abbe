//! `ralph-loop worker`: runs the loops and the agents of runs on a Temporal server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use harness_engine_temporal::{
    CallEnding, HookCommand, SharedFolders, TemporalWorker, WorkerConfig, WorkerError, Workplace,
    WorkspaceError, Workspaces,
};
use harness_process::Limits;
use harness_registry_local::LocalRegistry;
use harness_subagent::{ChildEnding, StartedChild, SubagentEvent, SubagentObserver, SubagentRegistry};

use rustix::process::{Pid, Signal, kill_process};

use super::server::{self, new_runtime};
use crate::agent::Agent;
use crate::arguments::{LimitArguments, WorkerArguments};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::run;
use crate::settings::{Origin, Settings};
use crate::shown::{self, BOLD, WARN};
use crate::state::State;
use crate::stops::Stops;
use crate::watched::WatchedProvider;

/// Serves until it is told to stop.
pub(super) fn worker(arguments: &WorkerArguments, mut settings: Settings) -> Result<Exit, Failure> {
    let limits = LimitArguments {
        max_rounds: None,
        round_limit: arguments.round_limit,
        idle_limit: arguments.idle_limit,
    };
    settings.take_flags(None, &limits, arguments.pass_env.clone());
    let endpoint = server::endpoint(&settings.temporal)?;
    let agents = agents(&arguments.agents, &settings)?;
    let state = State::open()?;
    let registry = registry(&agents, &settings, &state)?;
    let queue = &settings.temporal.queue.value;
    let queues: Vec<_> = agents.iter().map(|agent| settings.temporal.queue_of(&agent.name)).collect();
    let config = WorkerConfig::default()
        .with_queue(Some(queue.clone()))
        .with_child_queues(queues.clone())
        .with_max_children(arguments.max_children);
    let config = with_workspaces(config, &settings)?;
    // What our children leave behind becomes ours, so that it can be found and ended.
    if let Err(error) = harness_process::become_subreaper() {
        shown::warn(&format!(
            "ralph-loop: processes that leave their agent will be found by their mark only: {error}"
        ));
    }
    // What a worker that was killed has left here is ended before anything new begins.
    run::sweep()?;

    tell("server", &server::told(&settings.temporal));
    tell("loops", &format!("from the queue {queue}"));
    for (agent, queue) in agents.iter().zip(&queues) {
        let may = agent.permissions_in_words();
        tell("agent", &format!("{}, from the queue {queue}: {}; it may {may}", agent.name, agent.told()));
    }
    tell("workspaces", &workspaces_in_words(&settings));
    tell("at once", &format!("{} rounds of each agent", arguments.max_children));
    tell("files", &shown::path(&state.calls()));
    new_runtime()?.block_on(async {
        let stops = Stops::new(None)?;
        let stop = stops.cancellation.clone();
        let serve = async {
            let started = TemporalWorker::start(endpoint, ralph_tool::workflows(), registry, config);
            let worker = tokio::select! {
                worker = started => worker.map_err(not_served)?,
                () = stop.cancelled() => return Ok(()),
            };
            let _ = output::print("\nserving; Ctrl-C ends it\n");
            tokio::select! {
                ended = worker.ended() => return ended.map_err(not_served),
                () = stop.cancelled() => {}
            }
            worker.shut_down();
            worker.ended().await.map_err(not_served)
        };
        let ending = "ending: nothing more is taken, and the agents are waited for; Ctrl-C forces the end";
        tokio::select! {
            served = serve => {
                served?;
                Ok(Exit::Complete)
            }
            () = stops.watch(|_| shown::warn(&format!("{WARN}{ending}{WARN:#}"))) => {
                kill_children();
                shown::warn("ralph-loop: forced to end; the rounds that were under way are tried again elsewhere");
                Ok(Exit::Failed)
            }
        }
    })
}

/// Prints a fact. The worker works on if nobody reads it.
fn tell(name: &str, value: &str) {
    let text = shown::wrapped(value, &format!("{name:<11}"), &" ".repeat(11));
    let _ = output::print(&format!("{}\n", text.replacen(name, &format!("{BOLD}{name}{BOLD:#}"), 1)));
}

fn not_served(error: Arc<WorkerError>) -> Failure {
    match &*error {
        WorkerError::Connect(source) if server::is_ill_configured(source) => Failure::usage(error),
        _ => Failure::environment(error),
    }
}

/// Returns the agents to serve: those that are named, or all that are declared or installed and can be found.
fn agents(named: &[String], settings: &Settings) -> Result<Vec<Agent>, Failure> {
    let mut agents = Vec::new();
    if named.is_empty() {
        for name in settings.agents.keys() {
            let agent = Agent::named(Some(name), settings)?;
            match agent.find() {
                Ok(_) => agents.push(agent),
                Err(failure) => {
                    shown::warn(&format!(
                        "{WARN}the agent {name} is not served: {:#}{WARN:#}",
                        failure.error
                    ));
                }
            }
        }
        agents.extend(Agent::installed(settings));
    }
    for name in named {
        let agent = Agent::named(Some(name), settings)?;
        agent.find()?;
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }
    if agents.is_empty() {
        return Err(Failure::environment(anyhow!(
            "there is no agent here to serve: none that is known by name is installed, and none that can be found is \
             declared in {}",
            settings.files.iter().map(|(path, _)| shown::path(path)).collect::<Vec<_>>().join(" or ")
        )));
    }
    Ok(agents)
}

fn registry(agents: &[Agent], settings: &Settings, state: &State) -> Result<Arc<LocalRegistry>, Failure> {
    let idle = settings.idle_limit.value;
    let mut limits = Limits::default().with_first_byte(idle).with_idle(idle);
    // A run brings its own limit along. Only what somebody has set here ends a round before that.
    if settings.round_limit.origin != Origin::Default {
        limits = limits.with_deadline(settings.round_limit.value);
    }
    let registry = Arc::new(LocalRegistry::new());
    registry.observe(Arc::new(Teller));
    for agent in agents {
        let provider = agent.provider(state, limits)?;
        registry
            .register(Arc::new(WatchedProvider::new(provider, state.clone())))
            .map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    }
    Ok(registry)
}

fn with_workspaces(config: WorkerConfig, settings: &Settings) -> Result<WorkerConfig, Failure> {
    let temporal = &settings.temporal;
    if let Some(command) = &temporal.workspace_hook.value {
        let (program, arguments) = command.split_first().expect("a command has a program");
        harness_process::find_program(program.as_ref(), std::env::var_os("PATH").as_deref())
            .context("the hook for workspaces cannot be run")
            .map_err(Failure::environment)?;
        let hook = HookCommand::new(program)
            .with_arguments(arguments)
            .with_passed_variables(&settings.pass_env.value);
        return Ok(config.with_workspaces(hook));
    }
    Ok(match &temporal.workspaces.value {
        Some(root) => config.with_workspaces(SharedFolders::below(run::workspace(root)?)),
        None => config.with_workspaces(SamePaths),
    })
}

fn workspaces_in_words(settings: &Settings) -> String {
    let temporal = &settings.temporal;
    match (&temporal.workspace_hook.value, &temporal.workspaces.value) {
        (Some(command), _) => format!("prepared and published by {}", command.join(" ")),
        (None, Some(root)) => format!("relative paths below {}", shown::path(root)),
        (None, None) => "absolute paths, the same on every machine".to_owned(),
    }
}

/// Workspaces whose paths are the same on every machine. A relative one would mean another folder on each.
#[derive(Debug)]
struct SamePaths;

#[async_trait]
impl Workspaces for SamePaths {
    async fn prepare(&self, place: &Workplace) -> Result<String, WorkspaceError> {
        let unusable = |reason: &str| Err(WorkspaceError::unusable(&place.workspace, reason));
        let path = Path::new(&place.workspace);
        if !path.is_absolute() {
            return unusable(
                "it must be an absolute path, or the worker must know below which folder workspaces are \
                 (--workspaces)",
            );
        }
        if !path.is_dir() {
            return unusable("there is no such folder on this machine");
        }
        Ok(place.workspace.clone())
    }

    async fn publish(&self, _: &Workplace, _: &str, _: CallEnding) -> Result<(), WorkspaceError> {
        Ok(())
    }
}

/// Prints a line for each child that starts or ends here.
#[derive(Debug)]
struct Teller;

impl SubagentObserver for Teller {
    fn observe(&self, event: &SubagentEvent<'_>) {
        let (child, what) = match event {
            SubagentEvent::Started { child } => (child, "started".to_owned()),
            SubagentEvent::Ended { child, ending } => (child, told(ending)),
            _ => return,
        };
        let _ = output::print(&format!("{}  {what}\n", whose(child)));
    }
}

fn told(ending: &ChildEnding<'_>) -> String {
    match ending {
        ChildEnding::Result { stop_reason, .. } => format!("ended: {stop_reason}"),
        ChildEnding::Lost { error } => format!("lost: {}", shown::one_line(&error.to_string(), 200)),
        _ => "ended before it was done".to_owned(),
    }
}

fn whose(child: &StartedChild) -> String {
    let StartedChild { provider, origin, .. } = child;
    match origin {
        None => provider.clone(),
        Some(origin) => {
            let run: String = origin.run.chars().take(8).collect();
            let again =
                if origin.attempt > 1 { format!(", attempt {}", origin.attempt) } else { String::new() };
            format!("run {run}  round {}{again}  {provider}", origin.call)
        }
    }
}

/// Kills everything below this process. What loses its parent comes to us, so the children are looked for until there
/// are none.
fn kill_children() {
    const LIMIT: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        let children = living_children();
        if children.is_empty() {
            return;
        }
        for child in children {
            // It may have ended this moment.
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn living_children() -> Vec<Pid> {
    let ours = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).into_iter().flatten();
        // A dead process that nobody has waited for does nothing any more.
        let is_dead = fields.next().is_none_or(|state| state == "Z");
        !is_dead && fields.next() == Some(&ours)
    })
    .filter_map(Pid::from_raw)
    .collect()
}
