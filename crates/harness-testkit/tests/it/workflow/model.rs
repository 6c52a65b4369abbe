//! Property tests of an engine, as a third party writes them.

use harness_testkit::workflow::model::{
    Action, ChildPlan, RunPlan, Schedule, check_schedule, hold_to_model, run_results,
};
use harness_testkit::workflow::{EngineConstructor, EngineFixture};
use harness_workflow::RunResult;
use proptest::prelude::*;

use super::broken_engine::{BrokenEngine, EngineFault};
use super::custom_engine::TaskEngine;

fn task_engine() -> EngineConstructor {
    EngineConstructor::new(|fixture: EngineFixture| async { TaskEngine::new(fixture) })
}

#[test]
fn an_engine_that_keeps_the_contract_is_as_the_model_on_every_schedule() {
    hold_to_model(256, task_engine);
}

/// Returns the smallest schedule on which an engine with a fault differs from the model.
fn shrunk(fault: EngineFault) -> String {
    let broken = move || {
        EngineConstructor::new(move |fixture: EngineFixture| async move { BrokenEngine::new(fixture, fault) })
    };
    let panic = std::panic::catch_unwind(|| hold_to_model(512, broken)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_fault_shrinks_to_a_schedule_that_can_be_read() {
    for (fault, part) in [
        (EngineFault::LosesCheckpoint, "Cancel"),
        (EngineFault::LostChildIsFailure, "IsLost"),
        (EngineFault::FailureIsFatal, "Fails"),
        (EngineFault::DroppedWaitCancels, "DropWait"),
        (EngineFault::LeaksDroppedRun, "Drop"),
        (EngineFault::RenamesEndedChild, "ChildPlan::Completes"),
    ] {
        let text = shrunk(fault);
        assert!(text.contains(part), "{fault:?}: {text}");
    }
}

#[test]
fn a_schedule_shows_as_the_code_that_makes_it() {
    let plan = RunPlan::new(vec![ChildPlan::Completes, ChildPlan::Waits]);
    let schedule = Schedule::new(vec![plan], vec![(0, Action::Start), (0, Action::Cancel)]);
    let code = "Schedule::new(vec![RunPlan::new(vec![ChildPlan::Completes, ChildPlan::Waits])], \
                vec![(0, Action::Start), (0, Action::Cancel)])";
    assert_eq!((format!("{schedule:?}"), format!("{schedule:#?}")), (code.into(), code.into()));
}

/// A failure that was found once and shrunk stays as a test of its own.
#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_children_keeps_the_first_checkpoint() {
    let plan = RunPlan::new(vec![ChildPlan::Completes, ChildPlan::Waits]);
    let actions = vec![(0, Action::Start), (0, Action::Settle), (0, Action::Cancel), (0, Action::Finish)];
    check_schedule(&task_engine(), &Schedule::new(vec![plan], actions)).await;
}

proptest! {
    #[test]
    fn every_end_of_a_run_survives_its_json(result in run_results()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
    }
}
