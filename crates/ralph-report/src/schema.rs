//! The report as JSON Schema, for models and for other languages.
//!
//! There are two, and the validator of this crate has the last word over both:
//!
//! - The **child schema** goes to the model that writes the report. It is closed, requires all five keys and has no
//!   conditionals, which is what the strict modes of model providers accept. It says types and nothing else.
//! - The **full schema** (draft 2020-12) is for whoever validates reports in another language. It states all that a
//!   schema can state; what it leaves out is the limit on the size of a report.
//!
//! Each comes as a value, and as a text whose keys are in the order of the contract in every build. The texts are in
//! the crate's folder `schema`.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::{Status, text};

/// Returns the schema that is sent to the child that writes the report.
///
/// Models fill in the keys in the order of the schema. In a [`Value`] that order depends on the build, in
/// [`child_schema_json`] it does not.
#[must_use]
pub fn child_schema() -> Value {
    child().to_value()
}

/// Returns [`child_schema`] as text, indented, with its keys in the order of the contract.
#[must_use]
pub fn child_schema_json() -> String {
    child().to_text()
}

/// Returns the schema that states the whole contract but for the size limit, in JSON Schema 2020-12.
///
/// A value is valid against it exactly if [`RoundReport::from_value`](crate::RoundReport::from_value) accepts it
/// under a limit that is large enough.
#[must_use]
pub fn full_schema() -> Value {
    full().to_value()
}

/// Returns [`full_schema`] as text, indented, in ASCII, with its keys in the order of the contract.
#[must_use]
pub fn full_schema_json() -> String {
    full().to_text()
}

fn child() -> Part {
    let texts = |description: &str| {
        object([("type", "array".into()), ("description", description.into()), ("items", kind("string"))])
    };
    let text = |description: &str| object([("type", "string".into()), ("description", description.into())]);
    object([
        ("type", "object".into()),
        ("description", "What one round of work came to.".into()),
        ("additionalProperties", false.into()),
        ("required", keys()),
        (
            "properties",
            object([
                (
                    "status",
                    object([
                        ("type", "string".into()),
                        (
                            "description",
                            "complete if the objective is reached, blocked if the work cannot go on, else continue."
                                .into(),
                        ),
                        ("enum", statuses()),
                    ]),
                ),
                ("summary", text("What was done. Not empty, no white space at either end.")),
                (
                    "evidence",
                    texts("What shows it: commands and their results, files. At least one item if complete."),
                ),
                (
                    "nextSteps",
                    texts("What the next round should do. At least one item to continue, none if complete."),
                ),
                ("blocker", text("What stands in the way if blocked, else the empty string.")),
            ]),
        ),
    ])
}

fn full() -> Part {
    let texts = || object([("type", "array".into()), ("items", reference("text"))]);
    let rule = |status: Status, then: Part| {
        object([
            (
                "if",
                object([
                    ("required", Part::List(vec!["status".into()])),
                    ("properties", object([("status", object([("const", status.as_str().into())]))])),
                ]),
            ),
            ("then", object([("properties", then)])),
        ])
    };
    let some = || object([("minItems", 1.into())]);
    let no_blocker = || object([("const", "".into())]);
    object([
        ("$schema", "https://json-schema.org/draft/2020-12/schema".into()),
        ("title", "Round report of a Ralph loop".into()),
        (
            "description",
            "Beside this schema a report has a limit on its size, counted in UTF-16 code units of its compact JSON."
                .into(),
        ),
        ("type", "object".into()),
        ("additionalProperties", false.into()),
        ("required", keys()),
        (
            "properties",
            object([
                ("status", object([("enum", statuses())])),
                ("summary", reference("text")),
                ("evidence", texts()),
                ("nextSteps", texts()),
                ("blocker", reference("trimmed")),
            ]),
        ),
        (
            "allOf",
            Part::List(vec![
                rule(Status::Continue, object([("nextSteps", some()), ("blocker", no_blocker())])),
                rule(
                    Status::Complete,
                    object([
                        ("evidence", some()),
                        ("nextSteps", object([("maxItems", 0.into())])),
                        ("blocker", no_blocker()),
                    ]),
                ),
                rule(Status::Blocked, object([("blocker", object([("minLength", 1.into())]))])),
            ]),
        ),
        (
            "$defs",
            object([
                (
                    "trimmed",
                    object([
                        ("type", "string".into()),
                        ("description", "A text with no white space at either end. It may be empty.".into()),
                        ("not", object([("pattern", Part::Text(blank_at_an_end()))])),
                    ]),
                ),
                (
                    "text",
                    object([
                        ("description", "A text with no white space at either end. Not empty.".into()),
                        ("$ref", "#/$defs/trimmed".into()),
                        ("minLength", 1.into()),
                    ]),
                ),
            ]),
        ),
    ])
}

/// Returns a pattern for texts with a blank at either end.
///
/// To say what must *not* match keeps it correct where `$` also matches before a final line break, as the line break
/// is a blank too. The blanks stand for themselves: not every engine knows `\u` escapes.
fn blank_at_an_end() -> String {
    let blanks = String::from_iter(text::BLANKS);
    format!("^[{blanks}]|[{blanks}]$")
}

fn keys() -> Part {
    Part::List(["status", "summary", "evidence", "nextSteps", "blocker"].map(Part::from).into())
}

fn statuses() -> Part {
    Part::List(Status::ALL.map(|status| status.as_str().into()).into())
}

fn kind(name: &str) -> Part {
    object([("type", name.into())])
}

fn reference(definition: &str) -> Part {
    object([("$ref", Part::Text(format!("#/$defs/{definition}")))])
}

/// A part of a schema, with its keys in an order of their own.
enum Part {
    Flag(bool),
    Count(u32),
    Text(String),
    List(Vec<Part>),
    Object(Vec<(&'static str, Part)>),
}

fn object<const N: usize>(entries: [(&'static str, Part); N]) -> Part {
    Part::Object(entries.into())
}

impl Part {
    fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a schema is JSON")
    }

    fn to_text(&self) -> String {
        let pretty = serde_json::to_string_pretty(self).expect("a schema is JSON");
        // Outside of strings JSON is ASCII, so whatever is not can be escaped where it stands.
        let mut text = String::with_capacity(pretty.len() + 1);
        for c in pretty.chars() {
            if c.is_ascii() {
                text.push(c);
            } else {
                let mut units = [0; 2];
                let escapes = c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}"));
                text.extend(escapes);
            }
        }
        text.push('\n');
        text
    }
}

impl From<bool> for Part {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u32> for Part {
    fn from(count: u32) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag(flag) => flag.serialize(serializer),
            Self::Count(count) => count.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
