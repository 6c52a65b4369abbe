//! How a child's end is judged: by its exit status and its value, never by its words.

use std::path::Path;

use harness_process::{CallReport, Ending, Limit};
use harness_subagent::{Diagnostic, Error, ErrorKind, Result, StopReason, SubagentResult};

use crate::value_file::ValueFile;

/// Judges the end that `report` tells of. `value` is what the child handed in, of one that was asked to.
pub(crate) fn classify(
    report: &CallReport,
    value: Option<ValueFile>,
    output: String,
    transcript: &Path,
) -> Result<SubagentResult> {
    let (reason, diagnostic) = match report.ending {
        Ending::Exited { code: 0 } | Ending::Delivered => return Ok(ended(value, transcript, output)),
        Ending::Exited { code } => (
            StopReason::ERROR,
            Diagnostic::new(format!("the program exited with status {code}"))
                .with_detail("exit-status", code.to_string()),
        ),
        Ending::Signalled { signal } => (
            StopReason::CRASHED,
            Diagnostic::new(format!("the program was ended by signal {signal}"))
                .with_detail("signal", signal.to_string()),
        ),
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
            return Err(Error::new(
                ErrorKind::RunLost,
                "the program's exit status was taken by other code of this process",
            ));
        }
    };
    let mut result =
        SubagentResult::stopped(reason, with_transcript(diagnostic, transcript)).with_output(output);
    if let Some(ValueFile::Value(value)) = value {
        result = result.with_structured(value);
    }
    Ok(result)
}

/// A child that came to its own end, or was ended because it had delivered.
fn ended(value: Option<ValueFile>, transcript: &Path, output: String) -> SubagentResult {
    match value {
        None => SubagentResult::completed(output),
        Some(ValueFile::Value(value)) => SubagentResult::handed_in(value).with_output(output),
        Some(ValueFile::Absent) => {
            let diagnostic = Diagnostic::new("the program ended well and handed in no value");
            SubagentResult::stopped(StopReason::NO_VALUE, with_transcript(diagnostic, transcript))
                .with_output(output)
        }
        Some(ValueFile::Unreadable(why)) => {
            let diagnostic = Diagnostic::new(format!("what the program handed in cannot be read: {why}"));
            SubagentResult::stopped(StopReason::UNREADABLE_VALUE, with_transcript(diagnostic, transcript))
                .with_output(output)
        }
    }
}

fn with_transcript(diagnostic: Diagnostic, transcript: &Path) -> Diagnostic {
    diagnostic.with_detail("transcript", transcript.display().to_string())
}
