use super::{RegistryFixture, registry_checks};

/// The clauses of a registry, each with its check; see [`__clause_table`](crate::__clause_table) for the form.
#[doc(hidden)]
#[macro_export]
macro_rules! __subagent_registry_clauses {
    ($callback:ident $arguments:tt) => {
        $crate::$callback! { $arguments
            registered_provider_is_available on "SubagentRegistry::register" breaks "TrimsNames":
                "A registered provider is available under its name, used verbatim.";
            taken_name_is_refused_and_the_first_stays on "SubagentRegistry::register" breaks "ReplacesProvider":
                "A name that is taken is refused, and the first provider stays.";
            unregister_returns_the_provider_or_nothing on "SubagentRegistry::unregister" breaks "InventsProvider":
                "Unregistering returns the provider, or nothing when there is none of that name.";
            unregistered_name_is_refused_and_free on "SubagentRegistry::unregister" breaks "KeepsUnregistered":
                "Further starts under the name of an unregistered provider are refused, and the name is free again.";
            children_outlive_the_unregistering on "SubagentRegistry::unregister" breaks "UnregisteringEndsChildren":
                "Children of a provider live on when it is unregistered.";
            unregistered_provider_can_be_started_on on "SubagentRegistry::unregister" breaks "RefusesUnregistered":
                "Whoever holds an unregistered provider may still start children on it.";
            providers_are_listed_in_their_order on "SubagentRegistry::providers" breaks "SortsProviders":
                "Providers are described in the order in which they were registered.";
            providers_are_observed_as_they_come_and_go on "SubagentEvent" breaks "MisnamesProviders":
                "An observer hears of providers that come and go, once they have.";
            every_observer_hears_of_every_child on "SubagentRegistry::observe" breaks "NeglectsSecondObserver":
                "Every observer hears of every child, as long as the registry lives.";
            panic_of_an_observer_is_contained on "SubagentObserver" breaks "LetsPanicsThrough":
                "A panic in an observer reaches neither the other observers nor the children.";
            start_is_told_before_the_end on "SubagentEvent" breaks "TellsStartLate":
                "A child's start is told before its end, also when it had ended before its start returned.";
            every_started_child_ends_once on "SubagentEvent" breaks "EndsTwice":
                "Every child whose start was told ends exactly once.";
            failed_start_causes_no_event on "SubagentEvent" breaks "TellsFailedStarts":
                "A start that fails causes neither a start nor an end.";
            child_is_told_of_with_its_circumstances on "StartedChild" breaks "HidesOrigin":
                "A child is told of with its id, its provider, its parent, its origin and its label.";
            starts_are_numbered on "StartedChild::sequence" breaks "RepeatsNumbers":
                "Starts are numbered from 1, and no number comes again.";
            end_is_told_as_passed_on on "ChildEnding" breaks "TellsProvidersReason":
                "A child's end is told with its stop reason as passed on, and with what it said last unless it said nothing.";
            observer_may_call_the_registry on "SubagentRegistry" breaks "NotReentrant":
                "Every method may be called at any time, also by an observer that is being told of something.";
            registry_needs_no_runtime on "SubagentRegistry" breaks "SpawnsTask":
                "A registry must not start tasks or threads of its own: it works without a runtime.";
            result_frees_the_place on "SubagentRegistry" breaks "ResultKeepsPlace":
                "A child's end is noticed, and its place freed, when its result is ready.";
            dispose_frees_the_place on "SubagentRegistry" breaks "DisposeKeepsPlace":
                "A child's end is noticed, and its place freed, when its run is disposed of.";
            drop_frees_the_place on "SubagentRegistry" breaks "DropKeepsPlace":
                "A child's end is noticed, and its place freed, when its run is dropped.";
            lacking_capability_is_refused on "SubagentRegistry::start_on" breaks "IgnoresModelChoice":
                "A capability that the request needs and the provider lacks is refused before the provider is called.";
            preferred_restriction_is_dropped_where_lacking on "SubagentRegistry::start_on" breaks "KeepsPreferredRestriction":
                "A preferred tool restriction that the provider lacks is dropped.";
            provider_gets_the_request_unchanged_and_once on "SubagentRegistry::start_on" breaks "EditsPrompt":
                "The provider is called once, and gets the request unchanged.";
            child_deeper_than_the_limit_is_refused on "SubagentRegistry::start_on" breaks "IgnoresDepth":
                "A child that would be deeper than the request's limit is refused before the provider is called.";
            capabilities_are_checked_before_the_depth on "SubagentRegistry::start_on" breaks "DepthFirst":
                "Capabilities are checked before the depth.";
            depth_is_checked_before_the_limits on "SubagentRegistry::start_on" breaks "LimitsBeforeDepth":
                "The depth is checked before the limits of the tree.";
            schemas_of_the_subset_can_be_enforced on "SubagentRegistry::start_on" breaks "IgnoresMaximum":
                "A schema that can be enforced is not refused: all keywords of the subset are.";
            full_tree_is_refused on "SubagentRegistry::start_on" breaks "AdmitsOneTooMany":
                "A tree with as many children alive as it may have is refused until one has ended.";
            exhausted_tree_is_refused on "SubagentRegistry::start_on" breaks "StartsOneTooMany":
                "A tree that has started as many children as it may is refused for good.";
            living_children_are_checked_before_all on "SubagentRegistry::start_on" breaks "TotalLimitFirst":
                "The children alive are checked before all children ever.";
            failed_start_gives_its_place_back on "SubagentRegistry::start_on" breaks "FailureKeepsPlace":
                "A start that the provider fails gives the place of a living child back.";
            failed_start_stays_counted on "SubagentRegistry::start_on" breaks "FailureIsNotCounted":
                "A start that the provider fails stays counted among all children.";
            children_of_children_count_in_their_tree on "SubagentRegistry::start_on" breaks "CountsByParent":
                "The limits are those of a tree: children of children count in it.";
            another_tree_has_its_own_limits on "SubagentRegistry::start_on" breaks "CountsAllTogether":
                "The limits are those of a tree: another tree has its own.";
            unknown_ancestry_is_refused on "SubagentRegistry::start_on" breaks "BelievesStrangers":
                "Where the tree of the child cannot be told, its limits cannot be checked, and the start is refused.";
            without_limits_nothing_is_counted on "SubagentRegistry::start_on" breaks "HiddenLimit":
                "Without limits no start is refused for the number of children.";
            providers_error_is_passed_on_unchanged on "SubagentRegistry::start_on" breaks "RewrapsErrors":
                "The provider's error is passed on unchanged.";
            result_is_passed_on_unchanged on "SubagentRegistry::start_on" breaks "JudgesFailures":
                "The result is the provider's, save for a claim of success that breaks the contract.";
            success_without_a_value_is_no_success on "SubagentRegistry::start_on" breaks "ToleratesNoValue":
                "A child that claims success under an output contract without a value has the reason `no-value` instead.";
            refused_value_is_no_success_and_stays on "SubagentRegistry::start_on" breaks "DropsRefusedValue":
                "A child that claims success with a value that the schema refuses has the reason `schema-refused` instead, and the value stays in the result.";
            dropped_start_leaves_nothing on "SubagentRegistry::start_on" breaks "FinishesDroppedStart":
                "If the future of a start is dropped, no child is left behind and its place is free.";
            id_is_forwarded on "SubagentRun" breaks "OwnId":
                "The registry wraps a run and forwards its id.";
            dispose_is_forwarded on "SubagentRun" breaks "HidesReleaseFailure":
                "The registry wraps a run and forwards its disposal and what that answers.";
            activity_is_forwarded on "SubagentRun" breaks "HidesActivity":
                "The registry wraps a run and forwards its activity.";
        }
    };
}

