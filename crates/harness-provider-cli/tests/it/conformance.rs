//! Holds the command provider to the contract of a provider.

use std::sync::Arc;

use harness_subagent::{Parent, StartSubagent, SubagentProvider};
use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};

use crate::support::Bench;

/// Does what the first line of its prompt says.
const CHILD: &str = r#"
IFS= read -r what
case "$what" in
  completes) echo "all done" ;;
  hands-in) IFS= read -r value; printf '%s' "$value" > "$HARNESS_VALUE_FILE" ;;
  fails) exit 3 ;;
  hangs) while :; do echo "still here"; sleep 0.05; done ;;
  stubborn) trap '' INT TERM; while :; do echo "still here"; sleep 0.05; done ;;
esac
"#;

struct Shell {
    bench: Bench,
    provider: Arc<dyn SubagentProvider>,
}

async fn new_fixture() -> Shell {
    let bench = Bench::new();
    let provider = Arc::new(bench.shell(CHILD));
    Shell { bench, provider }
}

impl ProviderFixture for Shell {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        Arc::clone(&self.provider)
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits::default().with_refusable_start(true).with_stubborn_child(true).with_activity(true)
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
