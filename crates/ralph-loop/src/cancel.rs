use std::time::{Duration, Instant};

use harness_engine_local::{JournalError, JournalStore, RunHistory, RunState};
use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::arguments::CancelArguments;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::state::State;
use crate::temporal::{self, Request};
use crate::{output, run, typed};

/// How long the other process may take to end its run before we say so.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the other process's lock is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// `ralph-loop cancel`.
pub(crate) fn cancel(arguments: &CancelArguments) -> Result<Exit, Failure> {
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return temporal::carry_out(Request::Cancel(arguments.run.clone()), settings);
    }
    let state = State::open()?;
    let run = state.find(&arguments.run)?;
    let store = &**state.journals();
    // Who has the journal open runs the run. The lock is held while we look, so the process is the one that it names.
    let holder = match store.open(&run) {
        Err(JournalError::Locked { holder, .. }) => holder,
        Err(error) => return Err(error.into()),
        Ok((stored, journal)) => {
            drop(journal);
            return not_running(&Account::of_journal(&run, RunHistory::fold(stored)?));
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
                let outcome = Account::of_journal(&run, history).outcome_name();
                output::print(&match outcome.as_str() {
                    "cancelled" => format!("run {run} is cancelled, and nothing of it is left\n"),
                    _ => format!(
                        "run {run} ended ({outcome}) before it could be cancelled; nothing of it is left\n"
                    ),
                })?;
                return Ok(Exit::Complete);
            }
            _ => return not_running(&Account::of_journal(&run, history)),
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
fn not_running(account: &Account) -> Result<Exit, Failure> {
    let run = &account.run;
    if account.is_over() {
        output::print(&format!("run {run} has ended already ({})\n", account.outcome_name()))?;
        return Ok(Exit::Complete);
    }
    run::sweep()?;
    let short: String = run.as_str().chars().take(8).collect();
    output::print(&format!(
        "run {run} was interrupted, and nothing of it is left; `{}` would take it up again\n",
        typed::command(&format!("resume {short}"))
    ))?;
    Ok(Exit::Complete)
}
