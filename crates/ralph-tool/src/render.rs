//! What the calling model is shown: a bounded text.
//!
//! Lengths are UTF-16 code units, those of the complete text: a caller that shows the text must not put anything
//! before it. A text that is too long is cut and ends with [`CUT_MARKER`].

use ralph_report::text;

use crate::{RalphError, RalphResult, RalphStatus};

/// The end of a text that was cut: 14 UTF-16 code units.
pub const CUT_MARKER: &str = "\n… [truncated]";

const MARKER_UNITS: u64 = 14;

/// Renders how a run ended, and its last report, in at most `max_chars` UTF-16 code units.
#[must_use]
pub fn result(result: &RalphResult, max_chars: u64) -> String {
    ending(result.status(), result.rounds_started(), &result.report().to_json_pretty(), max_chars)
}

/// Renders how a run ended as [`result`] does, from its parts: for a host that keeps the report as text.
///
/// An ending is worded as what a worker reported: nobody has checked it.
#[must_use]
pub fn ending(status: RalphStatus, rounds_started: u64, report: &str, max_chars: u64) -> String {
    let rounds = rounds(rounds_started);
    let headline = match status {
        RalphStatus::Complete => {
            format!(
                "Ralph ended after {rounds}: a worker reported the objective complete. Nobody has verified that."
            )
        }
        RalphStatus::Blocked => {
            format!(
                "Ralph ended after {rounds}: a worker reported that it is blocked. Nobody has verified that."
            )
        }
        RalphStatus::BudgetLimited => {
            format!("Ralph ended at its {rounds} limit with work remaining, by the last worker's report.")
        }
    };
    bounded(format!("{headline}\nLast report:\n{report}"), max_chars)
}

/// Renders why a call failed, and the last good report if there is one, in at most `max_chars` UTF-16 code units.
#[must_use]
pub fn error(error: &RalphError, max_chars: u64) -> String {
    let headline = format!("Error: {}.", error.summary());
    let text = match (error.last_report(), error.run()) {
        (Some(report), _) => {
            format!("{headline}\nLast good report, of an earlier round:\n{}", report.to_json_pretty())
        }
        (None, Some(_)) => format!("{headline}\nNo earlier round left a report."),
        (None, None) => headline,
    };
    bounded(text, max_chars)
}

/// Cuts a text that has more than `max_chars` UTF-16 code units to exactly that many, the marker included, and leaves
/// any other as it is.
///
/// Under a limit of less than the marker's 14 units as much of the marker as fits is left. Where the cut would fall
/// inside a character of two units the whole character goes, and the text is one unit shorter.
#[must_use]
pub fn bounded(mut full: String, max_chars: u64) -> String {
    // A character never has more UTF-16 units than bytes of UTF-8, so most texts need not be counted.
    if full.len() as u64 <= max_chars || text::utf16_len(&full) as u64 <= max_chars {
        return full;
    }
    let units = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let kept = text::truncate_utf16(&full, units(max_chars.saturating_sub(MARKER_UNITS))).len();
    full.truncate(kept);
    full.push_str(text::truncate_utf16(CUT_MARKER, units(max_chars)));
    full
}

fn rounds(count: u64) -> String {
    if count == 1 { "1 round".to_owned() } else { format!("{count} rounds") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_has_the_length_that_is_subtracted() {
        assert_eq!(text::utf16_len(CUT_MARKER) as u64, MARKER_UNITS);
    }

    #[test]
    fn a_text_is_cut_to_its_limit_and_never_through_a_character() {
        #[track_caller]
        fn check(full: &str, max_chars: u64, expected: &str) {
            assert_eq!(bounded(full.to_owned(), max_chars), expected);
        }
        let long = "x".repeat(30);
        check(&long, 30, &long);
        check(&long, 29, &format!("{}{CUT_MARKER}", "x".repeat(15)));
        check(&long, 14, CUT_MARKER);
        check(&long, 5, "\n… [t");
        check("", 1, "");
        let emoji = "😀".repeat(20);
        check(&emoji, 40, &emoji);
        check(&emoji, 39, &format!("{}{CUT_MARKER}", "😀".repeat(12)));
        check(&emoji, 38, &format!("{}{CUT_MARKER}", "😀".repeat(12)));
        check(&emoji, u64::MAX, &emoji);
    }
}
