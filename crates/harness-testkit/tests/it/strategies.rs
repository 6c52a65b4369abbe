//! The strategies make what they say, and a registry keeps its word on whatever they make.

use std::time::Duration;

use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, SubagentRegistry, SubagentRegistryExt};
use harness_testkit::subagent::{MockProvider, SubagentRecorder, strategies};
use proptest::prelude::*;

/// What the caller does with one child.
#[derive(Clone, Debug)]
enum Step {
    Wait,
    CancelAndWait,
    Dispose,
    Drop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![Just(Step::Wait), Just(Step::CancelAndWait), Just(Step::Dispose), Just(Step::Drop)];
    proptest::collection::vec(step, 1..4)
}

fn block_on(future: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| TestCaseError::fail(error.to_string()))?.block_on(future)
}

proptest! {
    #[test]
    fn a_registry_lets_no_bad_value_pass_and_forgets_no_child(
        children in proptest::collection::vec((strategies::children(), strategies::requests(Capabilities::ALL), steps()), 1..6),
    ) {
        block_on(async {
            let registry = LocalRegistry::new();
            let recorder = SubagentRecorder::new();
            registry.observe(std::sync::Arc::new(recorder.clone()));
            let (provider, handle) = MockProvider::new(Capabilities::ALL);
            registry.register(provider).map_err(|error| TestCaseError::fail(error.to_string()))?;
            for (child, request, steps) in children {
                handle.script([child]);
                let cancellation = request.cancellation.clone();
                let asked_for_a_value = request.output.is_some();
                let Ok(run) = registry.start("mock", request).await else { continue };
                let mut answers = Vec::new();
                for step in steps {
                    match step {
                        Step::Wait | Step::CancelAndWait => {
                            if matches!(step, Step::CancelAndWait) {
                                cancellation.cancel();
                            }
                            // A child that hangs, or is deaf, has no answer yet.
                            let wait = tokio::time::timeout(Duration::from_secs(1), run.result());
                            if let Ok(answer) = wait.await {
                                answers.push(answer);
                            }
                        }
                        Step::Dispose => {
                            let _ = run.dispose().await;
                        }
                        Step::Drop => break,
                    }
                }
                for answer in answers.iter().flatten() {
                    let good = answer.structured.as_ref().is_some_and(|value| {
                        value.as_object().is_some_and(|object| object.len() == 1 && object["answer"].is_string())
                    });
                    if asked_for_a_value && answer.stop_reason.is_completed() {
                        prop_assert!(good, "{answer:?}");
                    }
                }
                for pair in answers.windows(2) {
                    prop_assert_eq!(format!("{:?}", pair[0]), format!("{:?}", pair[1]));
                }
                drop(run);
            }
            prop_assert_eq!(handle.live(), Vec::<u64>::new());
            let started: Vec<u64> = recorder.started().iter().map(|child| child.sequence).collect();
            let ended: Vec<u64> = recorder.ended().iter().map(|(sequence, _)| *sequence).collect();
            prop_assert_eq!(started, ended, "each child that started ended once, one after the other");
            Ok(())
        })?;
    }

    #[test]
    fn requests_ask_for_nothing_that_is_not_allowed(request in strategies::requests(Capabilities::NONE)) {
        let asks = request.output.is_some()
            || request.max_depth.is_some()
            || request.tools.is_some()
            || request.persona.is_some()
            || request.model.is_some();
        prop_assert!(!asks, "{request:?}");
    }

    #[test]
    fn failures_are_no_success(reason in strategies::failures()) {
        prop_assert!(!reason.is_completed());
    }
}
