use std::sync::Arc;

use harness_subagent::AgentId;
use harness_workflow::{
    CallEnd, CallInfo, CallOutcome, ErrorCode, InvariantObserver, RunError, RunStopReason, WorkflowEvent,
    WorkflowEventKind, WorkflowMeta, WorkflowObserver,
};

fn started() -> WorkflowEventKind {
    WorkflowEventKind::Started { meta: Arc::new(WorkflowMeta::new("w", 1, "d")) }
}

fn call(number: u64, attempt: u32) -> CallInfo {
    CallInfo::new(number, attempt, "label", AgentId::new(format!("child {number}.{attempt}")))
}

fn agent_started(call: CallInfo) -> WorkflowEventKind {
    WorkflowEventKind::AgentStarted { call }
}

fn agent_ended(call: CallInfo) -> WorkflowEventKind {
    WorkflowEventKind::AgentEnded { call, end: CallEnd::new(CallOutcome::Completed) }
}

fn ended(stop_reason: RunStopReason, agents_started: u64) -> WorkflowEventKind {
    let error = (stop_reason != RunStopReason::Completed).then(|| RunError::new(ErrorCode::PANIC, "m"));
    WorkflowEventKind::Ended { stop_reason, error, agents_started, attempts: agents_started }
}

fn log() -> WorkflowEventKind {
    WorkflowEventKind::Log { message: "m".into() }
}

/// Numbers the events and returns what is wrong with them.
fn violations(kinds: Vec<WorkflowEventKind>) -> Vec<String> {
    let numbered = (1..).zip(kinds).map(|(sequence, kind)| WorkflowEvent::new("r".into(), sequence, kind));
    violations_of(numbered)
}

fn violations_of(events: impl IntoIterator<Item = WorkflowEvent>) -> Vec<String> {
    let observer = InvariantObserver::new("package");
    events.into_iter().for_each(|event| observer.observe(&event));
    observer.violations().into_iter().map(|violation| violation.message).collect()
}

/// Expects one violation, which says `fragment`.
#[track_caller]
fn check(kinds: Vec<WorkflowEventKind>, fragment: &str) {
    let found = violations(kinds);
    assert!(found.len() == 1 && found[0].contains(fragment), "expected {fragment:?}, found {found:?}");
}

#[test]
fn a_whole_life_is_accepted() {
    let activity = WorkflowEventKind::AgentActivity {
        call: call(3, 1),
        activity: harness_subagent::Activity::new("reads"),
    };
    let life = vec![
        started(),
        log(),
        agent_started(call(1, 1)),
        agent_started(call(3, 1)),
        activity,
        agent_ended(call(3, 1)),
        agent_ended(call(1, 1)),
        // Another attempt at a call is another child.
        agent_started(call(1, 2)),
        agent_ended(call(1, 2)),
        ended(RunStopReason::Completed, 3),
    ];
    assert_eq!(violations(life), [""; 0]);
}

#[test]
fn a_run_without_identity_is_noticed() {
    let unnamed = WorkflowEvent::new("".into(), 1, started());
    assert_eq!(violations_of([unnamed]), ["the run's id is empty"]);
    let meta = Arc::new(WorkflowMeta::new("", 1, "d"));
    check(vec![WorkflowEventKind::Started { meta }], "`name`");
}

#[test]
fn a_run_that_starts_twice_is_noticed() {
    let again =
        |kind| [WorkflowEvent::new("r".into(), 1, started()), WorkflowEvent::new("r".into(), 1, kind)];
    assert_eq!(violations_of(again(started())), ["the run has started before"]);
    let other = WorkflowEventKind::Started { meta: Arc::new(WorkflowMeta::new("other", 1, "d")) };
    assert_eq!(violations_of(again(other)), ["the run has started before as another workflow"]);
}

#[test]
fn an_event_without_a_start_is_noticed() {
    check(vec![log()], "not started");
}

#[test]
fn an_event_after_the_end_is_noticed() {
    check(vec![started(), ended(RunStopReason::Completed, 0), log()], "has ended");
    check(
        vec![started(), ended(RunStopReason::Completed, 0), ended(RunStopReason::Completed, 0)],
        "has ended",
    );
}

#[test]
fn a_number_that_is_left_out_or_repeated_is_noticed() {
    for sequence in [1, 3] {
        let events =
            [WorkflowEvent::new("r".into(), 1, started()), WorkflowEvent::new("r".into(), sequence, log())];
        assert_eq!(violations_of(events).len(), 1, "number {sequence}");
    }
    assert_eq!(violations_of([WorkflowEvent::new("r".into(), 2, started())]).len(), 1);
}

