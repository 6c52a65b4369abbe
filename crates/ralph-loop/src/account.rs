//! What is known of a run, whichever engine runs it.

use std::collections::BTreeMap;
use std::time::Duration;

use harness_engine_local::{Answer, CallHistory, RunHistory, RunState};
use harness_subagent::{AgentId, Usage};
use harness_workflow::{CallEnd, RunId, RunResult, RunStopReason, StartRun};
use ralph_tool::Handoff;
use serde_json::{Value, json};

use crate::stops::TIME_IS_UP;

/// What there is to say of a run.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) run: RunId,
    pub(crate) request: StartRun,
    pub(crate) standing: Standing,
    pub(crate) started_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) resumptions: u64,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) checkpoint: Option<Value>,
    pub(crate) rounds: BTreeMap<u64, Round>,
}

/// How much a run was, for its last words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) rounds_started: u64,
    pub(crate) lasted: Duration,
    pub(crate) usage: Usage,
}

/// Where a run stands.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Running,
    Interrupted,
    Ended(RunResult),
    Unknown,
}

/// One round, with all tries at it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    pub(crate) attempts: Vec<Attempt>,
    /// What was handed in, whatever came of it.
    pub(crate) value: Option<Value>,
    /// Whether the loop got an answer, a value or none.
    pub(crate) is_answered: bool,
}

/// One try at a round.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) attempt: u32,
    pub(crate) started_ms: u64,
    pub(crate) ended_ms: Option<u64>,
    /// Who runs it, where that is another process.
    pub(crate) worker: Option<String>,
    /// Nobody has taken it yet.
    pub(crate) waits: bool,
    pub(crate) child: Option<AgentId>,
    pub(crate) end: Option<CallEnd>,
}

impl Account {
    /// What a journal tells.
    pub(crate) fn of_journal(run: &RunId, history: RunHistory) -> Self {
        let round = |call: CallHistory| Round {
            is_answered: call.answer.is_some(),
            value: match call.answer {
                Some(Answer::Value(value)) => Some(value),
                _ => None,
            },
            attempts: call
                .attempts
                .into_iter()
                .map(|attempt| Attempt {
                    attempt: attempt.attempt,
                    started_ms: attempt.started_ms,
                    ended_ms: attempt.ended_ms,
                    worker: None,
                    waits: false,
                    child: attempt.child,
                    end: attempt.end,
                })
                .collect(),
        };
        Self {
            run: run.clone(),
            standing: match history.state {
                RunState::Running => Standing::Running,
                RunState::Interrupted => Standing::Interrupted,
                RunState::Finished(result) => Standing::Ended(result),
                _ => Standing::Unknown,
            },
            request: history.request,
            started_ms: history.started_ms,
            updated_ms: history.updated_ms,
            resumptions: history.resumptions,
            cancel_reason: history.cancel_reason,
            checkpoint: history.checkpoint,
            rounds: history.calls.into_iter().map(|(number, call)| (number, round(call))).collect(),
        }
    }

    /// What there is to say without the rounds.
    pub(crate) fn overview(&self) -> Value {
        json!({
            "run": self.run,
            "state": self.state_name(),
            "outcome": self.outcome_name(),
            "startedMs": self.started_ms,
            "updatedMs": self.updated_ms,
            "roundsStarted": self.rounds_started(),
            "attempts": self.attempts(),
            "resumptions": self.resumptions,
            "cancelReason": self.cancel_reason,
            "workspace": self.request.parent.workspace,
            "objective": self.objective(),
            "usage": self.usage(),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.standing, Standing::Ended(_))
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self.standing {
            Standing::Running => "running",
            Standing::Interrupted => "interrupted",
            Standing::Ended(_) => "ended",
            Standing::Unknown => "unknown",
        }
    }

    /// The loop's own status of a run that completed; how it ended, of any other.
    pub(crate) fn outcome_name(&self) -> String {
        let Standing::Ended(result) = &self.standing else { return String::new() };
        match result.value() {
            Some(value) => value["status"].as_str().unwrap_or("unknown").to_owned(),
            None if result.stop_reason() == RunStopReason::Cancelled => {
                if self.cancel_reason.as_deref() == Some(TIME_IS_UP) { "deadline" } else { "cancelled" }
                    .to_owned()
            }
            None => result.error().map_or_else(String::new, |error| error.code().to_string()),
        }
    }

    pub(crate) fn objective(&self) -> &str {
        self.request.args["objective"].as_str().unwrap_or_default()
    }

    /// How long it lasted, or has lasted so far.
    pub(crate) fn lasted(&self) -> Duration {
        Duration::from_millis(self.updated_ms.saturating_sub(self.started_ms))
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals { rounds_started: self.rounds_started(), lasted: self.lasted(), usage: self.usage() }
    }

    pub(crate) fn rounds_started(&self) -> u64 {
        self.rounds.last_key_value().map_or(0, |(number, _)| *number)
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.rounds.values().map(|round| round.attempts.len() as u64).sum()
    }

    /// What all agents have used, as far as it is known.
    pub(crate) fn usage(&self) -> Usage {
        let ends = self.rounds.values().flat_map(|round| &round.attempts);
        let ends = ends.filter_map(|attempt| attempt.end.as_ref());
        ends.filter_map(|end| end.usage).fold(Usage::default(), Usage::plus)
    }

    /// Returns the report to go on from: the last accepted one of the run, else the one it went on from itself.
    pub(crate) fn handoff(&self) -> Option<Handoff> {
        let progress = self.checkpoint.as_ref().and_then(ralph_tool::Progress::from_checkpoint);
        let report = progress.and_then(|progress| progress.report().cloned());
        if let Some(report) = report {
            return Some(Handoff::new(self.run.clone(), report));
        }
        let handoff = self.request.args.get("handoff")?;
        let run = handoff.get("run")?.as_str()?;
        let limits = ralph_report::Limits::default();
        let report = ralph_report::RoundReport::from_value(handoff.get("report")?, &limits).ok()?;
        Some(Handoff::new(RunId::from(run.to_owned()), report))
    }
}
