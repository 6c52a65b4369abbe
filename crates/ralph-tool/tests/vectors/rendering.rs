//! Vectors about the text of a result and its bound.
//!
//! The wording is free, so where it can be a vector is shifted: its limit and its lengths by as much as what stands
//! before the report is longer here than in the reference.

use harness_workflow::RunId;
use ralph_report::{Limits, RoundReport};
use ralph_tool::render::{self, CUT_MARKER};
use ralph_tool::terminal::{Terminal, decode};
use ralph_tool::{EndedRun, RalphError, RalphStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Verdict, compare};

const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
const MARKER_UNITS: u64 = 14;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    result: Map<String, Value>,
    max_result_chars: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    length: u64,
    untruncated_length: u64,
    overhead_length: u64,
    json_length: u64,
    truncated: bool,
    ends_with_marker: bool,
    json: Option<String>,
    marker_only: Option<bool>,
    kept_length: Option<u64>,
    kept_json_length: Option<u64>,
    splits_surrogate_pair: Option<bool>,
}

pub(super) fn render(input: &str, expected: &Value) -> Verdict {
    let input: Input = serde_json::from_str(input).expect("the input of a rendering vector");
    let expected = Expected::deserialize(expected).expect("the expectation of a rendering vector");
    let render = renderer(&input.result);

    let full = units(&render(MAX_SAFE_INTEGER));
    let json_length = pretty(&input.result).map_or(0, |json| units(&json).len() as u64);
    let overhead = full.len() as u64 - json_length;
    let shift = |number: u64| (number + overhead).saturating_sub(expected.overhead_length);

    let max = input.max_result_chars;
    let above = MARKER_UNITS + overhead.max(expected.overhead_length);
    let (max, shifted, judged_in_full) = if !expected.truncated || (max > above && shift(max) > above) {
        (shift(max).min(MAX_SAFE_INTEGER), true, true)
    } else {
        (max, false, max <= MARKER_UNITS)
    };
    let moved = |number: u64| if shifted { shift(number) } else { number };

    let text = render(max);
    let got = measured(&text, &full, json_length, max);
    let cut = u64::from(expected.splits_surrogate_pair == Some(true));
    let mut wanted = json!({
        "untruncatedLength": shift(expected.untruncated_length),
        "jsonLength": expected.json_length,
    });
    if judged_in_full {
        wanted["length"] = json!(moved(expected.length) - cut);
        wanted["truncated"] = json!(expected.truncated);
        wanted["endsWithMarker"] = json!(expected.ends_with_marker);
        if let Some(json) = &expected.json {
            wanted["json"] = json!(json);
        }
        if let Some(only) = expected.marker_only {
            wanted["markerOnly"] = json!(only);
        }
        if let Some(kept) = expected.kept_length {
            wanted["keptLength"] = json!(moved(kept) - cut);
        }
        if let Some(kept) = expected.kept_json_length {
            wanted["keptJsonLength"] = json!(kept - cut);
        }
        if let Some(splits) = expected.splits_surrogate_pair {
            wanted["splitsSurrogatePair"] = json!(splits);
        }
    } else {
        let own_cut = u64::from(got["splitsSurrogatePair"] == json!(true));
        let fits = full.len() as u64 <= max;
        wanted["length"] = json!(if fits { full.len() as u64 } else { max - own_cut });
        wanted["endsWithMarker"] = json!(!fits);
    }
    compare(&wanted, &got)
}

/// Measures a text against the full one of which it is the bounded form.
fn measured(text: &str, full: &[u16], json_length: u64, max: u64) -> Value {
    let length = text.encode_utf16().count() as u64;
    let overhead = full.len() as u64 - json_length;
    let truncated = full.len() as u64 > max;
    let ends_with_marker = text.ends_with(CUT_MARKER);
    let mut got = json!({
        "length": length,
        "untruncatedLength": full.len(),
        "jsonLength": json_length,
        "truncated": truncated,
        "endsWithMarker": ends_with_marker,
    });
    if truncated {
        let kept = if ends_with_marker { length - MARKER_UNITS } else { 0 };
        let cut_at = usize::try_from(max.saturating_sub(MARKER_UNITS)).expect("a cut is inside of the text");
        let before: Vec<u16> = text.encode_utf16().take(kept as usize).collect();
        assert!(full.starts_with(&before), "what is kept is the beginning of the text");
        got["markerOnly"] = json!(CUT_MARKER.starts_with(text));
        got["keptLength"] = json!(kept);
        got["keptJsonLength"] = json!(kept.saturating_sub(overhead));
        got["splitsSurrogatePair"] = json!(cut_at > 0 && (0xdc00..0xe000).contains(&full[cut_at]));
    } else if json_length > 0 {
        let units = units(text);
        got["json"] = json!(String::from_utf16(&units[overhead as usize..]).expect("the report is a text"));
    }
    got
}

/// A report as it stands in a vector, which need not be a valid one.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportText {
    status: String,
    summary: String,
    evidence: Vec<String>,
    next_steps: Vec<String>,
    blocker: String,
}

/// Returns the renderer of the result: the bound goes in, the text comes out.
fn renderer(result: &Map<String, Value>) -> Box<dyn Fn(u64) -> String> {
    let rounds = result["roundsStarted"].as_u64().expect("a result has a number of rounds");
    if result["status"] == "round-failed" {
        let last = result.get("lastReport").map(report);
        let run = EndedRun::new(RunId::new("run")).with_counts(rounds, rounds).with_last_report(last);
        let error = RalphError::round_failed(rounds, None, run);
        return Box::new(move |max| render::error(&error, max));
    }
    let status = RalphStatus::ALL.into_iter().find(|status| result["status"] == status.as_str());
    let status = status.expect("a result has one of the four statuses");
    let json = pretty(result).expect("an ending has a report");
    let decoded = decode(&Value::Object(result.clone()), rounds, MAX_SAFE_INTEGER);
    Box::new(move |max| {
        let text = render::ending(status, rounds, &json, max);
        if let Ok(Terminal::Ended(result)) = &decoded {
            assert_eq!(render::result(result, max), text, "a result is rendered from its parts");
        }
        text
    })
}

fn report(value: &Value) -> RoundReport {
    let limits = Limits::default().with_max_report_chars(usize::MAX);
    RoundReport::from_value(value, &limits).expect("a report before a failed round is a valid one")
}

fn pretty(result: &Map<String, Value>) -> Option<String> {
    let report = result.get("report").or(result.get("lastReport"))?;
    let report = ReportText::deserialize(report).expect("a report has its five fields");
    Some(serde_json::to_string_pretty(&report).expect("texts serialize"))
}

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}
