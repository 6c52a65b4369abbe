//! Runs test vectors: lines of JSON, each an input and what must come of it.
//!
//! Shared by the tests, which run the vectors in this folder, and by the example `vectors`, which runs those of any
//! folder.

use std::{collections::BTreeMap, sync::LazyLock};

use ralph_report::{Field, InvalidReport, Limits, RoundReport, RoundReportRef, Status, schema, text};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json, value::RawValue};

/// The kinds of vectors that are run here.
pub(crate) const KINDS: [&str; 3] = ["objective-trim", "report-consumer", "report-workflow"];

/// How the vectors of each kind went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kinds: BTreeMap<&'static str, Count>,
    /// A line for each vector that went wrong.
    pub(crate) failures: Vec<String>,
}

/// How the vectors of one kind went.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    /// Runs one line, unless it is of a kind that is not run here.
    pub(crate) fn run(&mut self, line: &str) {
        let head: Head = serde_json::from_str(line).expect("a vector has an id and a kind");
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == head.kind) else {
            return;
        };
        let vector: Vector = serde_json::from_str(line).expect("a vector has the documented format");
        let count = self.kinds.entry(kind).or_default();
        if vector.rust_unrepresentable && vector.ours.is_none() {
            count.skipped += 1;
            return;
        }
        let expected = vector.expected();
        match vector.mismatch(kind, &expected) {
            None => count.passed += 1,
            Some(got) => {
                count.failed += 1;
                self.failures.push(format!("{}: expected {expected}, got {got}", head.id));
            }
        }
    }
}

#[derive(Deserialize)]
struct Head {
    id: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    #[serde(default)]
    rust_unrepresentable: bool,
    input: Option<Box<RawValue>>,
    input_json: Option<String>,
    expect: Option<Value>,
    ours: Option<Value>,
}

/// The input of a vector about a report.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportInput {
    /// The text of a value, as it stands in the line. It need not be one that a `Value` can hold.
    #[serde(default, deserialize_with = "given")]
    value: Option<Box<RawValue>>,
    value_json: Option<String>,
    expected_status: Option<String>,
    max_handoff_chars: u64,
}

#[derive(Deserialize)]
struct ObjectiveInput {
    objective: Value,
}

/// Reads a value that is there, be it `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl Vector {
    /// What is judged: what this project does on purpose, else what the reference did.
    fn expected(&self) -> Value {
        self.ours
            .clone()
            .or_else(|| self.expect.clone())
            .expect("a vector that is not skipped has an expectation")
    }

    fn input(&self) -> &str {
        let line = self.input.as_deref().map(RawValue::get);
        line.or(self.input_json.as_deref()).expect("a vector has an input")
    }

    /// Returns what came out, if it is not what was expected.
    fn mismatch(&self, kind: &str, expected: &Value) -> Option<Value> {
        let outcomes = if kind == "objective-trim" {
            vec![objective_outcome(
                serde_json::from_str(self.input()).expect("the input of an objective vector"),
            )]
        } else {
            report_outcomes(&serde_json::from_str(self.input()).expect("the input of a report vector"))
        };
        outcomes.into_iter().find(|got| !agrees(expected, got))
    }
}

/// Whether each expected field came out. A field that is not expected is not judged.
fn agrees(expected: &Value, got: &Value) -> bool {
    let expected = expected.as_object().expect("an expectation is an object");
    // An input of the wrong type never reaches the code: there is no category to compare.
    let untyped = expected.get("category").is_some_and(|category| category == "host-type-error");
    expected.iter().all(|(field, value)| match field.as_str() {
        "category" if untyped => true,
        // What a child's `null` means is for the loop to say.
        "asChild" => true,
        _ => got.get(field) == Some(value),
    })
}

fn objective_outcome(input: ObjectiveInput) -> Value {
    match input.objective {
        Value::String(objective) => match text::trim(&objective) {
            "" => json!({"verdict": "reject", "category": "objective-empty"}),
            trimmed => json!({"verdict": "accept", "objective": trimmed, "length": text::utf16_len(trimmed)}),
        },
        _ => json!({"verdict": "reject"}),
    }
}

/// Judges the report from its text, and from its value where the vector is about a value that there can be.
fn report_outcomes(input: &ReportInput) -> Vec<Value> {
    let max_report_chars = usize::try_from(input.max_handoff_chars).unwrap_or(usize::MAX);
    let limits = Limits::default().with_max_report_chars(max_report_chars);
    let status = input.expected_status.as_deref();
    let status = status.map(|name| Status::from_name(name).expect("an expected status is one of the three"));

    let text = input.value.as_deref().map(RawValue::get).or(input.value_json.as_deref());
    let text = text.expect("the input has a value or the text of one");
    let value: Option<Value> = serde_json::from_str(text).ok();

    let from_text = match status {
        None => RoundReport::parse(text, &limits),
        Some(status) => RoundReport::parse_as(text, status, &limits),
    };
    let mut outcomes = vec![outcome(from_text, value.as_ref())];
    if let (Some(value), Some(_)) = (&value, &input.value) {
        let from_value = match status {
            None => RoundReportRef::from_value(value, &limits),
            Some(status) => RoundReportRef::from_value_as(value, status, &limits),
        };
        outcomes.push(outcome(from_value.map(RoundReportRef::into_owned), Some(value)));
    }
    outcomes
}

fn outcome(judged: Result<RoundReport, InvalidReport>, value: Option<&Value>) -> Value {
    static CHILD_SCHEMA: LazyLock<jsonschema::Validator> =
        LazyLock::new(|| jsonschema::validator_for(&schema::child_schema()).expect("the schema is one"));

    let mut got = match judged {
        Ok(report) => {
            let length = report.to_json().encode_utf16().count();
            assert_eq!(report.serialized_len(), length);
            json!({"verdict": "accept", "serializedLength": length})
        }
        Err(refusal) => {
            let first = refusal.first();
            json!({
                "verdict": "reject",
                "category": first.kind().as_str(),
                "field": first.field().map(Field::as_str),
                "serializedLength": first.measure().map(|measure| measure.actual),
            })
        }
    };
    if let Some(value) = value {
        got["schemaValid"] = CHILD_SCHEMA.is_valid(value).into();
    }
    got
}
