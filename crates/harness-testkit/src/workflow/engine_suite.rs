use super::{EngineConstructor, checks};

/// The clauses of an engine and its runs, each with its check; see [`__clause_table`](crate::__clause_table) for the
/// form.
#[doc(hidden)]
#[macro_export]
macro_rules! __workflow_engine_clauses {
    ($callback:ident $arguments:tt) => {
        $crate::$callback! { $arguments
            engine_knows_its_catalog on "WorkflowEngine::workflow" breaks "KnowsEveryVersion":
                "An engine knows the workflows of its catalog, as they are there, and no other.";
            ceiling_is_positive_and_stays on "WorkflowEngine::max_agents" breaks "CeilingShrinks":
                "The engine's ceiling is at least 1 and never changes.";
            capabilities_stay on "WorkflowEngine::capabilities" breaks "CapabilitiesChange":
                "What differs between engines never changes in one.";
            observer_hears_of_later_runs on "WorkflowEngine::observe" breaks "KeepsFirstObserver":
                "An observer hears of the runs that are started after it was added.";
            observer_hears_of_no_earlier_run on "WorkflowEngine::observe" breaks "TellsLateObservers":
                "An observer hears of no run that was started before it was added.";
            panicking_observer_disturbs_nobody on "WorkflowObserver" breaks "PanicStopsTelling":
                "A panic in one observer reaches neither the others nor the run.";
            dropped_engine_ends_no_run on "WorkflowEngine::start" breaks "DropCancelsRuns":
                "Dropping the engine ends no run.";
            unknown_workflow_is_refused on "WorkflowEngine::start" breaks "TakesAnyVersion":
                "A workflow that is not in the catalog is refused.";
            arguments_that_are_not_plain_are_refused on "WorkflowEngine::start" breaks "DropsDeepArguments":
                "Arguments that are not plain are refused.";
            unusable_provider_name_is_refused on "WorkflowEngine::start" breaks "TrimsProviderName":
                "A provider name that is empty or has blanks at an edge is refused.";
            absent_provider_is_refused on "WorkflowEngine::start" breaks "FallsBackToDefault":
                "A provider that is not there is refused.";
            default_provider_is_checked_too on "WorkflowEngine::start" breaks "MendsDefaultProvider":
                "The engine's default provider is checked as one that the request names.";
            capabilities_show_at_the_first_child on "WorkflowEngine::start" breaks "AsksCapabilitiesAtStart":
                "What a provider is capable of is not asked at the start; it shows at the first child.";
            children_beyond_the_ceiling_are_refused on "WorkflowEngine::start" breaks "ClampsMaxAgents":
                "The most calls for a child must be at least 1 and within the ceiling.";
            first_failing_check_decides on "WorkflowEngine::start" breaks "ChecksProviderFirst":
                "The checks of a start come in their order, and the first that fails decides.";
            refused_start_publishes_nothing on "WorkflowEngine::start" breaks "TellsOfRefusedStart":
                "A refused start publishes nothing: no run, no event.";
            known_run_id_attaches_or_is_refused on "EngineCapabilities::attaches_to_known_run" breaks "StartsKnownRunAnew":
                "A second start of a known run id returns that run or is refused, as declared.";
            provider_is_pinned on "WorkflowEngine::start" breaks "LooksProviderUpAnew":
                "The provider that is found at the start is the run's to its end.";
            requested_provider_takes_every_child on "StartRun::provider" breaks "ForgetsProvider":
                "Every child of a run is started on the provider that the request names.";
            cancelled_token_keeps_the_body_from_beginning on "WorkflowEngine::start" breaks "BeginsCancelledRun":
                "A run whose token is cancelled already ends as cancelled, and its body never begins.";
            token_cancels_the_run_if_heeded on "EngineCapabilities::heeds_cancellation_token" breaks "ForgetsToken":
                "The token cancels the run, if the engine declares that it heeds it.";
            dropped_start_cancels_its_run on "WorkflowEngine::start" breaks "LeaksDroppedStart":
                "A start whose future is dropped leaves no run behind that is not cancelled.";
            run_has_the_requested_id on "StartRun::run_id" breaks "ForgetsRunId":
                "A run has the id that its request asks for, and keeps it.";
            made_ids_are_unique on "WorkflowRun::id" breaks "RepeatsRunId":
                "A run's id is not empty and is unique among all runs of an engine.";
            run_and_events_carry_the_meta on "WorkflowRun::meta" breaks "ChangesMeta":
                "A run and its events say of the workflow what the catalog says.";
            arguments_go_in_and_the_value_comes_out on "StartRun::args" breaks "RoundsNumbers":
                "The body is given the arguments as they are, and its value is the run's.";
            error_of_the_body_is_the_runs on "Workflow::run" breaks "DropsDetails":
                "An error of the body ends the run in error, with its code and its details.";
            panic_of_the_body_ends_its_run_only on "ErrorCode::PANIC" breaks "HidesPanic":
                "A body that panics ends its run in error, and no other.";
            value_that_cannot_be_stored_is_an_error on "ErrorCode::RESULT_UNSERIALIZABLE" breaks "DropsDeepValue":
                "A value that cannot be stored ends the run in error.";
            every_wait_gets_the_same_result on "WorkflowRun::result" breaks "ChangesResult":
                "Every wait for the result gets the same answer, also at once and after the disposal.";
            dropped_wait_changes_nothing on "WorkflowRun::result" breaks "DroppedWaitCancels":
                "A dropped wait for the result changes nothing.";
            first_end_decides on "WorkflowRun::result" breaks "LateCancelCounts":
                "The first thing that ended the run decides its result.";
            children_end_before_the_result on "WorkflowRun::result" breaks "LeavesChildrenBehind":
                "Before the result resolves, every child has ended or been given up, and its end was told.";
            result_tells_counts_and_checkpoint_on_every_path on "RunResult" breaks "LosesCheckpoint":
                "The result carries the counts and the last checkpoint however the run ended.";
            dropped_run_is_cancelled_and_released on "WorkflowRun" breaks "LeaksDroppedRun":
                "A run that is dropped is cancelled, and what it holds is released.";
            runs_are_independent on "WorkflowEngine" breaks "CancelsAllRuns":
                "The runs of one engine are independent.";
            cancel_reaches_the_children on "WorkflowRun::cancel" breaks "HidesCancelFromChildren":
                "A cancelled run ends as cancelled, and its children are cancelled.";
            first_cancel_reason_counts on "WorkflowRun::cancel" breaks "LastReasonCounts":
                "The first reason of a cancel counts, and a repeat does nothing.";
            cancel_by_an_observer_of_the_end_is_too_late on "WorkflowRun::cancel" breaks "ObserverCancelCounts":
                "A cancel by an observer that is told of the end is too late.";
            cancel_after_the_end_does_nothing on "WorkflowRun::cancel" breaks "TellsOfLateCancel":
                "A cancel does nothing once the run has ended.";
            context_fails_after_a_cancel on "WorkflowEvent" breaks "NarratesAfterCancel":
                "After a cancellation the body narrates nothing and starts nothing any more.";
            value_after_a_cancel_does_not_count on "WorkflowRun::cancel" breaks "ValueBeatsCancel":
                "A cancelled run is cancelled, also when the body returns a value after all.";
            body_that_ignores_a_cancel_is_given_up on "WorkflowRun::cancel" breaks "WaitsForStubbornBody":
                "A body that ignores the cancellation is given up after the engine's grace.";
            child_that_ignores_a_cancel_is_given_up on "WorkflowRun::cancel" breaks "WaitsForStubbornChild":
                "A child that ignores the cancellation is given up after the engine's grace.";
            queued_call_never_starts_after_a_cancel on "WorkflowHost::call" breaks "QueuesNothing":
                "A call that waits for a slot when the run is cancelled never starts its child.";
            start_under_way_at_a_cancel_is_never_told on "WorkflowHost::call" breaks "DetachesStarts":
                "A child whose start is under way at a cancel is never told of, and nothing of it is left.";
            dispose_ends_the_run_and_its_children on "WorkflowRun::dispose" breaks "DisposesOfNothing":
                "A disposal ends a run that still runs, and its children are gone when it returns.";
            dispose_waits_for_the_children on "WorkflowRun::dispose" breaks "DisposesInBackground":
                "A disposal waits until the run's children and all else it holds are gone.";
            dispose_is_bounded_by_the_grace on "WorkflowRun::dispose" breaks "EndlessGrace":
                "A disposal takes as long as the engine's grace at most.";
            ended_run_is_disposed_of_without_a_wait on "WorkflowRun::dispose" breaks "WaitsOutTheGrace":
                "The disposal of a run that has ended waits for no grace.";
            second_dispose_waits_for_the_first on "WorkflowRun::dispose" breaks "SecondDisposeReturns":
                "A repeated or concurrent disposal waits for the first and gets the same answer.";
            result_is_there_at_once_after_dispose on "WorkflowRun::dispose" breaks "SlowResult":
                "After the disposal the result resolves at once.";
            how_the_run_ended_is_no_error_of_dispose on "WorkflowRun::dispose" breaks "DisposeRepeatsError":
                "How the run ended is never an error of its disposal.";
            dropped_dispose_goes_on_in_the_background on "WorkflowRun::dispose" breaks "DroppedDisposeStops":
                "A dropped disposal is finished in the background.";
            failing_release_of_a_child_masks_nothing on "WorkflowRun::dispose" breaks "FailedReleaseMasks":
                "A child whose release fails changes nothing of what the run yields.";
            text_of_a_child_is_its_value on "AgentOutcome::Value" breaks "DropsText":
                "Without an output contract, a child's value is what it said last.";
            handed_in_value_reaches_the_body on "AgentOutcome::Value" breaks "ChangesValue":
                "Under an output contract, a child's value is the one that it handed in.";
            schema_is_enforced_as_declared on "EngineCapabilities::enforces_schema" breaks "MisdeclaresSchema":
                "A value that its schema refuses counts as no value, if the engine declares so.";
            ordinary_failure_is_no_error on "WorkflowHost::call" breaks "FailureIsFatal":
                "A child that ended without a value is no error: the body gets no value, and why.";
            value_of_a_failed_child_does_not_count on "AgentOutcome::NoValue" breaks "TakesFailedValue":
                "A value beside another stop reason than completed does not count.";
            failed_start_is_fatal on "ErrorCode::AGENT_START" breaks "RetriesFailedStart":
                "A child that cannot be started is a fatal error.";
            lost_child_is_fatal on "ErrorCode::AGENT_RESULT" breaks "LostChildIsFailure":
                "A child that is lost is a fatal error.";
            child_is_asked_for_what_the_call_says on "WorkflowHost::call" breaks "ForgetsOrigin":
                "A child is asked for what the call says, on behalf of the run's parent, and is told where it belongs.";
            child_is_released_before_the_body_goes_on on "WorkflowHost::call" breaks "ReleasesInBackground":
                "A child is disposed of before the body gets what it yields.";
            dropped_call_ends_its_child on "WorkflowHost::call" breaks "KeepsDroppedCalls":
                "A call that the body drops ends its child, which is disposed of.";
            calls_overlap on "WorkflowContext::parallel" breaks "OneSlot":
                "The calls of a combinator run side by side.";
            slots_bound_the_children on "WorkflowHost::call" breaks "ManySlots":
                "A call waits for a free slot, and a slot is free once its child was released.";
            slots_are_given_in_the_order_of_the_calls on "WorkflowHost::call" breaks "DelaysFirstCall":
                "Slots are given in the order of the calls.";
            requested_cap_is_kept on "StartRun::max_agents" breaks "ForgetsMaxAgents":
                "A run may make as many calls as its request says, and not one more.";
            ceiling_is_the_cap_without_one on "WorkflowEngine::max_agents" breaks "CeilingLeaks":
                "Without a cap in the request, the engine's ceiling is the cap.";
            items_of_a_combinator_are_bounded on "ContextLimits::max_items_per_call" breaks "OneItemMore":
                "A combinator takes as many items as the engine's limit, and not one more.";
            call_without_a_child_counts on "RunResult::agents_started" breaks "CountsChildren":
                "A call counts also when its child could not be started, and so does the try.";
            beginning_is_told_before_start_returns on "WorkflowEvent" breaks "TellsLater":
                "A run's beginning is told before its start returns.";
            beginning_is_first_and_end_last on "WorkflowEvent" breaks "TellsEndTwice":
                "The beginning comes first and the end last, each exactly once, however the run ends.";
            events_are_numbered_without_gaps on "WorkflowEvent::sequence" breaks "SkipsNumbers":
                "The events of a run are numbered from 1 without gaps.";
            every_started_child_ends_once on "WorkflowEvent" breaks "ForgetsCancelledEnds":
                "Every started attempt ends exactly once, before the run does; one that the body no longer waits for ends as cancelled.";
            failed_start_causes_no_event on "WorkflowEvent" breaks "TellsOfFailedStart":
                "A start of a child that fails causes no event.";
            end_is_told_before_the_result on "WorkflowEvent" breaks "TellsEndLater":
                "The end is told before anybody who waits for the result gets it.";
            end_says_what_the_result_says on "WorkflowEventKind::Ended" breaks "MiscountsInEnd":
                "The event of the end says what the result says, save for the value.";
            narration_is_told_as_it_was on "WorkflowEventKind::Log" breaks "DropsEmptyLog":
                "Phases, logs and checkpoints are told as the body made them.";
            child_is_told_with_its_call on "CallInfo" breaks "DropsPhaseOfCall":
                "The events of a child say which call it belongs to.";
            end_of_a_child_says_how on "CallEnd" breaks "DropsUsage":
                "The end of a child says what the body gets, why the child stopped, and what it used.";
            activity_is_told_while_the_child_is_open on "WorkflowEventKind::AgentActivity" breaks "DropsActivity":
                "What a child does is told while it is open.";
            invariants_hold on "InvariantObserver" breaks "RenamesEndedChild":
                "No event breaks the order and the sense that the stream promises.";
        }
    };
}

