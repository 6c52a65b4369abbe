//! Reads a worker's prompt as a worker must: what stands in a fence is data, whatever it says.
//!
//! Shared by the tests of prompts and by the runners of the vectors.

use serde_json::Value;

/// The parts of a prompt that differ from round to round.
#[derive(Debug, PartialEq)]
pub(crate) struct PromptParts {
    /// The prompt with what stands in its fences cut out, and their tokens replaced.
    pub(crate) frame: String,
    pub(crate) objective: String,
    pub(crate) round: u64,
    pub(crate) max_rounds: u64,
    /// The report of the round before.
    pub(crate) report: Option<Value>,
}

impl PromptParts {
    /// Reads a prompt. A fence opens at the first line that looks like its beginning and closes at the first line that
    /// is its end, token and all.
    pub(crate) fn read(prompt: &str) -> Self {
        let (before, objective, after) = unfence(prompt, "objective").expect("a prompt has an objective");
        let (middle, report, rest) = match unfence(&after, "report") {
            Some((middle, report, rest)) => (middle, Some(report), rest),
            None => (after, None, String::new()),
        };
        let position = middle.split("This is round ").nth(1).expect("a prompt says which round it is");
        let position = position.split(':').next().expect("the round is followed by a colon");
        let (round, max_rounds) = position.split_once(" of ").expect("the round has a last one");
        Self {
            frame: format!("{before}(objective){middle}(report){rest}"),
            objective,
            round: round.parse().expect("a round is a number"),
            max_rounds: max_rounds.parse().expect("the last round is a number"),
            report: report.map(|line| {
                assert!(!line.contains('\n'), "a report stands on one line");
                serde_json::from_str(&line).expect("a report is JSON")
            }),
        }
    }
}

/// Splits a text at its first fence of that name into what comes before, what stands inside, and what comes after.
fn unfence(text: &str, name: &str) -> Option<(String, String, String)> {
    let opens = format!("[{name} ");
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let after = at + line.len();
        let token =
            line.trim_end_matches('\n').strip_prefix(&opens).and_then(|line| line.strip_suffix(" begins]"));
        if let Some(token) = token {
            let closes = format!("\n[{name} {token} ends]");
            let inside = &text[after..];
            // An empty text inside leaves no line break of its own to look for.
            let end = inside.find(&closes).expect("a fence that opens closes");
            return Some((
                text[..at].to_owned(),
                inside[..end].to_owned(),
                inside[end + closes.len()..].to_owned(),
            ));
        }
        at = after;
    }
    None
}
