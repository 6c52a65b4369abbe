//! The engine's suite passes what keeps the contract and notices what breaks it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{
    ProviderInfo, Result, StartSubagent, SubagentObserver, SubagentProvider, SubagentRegistry, SubagentRun,
};
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

/// Starts the child of a run's first call a little later than it could.
#[derive(Debug)]
struct LateFirstStart(Arc<dyn SubagentRegistry>);

#[async_trait]
impl SubagentRegistry for LateFirstStart {
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()> {
        self.0.register(provider)
    }

    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.0.unregister(name)
    }

    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.0.provider(name)
    }

    fn providers(&self) -> Vec<ProviderInfo> {
        self.0.providers()
    }

    fn observe(&self, observer: Arc<dyn SubagentObserver>) {
        self.0.observe(observer);
    }

    async fn start_on(
        &self,
        provider: &Arc<dyn SubagentProvider>,
        request: StartSubagent,
    ) -> Result<Box<dyn SubagentRun>> {
        if request.origin.as_ref().is_some_and(|origin| origin.call == 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.0.start_on(provider, request).await
    }
}

#[test]
fn children_out_of_order_are_noticed_unless_they_are_started_elsewhere() {
    let verdict = |id: &str, elsewhere: bool| {
        ENGINE_SUITE.verdict(id, Clock::Paused, || async move {
            let constructor = EngineConstructor::new(|mut fixture: EngineFixture| async move {
                fixture.registry = Arc::new(LateFirstStart(fixture.registry));
                TaskEngine::new(fixture)
            });
            if elsewhere { constructor.starting_elsewhere() } else { constructor }
        })
    };
    for id in ["slots_bound_the_children", "every_started_child_ends_once"] {
        assert_ne!(verdict(id, false), Verdict::Held, "{id}");
        assert_eq!(verdict(id, true), Verdict::Held, "{id}");
    }
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
