use harness_workflow::{ErrorCode, RunId, WorkflowError};
use ralph_report::{RoundReport, Status, text};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::report_limits;
use crate::number::positive_safe_integer;
use crate::{RalphError, shown};

/// What the calling model gives the tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallArguments<'a> {
    pub(crate) objective: &'a str,
    pub(crate) max_rounds: Option<&'a Value>,
}

impl<'a> CallArguments<'a> {
    /// Reads what must be there at all. Keys that the tool does not know are ignored: models invent some.
    pub(crate) fn read(args: &'a Value) -> Result<Self, RalphError> {
        let refuse = |problem: String| RalphError::InvalidArguments { problem };
        let Value::Object(keys) = args else {
            return Err(refuse(format!("they must be an object; got {}", shown::value(args))));
        };
        let objective = match keys.get("objective") {
            Some(Value::String(objective)) => objective,
            Some(other) => {
                return Err(refuse(format!("`objective` must be a text; got {}", shown::value(other))));
            }
            None => return Err(refuse("`objective` is missing; say what is to be achieved".into())),
        };
        Ok(Self { objective, max_rounds: keys.get("maxRounds") })
    }

    /// Says whether the arguments are what the input schema describes.
    pub(crate) fn fit_the_schema(&self) -> bool {
        self.max_rounds.is_none_or(|value| {
            let integral = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
            value.is_null() || value.is_i64() || value.is_u64() || integral()
        })
    }
}

/// The last accepted report of an earlier run, from which a new run goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Handoff {
    /// The earlier run.
    pub run: RunId,
    /// Its last accepted report.
    pub report: RoundReport,
}

impl Handoff {
    /// Hands `report` of the run `run` over.
    #[must_use]
    pub fn new(run: impl Into<RunId>, report: RoundReport) -> Self {
        Self { run: run.into(), report }
    }

    /// Checks that a run may go on from the report.
    pub(crate) fn check(&self, max_handoff_chars: u64) -> Result<(), String> {
        if self.report.status() == Status::Complete {
            return Err("it is complete: there is nothing to go on with".into());
        }
        let length = self.report.serialized_len() as u64;
        if length > max_handoff_chars {
            return Err(format!(
                "it has {length} characters where {max_handoff_chars} are allowed; raise the limit"
            ));
        }
        Ok(())
    }
}

/// The arguments of the `ralph-loop` workflow.
///
/// As JSON: `objective`, `maxRounds`, `maxHandoffChars`, and for a run that goes on from another one
/// `handoff: { "run", "report" }`.
#[derive(Clone, Debug)]
pub(crate) struct LoopArgs {
    pub(crate) objective: String,
    pub(crate) max_rounds: u64,
    pub(crate) max_handoff_chars: u64,
    pub(crate) handoff: Option<RoundReport>,
}

impl LoopArgs {
    /// Writes the arguments of a run.
    pub(crate) fn write(
        objective: &str,
        max_rounds: u64,
        max_handoff_chars: u64,
        handoff: Option<&Handoff>,
    ) -> Value {
        let mut args = json!({
            "objective": objective, "maxRounds": max_rounds, "maxHandoffChars": max_handoff_chars,
        });
        if let Some(handoff) = handoff {
            args["handoff"] = json!({ "run": handoff.run, "report": handoff.report });
        }
        args
    }

    /// Reads the arguments, which anybody can send to an engine.
    pub(crate) fn read(args: &Value) -> Result<Self, WorkflowError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Wire {
            objective: String,
            max_rounds: Value,
            max_handoff_chars: Value,
            #[serde(default)]
            handoff: Option<WireHandoff>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct WireHandoff {
            run: RunId,
            report: Value,
        }
        let refuse = |problem: String| {
            WorkflowError::new(ErrorCode::INVALID_ARGUMENT, format!("arguments: {problem}"))
        };

        let wire = Wire::deserialize(args).map_err(|error| refuse(error.to_string()))?;
        if text::trim(&wire.objective).is_empty() {
            return Err(refuse("`objective` is empty".into()));
        }
        let number = |key: &str, value: &Value| {
            positive_safe_integer(value)
                .ok_or_else(|| refuse(format!("`{key}` must be an integer from 1 to 2^53 - 1")))
        };
        let max_rounds = number("maxRounds", &wire.max_rounds)?;
        let max_handoff_chars = number("maxHandoffChars", &wire.max_handoff_chars)?;
        let handoff = match wire.handoff {
            Some(WireHandoff { run, report }) => {
                let report = RoundReport::from_value(&report, &report_limits(max_handoff_chars))
                    .map_err(|refusal| refuse(format!("`handoff`: {refusal}")))?;
                let handoff = Handoff { run, report };
                handoff
                    .check(max_handoff_chars)
                    .map_err(|problem| refuse(format!("`handoff`: {problem}")))?;
                Some(handoff.report)
            }
            None => None,
        };
        Ok(Self { objective: wire.objective, max_rounds, max_handoff_chars, handoff })
    }
}
