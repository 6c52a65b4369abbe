//! The scripted provider as a provider under test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_subagent::{
    Activity, Capabilities, ModelChoice, OutputRuleCatalog, Parent, RuleRef, StartSubagent, StopReason,
    SubagentProvider, Usage,
};
use harness_testkit::subagent::{
    MockChild, MockProvider, MockProviderHandle, MockRule, ProviderFixture, ProviderTraits, StandardChild,
};

#[derive(Debug)]
pub(crate) struct MockFixture {
    pub(crate) provider: Arc<MockProvider>,
    pub(crate) handle: MockProviderHandle,
    scripts: Arc<Mutex<Vec<MockChild>>>,
}

impl MockFixture {
    pub(crate) async fn new() -> Self {
        let (provider, handle) = MockProvider::new(Capabilities::ALL);
        let rules = OutputRuleCatalog::new()
            .with("refuse-all", Arc::new(MockRule::default()))
            .expect("the name is free");
        handle.set_rules(rules);
        let scripts: Arc<Mutex<Vec<MockChild>>> = Arc::default();
        let children = Arc::clone(&scripts);
        handle.set_default_with(move |request| {
            let number: usize = request.prompt.parse().expect("a prompt is the number of a script");
            children.lock().expect("no test panics with the scripts")[number].clone()
        });
        Self { provider, handle, scripts }
    }

    pub(crate) fn traits() -> ProviderTraits {
        ProviderTraits::default()
            .with_refusable_start(true)
            .with_losable_child(true)
            .with_failing_release(true)
            .with_stubborn_child(true)
            .with_activity(true)
            .with_usage(true)
            .with_session_id(true)
            .with_refusing_rule(RuleRef::new("refuse-all"))
            .with_persona("tester")
            .with_model(ModelChoice::model("small"))
    }

    fn script(child: &StandardChild) -> MockChild {
        let script = match child {
            StandardChild::Completes => MockChild::text("done"),
            StandardChild::HandsIn(value) => MockChild::tries([value.clone()]),
            StandardChild::Fails => MockChild::failing(StopReason::REFUSAL),
            StandardChild::Hangs => MockChild::hanging().with_slow_dispose(Duration::from_millis(10)),
            StandardChild::Stubborn => MockChild::hanging().ignoring_cancellation(),
            StandardChild::Unstartable => MockChild::refused(),
            StandardChild::Lost => MockChild::lost(),
            StandardChild::Unreleasable => MockChild::text("done").with_failing_dispose(),
            other => panic!("the scripted provider does not know {other:?} yet"),
        };
        script
            .with_usage(Usage::new(10, 20))
            .with_session_id("session")
            .with_activity(Activity::new("working"))
    }
}

impl ProviderFixture for MockFixture {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        self.provider.clone()
    }

    fn traits(&self) -> ProviderTraits {
        Self::traits()
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        let mut scripts = self.scripts.lock().expect("no test panics with the scripts");
        scripts.push(Self::script(child));
        StartSubagent::new((scripts.len() - 1).to_string(), Parent::new("parent", "workspace"))
    }

    fn alive(&self) -> usize {
        self.handle.live().len()
    }
}
