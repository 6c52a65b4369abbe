use std::sync::Arc;

use harness_subagent::{OutputRule, OutputRuleCatalog, OutputViolation, RuleRef};
use ralph_report::{InvalidReport, RoundReport};
use serde_json::{Value, json};

use crate::config::report_limits;
use crate::number::positive_safe_integer;

/// The name under which [`report_rule`] goes into an [`OutputRuleCatalog`].
pub const REPORT_RULE: &str = "ralph-report";

/// Returns the rule by which a worker's report is judged, for the catalog of whoever runs the workers.
///
/// A provider that asks it while the worker can still be spoken to lets the worker mend its report; the loop judges by
/// the same rule in any case. Its parameters are `{ "maxHandoffChars": N }`; without them a report may be of any size.
///
/// ```
/// use harness_subagent::OutputRuleCatalog;
/// use ralph_tool::{REPORT_RULE, report_rule};
///
/// let rules = OutputRuleCatalog::new().with(REPORT_RULE, report_rule())?;
/// assert!(rules.get(REPORT_RULE).is_some());
/// # Ok::<(), harness_subagent::Error>(())
/// ```
#[must_use]
pub fn report_rule() -> Arc<dyn OutputRule> {
    Arc::new(ReportRule)
}

/// Returns a catalog of output rules that has [`report_rule`] and no other.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "it cannot panic: the catalog is empty")]
pub fn rules() -> OutputRuleCatalog {
    OutputRuleCatalog::new().with(REPORT_RULE, report_rule()).expect("an empty catalog takes any name")
}

/// Names the rule, with its parameters.
pub(crate) fn reference(max_handoff_chars: u64) -> RuleRef {
    RuleRef::new(REPORT_RULE).with_parameters(json!({ "maxHandoffChars": max_handoff_chars }))
}

#[derive(Debug)]
struct ReportRule;

impl OutputRule for ReportRule {
    fn check(&self, value: &Value, parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        let limit = parameters.get("maxHandoffChars").and_then(positive_safe_integer).unwrap_or(u64::MAX);
        match RoundReport::from_value(value, &report_limits(limit)) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(violations(&refusal)),
        }
    }
}

/// Returns the violations in the words of the subagent contract, the deciding one first.
pub(crate) fn violations(refusal: &InvalidReport) -> Vec<OutputViolation> {
    let listed = refusal.violations().iter();
    listed
        .map(|violation| {
            OutputViolation::new(violation.pointer(), violation.kind().as_str(), violation.to_string())
        })
        .collect()
}