#[test]
fn a_call_or_an_attempt_numbered_zero_is_noticed() {
    check(vec![started(), agent_started(call(0, 1))], "count from 1");
    check(vec![started(), agent_started(call(1, 0))], "count from 1");
}

#[test]
fn a_child_without_an_id_is_noticed() {
    check(
        vec![started(), agent_started(CallInfo::new(1, 1, "label", AgentId::new("")))],
        "child's id is empty",
    );
}

#[test]
fn an_attempt_that_opens_twice_is_noticed() {
    check(vec![started(), agent_started(call(1, 1)), agent_started(call(1, 1))], "open already");
}

#[test]
fn an_end_without_a_start_and_a_second_end_are_noticed() {
    check(vec![started(), agent_ended(call(1, 1))], "not open");
    check(
        vec![started(), agent_started(call(1, 1)), agent_ended(call(1, 1)), agent_ended(call(1, 1))],
        "not open",
    );
}

#[test]
fn a_child_that_ends_as_another_is_noticed() {
    for other in [
        CallInfo::new(1, 1, "another", AgentId::new("child 1.1")),
        CallInfo::new(1, 1, "label", AgentId::new("another")),
        call(1, 1).with_phase(Some("another".into())),
    ] {
        check(vec![started(), agent_started(call(1, 1)), agent_ended(other)], "another identity");
    }
}

#[test]
fn activity_of_a_child_that_is_not_open_is_noticed() {
    let activity = harness_subagent::Activity::new("reads");
    check(vec![started(), WorkflowEventKind::AgentActivity { call: call(1, 1), activity }], "not open");
}

#[test]
fn a_child_that_is_open_at_the_end_is_noticed() {
    check(vec![started(), agent_started(call(1, 1)), ended(RunStopReason::Completed, 1)], "open at the end");
}

#[test]
fn a_count_below_the_children_is_noticed_and_one_above_is_not() {
    let with_count = |count| {
        vec![
            started(),
            agent_started(call(1, 1)),
            agent_ended(call(1, 1)),
            ended(RunStopReason::Completed, count),
        ]
    };
    check(with_count(0), "only 0 count");
    assert_eq!(violations(with_count(5)), [""; 0], "a call without a child counts");
}

#[test]
fn an_error_on_a_completed_run_and_none_on_another_are_noticed() {
    let wrong =
        |stop_reason, error| WorkflowEventKind::Ended { stop_reason, error, agents_started: 0, attempts: 0 };
    let error = RunError::new(ErrorCode::PANIC, "m");
    check(vec![started(), wrong(RunStopReason::Completed, Some(error))], "exactly when");
    check(vec![started(), wrong(RunStopReason::Error, None)], "exactly when");
    check(vec![started(), wrong(RunStopReason::Cancelled, None)], "exactly when");
}

#[test]
fn a_violation_names_the_package_the_run_and_the_event() {
    let observer = InvariantObserver::new("some-engine");
    let event = WorkflowEvent::new("run-7".into(), 4, log());
    observer.observe(&event);
    let violation = observer.violations().remove(0);
    assert_eq!((violation.package.as_str(), &violation.event), ("some-engine", &event));
    assert_eq!(violation.to_string(), "some-engine: run run-7, event 4: the run has not started");
}

#[test]
fn runs_that_have_not_ended_are_open() {
    let observer = InvariantObserver::new("package");
    observer.observe(&WorkflowEvent::new("a".into(), 1, started()));
    observer.observe(&WorkflowEvent::new("b".into(), 1, started()));
    observer.observe(&WorkflowEvent::new("a".into(), 2, ended(RunStopReason::Cancelled, 0)));
    assert_eq!(observer.open_runs(), ["b".into()]);
}

/// Each engine owns the stream of its own runs: two that tell of the same run are noticed.
#[test]
fn a_run_that_two_packages_tell_of_is_noticed() {
    let observer = Arc::new(InvariantObserver::new("two engines"));
    let (one, other) =
        (harness_workflow::WorkflowObservers::default(), harness_workflow::WorkflowObservers::default());
    for owner in [&one, &other] {
        owner.add(Arc::clone(&observer) as _);
        owner.notify(&WorkflowEvent::new("shared".into(), 1, started()));
    }
    assert_eq!(observer.violations().len(), 1);
}