crate::__workflow_engine_clauses! { __clause_table [
    /// The suite that holds a [`WorkflowEngine`](harness_workflow::WorkflowEngine) and its runs to their contract.
    ENGINE_SUITE, "WorkflowEngine", "harness-workflow", checks, "workflow::checks", EngineConstructor
] }

/// Stamps the engine's suite as tests, one for each clause.
///
/// It takes the path of an async constructor that makes an engine of an
/// [`EngineFixture`](crate::workflow::EngineFixture), and, where they are needed, the
/// [`Clock`](crate::conformance::Clock) (time passes, unless it says `Paused`) and the clauses that are known to fail. A
/// known failure that holds fails its test.
///
/// An engine that runs on tokio alone takes `Paused`, and its suite then takes no time.
///
/// ```
/// # fn main() {}
/// # use harness_testkit::workflow::{EngineFixture, StubEngine};
/// async fn new_engine(fixture: EngineFixture) -> StubEngine {
///     StubEngine::running(fixture.catalog).0
/// }
///
/// harness_testkit::workflow_engine_conformance!(
///     new_engine, clock: Paused, known_failures: [absent_provider_is_refused]
/// );
/// ```
#[macro_export]
macro_rules! workflow_engine_conformance {
    ($constructor:path) => {
        $crate::workflow_engine_conformance!($constructor, clock: Real, known_failures: []);
    };
    ($constructor:path, clock: $clock:ident) => {
        $crate::workflow_engine_conformance!($constructor, clock: $clock, known_failures: []);
    };
    ($constructor:path, known_failures: [$($known:ident),* $(,)?]) => {
        $crate::workflow_engine_conformance!($constructor, clock: Real, known_failures: [$($known),*]);
    };
    ($constructor:path, clock: $clock:ident, known_failures: [$($known:ident),* $(,)?]) => {
        mod workflow_engine_conformance {
            #[allow(unused_imports, reason = "the constructor may be named by a full path")]
            use super::*;

            async fn engine_constructor() -> $crate::workflow::EngineConstructor {
                $crate::workflow::EngineConstructor::new($constructor)
            }

            $crate::__workflow_engine_clauses! { __clause_tests [
                $crate::workflow::ENGINE_SUITE, engine_constructor, $clock, [$($known),*]
            ] }
        }
    };
}
