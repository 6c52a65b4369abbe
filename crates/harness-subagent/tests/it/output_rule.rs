//! Output rules and their catalog.

use std::sync::Arc;

use harness_subagent::{ErrorKind, OutputRule, OutputRuleCatalog, OutputViolation, RuleRef};
use serde_json::{Value, json};

/// Refuses numbers below the parameter `least`, 1 where it is left out; in one mode without a violation.
#[derive(Debug)]
struct AtLeast {
    silent: bool,
}

impl OutputRule for AtLeast {
    fn check(&self, value: &Value, parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        if value.as_i64() >= Some(parameters["least"].as_i64().unwrap_or(1)) {
            return Ok(());
        }
        Err(if self.silent { Vec::new() } else { vec![OutputViolation::new("", "too-small", "take more")] })
    }
}

fn catalog() -> OutputRuleCatalog {
    OutputRuleCatalog::new().with("at-least", Arc::new(AtLeast { silent: false })).unwrap()
}

#[test]
fn an_unknown_rule_is_an_error_and_no_acceptance() {
    let error = catalog().check(&RuleRef::new("absent"), &json!(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownRule);
    assert!(error.to_string().contains("absent"), "{error}");
    assert!(OutputRuleCatalog::new().get("at-least").is_none());
}

#[test]
fn a_taken_name_is_refused() {
    let error = catalog().with("at-least", Arc::new(AtLeast { silent: true })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateRule);
}

#[test]
fn a_clone_that_grows_leaves_the_first_catalog_and_its_rules() {
    let first = catalog();
    let second = first.clone().with("silent", Arc::new(AtLeast { silent: true })).unwrap();
    assert!(first.get("silent").is_none());
    assert!(Arc::ptr_eq(first.get("at-least").unwrap(), second.get("at-least").unwrap()));
}

#[test]
fn a_rule_is_asked_with_its_parameters() {
    let rule = RuleRef::new("at-least").with_parameters(json!({ "least": 10 }));
    assert_eq!(catalog().check(&rule, &json!(9)).unwrap()[0].kind, "too-small");
    assert!(catalog().check(&rule, &json!(10)).unwrap().is_empty());
    assert!(catalog().check(&RuleRef::new("at-least"), &json!(1)).unwrap().is_empty());
}

#[test]
fn a_refusal_without_a_violation_counts_as_acceptance() {
    let catalog = OutputRuleCatalog::new().with("silent", Arc::new(AtLeast { silent: true })).unwrap();
    assert!(catalog.check(&RuleRef::new("silent"), &json!(0)).unwrap().is_empty());
}
