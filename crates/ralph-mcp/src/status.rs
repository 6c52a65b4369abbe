use harness_workflow::{RunId, RunStopReason};
use jiff::Timestamp;
use ralph_tool::Progress;
use serde::Serialize;

use crate::host::{RunFacts, Standing};
use crate::tools::{RESULT, START, WAIT};

/// Where a run stands, as clients are told. It has no word of any child.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunStatus {
    pub(crate) run_id: RunId,
    pub(crate) state: &'static str,
    /// How it ended: the loop's own status, `cancelled`, or an error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<String>,
    /// How many rounds were started.
    pub(crate) round: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_rounds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_report: Option<LastReport>,
    pub(crate) started_at: String,
    pub(crate) updated_at: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LastReport {
    round: u64,
    status: &'static str,
}

impl RunStatus {
    pub(crate) fn of(run: &RunId, facts: &RunFacts) -> Self {
        let (state, outcome) = match &facts.standing {
            Standing::Running => ("running", None),
            Standing::Interrupted => ("interrupted", None),
            Standing::Ended(result) => {
                let outcome = match (result.value(), result.error()) {
                    (Some(value), _) => value["status"].as_str().unwrap_or("unknown").to_owned(),
                    (None, _) if result.stop_reason() == RunStopReason::Cancelled => "cancelled".to_owned(),
                    (None, Some(error)) => error.code().to_string(),
                    (None, None) => "unknown".to_owned(),
                };
                ("ended", Some(outcome))
            }
        };
        let progress = facts.checkpoint.as_ref().and_then(Progress::from_checkpoint);
        let last_report = progress.and_then(|progress| {
            Some(LastReport { round: progress.round(), status: progress.report()?.status().as_str() })
        });
        Self {
            run_id: run.clone(),
            state,
            outcome,
            round: facts.rounds_started,
            max_rounds: facts.args["maxRounds"].as_u64(),
            last_report,
            started_at: moment(facts.started_ms),
            updated_at: moment(facts.updated_ms),
        }
    }

    /// The same in a sentence or two, with what to do next.
    pub(crate) fn told(&self) -> String {
        let Self { run_id, state, .. } = self;
        let next = match (*state, &self.outcome) {
            ("running", _) => format!("Call `{WAIT}` with this id to wait for its end."),
            ("interrupted", _) => format!(
                "Nobody works on it, and it does not go on by itself; `{START}` with this id takes it up again, if \
                 the human wants that."
            ),
            (_, Some(outcome)) => {
                format!("It ended as `{outcome}`; `{RESULT}` with this id returns what came of it.")
            }
            (_, None) => String::new(),
        };
        format!("Run {run_id} is {state}: {}. {next}", self.position())
    }

    /// How far it has come.
    pub(crate) fn position(&self) -> String {
        position(self.round, self.max_rounds, self.last_report.as_ref().map(|last| (last.round, last.status)))
    }
}

/// Words how far a run has come: the round, the cap, and the status of the last report.
pub(crate) fn position(round: u64, max_rounds: Option<u64>, reported: Option<(u64, &str)>) -> String {
    let of = max_rounds.map_or_else(String::new, |cap| format!(" of {cap}"));
    match reported {
        Some((number, status)) => format!("round {round}{of} (round {number}: {status})"),
        None => format!("round {round}{of}"),
    }
}

/// A moment in milliseconds since 1970, in ISO 8601.
pub(crate) fn moment(milliseconds: u64) -> String {
    let moment = i64::try_from(milliseconds).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    moment.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_iso_8601() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(1_765_000_000_123), "2025-12-06T05:46:40.123Z");
        assert_eq!(moment(u64::MAX), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_position_is_told_as_far_as_it_is_known() {
        assert_eq!(position(2, Some(20), Some((1, "continue"))), "round 2 of 20 (round 1: continue)");
        assert_eq!(position(0, None, None), "round 0");
    }
}
