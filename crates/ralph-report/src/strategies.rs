//! Strategies for property tests, in the terms of proptest 1. Behind the feature `proptest1`.
//!
//! All of it is relative to the default [`Limits`]. The texts are made to be difficult: blanks of every sort inside
//! them, characters that look blank and are not, quotes, control characters, pairs of UTF-16 units.
//!
//! ```
//! use proptest::prelude::*;
//! use ralph_report::{Limits, RoundReport, ViolationKind, strategies};
//!
//! proptest!(|(report in strategies::report(), broken in strategies::value_breaking(ViolationKind::UnknownKey))| {
//!     prop_assert!(report.serialized_len() <= 16_384);
//!
//!     let refusal = RoundReport::from_value(&broken, &Limits::default()).unwrap_err();
//!     prop_assert_eq!(refusal.violations().len(), 1);
//!     prop_assert_eq!(refusal.category(), ViolationKind::UnknownKey);
//! });
//! ```

use proptest::{
    collection::{SizeRange, vec},
    prelude::*,
    sample::select,
};
use serde_json::{Value, json};

use crate::{Limits, RoundReport, Status, ViolationKind, text as measure};

/// The rules that a [value](value_breaking) can break, in the order of the loop.
pub const VALUE_RULES: [ViolationKind; 10] = [
    ViolationKind::NotAnObject,
    ViolationKind::SummaryNotNormalized,
    ViolationKind::ListNotNormalized,
    ViolationKind::BlockerNotNormalized,
    ViolationKind::ContinueNeedsNextSteps,
    ViolationKind::CompleteNeedsEvidence,
    ViolationKind::BlockedNeedsBlocker,
    ViolationKind::StatusInvalid,
    ViolationKind::UnknownKey,
    ViolationKind::HandoffOversized,
];

/// The rules that only a [text](text_breaking) can break, in the order in which they are judged.
pub const TEXT_RULES: [ViolationKind; 4] = [
    ViolationKind::InputOversized,
    ViolationKind::NestingLimit,
    ViolationKind::Unparsable,
    ViolationKind::DuplicateKey,
];

/// Generates valid reports of every status.
pub fn report() -> BoxedStrategy<RoundReport> {
    select(&Status::ALL).prop_flat_map(report_of).boxed()
}

/// Generates valid reports of one status.
pub fn report_of(status: Status) -> BoxedStrategy<RoundReport> {
    let (evidence, next_steps, is_blocked) = match status {
        Status::Continue => (0..4, 1..4, false),
        Status::Complete => (1..4, 0..1, false),
        Status::Blocked => (0..4, 0..4, true),
    };
    let blocker = if is_blocked { text().boxed() } else { Just(String::new()).boxed() };
    (text(), texts(evidence), texts(next_steps), blocker)
        .prop_map(move |(summary, evidence, next_steps, blocker)| RoundReport {
            status,
            summary,
            evidence,
            next_steps,
            blocker,
        })
        .boxed()
}

/// Generates texts that are normalized: not empty, no blank at either end.
pub fn text() -> BoxedStrategy<String> {
    let edge = || character().prop_filter("a blank", |c| !measure::is_blank(*c));
    prop_oneof![
        edge().prop_map(String::from),
        (edge(), vec(character(), 0..24), edge()).prop_map(|(first, middle, last)| {
            let mut text = String::from(first);
            text.extend(middle);
            text.push(last);
            text
        }),
    ]
    .boxed()
}

/// Generates texts that are not normalized: empty, or with a blank at one end or both.
pub fn padded_text() -> BoxedStrategy<String> {
    let blank = || select(&measure::BLANKS);
    prop_oneof![
        Just(String::new()),
        blank().prop_map(String::from),
        (blank(), text()).prop_map(|(blank, text)| format!("{blank}{text}")),
        (text(), blank()).prop_map(|(text, blank)| format!("{text}{blank}")),
        (blank(), text(), blank()).prop_map(|(first, text, last)| format!("{first}{text}{last}")),
    ]
    .boxed()
}

