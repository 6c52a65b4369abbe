//! Holds the provider to the contract of a provider.

use std::sync::Arc;

use harness_subagent::{Parent, StartSubagent, SubagentProvider};
use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};

use crate::support::Bench;

struct Scripted {
    bench: Bench,
    provider: Arc<dyn SubagentProvider>,
}

async fn new_fixture() -> Scripted {
    let bench = Bench::new();
    let provider = Arc::new(bench.provider("by its prompt"));
    Scripted { bench, provider }
}

impl ProviderFixture for Scripted {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        Arc::clone(&self.provider)
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits::default()
            .with_refusable_start(true)
            .with_stubborn_child(true)
            .with_activity(true)
            .with_session_id(true)
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        let parent = self.bench.parent();
        match child {
            StandardChild::Completes => StartSubagent::new("completes\n", parent),
            StandardChild::HandsIn(value) => StartSubagent::new(format!("hands-in\n{value}\n"), parent),
            StandardChild::Fails => StartSubagent::new("fails\n", parent),
            StandardChild::Hangs => StartSubagent::new("hangs\n", parent),
            StandardChild::Stubborn => StartSubagent::new("stubborn\n", parent),
            StandardChild::Unstartable => {
                StartSubagent::new("completes\n", Parent::new("parent", "/no/such/workspace"))
            }
            other => unreachable!("the fixture did not offer {other:?}"),
        }
    }

    fn alive(&self) -> usize {
        self.bench.alive().len()
    }
}

harness_testkit::subagent_provider_conformance!(new_fixture);
