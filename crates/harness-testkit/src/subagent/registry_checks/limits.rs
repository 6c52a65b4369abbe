//! The limits of a tree, and the places in it.

use std::sync::Arc;

use harness_subagent::{Capabilities, ErrorKind, Parent, StartSubagent, StopReason, SubagentRun};

use super::{dispose, limited, ok_result, refused, release, request, start, with_mock};
use crate::subagent::{MockChild, RegistryFixture, SeenEnding, SubagentRecorder, TreeLimits};

/// The depth is checked before the limits of the tree.
pub async fn depth_is_checked_before_the_limits(fixture: &dyn RegistryFixture) {
    let Some((registry, _handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    let run = start(&*registry, request()).await;
    refused(&*registry, request().with_max_depth(0), ErrorKind::DepthExceeded).await;
    release(run).await;
}

/// A tree with as many children alive as it may have is refused until one has ended.
pub async fn full_tree_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(2)) else { return };
    let first = start(&*registry, request()).await;
    let second = start(&*registry, request()).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    assert_eq!(handle.starts(), 2, "the provider was called");
    release(first).await;
    release(start(&*registry, request()).await).await;
    release(second).await;
}

/// A tree that has started as many children as it may is refused for good.
pub async fn exhausted_tree_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::total(2)) else { return };
    release(start(&*registry, request()).await).await;
    release(start(&*registry, request()).await).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
    assert_eq!(handle.starts(), 2, "the provider was called");
}

/// The children alive are checked before all children ever.
pub async fn living_children_are_checked_before_all(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1).with_total(1);
    let Some((registry, _handle)) = limited(fixture, limits) else { return };
    let run = start(&*registry, request()).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    release(run).await;
}

/// A start that the provider fails gives the place of a living child back.
pub async fn failed_start_gives_its_place_back(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    handle.script([MockChild::refused()]);
    refused(&*registry, request(), ErrorKind::Provider).await;
    release(start(&*registry, request()).await).await;
}

/// A start that the provider fails stays counted among all children.
pub async fn failed_start_stays_counted(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::total(1)) else { return };
    handle.script([MockChild::refused()]);
    refused(&*registry, request(), ErrorKind::Provider).await;
    refused(&*registry, request(), ErrorKind::BudgetExhausted).await;
}

/// The limits are those of a tree: children of children count in it.
pub async fn children_of_children_count_in_their_tree(fixture: &dyn RegistryFixture) {
    let Some((registry, _handle)) = limited(fixture, TreeLimits::active(2)) else { return };
    let child = start(&*registry, request()).await;
    let below = Parent::new(child.id().clone(), "workspace").with_depth(1);
    let grandchild = start(&*registry, StartSubagent::new("work", below.clone())).await;
    refused(&*registry, StartSubagent::new("work", below), ErrorKind::Capacity).await;
    refused(&*registry, request(), ErrorKind::Capacity).await;
    release(grandchild).await;
    release(child).await;
}

/// The limits are those of a tree: another tree has its own.
pub async fn another_tree_has_its_own_limits(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1).with_total(1);
    let Some((registry, _handle)) = limited(fixture, limits) else { return };
    let first = start(&*registry, request()).await;
    let other = StartSubagent::new("work", Parent::new("another root", "workspace"));
    let second = start(&*registry, other).await;
    release(first).await;
    release(second).await;
}

/// Where the tree of the child cannot be told, its limits cannot be checked, and the start is refused.
pub async fn unknown_ancestry_is_refused(fixture: &dyn RegistryFixture) {
    let Some((registry, handle)) = limited(fixture, TreeLimits::active(1)) else { return };
    let stranger = Parent::new("a stranger", "workspace").with_depth(1);
    refused(&*registry, StartSubagent::new("work", stranger), ErrorKind::BudgetAncestryUnavailable).await;
    assert_eq!(handle.starts(), 0, "the provider was called");
}

/// Without limits no start is refused for the number of children.
pub async fn without_limits_nothing_is_counted(fixture: &dyn RegistryFixture) {
    if !fixture.traits().limits {
        let offered = fixture.limited(TreeLimits::active(1)).is_some();
        assert!(!offered, "the fixture declares no limits, but makes a registry with them");
    }
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.set_default(MockChild::hanging());
    let stranger = Parent::new("a stranger", "workspace").with_depth(5);
    let mut runs = vec![start(&*registry, StartSubagent::new("work", stranger)).await];
    for _ in 0..100 {
        runs.push(start(&*registry, request()).await);
    }
    for run in runs {
        release(run).await;
    }
    handle.assert_nothing_left();
}

/// A child's end is noticed, and its place freed, when its result is ready.
pub async fn result_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        ok_result(&*run).await;
        (Some(run), SeenEnding::Result { stop_reason: StopReason::COMPLETED, output: Some("done".into()) })
    })
    .await;
}

/// A child's end is noticed, and its place freed, when its run is disposed of.
pub async fn dispose_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        dispose(&*run).await;
        (Some(run), SeenEnding::Disposed)
    })
    .await;
}

/// A child's end is noticed, and its place freed, when its run is dropped.
pub async fn drop_frees_the_place(fixture: &dyn RegistryFixture) {
    frees_the_place(fixture, |run| async move {
        drop(run);
        (None, SeenEnding::Dropped)
    })
    .await;
}

/// Ends a child by `end` and checks that this was noticed, once, and that its place is free for the next.
async fn frees_the_place<F>(fixture: &dyn RegistryFixture, end: impl FnOnce(Box<dyn SubagentRun>) -> F)
where
    F: Future<Output = (Option<Box<dyn SubagentRun>>, SeenEnding)>,
{
    let limits = TreeLimits::active(1);
    let (registry, _handle) =
        limited(fixture, limits).unwrap_or_else(|| with_mock(fixture, Capabilities::NONE));
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    let run = start(&*registry, request()).await;
    assert_eq!(recorder.ended(), [], "the child has not ended yet");
    let (run, ending) = end(run).await;
    assert_eq!(recorder.ended(), [(1, ending)]);
    release(start(&*registry, request()).await).await;
    drop(run);
}
