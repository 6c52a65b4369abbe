//! What crosses between the client, the runs on the server, and the workers: plain data, written to histories.

use std::time::Duration;

use harness_subagent::{Activity, AgentId, Parent};
use harness_workflow::{AgentOutcome, CallEnd, NumberedCall, RunError, RunId, RunResult, StartRun};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads};

/// The name under which workers know the workflow that runs bodies.
pub(crate) const RUN: &str = "harness-run";
/// The name under which workers know the activity that runs one child.
pub(crate) const CALL: &str = "harness-call";
/// The memo that what a body says is written to.
pub(crate) const NOTES: &str = "harness-notes";
/// The version of everything here. What has another one is refused.
pub(crate) const VERSION: u32 = 1;
/// The longest text of one value, in bytes. A server refuses more than 2 MiB in one piece by default.
pub(crate) const MAX_BYTES: usize = 1_500_000;

/// What a run is started with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RunInput {
    pub(crate) version: u32,
    /// With the id, the provider and the most calls resolved.
    pub(crate) request: StartRun,
    /// The task queue of the workers that run the children.
    pub(crate) queue: String,
    pub(crate) limits: RunLimits,
    /// Why the run was cancelled before it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancelled: Option<String>,
    /// What happened before the run was continued with a fresh history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) carried: Option<Carried>,
}

/// The part of the engine's configuration that a run keeps to, wherever it goes on.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct RunLimits {
    pub(crate) max_items_per_call: usize,
    pub(crate) max_concurrent: usize,
    pub(crate) max_attempts_per_call: u32,
    pub(crate) heartbeat_ms: u64,
    pub(crate) call_limit_ms: u64,
    /// How long a worker may take to end a child, at most.
    pub(crate) release_ms: u64,
    /// The number of events after which the run goes on with a fresh history.
    pub(crate) history_events: u32,
    /// The number of bytes after which it does.
    pub(crate) history_bytes: u64,
}

impl RunLimits {
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }

    pub(crate) fn call_limit(&self) -> Duration {
        Duration::from_millis(self.call_limit_ms)
    }

    pub(crate) fn release(&self) -> Duration {
        Duration::from_millis(self.release_ms)
    }
}

/// What a run takes along into a fresh history.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Carried {
    /// The answers that the body got, in the order in which it got them.
    pub(crate) answers: Vec<CarriedAnswer>,
    /// How many notes the body had made.
    pub(crate) notes: u64,
    /// How many times a start of a child was tried.
    pub(crate) attempts: u64,
    /// The last fencing token.
    pub(crate) fence: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CarriedAnswer {
    pub(crate) call: u64,
    /// A sum of what the call asked for.
    pub(crate) sum: u32,
    pub(crate) answer: Answer,
}

/// What the body gets for a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Outcome(AgentOutcome),
    Error(RunError),
}

impl From<Answer> for Result<AgentOutcome, RunError> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Outcome(outcome) => Ok(outcome),
            Answer::Error(error) => Err(error),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RunOutput {
    pub(crate) result: RunResult,
    pub(crate) notes: Notes,
}

/// What a body said, in its order.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Notes {
    /// The number of the first note, from 1.
    pub(crate) first: u64,
    pub(crate) notes: Vec<Note>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Note {
    Phase(String),
    Log(String),
    Checkpoint(Value),
}

/// One attempt at a call, as a worker gets it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CallRequest {
    pub(crate) version: u32,
    pub(crate) run: RunId,
    pub(crate) call: NumberedCall,
    pub(crate) attempt: u32,
    /// Greater than that of every earlier attempt in the run.
    pub(crate) fence: u64,
    pub(crate) provider: String,
    pub(crate) parent: Parent,
    pub(crate) limit_ms: u64,
}

/// What a worker says of an attempt that it has brought to its end.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CallReport {
    pub(crate) verdict: Verdict,
    /// The child, if one was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) child: Option<StartedChild>,
    /// How it ended, if one was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<CallEnd>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Answered(Answer),
    /// The run wanted the child ended.
    Cancelled,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct StartedChild {
    pub(crate) id: AgentId,
    /// When its start was complete by the worker's clock, in microseconds since 1970.
    pub(crate) at: u64,
}

