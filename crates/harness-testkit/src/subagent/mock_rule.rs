use harness_subagent::{OutputRule, OutputViolation};
use serde_json::Value;

/// An output rule that accepts the values it was made with and refuses all others.
#[derive(Clone, Debug, Default)]
pub struct MockRule {
    accepted: Vec<Value>,
}

impl MockRule {
    /// Makes a rule that accepts `values` and nothing else.
    #[must_use]
    pub fn accepting(values: impl IntoIterator<Item = Value>) -> Self {
        Self { accepted: values.into_iter().collect() }
    }
}

impl OutputRule for MockRule {
    fn check(&self, value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        if self.accepted.contains(value) {
            return Ok(());
        }
        Err(vec![OutputViolation::new("", "mock-rule", "hand in a value that the scripted rule accepts")])
    }
}