/// Generates values that break exactly one rule, and that one once.
///
/// # Panics
///
/// If `rule` is none of the [`VALUE_RULES`].
pub fn value_breaking(rule: ViolationKind) -> BoxedStrategy<Value> {
    match rule {
        ViolationKind::NotAnObject => prop_oneof![
            scalar(),
            report().prop_map(|report| json!([report.to_value()])),
            report().prop_map(|report| Value::from(report.to_json())),
        ]
        .boxed(),
        ViolationKind::SummaryNotNormalized => broken(report(), "summary", bad_text()),
        ViolationKind::ListNotNormalized => {
            // A complete report with next steps would break another rule as well.
            let goes_on = prop_oneof![report_of(Status::Continue), report_of(Status::Blocked)];
            prop_oneof![broken(report(), "evidence", bad_list()), broken(goes_on, "nextSteps", bad_list())]
                .boxed()
        }
        ViolationKind::BlockerNotNormalized => {
            let padded = padded_text().prop_filter("not padded", |text| !text.is_empty());
            prop_oneof![
                broken(
                    report_of(Status::Blocked),
                    "blocker",
                    padded.prop_map(|text| Some(Value::from(text)))
                ),
                broken(report(), "blocker", not_a_text()),
            ]
            .boxed()
        }
        ViolationKind::ContinueNeedsNextSteps => prop_oneof![
            broken(report_of(Status::Continue), "nextSteps", Just(Some(json!([])))),
            broken(report_of(Status::Continue), "blocker", some_text()),
        ]
        .boxed(),
        ViolationKind::CompleteNeedsEvidence => prop_oneof![
            broken(report_of(Status::Complete), "evidence", Just(Some(json!([])))),
            broken(
                report_of(Status::Complete),
                "nextSteps",
                texts(1..4).prop_map(|texts| Some(json!(texts)))
            ),
            broken(report_of(Status::Complete), "blocker", some_text()),
        ]
        .boxed(),
        ViolationKind::BlockedNeedsBlocker => {
            broken(report_of(Status::Blocked), "blocker", Just(Some(json!(""))))
        }
        ViolationKind::StatusInvalid => {
            let misspelled =
                select(&["", "Complete", "BLOCKED", " continue", "complete\n", "completed", "done"]);
            let status = prop_oneof![misspelled.prop_map(|name| Some(json!(name))), not_a_text()];
            broken(report(), "status", status)
        }
        ViolationKind::UnknownKey => {
            let misspelled =
                select(&["", "Summary", "next_steps", "status ", "evidence\0"]).prop_map(str::to_owned);
            (report(), prop_oneof![misspelled, text()], json_value())
                .prop_map(|(report, key, value)| {
                    let mut report = report.to_value();
                    // One of the five, by chance, becomes another key.
                    let key = if report.get(&key).is_some() { format!("{key}s") } else { key };
                    report[key] = value;
                    report
                })
                .boxed()
        }
        ViolationKind::HandoffOversized => (report(), 1..1000_usize)
            .prop_map(|(mut report, excess)| {
                let missing = Limits::DEFAULT_REPORT_CHARS - report.serialized_len() + excess;
                report.summary.extend(std::iter::repeat_n('x', missing));
                report.to_value()
            })
            .boxed(),
        other => panic!("no value breaks the rule {other}"),
    }
}

