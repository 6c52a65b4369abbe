//! The registry's suite passes what keeps the contract and notices what breaks it.

use std::sync::Arc;

use harness_subagent::SubagentRegistry;
use harness_testkit::conformance::{Clock, Verdict};
use harness_testkit::subagent::{REGISTRY_SUITE, RegistryFixture, RegistryTraits, TreeLimits};

use crate::broken_registry::{BrokenRegistryFixture, RegistryFault};
use crate::local_fixture::LocalFixture;

harness_testkit::subagent_registry_conformance!(LocalFixture::new);

mod without_limits {
    use super::Unlimited;

    harness_testkit::subagent_registry_conformance!(Unlimited::new, clock: Real);
}

/// A registry that knows no limits.
#[derive(Debug)]
struct Unlimited;

impl Unlimited {
    async fn new() -> Self {
        Self
    }
}

impl RegistryFixture for Unlimited {
    fn registry(&self) -> Arc<dyn SubagentRegistry> {
        LocalFixture.registry()
    }

    fn traits(&self) -> RegistryTraits {
        RegistryTraits::default()
    }

    fn limited(&self, _limits: TreeLimits) -> Option<Arc<dyn SubagentRegistry>> {
        None
    }
}

/// Checks that rest on what a fault breaks.
const ALSO_NOTICED: &[(RegistryFault, &[&str])] = &[
    (
        RegistryFault::AdmitsOneTooMany,
        &["living_children_are_checked_before_all", "children_of_children_count_in_their_tree"],
    ),
    (RegistryFault::StartsOneTooMany, &["failed_start_stays_counted"]),
    // This check works on a thread without a runtime, too.
    (RegistryFault::SpawnsTask, &["observer_may_call_the_registry"]),
];

#[test]
fn each_broken_double_is_noticed_by_the_check_of_its_clause_alone() {
    let mut wrong = Vec::new();
    for check in REGISTRY_SUITE.checks() {
        let clause = check.clause();
        let name = clause.double;
        let fault = RegistryFault::ALL.iter().find(|fault| format!("{fault:?}") == name);
        let fault = *fault.unwrap_or_else(|| panic!("no double is called {name}"));
        let also = ALSO_NOTICED.iter().find(|(known, _)| *known == fault).map_or(&[][..], |(_, also)| also);
        for id in REGISTRY_SUITE.checks().iter().map(|check| check.clause().id) {
            let verdict = REGISTRY_SUITE.verdict(id, Clock::Paused, || BrokenRegistryFixture::new(fault));
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
    let doubles: Vec<&str> = REGISTRY_SUITE.checks().iter().map(|check| check.clause().double).collect();
    for fault in RegistryFault::ALL {
        assert!(doubles.contains(&format!("{fault:?}").as_str()), "{fault:?} breaks no clause");
    }
    assert_eq!(doubles.len(), RegistryFault::ALL.len());
}
