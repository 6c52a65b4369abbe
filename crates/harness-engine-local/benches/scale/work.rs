//! What both sides do for each call: make a value, carry it, check it, write it into the next prompt.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// The text that a child hands in, about 600 bytes.
fn value_text(number: u64) -> String {
    let item = "One of several remarks that say what was done, what was found and what comes next.";
    format!(
        r#"{{"status":"continue","summary":"Call {number} went through a part of the task and left the rest to the next one.","done":["{item}","{item}"],"next":["{item}","{item}"],"notes":{{"number":{number},"checked":true,"share":0.25}}}}"#
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
    prompt
}

pub(crate) fn first_prompt() -> String {
    INSTRUCTIONS.to_owned()
}

fn is_good(value: &Value) -> bool {
    let texts = |key: &str| {
        value[key]
            .as_array()
            .is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(|text| !text.is_empty())))
    };
    matches!(value["status"].as_str(), Some("continue" | "done"))
        && value["summary"].as_str().is_some_and(|text| !text.is_empty())
        && texts("done")
        && texts("next")
        && value["notes"].is_object()
        && value.as_object().is_some_and(|entries| entries.len() == 5)
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
            "notes": { "type": "object" },
        },
        "required": ["status", "summary", "done", "next", "notes"],
        "additionalProperties": false,
    })
}

const INSTRUCTIONS: &str = include_str!("instructions.txt");
