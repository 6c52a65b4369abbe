use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, ErrorKind, Result, RuleRef};

/// A judgement about a child's value that a schema cannot state.
///
/// # Contract
///
/// A provider may ask a rule while the child can still be spoken to, and show it the violations. Nobody
/// below the caller of the child turns a broken rule into a verdict: the value is delivered all the same.
/// A rule is pure: the same value and parameters always get the same answer.
pub trait OutputRule: Debug + Send + Sync + 'static {
    /// Judges `value`.
    ///
    /// # Errors
    ///
    /// What is wrong, the most important violation first and at most 100 of them. A rule that refuses names at
    /// least one violation; an empty list counts as acceptance.
    fn check(&self, value: &Value, parameters: &Value) -> std::result::Result<(), Vec<OutputViolation>>;
}

/// One thing that is wrong with a child's value, fit to be shown to the model that wrote it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutputViolation {
    /// The place in the value, as a JSON Pointer.
    pub pointer: String,
    /// The stable name of the broken rule.
    pub kind: String,
    /// What would satisfy it.
    pub message: String,
}

impl OutputViolation {
    /// Describes a violation.
    #[must_use]
    pub fn new(pointer: impl Into<String>, kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), kind: kind.into(), message: message.into() }
    }
}

/// The output rules that one process knows, by name.
///
/// Whoever wires an application fills it once; providers look rules up. Clones share the rules.
///
/// ```
/// use std::sync::Arc;
/// use harness_subagent::{OutputRule, OutputRuleCatalog, OutputViolation, RuleRef};
/// use serde_json::{Value, json};
///
/// #[derive(Debug)]
/// struct OneSentence;
///
/// impl OutputRule for OneSentence {
///     fn check(&self, value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
///         match value["answer"].as_str().map(|answer| answer.matches('.').count()) {
///             Some(1) => Ok(()),
///             _ => Err(vec![OutputViolation::new("/answer", "one-sentence", "answer in one sentence")]),
///         }
///     }
/// }
///
/// let catalog = OutputRuleCatalog::new().with("one-sentence", Arc::new(OneSentence))?;
/// let rule = RuleRef::new("one-sentence");
/// assert!(catalog.check(&rule, &json!({ "answer": "Yes." }))?.is_empty());
/// assert_eq!(catalog.check(&rule, &json!({ "answer": "Yes. No." }))?.len(), 1);
/// # Ok::<(), harness_subagent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OutputRuleCatalog {
    rules: Arc<BTreeMap<String, Arc<dyn OutputRule>>>,
}

impl OutputRuleCatalog {
    /// Makes an empty catalog.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `rule` under `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DuplicateRule`] when the name is taken; the first rule stays.
    pub fn with(mut self, name: impl Into<String>, rule: Arc<dyn OutputRule>) -> Result<Self> {
        let name = name.into();
        if self.rules.contains_key(&name) {
            return Err(Error::new(
                ErrorKind::DuplicateRule,
                format!("an output rule named {name:?} is there already; choose another name"),
            ));
        }
        Arc::make_mut(&mut self.rules).insert(name, rule);
        Ok(self)
    }

    /// Finds a rule.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn OutputRule>> {
        self.rules.get(name)
    }

    /// Judges `value` by the rule that `rule` names and returns the violations, none when it is accepted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownRule`] when no rule has that name here.
    pub fn check(&self, rule: &RuleRef, value: &Value) -> Result<Vec<OutputViolation>> {
        let found = self.get(rule.name()).ok_or_else(|| {
            Error::new(
                ErrorKind::UnknownRule,
                format!("no output rule is named {:?}; add it to the catalog of this process", rule.name()),
            )
        })?;
        Ok(found.check(value, rule.parameters()).err().unwrap_or_default())
    }
}
