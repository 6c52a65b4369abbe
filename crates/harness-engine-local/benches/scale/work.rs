//! What both sides do for each call: make a value, carry it, check it, write it into the next prompt.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// The text that a child hands in, about 600 bytes.
fn value_text(number: u64) -> String {
    format!(
        concat!(
            r#"{{"status":"continue","summary":"Call {number} took the next step of the task, checked it, and left the rest as it was.","#,
            r#""done":["wrote the part that was missing","ran all the checks: {number} passed","read the two files that it touches","noted what surprised in the notes file"],"#,
            r#""next":["look at the slow path once more","cut the part that nobody calls","write down how to undo it"],"#,
            r#""notes":"Nothing stands in the way. The one thing to keep in mind is that the second check takes a while when the machine is busy."}}"#
        ),
        number = number
    )
}

/// What a child does: it makes its value and reads it.
pub(crate) fn make_value(prompt: &str) -> Value {
    let number = prompt.len() as u64;
    serde_json::from_str(&value_text(number)).expect("the text is JSON")
}

/// What the caller of a child does with the value, and what it tells the next one: about 2 kB.
pub(crate) fn next_prompt(value: &Value) -> String {
    assert!(is_good(value), "the value is made to be good");
    let mut prompt = String::with_capacity(2048);
    prompt.push_str(INSTRUCTIONS);
    write!(prompt, "{value}").expect("a text takes everything");
    assert!(is_short(&prompt[INSTRUCTIONS.len()..]), "the value is made to be short");
    prompt
}

/// Says whether a text has at most 16,384 UTF-16 code units.
fn is_short(text: &str) -> bool {
    const MOST: usize = 16_384;
    // A character never has more UTF-16 units than UTF-8 bytes.
    text.len() <= MOST || text.encode_utf16().take(MOST + 1).count() <= MOST
}

pub(crate) fn first_prompt() -> String {
    INSTRUCTIONS.to_owned()
}

fn is_good(value: &Value) -> bool {
    let texts =
        |key: &str| value[key].as_array().is_some_and(|items| items.len() < 100 && items.iter().all(is_text));
    matches!(value["status"].as_str(), Some("continue" | "done"))
        && is_text(&value["summary"])
        && texts("done")
        && texts("next")
        && is_text(&value["notes"])
        && value.as_object().is_some_and(|entries| entries.len() == 5)
}

/// A text that says something and has no blanks at its edges.
fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty() && text.trim() == text)
}

/// The schema of the value, for the side that has one.
pub(crate) fn schema() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["continue", "done"] },
            "summary": { "type": "string" },
            "done": texts,
            "next": texts,
            "notes": { "type": "string" },
        },
        "required": ["status", "summary", "done", "next", "notes"],
        "additionalProperties": false,
    })
}

const INSTRUCTIONS: &str = include_str!("instructions.txt");
