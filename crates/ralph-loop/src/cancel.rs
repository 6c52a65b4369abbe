use std::time::{Duration, Instant};

use harness_engine_local::{JournalError, JournalStore, RunHistory, RunState};
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{Exit, Failure};
use crate::runs::outcome_name;
use crate::state::State;
use crate::{output, run, typed};

/// How long the other process may take to end its run before we say so.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the other process's lock is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// `ralph-loop cancel`.
pub(crate) fn cancel(name: &str) -> Result<Exit, Failure> {
    let state = State::open()?;
    let run = state.find(name)?;
    let store = &**state.journals();
    // Who has the journal open runs the run. The lock is held while we look, so the process is the one that it names.
    let holder = match store.open(&run) {
        Err(JournalError::Locked { holder, .. }) => holder,
        Err(error) => return Err(error.into()),
        Ok((stored, journal)) => {
            drop(journal);
            return not_running(&RunHistory::fold(stored)?, run.as_str());
        }
    };
    let pid = holder.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| {
        Failure::environment(anyhow::anyhow!(
            "it cannot be told which process runs {run}; interrupt it there"
        ))
    })?;
    match kill_process(pid, Signal::TERM) {
        // It ended in between.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            return Err(Failure::environment(anyhow::anyhow!(
                "cannot reach the process {} that runs {run}: {error}",
                pid.as_raw_nonzero()
            )));
        }
    }
    let started = Instant::now();
    loop {
        let history = RunHistory::read(store, &run)?;
        match &history.state {
            RunState::Running => {}
            RunState::Finished(_) => {
                let outcome = outcome_name(&history);
                output::print(&match outcome.as_str() {
                    "cancelled" => format!("run {run} is cancelled, and nothing of it is left\n"),
                    _ => format!(
                        "run {run} ended ({outcome}) before it could be cancelled; nothing of it is left\n"
                    ),
                })?;
                return Ok(Exit::Complete);
            }
            _ => return not_running(&history, run.as_str()),
        }
        if started.elapsed() > PATIENCE {
            return Err(Failure::environment(anyhow::anyhow!(
                "run {run} has not ended within {} seconds; process {} still runs it",
                PATIENCE.as_secs(),
                pid.as_raw_nonzero()
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// Tells of a run that no process runs, after ending what a killed one may have left.
fn not_running(history: &RunHistory, run: &str) -> Result<Exit, Failure> {
    if matches!(history.state, RunState::Finished(_)) {
        output::print(&format!("run {run} has ended already ({})\n", outcome_name(history)))?;
        return Ok(Exit::Complete);
    }
    run::sweep()?;
    let short: String = run.chars().take(8).collect();
    output::print(&format!(
        "run {run} was interrupted, and nothing of it is left; `{}` would take it up again\n",
        typed::command(&format!("resume {short}"))
    ))?;
    Ok(Exit::Complete)
}
