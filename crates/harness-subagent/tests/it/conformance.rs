//! Holds the example's provider to the contract of this crate.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use harness_subagent::{
    AgentId, OutputRule, OutputRuleCatalog, OutputViolation, Parent, RuleRef, StartSubagent, SubagentProvider,
};
use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};
use serde_json::{Value, json};

use crate::in_process_provider::capture;
use crate::in_process_provider::harness::{Harness, Message, Model, ModelRequest, Reply, ReplyEnd};
use crate::in_process_provider::provider::InProcessProvider;
use crate::in_process_provider::script::{calls, says};

harness_testkit::subagent_provider_conformance!(Fixture::new, clock: Paused);

struct Fixture {
    harness: Arc<Harness>,
    provider: Arc<InProcessProvider>,
    root: AgentId,
}

impl Fixture {
    async fn new() -> Self {
        let harness = Harness::new(Arc::new(PromptedModel), Vec::new(), Vec::new());
        let root = harness.open_root("/w").id.clone();
        let rules = OutputRuleCatalog::new().with("refuses", Arc::new(Refuses)).unwrap();
        let provider = Arc::new(InProcessProvider::new(Arc::clone(&harness), rules));
        Self { harness, provider, root }
    }
}

impl ProviderFixture for Fixture {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        self.provider.clone()
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits::default()
            .with_refusable_start(true)
            .with_losable_child(true)
            .with_activity(true)
            .with_usage(true)
            .with_refusing_rule(RuleRef::new("refuses"))
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        let parent = match child {
            StandardChild::Unstartable => AgentId::from("nobody"),
            _ => self.root.clone(),
        };
        let prompt = match child {
            StandardChild::HandsIn(value) => json!({ "hand-in": value }).to_string(),
            child => format!("{child:?}"),
        };
        StartSubagent::new(prompt, Parent::new(parent, "/w"))
    }

    fn alive(&self) -> usize {
        self.harness.population() - 1 // The root is nobody's child.
    }
}

/// Does what the prompt says.
#[derive(Debug)]
struct PromptedModel;

#[async_trait]
impl Model for PromptedModel {
    async fn reply(&self, request: &ModelRequest) -> Reply {
        let [Message::User(prompt), answers @ ..] = &request.messages[..] else {
            panic!("a conversation begins with its prompt")
        };
        match prompt.as_str() {
            "Completes" => says("done"),
            "Fails" => Reply { end: ReplyEnd::Declined, ..says("") },
            "Hangs" => pending().await,
            "Lost" => panic!("the child was told to be lost"),
            _ if !answers.is_empty() => says("I cannot do better."),
            hand_in => {
                let value: Value = serde_json::from_str(hand_in).unwrap();
                calls("", [(capture::TOOL, value["hand-in"].clone())])
            }
        }
    }
}

#[derive(Debug)]
struct Refuses;

impl OutputRule for Refuses {
    fn check(&self, _value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        Err(vec![OutputViolation::new("", "refused", "nothing will do")])
    }
}
