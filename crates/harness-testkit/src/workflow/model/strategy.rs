use harness_workflow::{ErrorCode, RunError, RunResult};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Action, ChildPlan, RunPlan, Schedule};

/// Draws what a child does. The simplest completes.
pub fn child_plans() -> impl Strategy<Value = ChildPlan> {
    prop_oneof![
        3 => Just(ChildPlan::Completes),
        2 => Just(ChildPlan::Waits),
        1 => Just(ChildPlan::Fails),
        1 => Just(ChildPlan::IsLost),
        1 => Just(ChildPlan::IsRefused),
    ]
}

/// Draws what a run does, with four children at most.
pub fn run_plans() -> impl Strategy<Value = RunPlan> {
    vec(child_plans(), 0..=4).prop_map(RunPlan::new)
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => Just(Action::Settle),
        3 => Just(Action::Finish),
        3 => Just(Action::Start),
        2 => Just(Action::Cancel),
        1 => Just(Action::DropWait),
        1 => Just(Action::Dispose),
        1 => Just(Action::DisposeTwice),
        1 => Just(Action::Drop),
    ]
}

/// Draws schedules of one or two runs. Each run is started somewhere.
pub fn schedules() -> impl Strategy<Value = Schedule> {
    vec(run_plans(), 1..=2).prop_flat_map(|runs| {
        let count = runs.len();
        vec((0..count, actions()), 0..=12).prop_map(move |actions| {
            let starts = (0..count).map(|run| (run, Action::Start));
            Schedule::new(runs.clone(), starts.chain(actions).collect())
        })
    })
}

/// Draws ends of runs.
pub fn run_results() -> impl Strategy<Value = RunResult> {
    let values =
        || prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), ".*".prop_map(Value::from)];
    let errors = ("[a-z]{1,8}", ".*", option::of(any::<u32>())).prop_map(|(_, message, details)| {
        let error = RunError::new(ErrorCode::AGENT_RESULT, message);
        match details {
            Some(details) => error.with_details(json!(details)),
            None => error,
        }
    });
    let ends = prop_oneof![
        values().prop_map(RunResult::completed),
        ".*".prop_map(|reason| RunResult::cancelled(RunError::cancelled(&reason))),
        errors.prop_map(RunResult::failed),
    ];
    (ends, 0..100_u64, 0..100_u64, option::of(values())).prop_map(|(end, started, attempts, checkpoint)| {
        end.with_agents_started(started).with_attempts(attempts).with_checkpoint(checkpoint)
    })
}
