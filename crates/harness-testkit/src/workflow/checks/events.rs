use harness_subagent::{Activity, StopReason, Usage};
use harness_workflow::{
    CallInfo, CallOutcome, InvariantObserver, RunStopReason, WorkflowEventKind, WorkflowObserver,
};
use serde_json::json;

use crate::subagent::MockChild;
use crate::workflow::bench::{Bench, dispose, name_of, names, patiently, quiet, result_of, while_awaited};
use crate::workflow::{Ask, EngineConstructor, Step};

/// A run's beginning is told before its start returns.
pub async fn beginning_is_told_before_start_returns(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::Hang]).await;
    assert_eq!(names(&bench.events.of(run.id())).first(), Some(&"started"));
    dispose(&*run).await;
}

/// The beginning comes first and the end last, each exactly once, however the run ends.
pub async fn beginning_is_first_and_end_last(constructor: &EngineConstructor) {
    for end in
        [None, Some(Step::Fail("mine".into())), Some(Step::Panic("on purpose".into())), Some(Step::Hang)]
    {
        let bench = Bench::new(constructor).await;
        let cancelled = end == Some(Step::Hang);
        let steps = [vec![Step::Phase("p".into()), Step::ask("work")], end.into_iter().collect()].concat();
        let run = bench.start(&steps).await;
        if cancelled {
            let ended = bench.events.wait_for(|kind| name_of(kind) == "agent-ended");
            while_awaited(&*run, "the end of the child", ended).await;
            run.cancel("enough");
        }
        result_of(&*run).await;
        dispose(&*run).await;
        quiet().await;
        let names = names(&bench.events.of(run.id()));
        assert_eq!(names, ["started", "phase", "agent-started", "agent-ended", "ended"]);
    }
}

/// The events of a run are numbered from 1 without gaps.
pub async fn events_are_numbered_without_gaps(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    for _ in 0..2 {
        let run = bench.start(&[Step::Phase("p".into()), Step::ask("work"), Step::Log(String::new())]).await;
        result_of(&*run).await;
        dispose(&*run).await;
        let events = bench.events.all();
        let numbers: Vec<u64> =
            events.iter().filter(|event| event.run == *run.id()).map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }
}

/// Every started attempt ends exactly once, before the run does; one that the body no longer waits for ends as
/// cancelled.
pub async fn every_started_child_ends_once(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging(), MockChild::hanging()]);
    let run = bench.start(&[Step::Race(vec![Ask::new("quick"), Ask::new("slow")])]).await;
    let both = async {
        bench.provider.wait_until_asked(1).await;
        bench.provider.wait_until_asked(2).await;
    };
    while_awaited(&*run, "both children", both).await;
    let quick = (1..).zip(bench.first_calls(2)).find(|(_, call)| *call == 1);
    bench.provider.finish(quick.expect("the first calls have the first one among them").0);
    result_of(&*run).await;
    dispose(&*run).await;
    let events = bench.events.of(run.id());
    for (call, expected) in [(1, CallOutcome::Completed), (2, CallOutcome::Cancelled)] {
        let started = position(
            &events,
            |kind| matches!(kind, WorkflowEventKind::AgentStarted { call: info } if info.call == call),
        );
        let ended = position(
            &events,
            |kind| matches!(kind, WorkflowEventKind::AgentEnded { call: info, .. } if info.call == call),
        );
        let ([started], [ended]) = (&started[..], &ended[..]) else {
            panic!("call {call} started at {started:?} and ended at {ended:?} of {events:?}");
        };
        assert!(started < ended);
        let WorkflowEventKind::AgentEnded { end, .. } = &events[*ended] else {
            unreachable!("it was found so")
        };
        assert_eq!(end.outcome, expected, "call {call}");
    }
    assert_eq!(names(&events).last(), Some(&"ended"));
}

fn position(events: &[WorkflowEventKind], is_it: impl Fn(&WorkflowEventKind) -> bool) -> Vec<usize> {
    events.iter().enumerate().filter(|(_, kind)| is_it(kind)).map(|(index, _)| index).collect()
}

/// A start of a child that fails causes no event.
pub async fn failed_start_causes_no_event(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::refused(), MockChild::text("two")]);
    let run = bench.start(&[Step::Try(vec![Step::ask("one")]), Step::ask("two")]).await;
    result_of(&*run).await;
    let calls: Vec<u64> = bench
        .events
        .of(run.id())
        .iter()
        .filter_map(|kind| match kind {
            WorkflowEventKind::AgentStarted { call } | WorkflowEventKind::AgentEnded { call, .. } => {
                Some(call.call)
            }
            _ => None,
        })
        .collect();
    assert_eq!(calls, [2, 2]);
    dispose(&*run).await;
}

/// The end is told before anybody who waits for the result gets it.
pub async fn end_is_told_before_the_result(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let run = bench.start(&[Step::ask("work")]).await;
    result_of(&*run).await;
    // Nothing may happen between the result and this look.
    assert_eq!(names(&bench.events.of(run.id())).last(), Some(&"ended"));
    dispose(&*run).await;
}

