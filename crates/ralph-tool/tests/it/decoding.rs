//! The terminal value of a run, judged a second time.

use proptest::prelude::*;
use ralph_tool::terminal::{Terminal, decode};
use serde_json::{Map, Value, json};

use crate::stage::{Stage, blocked, complete, continuing};

fn ended(status: &str, rounds: Value, report: Value) -> Value {
    json!({ "status": status, "roundsStarted": rounds, "report": report })
}

fn failed(rounds: Value, last: Value) -> Value {
    json!({ "status": "round-failed", "roundsStarted": rounds, "lastReport": last })
}

fn without(mut value: Value, key: &str) -> Value {
    value.as_object_mut().unwrap().remove(key);
    value
}

fn with(mut value: Value, key: &str, to: Value) -> Value {
    value[key] = to;
    value
}

#[tokio::test]
async fn a_run_whose_value_the_loop_cannot_have_returned_is_an_error_of_the_call() {
    let done = || complete("done");
    let good = || ended("complete", json!(1), done());
    for (value, code) in [
        (Value::Null, "malformed-terminal"),
        (json!("complete"), "malformed-terminal"),
        (json!([]), "malformed-terminal"),
        (ended("complete", json!(0), done()), "malformed-terminal"),
        (ended("complete", json!(1.5), done()), "malformed-terminal"),
        (ended("complete", json!("1"), done()), "malformed-terminal"),
        (ended("complete", json!(4), done()), "malformed-terminal"),
        (without(good(), "report"), "malformed-terminal"),
        (with(good(), "more", json!(1)), "malformed-terminal"),
        (with(failed(json!(1), Value::Null), "report", Value::Null), "malformed-terminal"),
        (ended("round-failed", json!(1), Value::Null), "malformed-terminal"),
        (ended("done", json!(1), done()), "unknown-status"),
        (ended("budget-limited", json!(2), continuing("half")), "budget-limited-early"),
        (failed(json!(1), continuing("before the first")), "first-round-failure-with-report"),
        (failed(json!(2), Value::Null), "later-round-failure-without-report"),
        (ended("complete", json!(1), Value::Null), "malformed-report"),
        (ended("complete", json!(1), json!([])), "malformed-report"),
        (ended("complete", json!(1), with(done(), "more", json!(1))), "malformed-report"),
        (ended("complete", json!(1), continuing("half")), "malformed-report"),
        (ended("budget-limited", json!(3), done()), "malformed-report"),
        (failed(json!(2), done()), "malformed-report"),
        (ended("complete", json!(1), with(done(), "summary", json!(" padded"))), "malformed-report"),
        (ended("complete", json!(1), with(done(), "evidence", json!([]))), "complete-needs-evidence"),
        (ended("blocked", json!(1), blocked("")), "blocked-needs-blocker"),
        (
            ended("budget-limited", json!(3), with(continuing("half"), "nextSteps", json!([]))),
            "continue-needs-next-steps",
        ),
        (ended("complete", json!(1), complete(&"x".repeat(200))), "handoff-oversized"),
    ] {
        let stage = Stage::returning(json!({ "maxRounds": 3, "maxHandoffChars": 200 }), value.clone(), 1);
        let error = stage.shown().await.0.unwrap_err();
        assert_eq!(error.code(), code, "{value}");
        assert_eq!(stage.engine.disposals(), 1, "{value}");
        assert!(error.summary().contains("cannot be trusted: "), "{}", error.summary());
    }
}

#[test]
fn the_size_of_a_report_that_is_wrong_otherwise_does_not_matter() {
    let report = with(complete(&"x".repeat(200)), "evidence", json!([]));
    let error = decode(&ended("complete", json!(1), report), 1, 100).unwrap_err();
    assert_eq!(error.code(), "complete-needs-evidence");
}

#[test]
fn each_ending_is_decoded_as_what_it_is() {
    let Ok(Terminal::Ended(result)) = decode(&ended("blocked", json!(2.0), blocked("no key")), 3, 200) else {
        panic!("a blocker is an ending")
    };
    assert_eq!((result.rounds_started(), result.report().blocker()), (2, "no key"));
    let Ok(Terminal::RoundFailed { round: 2, last_report: Some(last) }) =
        decode(&failed(json!(2), continuing("half")), 3, 200)
    else {
        panic!("a later round fails with the report before it")
    };
    assert_eq!(last.summary(), "half");
    let first = decode(&failed(json!(1), Value::Null), 3, 200);
    assert_eq!(first, Ok(Terminal::RoundFailed { round: 1, last_report: None }));
}

