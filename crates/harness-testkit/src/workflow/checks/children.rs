use harness_subagent::{Error, ErrorKind, ModelChoice, OutputContract, StopReason, ToolRestriction};
use harness_workflow::RunStopReason;
use serde_json::{Value, json};

use crate::subagent::MockChild;
use crate::workflow::bench::{
    Bench, assert_value, code_of, dispose, patiently, quiet, request, result_of, still_waits, while_awaited,
};
use crate::workflow::{Ask, EngineConstructor, Step};

fn contract() -> OutputContract {
    OutputContract::new(
        json!({ "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"] }),
    )
    .expect("the schema is an object's")
}

/// Without an output contract, a child's value is what it said last.
pub async fn text_of_a_child_is_its_value(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("said"), MockChild::text("")]);
    assert_value(&bench.run(&[Step::ask("one"), Step::ask("two")]).await, &json!(["said", ""]));
}

/// Under an output contract, a child's value is the one that it handed in.
pub async fn handed_in_value_reaches_the_body(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let value = json!({ "answer": "\u{0}\u{1f600}" });
    bench.children([MockChild::value(value.clone())]);
    let result = bench.run(&[Step::Ask(Ask::new("work").with_output(contract()))]).await;
    assert_value(&result, &json!([value]));
}

/// A value that its schema refuses counts as no value, if the engine declares so.
pub async fn schema_is_enforced_as_declared(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let refused = json!({ "other": 1 });
    bench.children([MockChild::value(refused.clone())]);
    let result = bench.run(&[Step::Ask(Ask::new("work").with_output(contract()))]).await;
    let expected = if bench.engine.capabilities().enforces_schema {
        json!([{ "no-value": StopReason::SCHEMA_REFUSED }])
    } else {
        json!([refused])
    };
    assert_value(&result, &expected);
}

/// A child that ended without a value is no error: the body gets no value, and why.
pub async fn ordinary_failure_is_no_error(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let reasons: Vec<StopReason> = StopReason::KNOWN
        .iter()
        .filter(|reason| !reason.is_completed())
        .cloned()
        .chain([StopReason::other("a-reason-of-its-own")])
        .collect();
    let (mut answers, mut expected) = (Vec::new(), Vec::new());
    for reason in reasons {
        bench.children([MockChild::failing(reason.clone())]);
        answers.push(bench.run(&[Step::ask("work")]).await.value().cloned());
        expected.push(Some(json!([{ "no-value": reason }])));
    }
    assert_eq!(answers, expected);
}

/// A value beside another stop reason than completed does not count.
pub async fn value_of_a_failed_child_does_not_count(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let result = harness_subagent::SubagentResult::stopped(
        StopReason::REFUSAL,
        harness_subagent::Diagnostic::new("refused on purpose"),
    );
    bench.children([MockChild::result(
        result.with_structured(json!({ "answer": "one" })).with_output("text"),
    )]);
    let result = bench.run(&[Step::Ask(Ask::new("work").with_output(contract()))]).await;
    assert_value(&result, &json!([{ "no-value": StopReason::REFUSAL }]));
}

/// A child that cannot be started is a fatal error.
pub async fn failed_start_is_fatal(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::refused()]);
    let result = bench.run(&[Step::Parallel(vec![Ask::new("one"), Ask::new("two")])]).await;
    assert_eq!(result.stop_reason(), RunStopReason::Error);
    assert_eq!(code_of(&result), "agent-start");
}

/// A child that is lost is a fatal error.
pub async fn lost_child_is_fatal(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::faulty(Error::new(ErrorKind::RunLost, "lost on purpose"))]);
    let result = bench.run(&[Step::Parallel(vec![Ask::new("one")])]).await;
    assert_eq!(result.stop_reason(), RunStopReason::Error);
    assert_eq!(code_of(&result), "agent-result");
    assert_eq!(bench.provider.live(), Bench::NO_CHILD, "a lost child is disposed of too");
}

/// A child is asked for what the call says, on behalf of the run's parent, and is told where it belongs.
pub async fn child_is_asked_for_what_the_call_says(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let mut ask = Ask::new("first line\nsecond line").with_output(contract());
    ask.model = Some(ModelChoice::model("some-model"));
    ask.tools = Some(ToolRestriction::deny(["shell"]));
    bench.children([MockChild::value(json!({ "answer": "one" }))]);
    let run = bench.start(&[Step::Ask(ask.clone()), Step::ask("plain")]).await;
    result_of(&*run).await;

    let asked = bench.provider.request(1);
    assert_eq!(asked.prompt, ask.prompt);
    assert_eq!(asked.label.as_deref(), Some("first line"));
    assert_eq!((asked.output, asked.model, asked.tools), (ask.output, ask.model, ask.tools));
    assert_eq!(*asked.parent, request(&[]).parent);
    let origin = asked.origin.expect("a child of a run has an origin");
    assert_eq!((&*origin.run, origin.call, origin.attempt), (run.id().as_str(), 1, 1));
    let plain = bench.provider.request(2);
    assert_eq!((plain.output, plain.model, plain.tools), (None, None, None));
    assert_eq!(plain.origin.map(|origin| origin.call), Some(2));
    dispose(&*run).await;
}

/// A child is disposed of before the body gets what it yields.
pub async fn child_is_released_before_the_body_goes_on(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("one").with_held_dispose()]);
    let run = bench.start(&[Step::ask("one"), Step::ask("two")]).await;
    while_awaited(&*run, "the release of the child", bench.provider.wait_for_disposes(1)).await;
    let mut result = run.result();
    still_waits("the body", &mut result).await;
    assert_eq!(bench.provider.starts(), 1, "the body waits for the release");
    bench.provider.release_dispose(1);
    assert_value(&patiently("the result", result).await, &json!(["one", "done"]));
    dispose(&*run).await;
}

/// A call that the body drops ends its child, which is disposed of.
pub async fn dropped_call_ends_its_child(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging(), MockChild::hanging(), MockChild::hanging()]);
    let steps = [Step::Race(vec![Ask::new("quick"), Ask::new("slow")]), Step::ask("after")];
    let run = bench.start(&steps).await;
    let both = async {
        bench.provider.wait_until_asked(1).await;
        bench.provider.wait_until_asked(2).await;
        bench.provider.finish(1);
        bench.provider.wait_until_asked(3).await;
    };
    while_awaited(&*run, "the child after the race", both).await;
    quiet().await;
    assert_eq!(bench.provider.live(), [3], "the slow child is gone while the body goes on");
    bench.provider.finish(3);
    let expected: Value = json!(["finished", "finished"]);
    assert_value(&result_of(&*run).await, &expected);
    dispose(&*run).await;
}
