use harness_workflow::{Error, RunId};
use ralph_report::{RoundReport, Status};
use serde::Serialize;
use serde_json::Value;

/// What a Ralph run came to. Each of them is a success of the call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a fourth ending would be another contract")]
pub enum RalphStatus {
    /// A worker reported that the objective is reached. Nobody has checked that.
    Complete,
    /// A worker reported that the work cannot go on.
    Blocked,
    /// All rounds were used and work is left.
    BudgetLimited,
}

impl RalphStatus {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Blocked, Self::BudgetLimited];

    /// Returns the stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Blocked => "blocked",
            Self::BudgetLimited => "budget-limited",
        }
    }

    /// Returns the status that the last report of such a run has.
    #[must_use]
    pub const fn report_status(self) -> Status {
        match self {
            Self::Complete => Status::Complete,
            Self::Blocked => Status::Blocked,
            Self::BudgetLimited => Status::Continue,
        }
    }
}

/// How a Ralph run ended, with its last report in full.
///
/// It can only be had by [decoding](crate::terminal::decode) what a run returned, so the report has been validated.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RalphResult {
    pub(crate) status: RalphStatus,
    pub(crate) rounds_started: u64,
    pub(crate) report: RoundReport,
}

impl RalphResult {
    /// Returns how it ended.
    #[must_use]
    pub fn status(&self) -> RalphStatus {
        self.status
    }

    /// Returns how many rounds were started, at least 1. The report is that of the last one.
    #[must_use]
    pub fn rounds_started(&self) -> u64 {
        self.rounds_started
    }

    /// Returns the report of the last round.
    #[must_use]
    pub fn report(&self) -> &RoundReport {
        &self.report
    }
}

/// What a call of the `ralph` tool returns.
///
/// It is written as the canonical envelope `{ "runId", "agentsStarted", "result" }`, in this order, which the
/// [output schema](crate::ToolDefinition::output_schema) describes. The report in it is whole, whatever the limit on
/// the text for the calling model is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub(crate) run_id: RunId,
    pub(crate) agents_started: u64,
    pub(crate) result: RalphResult,
    #[serde(skip)]
    pub(crate) attempts: u64,
    #[serde(skip)]
    pub(crate) disposal_error: Option<Error>,
}

impl Envelope {
    /// Returns the id of the run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns how many workers were started. It equals the rounds started.
    #[must_use]
    pub fn agents_started(&self) -> u64 {
        self.agents_started
    }

    /// Returns how the run ended.
    #[must_use]
    pub fn result(&self) -> &RalphResult {
        &self.result
    }

    /// Returns how many times the start of a worker was tried, which is more than
    /// [`agents_started`](Self::agents_started) when the run went on after a crash. No part of the envelope.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Returns why the run could not be released after its end, if so. No part of the envelope, and no reason to
    /// distrust it.
    #[must_use]
    pub fn disposal_error(&self) -> Option<&Error> {
        self.disposal_error.as_ref()
    }

    /// Returns the envelope as a JSON value. Its keys are in whichever order this build's [`serde_json`] keeps them.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "it cannot panic: ids, numbers and reports serialize")]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("ids, numbers and reports serialize")
    }
}
