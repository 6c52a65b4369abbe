use harness_workflow::NoValue;
use ralph_report::RoundReport;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::report_limits;

/// How far a Ralph run has come: the checkpoint that the loop leaves after each accepted report.
///
/// An engine returns the last one with the run's result on every path and keeps it in its journal, so no ending loses
/// the last good report. Read it with [`from_checkpoint`](Self::from_checkpoint).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Progress {
    round: u64,
    report: Option<RoundReport>,
    failure: Option<NoValue>,
}

/// Makes the checkpoint of a run whose last accepted report is that of `round`, 0 when there is none.
pub(crate) fn checkpoint(round: u64, report: Option<&RoundReport>, failure: Option<&NoValue>) -> Value {
    let mut checkpoint = json!({ "round": round, "report": report });
    if let Some(failure) = failure {
        checkpoint["failure"] = json!(failure);
    }
    checkpoint
}

impl Progress {
    /// Reads a checkpoint of the `ralph-loop` workflow, or nothing from one that this loop cannot have left.
    ///
    /// A report in it has passed validation, its size aside: the run that left it judged that.
    #[must_use]
    pub fn from_checkpoint(checkpoint: &Value) -> Option<Self> {
        let fields = checkpoint.as_object()?;
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let round = field("round")?.as_u64()?;
        let report = field("report").map(|report| RoundReport::from_value(report, &report_limits(u64::MAX)));
        let failure = field("failure").map(NoValue::deserialize);
        Some(Self { round, report: report.transpose().ok()?, failure: failure.transpose().ok()? })
    }

    /// Returns the number of the round whose report was accepted last, 0 when there was none.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Returns the report that was accepted last.
    #[must_use]
    pub fn report(&self) -> Option<&RoundReport> {
        self.report.as_ref()
    }

    /// Returns why the next round yielded no report, if that is how the run ended.
    #[must_use]
    pub fn failure(&self) -> Option<&NoValue> {
        self.failure.as_ref()
    }

    pub(crate) fn into_parts(self) -> (Option<RoundReport>, Option<NoValue>) {
        (self.report, self.failure)
    }
}
