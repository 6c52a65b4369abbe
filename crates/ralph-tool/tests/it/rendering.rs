//! What the calling model is shown is bounded, exactly.

use harness_subagent::{Diagnostic, StopReason};
use harness_workflow::NoValue;
use proptest::prelude::*;
use ralph_tool::render::{self, CUT_MARKER, bounded};
use ralph_tool::{EndedRun, RalphError, RalphStatus};
use serde_json::json;

use crate::stage::{Stage, complete, continuing, report};

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

fn ended(summary: &str) -> serde_json::Value {
    json!({ "status": "complete", "roundsStarted": 1, "report": complete(summary) })
}

#[tokio::test]
async fn a_long_result_is_cut_to_exactly_its_limit() {
    let stage = Stage::returning(json!({ "maxResultChars": 160 }), ended(&"x".repeat(500)), 1);
    let (_, text) = stage.shown().await;
    assert_eq!(units(&text), 160);
    assert!(
        text.starts_with("Ralph ended after 1 round: a worker reported") && text.ends_with(CUT_MARKER),
        "{text}"
    );
}

#[tokio::test]
async fn a_limit_below_the_marker_leaves_its_beginning() {
    let stage = Stage::returning(json!({ "maxResultChars": 5 }), ended("done"), 1);
    assert_eq!(stage.shown().await.1, CUT_MARKER.chars().take(5).collect::<String>());
}

#[test]
fn an_ending_is_a_headline_a_label_and_the_report() {
    #[track_caller]
    fn check(status: RalphStatus, rounds: u64, headline: &str) {
        let text = render::ending(status, rounds, "{}", 1000);
        assert_eq!(text, format!("{headline}\nLast report:\n{{}}"));
    }
    check(
        RalphStatus::Complete,
        1,
        "Ralph ended after 1 round: a worker reported the objective complete. Nobody has verified that.",
    );
    check(
        RalphStatus::Blocked,
        2,
        "Ralph ended after 2 rounds: a worker reported that it is blocked. Nobody has verified that.",
    );
    check(
        RalphStatus::BudgetLimited,
        3,
        "Ralph ended at its 3 rounds limit with work remaining, by the last worker's report.",
    );
}

#[test]
fn an_error_is_bounded_with_its_prefix() {
    let diagnostic = Diagnostic::new("the token limit was hit");
    let why = NoValue::new(StopReason::MAX_TOKENS, Some(diagnostic));
    let run = EndedRun::new("run-1").with_last_report(Some(report(&continuing(&"x".repeat(300)))));
    let error = RalphError::round_failed(2, Some(why), run);
    let whole = render::error(&error, 10_000);
    assert!(
        whole.starts_with(
            "Error: round 2 failed: its worker yielded no report (max-tokens): the token limit was hit.\n"
        ),
        "{whole}"
    );
    for limit in [1, 5, 14, 15, 100, 399] {
        assert_eq!(units(&render::error(&error, limit)) as u64, limit);
    }
}

proptest! {
    #[test]
    fn the_length_is_right_for_any_text_and_any_limit(text: String, limit in 0_u64..200) {
        let full = units(&text) as u64;
        let cut = bounded(text.clone(), limit);
        let length = units(&cut) as u64;
        if full <= limit {
            prop_assert_eq!(cut, text);
        } else if limit <= 14 {
            prop_assert_eq!(length, limit);
            prop_assert!(CUT_MARKER.starts_with(&cut));
        } else {
            let kept = cut.strip_suffix(CUT_MARKER).expect("a cut text ends with the marker");
            prop_assert!(text.starts_with(kept));
            // One short if and only if the character at the cut has two units.
            let next = text[kept.len()..].chars().next().expect("something was cut off");
            let splits = units(kept) as u64 + 14 < limit;
            prop_assert_eq!(length, limit - u64::from(splits));
            prop_assert!(!splits || next.len_utf16() == 2);
        }
    }
}
