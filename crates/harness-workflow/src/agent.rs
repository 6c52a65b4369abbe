use harness_subagent::{Diagnostic, ModelChoice, OutputContract, StopReason, ToolRestriction};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a body asks of one child.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentCall {
    /// What the child is told. Not empty.
    pub prompt: String,
    /// The call's name for people. Without one the prompt's first line is taken, cut to 48 UTF-16 units.
    pub label: Option<String>,
    /// The phase the call belongs to. Without one it is the phase that the body announced last.
    pub phase: Option<String>,
    /// The value that the child must hand in.
    pub output: Option<OutputContract>,
    /// The language model that the child should use. Not the provider, which is the run's.
    pub model: Option<ModelChoice>,
    /// Which tools the child may use.
    pub tools: Option<ToolRestriction>,
}

impl AgentCall {
    /// Asks for a child that is told `prompt`.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), label: None, phase: None, output: None, model: None, tools: None }
    }

    /// Names the call for people.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Says which phase the call belongs to.
    #[must_use]
    pub fn with_phase(mut self, phase: impl Into<String>) -> Self {
        self.phase = Some(phase.into());
        self
    }

    /// Asks for a value.
    #[must_use]
    pub fn with_output(mut self, output: OutputContract) -> Self {
        self.output = Some(output);
        self
    }

    /// Chooses the child's model.
    #[must_use]
    pub fn with_model(mut self, model: ModelChoice) -> Self {
        self.model = Some(model);
        self
    }

    /// Restricts the child's tools.
    #[must_use]
    pub fn with_tools(mut self, tools: ToolRestriction) -> Self {
        self.tools = Some(tools);
        self
    }
}

/// A call as the engine gets it: checked, counted and named.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NumberedCall {
    /// The number of the call in its run, from 1, in the order in which the body made them.
    pub number: u64,
    /// The call's name for people.
    pub label: String,
    /// The phase the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What the child is told.
    pub prompt: String,
    /// The value that the child must hand in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputContract>,
    /// The language model that the child should use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// Which tools the child may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolRestriction>,
}

impl NumberedCall {
    pub(crate) fn new(number: u64, call: AgentCall, current_phase: Option<String>) -> Self {
        let label = call.label.unwrap_or_else(|| default_label(&call.prompt));
        Self {
            number,
            label,
            phase: call.phase.or(current_phase),
            prompt: call.prompt,
            output: call.output,
            model: call.model,
            tools: call.tools,
        }
    }
}

/// The prompt's first line; of one longer than 48 UTF-16 units, the first 47 and an ellipsis.
fn default_label(prompt: &str) -> String {
    const LONGEST: usize = 48;
    let line = prompt.lines().next().unwrap_or_default();
    if line.encode_utf16().count() <= LONGEST {
        return line.to_owned();
    }
    let mut units = 0;
    let mut label: String = line
        .chars()
        .take_while(|character| {
            units += character.len_utf16();
            units < LONGEST
        })
        .collect();
    label.push('…');
    label
}

/// What a body gets of a child that has ended.
///
/// No value is an ordinary failure: the body goes on with it as it sees fit. What an engine cannot go on
/// after is an error instead.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a child yields a value or none")]
pub enum AgentOutcome {
    /// The value that the child handed in; without an output contract, what it said last, as a text.
    Value(Value),
    /// No value, and why.
    NoValue(NoValue),
}

/// Why a child yielded no value.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NoValue {
    /// Why the child stopped.
    pub stop_reason: StopReason,
    /// What its provider, or the registry, says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Diagnostic>,
}

impl NoValue {
    /// Says why a child stopped without a value.
    #[must_use]
    pub fn new(stop_reason: StopReason, diagnostic: Option<Diagnostic>) -> Self {
        Self { stop_reason, diagnostic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, label: &str) {
        assert_eq!(default_label(prompt), label);
    }

    #[test]
    fn the_default_label_is_the_first_line_cut_to_48_units() {
        check("one\ntwo", "one");
        check(&"x".repeat(48), &"x".repeat(48));
        check(&"x".repeat(49), &format!("{}…", "x".repeat(47)));
        check(&"😀".repeat(25), &format!("{}…", "😀".repeat(23)));
        check("\nsecond", "");
    }
}
