//! The value that the `ralph-loop` workflow returns, decoded a second time.
//!
//! The loop has judged every report already. An engine that lost something, mixed up two runs or was written against
//! another contract shows here, before anybody takes its word for a result.

use ralph_report::{InvalidReport, RoundReport, Status, ViolationKind};
use serde_json::{Map, Value};

use crate::config::report_limits;
use crate::number::positive_safe_integer;
use crate::result::{RalphResult, RalphStatus};

/// What a completed run of the loop says.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a third ending would be another contract")]
pub enum Terminal {
    /// The loop came to one of its ends.
    Ended(RalphResult),
    /// A worker yielded no report.
    RoundFailed {
        /// The round that failed, from 1.
        round: u64,
        /// The report of the round before it, which is there exactly if there was one.
        last_report: Option<RoundReport>,
    },
}

impl Terminal {
    /// Returns how many rounds were started, at least 1.
    #[must_use]
    pub fn rounds_started(&self) -> u64 {
        match self {
            Self::Ended(result) => result.rounds_started(),
            Self::RoundFailed { round, .. } => *round,
        }
    }
}

/// Decodes the value of a run that had `max_rounds` rounds and whose reports have at most `max_handoff_chars` UTF-16
/// code units of compact JSON.
///
/// # Errors
///
/// The first of [`InvalidTerminal`] that applies, in this order: malformed as a whole; unknown status; malformed keys;
/// a limit said to be reached too early; a last report where there cannot be one or none where there must be; the
/// report itself.
pub fn decode(value: &Value, max_rounds: u64, max_handoff_chars: u64) -> Result<Terminal, InvalidTerminal> {
    let Value::Object(keys) = value else {
        return Err(malformed("it is no object"));
    };
    let rounds_started = keys
        .get("roundsStarted")
        .and_then(positive_safe_integer)
        .filter(|rounds| *rounds <= max_rounds)
        .ok_or_else(|| malformed(format!("roundsStarted is no integer from 1 to {max_rounds}")))?;
    let report = |value: &Value, status: Status| {
        RoundReport::from_value_as(value, status, &report_limits(max_handoff_chars))
            .map_err(InvalidTerminal::Report)
    };

    let status = keys.get("status").and_then(Value::as_str);
    if status == Some("round-failed") {
        let last = sole_payload(keys, "lastReport")?;
        let last_report = match (rounds_started, last.is_null()) {
            (1, true) => None,
            (1, false) => return Err(InvalidTerminal::FirstRoundFailureWithReport),
            (round, true) => return Err(InvalidTerminal::LaterRoundFailureWithoutReport { round }),
            (_, false) => Some(report(last, Status::Continue)?),
        };
        return Ok(Terminal::RoundFailed { round: rounds_started, last_report });
    }

    let status = RalphStatus::ALL
        .into_iter()
        .find(|known| status == Some(known.as_str()))
        .ok_or(InvalidTerminal::UnknownStatus)?;
    let payload = sole_payload(keys, "report")?;
    if status == RalphStatus::BudgetLimited && rounds_started < max_rounds {
        return Err(InvalidTerminal::BudgetLimitedEarly { rounds_started, max_rounds });
    }
    let report = report(payload, status.report_status())?;
    Ok(Terminal::Ended(RalphResult { status, rounds_started, report }))
}

/// Returns the value under `key` if the keys are that, `status` and `roundsStarted`, and no others.
fn sole_payload<'a>(keys: &'a Map<String, Value>, key: &str) -> Result<&'a Value, InvalidTerminal> {
    let payload = keys.get(key).filter(|_| keys.len() == 3);
    payload.ok_or_else(|| malformed(format!("its keys are not exactly status, roundsStarted and {key}")))
}

fn malformed(problem: impl Into<String>) -> InvalidTerminal {
    InvalidTerminal::Malformed { problem: problem.into() }
}

/// Why a run's value is not one that the loop can return.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTerminal {
    /// It is no object, has an impossible number of rounds, or has not exactly the keys of its status.
    #[error("the run's value is malformed: {problem}")]
    #[non_exhaustive]
    Malformed {
        /// What is wrong with it.
        problem: String,
    },
    /// Its status is none of the four.
    #[error("the run's value has an unknown status")]
    UnknownStatus,
    /// The round limit is said to be reached, and is not.
    #[error("the run claims its limit of {max_rounds} rounds after {rounds_started}")]
    #[non_exhaustive]
    BudgetLimitedEarly {
        /// The rounds that were started.
        rounds_started: u64,
        /// The rounds there were to be.
        max_rounds: u64,
    },
    /// There is a report from before the first round.
    #[error("the run failed in its first round and still names a report before it")]
    FirstRoundFailureWithReport,
    /// The report from before a later round is missing.
    #[error("the run failed in round {round} without its last handoff")]
    #[non_exhaustive]
    LaterRoundFailureWithoutReport {
        /// The round that failed.
        round: u64,
    },
    /// The report is refused.
    #[error("the run's last report is refused")]
    Report(#[source] InvalidReport),
}

impl InvalidTerminal {
    /// Returns the stable name of what is wrong; that of the first violation where a report is refused.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed-terminal",
            Self::UnknownStatus => "unknown-status",
            Self::BudgetLimitedEarly { .. } => "budget-limited-early",
            Self::FirstRoundFailureWithReport => "first-round-failure-with-report",
            Self::LaterRoundFailureWithoutReport { .. } => "later-round-failure-without-report",
            Self::Report(report) => ViolationKind::as_str(report.category()),
        }
    }
}
