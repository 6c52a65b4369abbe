//! The tables of clauses say what the checks' documentation says.

use std::collections::BTreeMap;

use harness_testkit::conformance::{Check, Clause};

/// Returns the sentence over each check of a source file.
fn documented(source: &str) -> BTreeMap<&str, String> {
    let mut found = BTreeMap::new();
    let mut sentence = Vec::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            sentence.push(text.trim());
        } else if let Some(rest) = line.strip_prefix("pub async fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            found.insert(name, std::mem::take(&mut sentence).join(" "));
        } else if !line.starts_with("#[") {
            sentence.clear();
        }
    }
    found
}

/// Holds the table of one suite against the source of its checks.
#[track_caller]
pub(crate) fn check<'a>(clauses: impl IntoIterator<Item = &'a Clause>, source: &str) {
    let documented = documented(source);
    let mut seen = 0;
    for clause in clauses {
        assert_eq!(documented.get(clause.id), Some(&clause.text.to_owned()), "{}", clause.check);
        assert!(clause.check.ends_with(&format!("::{}", clause.id)), "{}", clause.check);
        seen += 1;
    }
    assert_eq!(seen, documented.len(), "every check is in the table once");
}

#[cfg(feature = "subagent")]
#[test]
fn the_providers_clauses_are_those_of_its_checks() {
    use harness_testkit::subagent::PROVIDER_SUITE;

    let source = include_str!("../../src/subagent/provider_checks.rs");
    check(PROVIDER_SUITE.checks().iter().map(Check::clause), source);
}

#[cfg(feature = "subagent")]
#[test]
fn the_registrys_clauses_are_those_of_its_checks() {
    use harness_testkit::subagent::REGISTRY_SUITE;

    let source = concat!(
        include_str!("../../src/subagent/registry_checks/providers.rs"),
        include_str!("../../src/subagent/registry_checks/events.rs"),
        include_str!("../../src/subagent/registry_checks/starts.rs"),
        include_str!("../../src/subagent/registry_checks/limits.rs"),
        include_str!("../../src/subagent/registry_checks/results.rs"),
    );
    check(REGISTRY_SUITE.checks().iter().map(Check::clause), source);
}
