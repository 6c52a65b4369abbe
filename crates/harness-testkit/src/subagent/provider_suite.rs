use super::{ProviderFixture, provider_checks};

/// The clauses of a provider, each with its check; see [`__clause_table`](crate::__clause_table) for the form.
#[doc(hidden)]
#[macro_export]
macro_rules! __subagent_provider_clauses {
    ($callback:ident $arguments:tt) => {
        $crate::$callback! { $arguments
            name_never_changes on "SubagentProvider::name" breaks "NameChanges":
                "A provider's name never changes.";
            capabilities_never_change on "SubagentProvider::capabilities" breaks "CapabilitiesChange":
                "What a provider can be asked for never changes.";
            declared_capabilities_are_accepted on "SubagentProvider::capabilities" breaks "RefusesWhatItDeclares":
                "A provider accepts what its capabilities say that it can be asked for.";
            inherited_context_is_as_declared on "SubagentProvider::inherits_parent_context" breaks "ContextMisdeclared":
                "A provider says whether a child sees what its parent has seen, and never changes its answer.";
            overlapping_children_share_no_failure on "SubagentProvider" breaks "SharesFailure":
                "Starts may overlap, and none shares the failure of another.";
            overlapping_children_share_no_cancellation on "SubagentProvider" breaks "SharesCancellation":
                "Starts may overlap, and none shares the cancellation of another.";
            overlapping_children_share_no_cleanup on "SubagentProvider" breaks "SharesCleanup":
                "Starts may overlap, and none shares the cleanup of another.";
            refused_start_has_its_source on "SubagentProvider::start" breaks "HidesSource":
                "A start that fails says so with the provider's own error as its source.";
            refused_start_leaves_no_child on "SubagentProvider::start" breaks "RefusalLeavesChild":
                "Before ownership passes, the provider must release whatever it created.";
            failing_child_is_a_result on "SubagentProvider::start" breaks "FailureIsRefusal":
                "What goes wrong after the start is a result of the run, not an error of the start.";
            request_cancelled_beforehand_is_refused on "SubagentProvider::start" breaks "StartsCancelledRequest":
                "A request that is cancelled before there is a child is refused.";
            cancelled_child_ends_as_aborted on "SubagentProvider::start" breaks "CancelledCompletes":
                "A request that is cancelled after the start ends the child, whose result then says so.";
            dropped_start_leaves_no_child on "SubagentProvider::start" breaks "DroppedStartLeavesChild":
                "If the future of a start is dropped, no child is left behind.";
            id_is_not_empty on "SubagentRun::id" breaks "EmptyId":
                "A child's id is never empty.";
            id_never_changes on "SubagentRun::id" breaks "IdChanges":
                "A child's id never changes.";
            result_can_be_asked_for_again on "SubagentRun::result" breaks "ForgetsResult":
                "The result may be asked for any number of times, and every call gets the same answer.";
            results_asked_for_at_once_agree on "SubagentRun::result" breaks "AnswersOneWaiter":
                "The result may be asked for at once by several, and every one gets the same answer.";
            result_after_dispose_is_the_same on "SubagentRun::result" breaks "DisposeChangesResult":
                "The result may be asked for after the disposal, and is the same as before.";
            child_goes_on_without_a_waiter on "SubagentRun::result" breaks "WaitDrivesChild":
                "Waiting drives nothing that a dropped wait would stop.";
            completed_child_stays_completed on "SubagentRun::result" breaks "LateCancellationCounts":
                "A child that had completed before its cancellation stays completed.";
            lost_child_is_an_error_of_its_result on "SubagentRun::result" breaks "LostIsFailure":
                "A child whose end the provider cannot know is an error of its result, each time.";
            success_has_no_diagnostic on "SubagentResult::diagnostic" breaks "DiagnosticOnSuccess":
                "A success has no diagnostic.";
            failure_has_a_diagnostic on "SubagentResult::diagnostic" breaks "SilentFailure":
                "A diagnostic says why a child did not complete.";
            usage_is_told_of_failed_children_too on "SubagentResult::usage" breaks "UsageOfSuccessOnly":
                "Where the provider can tell what a child used, it tells it of failed children too.";
            session_id_is_told on "SubagentResult::session_id" breaks "HidesSessionId":
                "The result names the session that the provider's own side knows the child by, where there is one.";
            value_is_delivered_as_handed_in on "SubagentResult::structured" breaks "ChangesValue":
                "The value that a child hands in under an output contract is delivered as it is.";
            broken_rule_is_no_verdict on "OutputRule" breaks "JudgesByRule":
                "Nobody below the caller of the child turns a broken rule into a verdict.";
            dispose_waits_until_a_running_child_is_gone on "SubagentRun::dispose" breaks "DisposeDoesNotWait":
                "The disposal ends the child if it still runs, and waits until it and all it held are gone.";
            dispose_after_a_result_releases_the_child on "SubagentRun::dispose" breaks "KeepsEndedChild":
                "The caller disposes of a run also after a result.";
            repeated_dispose_gets_the_same_answer on "SubagentRun::dispose" breaks "SecondDisposeFails":
                "A repeated disposal gets the same answer as the first.";
            concurrent_dispose_waits_for_the_first on "SubagentRun::dispose" breaks "SecondDisposeReturnsAtOnce":
                "A concurrent disposal waits for the first.";
            result_resolves_at_once_after_dispose on "SubagentRun::dispose" breaks "NoResultAfterDispose":
                "After a disposal the result resolves at once.";
            dropped_dispose_is_gone_on_with on "SubagentRun::dispose" breaks "ForgetsDroppedDispose":
                "A dropped disposal may leave the release unfinished, but the next one goes on with it.";
            release_of_a_stubborn_child_is_bounded on "SubagentRun::dispose" breaks "WaitsForStubbornChild":
                "A provider must bound the release of a child by itself.";
            failed_release_is_an_error_of_the_dispose on "SubagentRun::dispose" breaks "HidesFailedRelease":
                "A release that fails is an error of the disposal, each time.";
            fault_of_the_child_is_no_error_of_its_dispose on "SubagentRun::dispose" breaks "DisposeRepeatsFault":
                "A fault of the child is never an error of its disposal.";
            activity_is_as_declared on "SubagentRun::activity" breaks "SilentActivity":
                "What a child does can be watched, where the provider can tell it.";
            activity_ends_with_the_child on "SubagentRun::activity" breaks "EndlessActivity":
                "The stream of activity is bounded and ends with the child.";
        }
    };
}

