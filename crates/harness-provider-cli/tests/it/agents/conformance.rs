//! Holds each agent to the contract of a provider.

use std::sync::Arc;

use harness_provider_cli::AgentKind;
use harness_subagent::{ModelChoice, Parent, RuleRef, StartSubagent, SubagentProvider};
use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};

use super::fake::{FakeAgent, Play};

struct Prompted {
    fake: FakeAgent,
    provider: Arc<dyn SubagentProvider>,
}

impl Prompted {
    fn new(kind: AgentKind) -> Self {
        let fake = FakeAgent::new(kind, &Play::Prompted);
        let mut provider = fake.provider();
        if provider.hand_in().is_none() {
            provider = provider.with_capture(fake.capture_server());
        }
        Self { fake, provider: Arc::new(provider) }
    }
}

impl ProviderFixture for Prompted {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        Arc::clone(&self.provider)
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits::default()
            .with_refusable_start(true)
            .with_stubborn_child(true)
            .with_activity(true)
            .with_usage(true)
            .with_session_id(true)
            .with_refusing_rule(RuleRef::new("refuses-all"))
            .with_model(ModelChoice::model("some-model"))
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        let parent = self.fake.bench.parent();
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
        self.fake.bench.alive().len()
    }
}

mod claude_code {
    use super::{AgentKind, Prompted};

    async fn new_fixture() -> Prompted {
        Prompted::new(AgentKind::ClaudeCode)
    }

    harness_testkit::subagent_provider_conformance!(new_fixture);
}

mod codex {
    use super::{AgentKind, Prompted};

    async fn new_fixture() -> Prompted {
        Prompted::new(AgentKind::Codex)
    }

    harness_testkit::subagent_provider_conformance!(new_fixture);
}

mod gemini {
    use super::{AgentKind, Prompted};

    async fn new_fixture() -> Prompted {
        Prompted::new(AgentKind::Gemini)
    }

    harness_testkit::subagent_provider_conformance!(new_fixture);
}

mod opencode {
    use super::{AgentKind, Prompted};

    async fn new_fixture() -> Prompted {
        Prompted::new(AgentKind::Opencode)
    }

    harness_testkit::subagent_provider_conformance!(new_fixture);
}

mod qwen_code {
    use super::{AgentKind, Prompted};

    async fn new_fixture() -> Prompted {
        Prompted::new(AgentKind::QwenCode)
    }

    harness_testkit::subagent_provider_conformance!(new_fixture);
}