crate::__subagent_registry_clauses! { __clause_table [
    /// The suite that holds a [`SubagentRegistry`](harness_subagent::SubagentRegistry) to its contract.
    REGISTRY_SUITE, "SubagentRegistry", "harness-subagent", registry_checks,
    "subagent::registry_checks", dyn RegistryFixture
] }

/// Stamps the registry's suite as tests, one for each clause.
///
/// It takes the path of an async constructor that makes a fresh [`RegistryFixture`](crate::subagent::RegistryFixture),
/// and, where they are needed, the [`Clock`](crate::conformance::Clock) (tokio's, paused, unless it says `Real`) and
/// the clauses that are known to fail. A known failure that holds fails its test.
///
/// ```
/// # fn main() {}
/// # use std::sync::Arc;
/// # use harness_subagent::SubagentRegistry;
/// # use harness_testkit::subagent::{RegistryFixture, RegistryTraits, TreeLimits};
/// # struct MyFixture;
/// # impl RegistryFixture for MyFixture {
/// #     fn registry(&self) -> Arc<dyn SubagentRegistry> { unreachable!() }
/// #     fn traits(&self) -> RegistryTraits { RegistryTraits::default() }
/// #     fn limited(&self, _limits: TreeLimits) -> Option<Arc<dyn SubagentRegistry>> { None }
/// # }
/// async fn new_fixture() -> MyFixture {
///     MyFixture
/// }
///
/// harness_testkit::subagent_registry_conformance!(new_fixture);
/// ```
#[macro_export]
macro_rules! subagent_registry_conformance {
    ($constructor:path) => {
        $crate::subagent_registry_conformance!($constructor, clock: Paused, known_failures: []);
    };
    ($constructor:path, clock: $clock:ident) => {
        $crate::subagent_registry_conformance!($constructor, clock: $clock, known_failures: []);
    };
    ($constructor:path, known_failures: [$($known:ident),* $(,)?]) => {
        $crate::subagent_registry_conformance!($constructor, clock: Paused, known_failures: [$($known),*]);
    };
    ($constructor:path, clock: $clock:ident, known_failures: [$($known:ident),* $(,)?]) => {
        mod subagent_registry_conformance {
            #[allow(unused_imports, reason = "the constructor may be named by a full path")]
            use super::*;

            $crate::__subagent_registry_clauses! { __clause_tests [
                $crate::subagent::REGISTRY_SUITE, $constructor, $clock, [$($known),*]
            ] }
        }
    };
}
