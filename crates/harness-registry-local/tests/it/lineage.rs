//! Which tree a start belongs to.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    AgentId, Capabilities, ErrorKind, Parent, Result, StartSubagent, SubagentProvider, SubagentRegistry,
    SubagentRun,
};

use crate::double::{Double, request};

fn limited() -> LocalRegistry {
    LocalRegistry::builder().max_children_per_tree(3).build().unwrap()
}

fn below(id: &str, depth: u32) -> StartSubagent {
    StartSubagent::new("x", Parent::new(id, "/").with_depth(depth))
}

async fn start(
    registry: &LocalRegistry,
    request: StartSubagent,
    child: &str,
) -> Result<Box<dyn SubagentRun>> {
    let provider = Double::new("p");
    provider.then_child(child);
    registry.start_on(&(provider.clone() as _), request).await
}

async fn refusal(registry: &LocalRegistry, request: StartSubagent) -> ErrorKind {
    start(registry, request, "never").await.unwrap_err().kind()
}

#[tokio::test]
async fn a_deep_parent_that_was_not_started_here_is_refused() {
    let registry = limited();
    assert_eq!(refusal(&registry, below("stranger", 1)).await, ErrorKind::BudgetAncestryUnavailable);
}

#[tokio::test]
async fn a_known_parent_at_another_depth_is_refused() {
    let registry = limited();
    start(&registry, below("root", 0), "c").await.unwrap();
    assert_eq!(refusal(&registry, below("c", 2)).await, ErrorKind::BudgetAncestryUnavailable);
    start(&registry, below("c", 1), "d").await.unwrap();
}

#[tokio::test]
async fn a_child_that_bears_the_id_of_an_agent_above_it_is_no_parent() {
    let registry = LocalRegistry::builder().max_children_per_tree(9).build().unwrap();
    start(&registry, below("self", 0), "self").await.unwrap();
    assert_eq!(refusal(&registry, below("self", 1)).await, ErrorKind::BudgetAncestryUnavailable);

    start(&registry, below("a", 0), "b").await.unwrap();
    start(&registry, below("b", 1), "c").await.unwrap();
    start(&registry, below("c", 2), "b").await.unwrap();
    assert_eq!(refusal(&registry, below("b", 1)).await, ErrorKind::BudgetAncestryUnavailable);
    assert_eq!(refusal(&registry, below("b", 3)).await, ErrorKind::BudgetAncestryUnavailable);
}

#[tokio::test]
async fn an_id_of_two_trees_is_no_parent() {
    let registry = limited();
    start(&registry, below("a", 0), "c").await.unwrap();
    start(&registry, below("b", 0), "c").await.unwrap();
    assert_eq!(refusal(&registry, below("c", 1)).await, ErrorKind::BudgetAncestryUnavailable);
}

#[tokio::test]
async fn an_id_that_comes_again_in_the_same_place_stays_a_parent() {
    let registry = limited();
    start(&registry, below("a", 0), "c").await.unwrap();
    start(&registry, below("a", 0), "c").await.unwrap();
    start(&registry, below("c", 1), "d").await.unwrap();
    assert_eq!(refusal(&registry, below("c", 1)).await, ErrorKind::BudgetExhausted);
}

#[tokio::test]
async fn grandchildren_count_in_the_tree_of_the_root() {
    let registry = limited();
    let child = start(&registry, below("root", 0), "c").await.unwrap();
    child.dispose().await.unwrap();
    drop(child);
    start(&registry, below("c", 1), "d").await.unwrap();
    start(&registry, below("d", 2), "e").await.unwrap();
    for (id, depth) in [("root", 0), ("c", 1), ("d", 2), ("e", 3)] {
        assert_eq!(refusal(&registry, below(id, depth)).await, ErrorKind::BudgetExhausted, "{id}");
    }
}

#[tokio::test]
async fn a_forgotten_tree_begins_afresh_and_knows_no_child() {
    let registry = limited();
    let root = AgentId::from("root");
    assert!(!registry.forget_tree(&root), "it has started nothing");
    let child = start(&registry, below("root", 0), "c").await.unwrap();
    assert!(!registry.forget_tree(&root), "a child is alive");
    drop(child);
    start(&registry, below("c", 1), "d").await.unwrap();

    assert!(registry.forget_tree(&root));
    assert!(!registry.forget_tree(&root));

    assert_eq!(refusal(&registry, below("c", 1)).await, ErrorKind::BudgetAncestryUnavailable);
    for _ in 0..3 {
        start(&registry, below("root", 0), "n").await.unwrap();
    }
    assert_eq!(refusal(&registry, below("root", 0)).await, ErrorKind::BudgetExhausted);
}

#[tokio::test]
async fn forgetting_one_tree_leaves_the_others() {
    let registry = limited();
    start(&registry, below("a", 0), "shared").await.unwrap();
    start(&registry, below("b", 0), "shared").await.unwrap();
    start(&registry, below("b", 0), "own").await.unwrap();
    assert!(registry.forget_tree(&"a".into()));
    assert_eq!(refusal(&registry, below("shared", 1)).await, ErrorKind::BudgetAncestryUnavailable);
    start(&registry, below("own", 1), "more").await.unwrap();
    assert_eq!(refusal(&registry, below("b", 0)).await, ErrorKind::BudgetExhausted);
}

/// Starts another child on the same registry while it is asked for one.
#[derive(Debug)]
struct Delegating {
    registry: OnceLock<Weak<LocalRegistry>>,
    next: Arc<Double>,
}

#[async_trait]
impl SubagentProvider for Delegating {
    fn name(&self) -> &str {
        "delegating"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let registry = self.registry.get().unwrap().upgrade().unwrap();
        assert!(registry.providers().is_empty());
        registry.start_on(&(self.next.clone() as _), request).await
    }
}

#[tokio::test]
async fn a_provider_may_call_back_while_it_starts() {
    let registry = Arc::new(LocalRegistry::builder().max_active_per_tree(2).build().unwrap());
    let provider = Arc::new(Delegating { registry: OnceLock::new(), next: Double::new("next") });
    provider.registry.set(Arc::downgrade(&registry)).unwrap();
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    let full = registry.start_on(&(provider.clone() as _), request()).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Capacity, "both starts have a place");
    run.dispose().await.unwrap();
}