/// What a worker tells of a child with each heartbeat.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Beat {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) child: Option<StartedChild>,
    /// What it did last, each with its number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) activity: Vec<(u64, Activity)>,
}

/// Returns the id of an activity: the number of the call, that of the attempt, and a sum of what the call asks for.
///
/// A server compares ids, and nothing else, when a body is run again, so the sum lets it notice another prompt.
pub(crate) fn activity_id(call: &NumberedCall, attempt: u32) -> String {
    format!("{}.{attempt}.{:08x}", call.number, sum(call))
}

/// Reads the id of an activity: the number of the call, and that of the attempt.
pub(crate) fn read_activity_id(id: &str) -> Option<(u64, u32)> {
    let (call, rest) = id.split_once('.')?;
    let (attempt, sum) = rest.split_once('.')?;
    u32::from_str_radix(sum, 16).ok()?;
    Some((call.parse().ok()?, attempt.parse().ok()?))
}

/// Reads a value that this crate has written.
pub(crate) fn read<T: DeserializeOwned>(payload: &Payload) -> Option<T> {
    serde_json::from_slice(&payload.data).ok()
}

/// Reads the first of several values.
pub(crate) fn read_first<T: DeserializeOwned>(payloads: Option<&Payloads>) -> Option<T> {
    read(payloads?.payloads.first()?)
}

/// Returns how many bytes a value takes.
pub(crate) fn size<T: Serialize>(value: &T) -> usize {
    struct Counter(usize);

    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // What cannot be written has no size; writing it for real says why.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Sums up what a call asks for, in whatever order a build of this crate keeps the keys of a schema.
pub(crate) fn sum(call: &NumberedCall) -> u32 {
    fn add(value: &Value, sum: &mut crc32fast::Hasher) {
        match value {
            Value::Object(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                sum.update(b"{");
                for (key, value) in entries {
                    add(&Value::from(key.as_str()), sum);
                    add(value, sum);
                }
                sum.update(b"}");
            }
            Value::Array(items) => {
                sum.update(b"[");
                for item in items {
                    add(item, sum);
                }
                sum.update(b"]");
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                sum.update(value.to_string().as_bytes());
                sum.update(b",");
            }
        }
    }

    let mut sum = crc32fast::Hasher::new();
    // What cannot be written cannot be sent either; sending it says why.
    add(&serde_json::to_value(call).unwrap_or_default(), &mut sum);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use harness_subagent::StopReason;
    use harness_workflow::{ErrorCode, NoValue};
    use serde_json::json;

    use super::*;

    fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> Value {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(text.len(), size(value));
        json!(serde_json::from_str::<T>(&text).unwrap())
    }

    #[test]
    fn an_activity_id_names_its_call_and_its_attempt() {
        let call = serde_json::from_value(json!({ "number": 12, "label": "l", "prompt": "p" })).unwrap();
        assert_eq!(read_activity_id(&activity_id(&call, 3)), Some((12, 3)));
        for foreign in ["", "12", "12.", "a.b", "1.2", "1.2.x", "1.2.3.4"] {
            assert_eq!(read_activity_id(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn a_report_survives_its_json_exactly() {
        let value = json!({ "big": u64::MAX, "zero": -0.0, "none": null });
        for answer in [
            Answer::Outcome(AgentOutcome::Value(value.clone())),
            Answer::Outcome(AgentOutcome::NoValue(NoValue::new(StopReason::REFUSAL, None))),
            Answer::Error(RunError::new(ErrorCode::AGENT_START, "no").with_details(value)),
        ] {
            let report = CallReport {
                verdict: Verdict::Answered(answer),
                child: Some(StartedChild { id: "a".into(), at: 7 }),
                end: None,
            };
            assert_eq!(round_trip(&report).to_string(), json!(report).to_string());
        }
    }

    #[test]
    fn calls_that_ask_for_something_else_have_another_sum() {
        let call = |prompt: &str| -> NumberedCall {
            serde_json::from_value(json!({ "number": 1, "label": "l", "prompt": prompt })).unwrap()
        };
        assert_eq!(sum(&call("a")), sum(&call("a")));
        assert_ne!(sum(&call("a")), sum(&call("b")));
        let mut labelled = call("a");
        labelled.label = "other".into();
        assert_ne!(sum(&call("a")), sum(&labelled));
    }
}
