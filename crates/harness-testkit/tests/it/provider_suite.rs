//! The provider's suite passes what keeps the contract and notices what breaks it.

use harness_testkit::conformance::{Clock, Verdict};
use harness_testkit::subagent::PROVIDER_SUITE;

use crate::broken_provider::{BrokenFixture, ProviderFault};
use crate::mock_fixture::MockFixture;

harness_testkit::subagent_provider_conformance!(MockFixture::new, clock: Paused);

/// Checks that cannot get at what they check when a fault keeps the child that they need from being.
const ALSO_NOTICED: &[(ProviderFault, &[&str])] = &[(
    ProviderFault::FailureIsRefusal,
    &[
        "overlapping_children_share_no_failure",
        "failure_has_a_diagnostic",
        "usage_is_told_of_failed_children_too",
        "fault_of_the_child_is_no_error_of_its_dispose",
    ],
)];

#[test]
fn each_broken_double_is_noticed_by_the_check_of_its_clause_alone() {
    let mut wrong = Vec::new();
    for check in PROVIDER_SUITE.checks() {
        let clause = check.clause();
        let name = clause.double;
        let fault = ProviderFault::ALL.iter().find(|fault| format!("{fault:?}") == name);
        let fault = *fault.unwrap_or_else(|| panic!("no double is called {name}"));
        let also = ALSO_NOTICED.iter().find(|(known, _)| *known == fault).map_or(&[][..], |(_, also)| also);
        for id in PROVIDER_SUITE.checks().iter().map(|check| check.clause().id) {
            let verdict = PROVIDER_SUITE.verdict(id, Clock::Paused, || BrokenFixture::new(fault));
            let expected = id == clause.id || also.contains(&id);
            if (verdict != Verdict::Held) != expected {
                wrong.push(format!("{name} against {id}: {verdict:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_double_breaks_a_clause() {
    let doubles: Vec<&str> = PROVIDER_SUITE.checks().iter().map(|check| check.clause().double).collect();
    for fault in ProviderFault::ALL {
        assert!(doubles.contains(&format!("{fault:?}").as_str()), "{fault:?} breaks no clause");
    }
    assert_eq!(doubles.len(), ProviderFault::ALL.len());
}

#[test]
#[should_panic(expected = "id_is_not_empty: the id is empty")]
fn a_failure_that_is_not_listed_fails_its_test() {
    let broken = || BrokenFixture::new(ProviderFault::EmptyId);
    PROVIDER_SUITE.test("id_is_not_empty", &["id_never_changes"], Clock::Paused, broken);
}

#[test]
fn a_listed_failure_passes_its_test() {
    let broken = || BrokenFixture::new(ProviderFault::EmptyId);
    PROVIDER_SUITE.test("id_is_not_empty", &["id_is_not_empty"], Clock::Paused, broken);
}

#[test]
#[should_panic(expected = "is listed as a known failure, and holds")]
fn a_listed_failure_that_holds_fails_its_test() {
    PROVIDER_SUITE.test("id_is_not_empty", &["id_is_not_empty"], Clock::Paused, MockFixture::new);
}

#[test]
#[should_panic(expected = "has no clause no_such_clause")]
fn a_list_of_known_failures_names_clauses() {
    PROVIDER_SUITE.test_known_failures(&["no_such_clause"]);
}

#[test]
fn a_run_of_the_whole_suite_says_whether_all_held() {
    assert!(PROVIDER_SUITE.run(Clock::Paused, MockFixture::new));
    assert!(!PROVIDER_SUITE.run(Clock::Paused, || BrokenFixture::new(ProviderFault::EmptyId)));
}