crate::__subagent_provider_clauses! { __clause_table [
    /// The suite that holds a [`SubagentProvider`](harness_subagent::SubagentProvider) and its runs to their contract.
    PROVIDER_SUITE, "SubagentProvider", "harness-subagent", provider_checks,
    "subagent::provider_checks", dyn ProviderFixture
] }

/// Stamps the provider's suite as tests, one for each clause.
///
/// It takes the path of an async constructor that makes a fresh [`ProviderFixture`](crate::subagent::ProviderFixture),
/// and, where they are needed, the [`Clock`](crate::conformance::Clock) (time passes, unless it says `Paused`) and
/// the clauses that are known to fail. A known failure that holds fails its test.
///
/// ```
/// # use std::sync::Arc;
/// # use harness_subagent::{StartSubagent, SubagentProvider};
/// # use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};
/// # fn main() {}
/// # struct MyFixture;
/// # impl ProviderFixture for MyFixture {
/// #     fn provider(&self) -> Arc<dyn SubagentProvider> { unreachable!() }
/// #     fn traits(&self) -> ProviderTraits { ProviderTraits::default() }
/// #     fn request(&self, _child: &StandardChild) -> StartSubagent { unreachable!() }
/// #     fn alive(&self) -> usize { 0 }
/// # }
/// async fn new_fixture() -> MyFixture {
///     MyFixture
/// }
///
/// harness_testkit::subagent_provider_conformance!(new_fixture);
///
/// mod under_a_paused_clock {
///     use super::new_fixture;
///     harness_testkit::subagent_provider_conformance!(
///         new_fixture, clock: Paused, known_failures: [id_is_not_empty]
///     );
/// }
/// ```
#[macro_export]
macro_rules! subagent_provider_conformance {
    ($constructor:path) => {
        $crate::subagent_provider_conformance!($constructor, clock: Real, known_failures: []);
    };
    ($constructor:path, clock: $clock:ident) => {
        $crate::subagent_provider_conformance!($constructor, clock: $clock, known_failures: []);
    };
    ($constructor:path, known_failures: [$($known:ident),* $(,)?]) => {
        $crate::subagent_provider_conformance!($constructor, clock: Real, known_failures: [$($known),*]);
    };
    ($constructor:path, clock: $clock:ident, known_failures: [$($known:ident),* $(,)?]) => {
        mod subagent_provider_conformance {
            #[allow(unused_imports, reason = "the constructor may be named by a full path")]
            use super::*;

            $crate::__subagent_provider_clauses! { __clause_tests [
                $crate::subagent::PROVIDER_SUITE, $constructor, $clock, [$($known),*]
            ] }
        }
    };
}