/// The event of the end says what the result says, save for the value.
pub async fn end_says_what_the_result_says(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    for end in [None, Some(Step::Fail("mine".into()))] {
        let steps: Vec<Step> = [Step::ask("work")].into_iter().chain(end).collect();
        let run = bench.start(&steps).await;
        let result = result_of(&*run).await;
        let events = bench.events.of(run.id());
        let Some(WorkflowEventKind::Ended { stop_reason, error, agents_started, attempts, .. }) =
            events.last()
        else {
            panic!("the last event is {:?}", events.last());
        };
        assert_eq!(*stop_reason, result.stop_reason());
        assert_eq!(error.as_ref(), result.error());
        assert_eq!((*agents_started, *attempts), (result.agents_started(), result.attempts()));
        dispose(&*run).await;
    }
}

/// Phases, logs and checkpoints are told as the body made them.
pub async fn narration_is_told_as_it_was(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let steps =
        [Step::Phase("one".into()), Step::Log(String::new()), Step::Checkpoint(json!({ "a": [null] }))];
    let run = bench.start(&steps).await;
    result_of(&*run).await;
    let events = bench.events.of(run.id());
    let narration = &events[1..events.len() - 1];
    assert_eq!(
        narration,
        [
            WorkflowEventKind::Phase { title: "one".into() },
            WorkflowEventKind::Log { message: String::new() },
            WorkflowEventKind::Checkpoint { value: json!({ "a": [null] }) },
        ]
    );
    dispose(&*run).await;
}

/// The events of a child say which call it belongs to.
pub async fn child_is_told_with_its_call(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("one"), MockChild::text("two")]);
    let mut named = Ask::new("second");
    named.label = Some("named".into());
    named.phase = Some("elsewhere".into());
    let steps = [Step::Phase("work".into()), Step::ask("first\nline"), Step::Ask(named)];
    let run = bench.start(&steps).await;
    result_of(&*run).await;
    let calls: Vec<CallInfo> = bench
        .events
        .of(run.id())
        .into_iter()
        .filter_map(|kind| match kind {
            WorkflowEventKind::AgentStarted { call } => Some(call),
            _ => None,
        })
        .collect();
    let expected = [
        CallInfo::new(1, 1, "first", "mock/1".into()).with_phase(Some("work".into())),
        CallInfo::new(2, 1, "named", "mock/2".into()).with_phase(Some("elsewhere".into())),
    ];
    assert_eq!(calls, expected);
    dispose(&*run).await;
}

/// The end of a child says what the body gets, why the child stopped, and what it used.
pub async fn end_of_a_child_says_how(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let usage = Usage::new(10, 5);
    bench.children([
        MockChild::text("fine").with_usage(usage).with_session_id("session-1"),
        MockChild::failing(StopReason::REFUSAL).with_usage(usage),
        MockChild::lost(),
    ]);
    let steps = [Step::ask("one"), Step::ask("two"), Step::Try(vec![Step::ask("three")])];
    let run = bench.start(&steps).await;
    result_of(&*run).await;
    let ends: Vec<_> = bench
        .events
        .of(run.id())
        .into_iter()
        .filter_map(|kind| match kind {
            WorkflowEventKind::AgentEnded { end, .. } => Some(end),
            _ => None,
        })
        .collect();
    let [fine, failed, lost] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((fine.outcome, failed.outcome), (CallOutcome::Completed, CallOutcome::Failed));
    assert_eq!(lost.outcome, CallOutcome::Failed);
    assert_eq!(fine.stop_reason, Some(StopReason::COMPLETED));
    assert_eq!(failed.stop_reason, Some(StopReason::REFUSAL));
    assert_eq!((fine.diagnostic.is_some(), failed.diagnostic.is_some()), (false, true));
    assert_eq!((fine.usage, failed.usage), (Some(usage), Some(usage)));
    assert_eq!(fine.session_id.as_deref(), Some("session-1"));
    dispose(&*run).await;
}

/// What a child does is told while it is open.
pub async fn activity_is_told_while_the_child_is_open(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging().with_activity(Activity::new("reading"))]);
    let run = bench.start_and_wait_for_child(&[Step::ask("work")]).await;
    let told = bench.events.wait_for(
        |kind| matches!(kind, WorkflowEventKind::AgentActivity { activity, call } if activity.text == "reading" && call.call == 1),
    );
    while_awaited(&*run, "the child's activity", told).await;
    bench.provider.finish(1);
    result_of(&*run).await;
    dispose(&*run).await;
}

/// No event breaks the order and the sense that the stream promises.
pub async fn invariants_hold(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let invariants = std::sync::Arc::new(InvariantObserver::new("engine under test"));
    bench.engine.observe(std::sync::Arc::clone(&invariants) as std::sync::Arc<dyn WorkflowObserver>);
    bench.provider.set_default(MockChild::hanging());
    let steps = [
        Step::Phase("work".into()),
        Step::Try(vec![Step::Race(vec![Ask::new("quick"), Ask::new("slow")])]),
        Step::Parallel(vec![Ask::new("three"), Ask::new("four")]),
    ];
    let run = bench.start(&steps).await;
    let children = async {
        bench.provider.wait_until_asked(2).await;
        bench.provider.finish(1);
        bench.provider.wait_until_asked(4).await;
    };
    while_awaited(&*run, "the last child", children).await;
    run.cancel("enough");
    let result = patiently("the result", run.result()).await;
    assert_eq!(result.stop_reason(), RunStopReason::Cancelled);
    dispose(&*run).await;
    quiet().await;
    assert_eq!(invariants.violations(), []);
    assert_eq!(invariants.open_runs(), []);
}
