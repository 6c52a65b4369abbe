//! The limits of a tree: children alive and children in all.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Error, ErrorKind, Parent, Result, StartSubagent, SubagentRegistry, SubagentResult, SubagentRun,
};

use crate::double::{Double, Step, poll_once, request};

fn active(limit: u32) -> LocalRegistry {
    LocalRegistry::builder().max_active_per_tree(limit).build().unwrap()
}

fn in_all(limit: u64) -> LocalRegistry {
    LocalRegistry::builder().max_children_per_tree(limit).build().unwrap()
}

#[track_caller]
fn refused(answer: Result<Box<dyn SubagentRun>>, kind: ErrorKind) {
    assert_eq!(answer.unwrap_err().kind(), kind);
}

#[test]
fn a_limit_of_zero_is_refused_by_name() {
    let error = LocalRegistry::builder().max_active_per_tree(0).build().unwrap_err();
    assert_eq!(error.limit(), "max_active_per_tree");
    let error = LocalRegistry::builder().max_active_per_tree(1).max_children_per_tree(0).build().unwrap_err();
    assert_eq!(error.limit(), "max_children_per_tree");
    assert!(error.to_string().contains("at least 1"), "{error}");
    LocalRegistry::builder().build().unwrap();
}

#[tokio::test]
async fn a_full_tree_refuses_until_a_child_ends_in_any_way() {
    let registry = active(2);
    let provider = Double::new("p");
    let _stays = registry.start_on(&(provider.clone() as _), request()).await.unwrap();

    let child = provider.then_child("result");
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    child.ends(SubagentResult::completed(""));
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    run.result().await.unwrap();

    let second = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    run.dispose().await.unwrap();
    drop(run);
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    second.dispose().await.unwrap();

    let third = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    drop(third);
    let last = provider.then_child("lost");
    last.is_lost();
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    run.result().await.unwrap_err();
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
}

#[tokio::test]
async fn a_start_that_fails_gives_its_place_back() {
    let registry = active(1);
    let provider = Double::new("p").then(Step::Fail(Error::new(ErrorKind::Provider, "no")));
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Provider);
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
}

#[tokio::test]
async fn a_panicking_provider_gives_its_place_back() {
    let registry = Arc::new(active(1));
    let provider = Double::new("p").then(Step::Panic);
    let (inner, double) = (Arc::clone(&registry), provider.clone());
    tokio::spawn(async move { inner.start_on(&(double as _), request()).await.map(drop) }).await.unwrap_err();
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
}

#[tokio::test]
async fn all_children_ever_are_counted_before_the_provider_works_and_never_refunded() {
    let registry = in_all(4);
    let provider = Double::new("p")
        .then(Step::Fail(Error::new(ErrorKind::Provider, "no")))
        .then(Step::Hang(Arc::new(AtomicBool::new(false))));
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Provider);
    let on: Arc<dyn harness_subagent::SubagentProvider> = provider.clone();
    let mut hangs = registry.start_on(&on, request());
    assert!(poll_once(&mut hangs).is_pending());
    drop(hangs);
    let run = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    run.dispose().await.unwrap();
    drop(run);
    drop(registry.start_on(&(provider.clone() as _), request()).await.unwrap());

    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::BudgetExhausted);
    assert_eq!(provider.requests().len(), 4, "the provider hears of no refused start");
}

#[tokio::test]
async fn a_start_refused_by_an_earlier_check_is_not_counted() {
    let registry = in_all(1);
    let provider = Double::new("p");
    refused(
        registry.start_on(&(provider.clone() as _), request().with_max_depth(0)).await,
        ErrorKind::DepthExceeded,
    );
    registry.start_on(&(provider.clone() as _), request()).await.unwrap();
}

#[tokio::test]
async fn the_living_are_checked_before_the_total() {
    let registry = LocalRegistry::builder().max_active_per_tree(1).max_children_per_tree(2).build().unwrap();
    let provider = Double::new("p");
    let first = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    drop(first);
    let second = registry.start_on(&(provider.clone() as _), request()).await.unwrap();
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::Capacity);
    drop(second);
    refused(registry.start_on(&(provider.clone() as _), request()).await, ErrorKind::BudgetExhausted);
}

#[tokio::test]
async fn each_tree_has_limits_of_its_own() {
    let registry = LocalRegistry::builder().max_active_per_tree(1).max_children_per_tree(1).build().unwrap();
    let provider = Double::new("p");
    for root in ["a", "b"] {
        let request = StartSubagent::new("x", Parent::new(root, "/"));
        drop(registry.start_on(&(provider.clone() as _), request.clone()).await.unwrap());
        refused(registry.start_on(&(provider.clone() as _), request).await, ErrorKind::BudgetExhausted);
    }
}

#[tokio::test]
async fn without_limits_any_parent_may_start_any_number() {
    let registry = LocalRegistry::new();
    let provider = Double::new("p");
    let stranger = Parent::new("stranger", "/").with_depth(7);
    let mut runs = Vec::new();
    for _ in 0..200 {
        runs.push(
            registry
                .start_on(&(provider.clone() as _), StartSubagent::new("x", stranger.clone()))
                .await
                .unwrap(),
        );
    }
    assert!(!registry.forget_tree(&stranger.id));
}
