use std::fmt::Write;

use harness_subagent::{OutputContract, OutputRuleCatalog, OutputViolation, SchemaViolation};
use ralph_report::text;
use serde_json::Value;

use super::UnusableContract;

/// Judges reports by a contract.
#[derive(Debug)]
pub(super) struct Judge {
    contract: OutputContract,
    rules: OutputRuleCatalog,
    pub(super) max_bytes: u64,
    pub(super) max_values: usize,
}

impl Judge {
    pub(super) fn new(contract: OutputContract, rules: OutputRuleCatalog) -> Result<Self, UnusableContract> {
        if let Some(rule) = contract.rule()
            && rules.get(rule.name()).is_none()
        {
            // The catalog words it, and knows no such rule whatever the value.
            let unknown = rules.check(rule, &Value::Null).err();
            return Err(UnusableContract::Rule(unknown.expect("the catalog has just said so")));
        }
        Ok(Self { contract, rules, max_bytes: 1024 * 1024, max_values: 10_000 })
    }

    /// Returns what is wrong with a report whose JSON has `bytes` bytes; nothing when it is accepted.
    ///
    /// The rule speaks first, as its words are meant for the agent, and of the schema only what stands elsewhere.
    pub(super) fn violations(&self, value: &Value, bytes: usize) -> Vec<OutputViolation> {
        if bytes as u64 > self.max_bytes {
            let message = format!("it has {bytes} bytes where {} are allowed; shorten it", self.max_bytes);
            return vec![OutputViolation::new("", "size", message)];
        }
        if count(value, self.max_values) > self.max_values {
            let message = format!("it holds more than {} values; shorten it", self.max_values);
            return vec![OutputViolation::new("", "size", message)];
        }
        let mut violations = match self.contract.rule() {
            Some(rule) => self
                .rules
                .check(rule, value)
                .unwrap_or_else(|error| vec![OutputViolation::new("", "rule", error.to_string())]),
            None => Vec::new(),
        };
        for SchemaViolation { pointer, message, .. } in self.contract.judge().violations(value) {
            if violations.iter().all(|known| known.pointer != pointer) {
                violations.push(OutputViolation::new(pointer, "schema", message));
            }
        }
        violations
    }
}

/// Counts the values in `value`, itself among them, and stops soon after `enough`.
fn count(value: &Value, enough: usize) -> usize {
    let mut found = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        found += 1;
        if found > enough {
            break;
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
    }
    found
}

/// Words violations for the agent: one on each line, a few of them, and none long.
pub(super) fn told(violations: &[OutputViolation]) -> String {
    const MOST: usize = 20;
    const LONGEST: usize = 500;
    let mut told = String::new();
    for OutputViolation { pointer, message, .. } in violations.iter().take(MOST) {
        let place = if pointer.is_empty() { "the report" } else { text::truncate_utf16(pointer, LONGEST) };
        let message: String = text::truncate_utf16(message, LONGEST)
            .chars()
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        write!(told, "\n- {place}: {message}").expect("a text takes all that is written to it");
    }
    if violations.len() > MOST {
        write!(told, "\n- and {} more", violations.len() - MOST)
            .expect("a text takes all that is written to it");
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_counted_with_those_within_others() {
        assert_eq!(count(&json!({ "a": [1, 2, { "b": null }], "c": "x" }), 100), 7);
        assert_eq!(count(&json!([1, 2, 3, 4]), 2), 3, "it stops soon");
    }

    #[test]
    fn what_the_agent_is_told_is_bounded() {
        let violations: Vec<_> = (0..1000)
            .map(|number| OutputViolation::new("/x".repeat(9999), "k", "m\n".repeat(number)))
            .collect();
        let told = told(&violations);
        assert!(told.len() < 25_000, "{}", told.len());
        assert_eq!(told.lines().count(), 22, "{told}");
        assert!(told.ends_with("and 980 more"));
    }
}