/// Generates texts that break exactly one rule, and that one once.
///
/// # Panics
///
/// If `rule` is neither one of the [`TEXT_RULES`] nor one of the [`VALUE_RULES`].
pub fn text_breaking(rule: ViolationKind) -> BoxedStrategy<String> {
    match rule {
        ViolationKind::InputOversized => (report(), 1..100_usize)
            .prop_map(|(report, excess)| {
                let text = report.to_json();
                let blanks = Limits::DEFAULT_BYTES - text.len() + excess;
                text + &" ".repeat(blanks)
            })
            .boxed(),
        ViolationKind::NestingLimit => (report(), 0..300_usize, select(&[("[", "]"), ("{\"a\":[", "]}")]))
            .prop_map(|(report, excess, (open, close))| {
                let levels = Limits::MOST_DEPTH + excess;
                with_member(&report, &format!("\"x\":{}{}", open.repeat(levels), close.repeat(levels)))
            })
            .boxed(),
        ViolationKind::Unparsable => prop_oneof![
            report().prop_flat_map(|report| {
                let text = report.to_json();
                (0..text.len()).prop_map(move |at| text[..text.floor_char_boundary(at)].to_owned())
            }),
            report().prop_map(|report| format!("\u{feff}{}", report.to_json())),
            (report(), report()).prop_map(|(first, second)| format!(
                "{}\n{}",
                first.to_json(),
                second.to_json()
            )),
            (report(), select(&["\0", ",", "}", "\u{a0}", "null"]))
                .prop_map(|(report, end)| report.to_json() + end),
            (
                report(),
                select(&[
                    r#""\ud800""#,
                    r#""\udfff\ud800""#,
                    "1e400",
                    "-1e400",
                    "NaN",
                    "01",
                    "'x'",
                    "\"\t\""
                ])
            )
                .prop_map(|(report, value)| with_member(&report, &format!("\"x\":{value}"))),
        ]
        .boxed(),
        ViolationKind::DuplicateKey => {
            const MEMBERS: &[&str] = &[
                r#""status":"continue""#,
                r#""summ\u0061ry":"again""#,
                r#""evidence":[]"#,
                r#""nextSteps":null"#,
                r#""blocker":"""#,
                r#""x":[{"a":1,"\u0061":1}]"#,
            ];
            (report(), select(MEMBERS)).prop_map(|(report, member)| with_member(&report, member)).boxed()
        }
        value_rule => (value_breaking(value_rule), any::<bool>())
            .prop_map(|(value, indented)| if indented { format!("{value:#}") } else { value.to_string() })
            .boxed(),
    }
}

/// Writes a report with one more member at its end.
fn with_member(report: &RoundReport, member: &str) -> String {
    let text = report.to_json();
    let open = text.strip_suffix('}').expect("a report is written as an object");
    format!("{open},{member}}}")
}

/// Puts something else in the place of a field, or takes it away.
fn broken(
    report: impl Strategy<Value = RoundReport> + 'static,
    key: &'static str,
    value: impl Strategy<Value = Option<Value>> + 'static,
) -> BoxedStrategy<Value> {
    (report, value)
        .prop_map(move |(report, value)| {
            let mut report = report.to_value();
            match value {
                Some(value) => report[key] = value,
                None => {
                    report.as_object_mut().expect("a report is an object").remove(key);
                }
            }
            report
        })
        .boxed()
}

fn some_text() -> BoxedStrategy<Option<Value>> {
    text().prop_map(|text| Some(Value::from(text))).boxed()
}

fn bad_text() -> BoxedStrategy<Option<Value>> {
    prop_oneof![padded_text().prop_map(|text| Some(Value::from(text))), not_a_text()].boxed()
}

fn not_a_text() -> BoxedStrategy<Option<Value>> {
    let not_a_text = json_value().prop_filter("a text", |value| !value.is_string());
    prop_oneof![Just(None), not_a_text.prop_map(Some)].boxed()
}

/// Generates what is no list of normalized texts, for one reason.
fn bad_list() -> BoxedStrategy<Option<Value>> {
    let not_a_list = json_value().prop_filter("a list", |value| !value.is_array());
    let bad_item = bad_text().prop_map(|item| item.unwrap_or(Value::Null));
    let spoiled = (texts(0..3), bad_item, any::<prop::sample::Index>()).prop_map(|(texts, bad_item, at)| {
        let mut items: Vec<Value> = texts.into_iter().map(Value::from).collect();
        items.insert(at.index(items.len() + 1), bad_item);
        Some(Value::from(items))
    });
    prop_oneof![Just(None), not_a_list.prop_map(Some), spoiled].boxed()
}

/// Generates small values of every type.
fn json_value() -> BoxedStrategy<Value> {
    prop_oneof![
        scalar(),
        text().prop_map(Value::from),
        vec(scalar(), 0..3).prop_map(Value::from),
        (text(), scalar()).prop_map(|(key, value)| json!({ key: value })),
    ]
    .boxed()
}

fn scalar() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
    ]
    .boxed()
}

fn texts(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<String>> {
    vec(text(), count)
}

fn character() -> BoxedStrategy<char> {
    const TRICKY: &[char] = &[
        '"', '\\', '/', '\0', '\u{8}', '\u{1f}', '\u{7f}', '\u{85}', '\u{200b}', '\u{ffff}', 'é', '漢', '😀',
    ];
    prop_oneof![
        4 => prop::char::range('!', '~'),
        2 => select(&measure::BLANKS),
        1 => select(TRICKY),
        1 => any::<char>(),
    ]
    .boxed()
}
