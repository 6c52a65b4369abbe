use harness_subagent::{Diagnostic, Schema, StopReason};
use serde_json::Value;

/// Why a child that claims success has none.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: StopReason,
    pub(crate) diagnostic: Diagnostic,
}

/// How many violations a diagnostic tells.
const TOLD: usize = 8;

/// Judges what a child handed in.
pub(crate) fn judge(schema: &Schema, value: Option<&Value>) -> Option<Refusal> {
    let Some(value) = value else {
        return Some(Refusal {
            reason: StopReason::NO_VALUE,
            diagnostic: Diagnostic::new("the child completed without the value it was asked for"),
        });
    };
    if schema.admits(value) {
        return None;
    }
    Some(Refusal { reason: StopReason::SCHEMA_REFUSED, diagnostic: explain(schema, value) })
}

/// Says what is wrong without repeating the value, which may hold anything.
fn explain(schema: &Schema, value: &Value) -> Diagnostic {
    let violations = schema.violations(value);
    let mut message = String::from("the schema refuses the value that the child handed in");
    for (index, violation) in violations.iter().take(TOLD).enumerate() {
        message.push_str(if index == 0 { ": " } else { "; " });
        message.push_str(&violation.to_string());
    }
    if violations.len() > TOLD {
        message.push_str("; and more");
    }
    let first = violations.into_iter().next().map(|violation| violation.pointer);
    Diagnostic::new(message).with_detail("pointer", first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_diagnostic_tells_places_but_not_values() {
        let schema = Schema::new(json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "list": { "type": "array", "items": { "type": "string" } } },
            "required": ["n"],
        }))
        .unwrap();
        let refusal = judge(&schema, Some(&json!({ "n": "hunter2", "list": ["x", 7] }))).unwrap();
        let message = refusal.diagnostic.message();
        assert!(message.contains("/n: ") && message.contains("/list/1: "), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        let many: Vec<u32> = (0..100).collect();
        let refusal = judge(&schema, Some(&json!({ "n": 1, "list": many }))).unwrap();
        assert!(refusal.diagnostic.message().ends_with("; and more"));
    }
}