/// The contract on a report of status `status`, said again without the crate that knows it.
fn report_passes(value: &Value, status: &str, max_chars: usize) -> bool {
    let blank = |c: char| (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}';
    let trimmed = |text: &str| !text.starts_with(blank) && !text.ends_with(blank);
    let normalized = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty() && trimmed(text));
    let list = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(normalized));
    let filled = |value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
    let Some(keys) = value.as_object() else { return false };
    keys.len() == 5
        && keys.get("status").is_some_and(|found| found == status)
        && keys.get("summary").is_some_and(normalized)
        && keys.get("evidence").is_some_and(list)
        && keys.get("nextSteps").is_some_and(list)
        && keys.get("blocker").and_then(Value::as_str).is_some_and(trimmed)
        && match status {
            "continue" => filled(&keys["nextSteps"]) && keys["blocker"] == "",
            "complete" => filled(&keys["evidence"]) && !filled(&keys["nextSteps"]) && keys["blocker"] == "",
            _ => keys["blocker"] != "",
        }
        && value.to_string().encode_utf16().count() <= max_chars
}

/// The contract on a terminal value.
fn terminal_passes(value: &Value, max_rounds: u64, max_chars: usize) -> bool {
    let rounds = value["roundsStarted"].as_f64().filter(|rounds| rounds.fract() == 0.0 && *rounds >= 1.0);
    let Some(rounds) = rounds.filter(|rounds| *rounds <= max_rounds as f64) else { return false };
    let three = value.as_object().is_some_and(|keys| keys.len() == 3);
    let report = |status| three && report_passes(&value["report"], status, max_chars);
    match value["status"].as_str() {
        Some("complete") => report("complete"),
        Some("blocked") => report("blocked"),
        Some("budget-limited") => rounds == max_rounds as f64 && report("continue"),
        Some("round-failed") => {
            let last = value.get("lastReport");
            three
                && match last {
                    None => false,
                    Some(Value::Null) => rounds == 1.0,
                    Some(last) => rounds > 1.0 && report_passes(last, "continue", max_chars),
                }
        }
        _ => false,
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    let known = [
        "status",
        "roundsStarted",
        "report",
        "lastReport",
        "summary",
        "evidence",
        "nextSteps",
        "blocker",
        "more",
    ];
    prop::sample::select(known.to_vec()).prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(["complete", "blocked", "continue", "budget-limited", "round-failed"].as_slice())
            .prop_map(str::to_owned),
        4 => prop::sample::select(["", " ", "s", "s ", "\u{feff}s", "s\u{85}", "😀", "\u{1}"].as_slice())
            .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// A valid terminal value, of which up to three places are then changed.
fn nearly_valid() -> impl Strategy<Value = Value> {
    let report = prop_oneof![Just(complete("done")), Just(blocked("no key")), Just(continuing("half"))];
    let status = prop::sample::select(["complete", "blocked", "budget-limited", "round-failed"].as_slice());
    let change = (prop::option::of(Just("report")), key(), prop::option::of(any_json()));
    (status, 1_u64..4, report, prop::collection::vec(change, 0..3)).prop_map(
        |(status, rounds, report, changes)| {
            let key = if status == "round-failed" { "lastReport" } else { "report" };
            let mut value = json!({ "status": status, "roundsStarted": rounds, key: report });
            for (inner, at, to) in changes {
                let place = if inner.is_some() { value.get_mut(key) } else { Some(&mut value) };
                let Some(Value::Object(keys)) = place else { continue };
                match to {
                    Some(to) => keys.insert(at, to),
                    None => keys.remove(&at),
                };
            }
            value
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoding_never_panics_and_accepts_exactly_what_the_contract_accepts(
        value in prop_oneof![3 => nearly_valid(), 1 => any_json()],
        max_rounds in 1_u64..4,
        max_chars in 70_u64..140,
    ) {
        let decoded = decode(&value, max_rounds, max_chars);
        prop_assert_eq!(
            decoded.is_ok(),
            terminal_passes(&value, max_rounds, usize::try_from(max_chars).unwrap()),
            "{} gives {:?}", value, decoded
        );
    }
}
