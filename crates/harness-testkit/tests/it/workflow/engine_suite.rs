//! The engine's suite passes what keeps the contract and notices what breaks it.

use harness_testkit::conformance::{Check, Clock, Verdict};
use harness_testkit::workflow::{ENGINE_SUITE, EngineConstructor, EngineFixture};

use super::broken_engine::{BrokenEngine, EngineFault};
use super::custom_engine::TaskEngine;

async fn task_engine(fixture: EngineFixture) -> TaskEngine {
    TaskEngine::new(fixture)
}

harness_testkit::workflow_engine_conformance!(task_engine, clock: Paused);

fn verdict(id: &str, fault: EngineFault) -> Verdict {
    ENGINE_SUITE.verdict(id, Clock::Paused, || async move {
        EngineConstructor::new(move |fixture| async move { BrokenEngine::new(fixture, fault) })
    })
}

fn fault_named(name: &str) -> EngineFault {
    let named = EngineFault::ALL.iter().find(|fault| format!("{fault:?}") == name);
    *named.unwrap_or_else(|| panic!("no double is called {name}"))
}

#[test]
fn each_broken_double_is_noticed_by_the_check_of_its_clause() {
    let missed: Vec<&str> = ENGINE_SUITE
        .checks()
        .iter()
        .map(Check::clause)
        .filter(|clause| verdict(clause.id, fault_named(clause.double)) == Verdict::Held)
        .map(|clause| clause.double)
        .collect();
    assert!(missed.is_empty(), "nobody notices {missed:?}");
}

#[test]
fn every_double_breaks_a_clause() {
    let doubles: Vec<&str> = ENGINE_SUITE.checks().iter().map(|check| check.clause().double).collect();
    for fault in EngineFault::ALL {
        assert!(doubles.contains(&format!("{fault:?}").as_str()), "{fault:?} breaks no clause");
    }
    assert_eq!(doubles.len(), EngineFault::ALL.len());
}

#[test]
fn the_engines_clauses_are_those_of_its_checks() {
    let source = concat!(
        include_str!("../../../src/workflow/checks/calls.rs"),
        include_str!("../../../src/workflow/checks/cancel.rs"),
        include_str!("../../../src/workflow/checks/children.rs"),
        include_str!("../../../src/workflow/checks/dispose.rs"),
        include_str!("../../../src/workflow/checks/engine.rs"),
        include_str!("../../../src/workflow/checks/events.rs"),
        include_str!("../../../src/workflow/checks/limits.rs"),
        include_str!("../../../src/workflow/checks/run.rs"),
        include_str!("../../../src/workflow/checks/start.rs"),
    );
    crate::clauses::check(ENGINE_SUITE.checks().iter().map(Check::clause), source);
}
