use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RunError;

/// How a run ended: a closed set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every end, and there is no fourth")]
pub enum RunStopReason {
    /// The body came to its end and returned a value.
    Completed,
    /// The run was cancelled before that.
    Cancelled,
    /// The body failed, or the engine could not go on.
    Error,
}

impl RunStopReason {
    /// Returns the stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for RunStopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of a run, with everything that is known of it on every path.
///
/// A completed run has a value and no error; every other has an error and no value. The type holds that.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "WireRunResult", into = "WireRunResult")]
pub struct RunResult {
    outcome: Outcome,
    agents_started: u64,
    attempts: u64,
    checkpoint: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Completed(Value),
    Cancelled(RunError),
    Error(RunError),
}

impl RunResult {
    /// A run whose body returned `value`.
    #[must_use]
    pub fn completed(value: Value) -> Self {
        Self::new(Outcome::Completed(value))
    }

    /// A run that was cancelled; see [`RunError::cancelled`].
    #[must_use]
    pub fn cancelled(error: RunError) -> Self {
        Self::new(Outcome::Cancelled(error))
    }

    /// A run that failed.
    #[must_use]
    pub fn failed(error: RunError) -> Self {
        Self::new(Outcome::Error(error))
    }

    fn new(outcome: Outcome) -> Self {
        Self { outcome, agents_started: 0, attempts: 0, checkpoint: None }
    }

    /// Sets how many calls for a child the body made: those that were accepted, whether or not the child was
    /// started in the end.
    #[must_use]
    pub fn with_agents_started(mut self, agents_started: u64) -> Self {
        self.agents_started = agents_started;
        self
    }

    /// Sets how many times a start of a child was tried, over all calls and all resumptions of the run.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u64) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the last value that the body left as a checkpoint.
    #[must_use]
    pub fn with_checkpoint(mut self, checkpoint: Option<Value>) -> Self {
        self.checkpoint = checkpoint;
        self
    }

    /// Returns how the run ended.
    #[must_use]
    pub fn stop_reason(&self) -> RunStopReason {
        match self.outcome {
            Outcome::Completed(_) => RunStopReason::Completed,
            Outcome::Cancelled(_) => RunStopReason::Cancelled,
            Outcome::Error(_) => RunStopReason::Error,
        }
    }

    /// Returns the body's value, of a completed run.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Completed(value) => Some(value),
            Outcome::Cancelled(_) | Outcome::Error(_) => None,
        }
    }

    /// Takes the body's value or the error out.
    ///
    /// # Errors
    ///
    /// The run's own error, when it did not complete.
    pub fn into_value(self) -> Result<Value, RunError> {
        match self.outcome {
            Outcome::Completed(value) => Ok(value),
            Outcome::Cancelled(error) | Outcome::Error(error) => Err(error),
        }
    }

    /// Returns what went wrong, of a run that did not complete.
    #[must_use]
    pub fn error(&self) -> Option<&RunError> {
        match &self.outcome {
            Outcome::Completed(_) => None,
            Outcome::Cancelled(error) | Outcome::Error(error) => Some(error),
        }
    }

    /// Returns how many calls for a child the body made.
    #[must_use]
    pub fn agents_started(&self) -> u64 {
        self.agents_started
    }

    /// Returns how many times a start of a child was tried.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Returns the last value that the body left as a checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Value> {
        self.checkpoint.as_ref()
    }
}

#[derive(Deserialize, Serialize)]
struct WireRunResult {
    stop_reason: RunStopReason,
    #[serde(default)]
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
    agents_started: u64,
    attempts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    checkpoint: Option<Value>,
}

/// Keeps a checkpoint of `null` apart from none.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl From<RunResult> for WireRunResult {
    fn from(result: RunResult) -> Self {
        let stop_reason = result.stop_reason();
        let (value, error) = match result.outcome {
            Outcome::Completed(value) => (value, None),
            Outcome::Cancelled(error) | Outcome::Error(error) => (Value::Null, Some(error)),
        };
        Self {
            stop_reason,
            value,
            error,
            agents_started: result.agents_started,
            attempts: result.attempts,
            checkpoint: result.checkpoint,
        }
    }
}

impl TryFrom<WireRunResult> for RunResult {
    type Error = String;

    fn try_from(wire: WireRunResult) -> Result<Self, String> {
        let outcome = match (wire.stop_reason, wire.error) {
            (RunStopReason::Completed, None) => Outcome::Completed(wire.value),
            (RunStopReason::Cancelled, Some(error)) => Outcome::Cancelled(error),
            (RunStopReason::Error, Some(error)) => Outcome::Error(error),
            (RunStopReason::Completed, Some(_)) => return Err("a completed run has no error".into()),
            (reason, None) => return Err(format!("a run that ended as {reason} needs an error")),
        };
        Ok(Self {
            outcome,
            agents_started: wire.agents_started,
            attempts: wire.attempts,
            checkpoint: wire.checkpoint,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_end_survives_its_json() {
        for result in [
            RunResult::completed(Value::Null),
            RunResult::completed(json!({ "a": 1 })).with_checkpoint(Some(Value::Null)),
            RunResult::cancelled(RunError::cancelled("enough")).with_agents_started(2).with_attempts(3),
            RunResult::failed(RunError::new(crate::ErrorCode::PANIC, "the body panicked")),
        ] {
            let text = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result, "{text}");
        }
    }

    #[test]
    fn an_end_that_contradicts_itself_is_refused() {
        for text in [
            r#"{"stop_reason":"error","value":1,"agents_started":0,"attempts":0}"#,
            r#"{"stop_reason":"completed","value":1,"error":{"code":"x","message":"y"},"agents_started":0,"attempts":0}"#,
        ] {
            assert!(serde_json::from_str::<RunResult>(text).is_err(), "{text}");
        }
    }
}
