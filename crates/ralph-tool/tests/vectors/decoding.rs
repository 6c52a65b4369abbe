//! Vectors about what is decoded: configurations, round caps, terminal values.

use ralph_report::ViolationKind;
use ralph_tool::RalphConfig;
use ralph_tool::terminal::{InvalidTerminal, Terminal, decode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Verdict, compare};

/// Judges a refusal whose input is no JSON that a `Value` can hold: only the verdict counts.
fn unreadable(expected: &Value) -> Verdict {
    compare(&json!({ "verdict": expected["verdict"] }), &json!({ "verdict": "reject" }))
}

pub(super) fn config(input: &str, expected: &Value) -> Verdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Input {
        #[serde(default)]
        config: Value,
        config_json: Option<String>,
    }
    let input: Input = serde_json::from_str(input).expect("the input of a configuration vector");
    let judged = match &input.config_json {
        Some(text) => {
            let judged = RalphConfig::from_json(text);
            if judged.as_ref().is_err_and(|error| error.code() == "config-unparsable") {
                return unreadable(expected);
            }
            judged
        }
        None => RalphConfig::from_value(&input.config),
    };
    let got = match judged {
        Ok(config) => {
            let written = serde_json::to_value(&config).expect("a configuration serializes");
            assert_eq!(
                serde_json::from_value::<RalphConfig>(written.clone()).expect("it reads back"),
                config
            );
            json!({ "verdict": "accept", "resolved": written })
        }
        Err(refusal) => json!({ "verdict": "reject", "category": refusal.code() }),
    };
    compare(expected, &got)
}

pub(super) fn max_rounds(input: &str, expected: &Value) -> Verdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Input {
        requested: Option<Value>,
        requested_json: Option<String>,
        ceiling: u64,
    }
    let input: Input = serde_json::from_str(input).expect("the input of a round cap vector");
    let requested = match &input.requested_json {
        Some(text) => match serde_json::from_str(text) {
            Ok(value) => Some(value),
            Err(_) => return unreadable(expected),
        },
        None => input.requested,
    };
    let config = RalphConfig::default().with_max_rounds(input.ceiling).expect("a ceiling is a possible cap");
    let got = match config.resolve_max_rounds(requested.as_ref()) {
        Ok(rounds) => json!({ "verdict": "accept", "resolved": rounds }),
        Err(refusal) => json!({ "verdict": "reject", "category": refusal.code() }),
    };
    compare(expected, &got)
}

pub(super) fn terminal(input: &str, expected: &Value) -> Verdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Input {
        #[serde(default)]
        value: Value,
        value_json: Option<String>,
        max_rounds: u64,
        max_handoff_chars: u64,
    }
    let input: Input = serde_json::from_str(input).expect("the input of a terminal vector");
    let value = match &input.value_json {
        Some(text) => match serde_json::from_str(text) {
            Ok(value) => value,
            Err(_) => return unreadable(expected),
        },
        None => input.value,
    };
    compare(expected, &outcome(decode(&value, input.max_rounds, input.max_handoff_chars)))
}

fn outcome(decoded: Result<Terminal, InvalidTerminal>) -> Value {
    match decoded {
        Ok(Terminal::Ended(result)) => json!({
            "verdict": "accept",
            "status": result.status(),
            "roundsStarted": result.rounds_started(),
            "report": result.report(),
        }),
        Ok(Terminal::RoundFailed { round, last_report }) => json!({
            "verdict": "accept", "status": "round-failed", "roundsStarted": round, "lastReport": last_report,
        }),
        Err(refusal) => {
            let length = match &refusal {
                InvalidTerminal::Report(report) if report.category() == ViolationKind::HandoffOversized => {
                    report.first().measure().map(|measure| measure.actual)
                }
                _ => None,
            };
            json!({ "verdict": "reject", "category": refusal.code(), "serializedLength": length })
        }
    }
}
