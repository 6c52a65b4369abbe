//! How the end of a conversation is judged.

use std::path::Path;

use agent_client_protocol_schema::v1::{Error as AgentError, ErrorCode, StopReason as Named};
use harness_process::{CallReport, Ending, Limit, sanitize};
use harness_subagent::{Diagnostic, Error, ErrorKind, Result, StopReason, SubagentResult};
use serde_json::Value;

use crate::conversation::{Settlement, Stop};
use crate::handed::Handed;
use crate::refusal;

/// Judges `settlement`. `handed` is what the child handed in, of one that was asked to.
///
/// An accepted value completes every end but those that we have brought about ourselves. The exit status counts only of
/// an agent that did not answer: one that was told to go goes as it likes.
pub(crate) fn judge(
    settlement: &Settlement,
    report: &CallReport,
    handed: Option<Handed>,
    transcript: &Path,
) -> Result<SubagentResult> {
    let ended_by_us = match settlement {
        Settlement::Cancelled { .. } | Settlement::Slow => true,
        Settlement::Gone => matches!(report.ending, Ending::Cancelled | Ending::TimedOut(_)),
        _ => false,
    };
    let judged = match (settlement, &handed) {
        (_, Some(Handed::Accepted(_))) if !ended_by_us => None,
        (Settlement::Answered { stop_reason: Stop::Named(Named::EndTurn), rejections, .. }, handed) => {
            ended(handed.as_ref(), *rejections)
        }
        (Settlement::Enough { .. }, handed) => ended(handed.as_ref(), 0),
        (Settlement::Answered { stop_reason, rejections, .. }, _) => Some(stopped(*stop_reason, *rejections)),
        (Settlement::Refused { method, error }, _) => Some(refused(method, error)),
        (Settlement::Unfit { why }, _) => {
            let words = format!("the agent cannot be used: {why}");
            Some((StopReason::ERROR, Diagnostic::new(sanitize(&words))))
        }
        (Settlement::Slow, _) => {
            let words = "the agent was not ready for the prompt within the handshake limit";
            Some((StopReason::TIMED_OUT, Diagnostic::new(words).with_detail("limit", "handshake")))
        }
        (Settlement::Cancelled { .. }, _) => {
            Some((StopReason::ABORTED, Diagnostic::new("the child was cancelled")))
        }
        (Settlement::Gone, _) => Some(gone(report)?),
    };
    let mut result = match judged {
        None => SubagentResult::completed(""),
        Some((reason, diagnostic)) => {
            let diagnostic = diagnostic.with_detail("transcript", transcript.display().to_string());
            SubagentResult::stopped(reason, diagnostic)
        }
    };
    if let Some(Handed::Accepted(value) | Handed::Refused(value)) = handed {
        result = result.with_structured(value);
    }
    Ok(result)
}

/// Says what is wrong with an agent that came to its own end, if anything.
fn ended(handed: Option<&Handed>, rejections: u32) -> Option<(StopReason, Diagnostic)> {
    match handed {
        None | Some(Handed::Accepted(_) | Handed::Refused(_)) => None,
        Some(Handed::Unreadable(why)) => {
            let words = format!("what the agent handed in cannot be read: {why}");
            Some((StopReason::UNREADABLE_VALUE, Diagnostic::new(words)))
        }
        Some(Handed::Nothing) if rejections > 0 => Some(denied(rejections, "handed in no value")),
        Some(Handed::Nothing) => {
            let words = "the agent ended its turn and handed in no value";
            Some((StopReason::NO_VALUE, Diagnostic::new(words)))
        }
    }
}

/// An agent that says that it did not do what it was asked.
fn stopped(reason: Stop, rejections: u32) -> (StopReason, Diagnostic) {
    match reason {
        Stop::Named(Named::MaxTokens) => {
            (StopReason::MAX_TOKENS, Diagnostic::new("the model's answer was cut off at its token limit"))
        }
        Stop::Named(Named::MaxTurnRequests) => {
            (StopReason::TURN_LIMIT, Diagnostic::new("the agent used all the turns it may take"))
        }
        Stop::Named(Named::Refusal) => (StopReason::REFUSAL, Diagnostic::new("the model declined")),
        Stop::Named(Named::Cancelled) if rejections > 0 => denied(rejections, "stopped"),
        Stop::Named(Named::Cancelled) => (
            StopReason::ERROR,
            Diagnostic::new("the agent says that it was cancelled, and nobody has cancelled it"),
        ),
        Stop::Named(_) | Stop::Unknown => {
            (StopReason::ERROR, Diagnostic::new("the agent stopped for a reason that is not known here"))
        }
    }
}

fn denied(rejections: u32, then: &str) -> (StopReason, Diagnostic) {
    let words =
        format!("the agent was refused {rejections} of the permissions that it asked for, and {then}");
    (StopReason::PERMISSION_DENIED, Diagnostic::new(words).with_detail("refused", rejections.to_string()))
}

fn refused(method: &str, error: &AgentError) -> (StopReason, Diagnostic) {
    let code: i32 = error.code.into();
    let mut words = format!("the agent answered {method} with an error: {}", error.message);
    // Some agents say what it was in the data only.
    if let Some(more) = error.data.as_ref().and_then(|data| data.get("message")).and_then(Value::as_str) {
        words = format!("{words}: {more}");
    }
    let mut diagnostic = Diagnostic::new(sanitize(&words)).with_detail("error-code", code.to_string());
    if let Some(status) = refusal::vendor_status(error) {
        diagnostic = diagnostic.with_detail("api-status", status.to_string());
    }
    if error.code == ErrorCode::AuthRequired {
        diagnostic = diagnostic.with_detail("hint", "log the agent in, or name a way to authenticate");
    }
    (refusal::reason(error), diagnostic)
}

/// An agent that said nothing more before its prompt was answered.
fn gone(report: &CallReport) -> Result<(StopReason, Diagnostic)> {
    Ok(match report.ending {
        Ending::Exited { code } => {
            let words = format!("the agent exited with status {code} before it answered");
            (StopReason::ERROR, Diagnostic::new(words).with_detail("exit-status", code.to_string()))
        }
        Ending::Signalled { signal } => {
            let words = format!("the agent was ended by signal {signal}");
            (StopReason::CRASHED, Diagnostic::new(words).with_detail("signal", signal.to_string()))
        }
        Ending::Delivered => {
            (StopReason::ERROR, Diagnostic::new("the agent closed its output before it answered"))
        }
        Ending::Cancelled => (StopReason::ABORTED, Diagnostic::new("the child was cancelled")),
        Ending::TimedOut(limit) => {
            let (name, words) = match limit {
                Limit::FirstByte => ("first-byte", "it said nothing within the first-byte limit"),
                Limit::Idle => ("idle", "it said nothing for longer than the idle limit"),
                Limit::Deadline => ("deadline", "it ran until its deadline"),
                _ => ("other", "it exceeded a limit"),
            };
            (StopReason::TIMED_OUT, Diagnostic::new(words).with_detail("limit", name))
        }
        Ending::Lost | _ => {
            let words = "the agent's exit status was taken by other code of this process";
            return Err(Error::new(ErrorKind::RunLost, words));
        }
    })
}
