//! What a body gets of its calls, and what is told of them.

use harness_subagent::{Activity, OutputContract, StopReason, Usage};
use harness_testkit::subagent::MockChild;
use harness_workflow::{
    AgentCall, AgentOutcome, ErrorCode, ErrorKind, RunStopReason, WorkflowEngine, WorkflowEventKind,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bodies::{Bench, Body, ask_in_turn, plain, request};

#[tokio::test(start_paused = true)]
async fn a_run_returns_what_its_children_said_and_tells_of_everything_in_order() {
    let bench = Bench::new(Body::new(|context| async move {
        context.phase("asking")?;
        context.log("one question")?;
        ask_in_turn(context).await
    }));
    let usage = Usage::new(3, 4);
    bench.provider.script([
        MockChild::text("one").with_usage(usage).with_session_id("s-1"),
        MockChild::failing(StopReason::MAX_TOKENS),
    ]);
    let result = bench.run(request().with_args(json!(2))).await;
    assert_eq!(result.value(), Some(&json!(["one", { "none": "max-tokens" }])));
    assert_eq!((result.agents_started(), result.attempts()), (2, 2));
    assert_eq!(result.checkpoint(), Some(&json!(2)));
    assert_eq!(
        bench.events.names(),
        [
            "started",
            "phase",
            "log",
            "agent-started 1",
            "agent-ended 1 completed",
            "checkpoint",
            "agent-started 2",
            "agent-ended 2 failed",
            "checkpoint",
            "ended",
        ]
    );
    let WorkflowEventKind::AgentEnded { call, end } = bench.events.all()[4].kind.clone() else { panic!() };
    assert_eq!((end.usage, end.session_id.as_deref()), (Some(usage), Some("s-1")));
    assert_eq!((call.phase.as_deref(), call.attempt), (Some("asking"), 1));
    let request = bench.provider.request(2);
    let origin = request.origin.unwrap();
    assert_eq!((origin.call, origin.attempt), (2, 1));
    assert_eq!(&*origin.run, bench.events.all()[0].run.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_started_ends_the_run_without_an_event_of_its_own() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.script([MockChild::refused()]);
    let result = bench.run(request()).await;
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::AGENT_START);
    assert!(error.message().contains("refused by the script"), "{error}");
    assert_eq!((result.agents_started(), result.attempts()), (1, 1));
    assert_eq!(bench.events.names(), ["started", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_child_ends_the_run() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.script([MockChild::lost()]);
    let result = bench.run(request()).await;
    assert_eq!(*result.error().unwrap().code(), ErrorCode::AGENT_RESULT);
    assert_eq!(bench.events.names(), ["started", "agent-started 1", "agent-ended 1 failed", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_too_deep_is_no_result_of_a_child_nor_of_a_run() {
    let nested = (1..=200).fold(json!(1), |inner, _| json!({ "in": inner }));
    let deep = nested.clone();
    let bench = Bench::new(Body::new(move |context| {
        let deep = deep.clone();
        async move {
            let contract = OutputContract::new(json!({ "type": "object" })).unwrap();
            match context.agent(AgentCall::new("dig").with_output(contract)).await {
                Err(error) if *error.code() == ErrorCode::AGENT_RESULT => Ok(deep),
                other => panic!("{other:?}"),
            }
        }
    }));
    bench.provider.script([MockChild::value(nested)]);
    let result = bench.run(request()).await;
    assert_eq!(*result.error().unwrap().code(), ErrorCode::RESULT_UNSERIALIZABLE);
}

#[tokio::test(start_paused = true)]
async fn without_a_contract_a_handed_in_value_is_nothing_and_the_text_counts() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.script([MockChild::result(
        harness_subagent::SubagentResult::handed_in(json!({ "x": 1 })).with_output("the text"),
    )]);
    assert_eq!(bench.run(request()).await.value(), Some(&json!(["the text"])));
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_slot_in_the_order_of_their_numbers() {
    let bench = Bench::new(Body::new(|context| async move {
        let branches = (1..=6).map(|number| {
            let context = context.clone();
            async move { context.agent(AgentCall::new(format!("{number}"))).await.map(plain) }
        });
        Ok(json!(context.parallel(branches).await?))
    }));
    bench.provider.set_default_with(|request| {
        let number: u64 = request.prompt.parse().unwrap();
        MockChild::text(request.prompt.clone()).after(std::time::Duration::from_secs(number))
    });
    let result = bench.run(request()).await;
    assert_eq!(result.value(), Some(&json!(["1", "2", "3", "4", "5", "6"])));
    assert_eq!(bench.provider.most_live(), 2);
    let prompts: Vec<String> = bench.provider.requests().into_iter().map(|request| request.prompt).collect();
    assert_eq!(prompts, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test(start_paused = true)]
async fn activity_is_told_while_the_child_runs() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.script([MockChild::text("done")
        .after(std::time::Duration::from_secs(1))
        .with_activity(Activity::new("reading"))]);
    bench.run(request()).await;
    assert_eq!(
        bench.events.names(),
        ["started", "agent-started 1", "agent-activity 1", "agent-ended 1 completed", "checkpoint", "ended"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_is_an_error_with_the_runs_id_and_the_engine_goes_on() {
    let bench = Bench::new(Body::new(|context| async move {
        assert_ne!(*context.args(), json!("panic"), "on purpose");
        Ok(Value::Null)
    }));
    let result = bench.run(request().with_run_id("r-1").with_args(json!("panic"))).await;
    let error = result.error().unwrap();
    assert_eq!(*error.code(), ErrorCode::PANIC);
    assert!(error.message().contains("on purpose"), "{error}");
    assert_eq!(error.details(), Some(&json!({ "run": "r-1" })));
    assert_eq!(bench.run(request()).await.stop_reason(), RunStopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_nobody_waits_for_is_gone_before_the_run_ends() {
    let bench = Bench::new(Body::new(|context| async move {
        let mut call = Box::pin(context.agent(AgentCall::new("stray")));
        std::future::poll_fn(|cx| {
            let _ = call.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        Ok(json!("left it"))
    }));
    bench.provider.set_default(MockChild::hanging());
    let result = bench.run(request()).await;
    assert_eq!(result.value(), Some(&json!("left it")));
    assert_eq!(bench.events.names(), ["started", "agent-started 1", "agent-ended 1 cancelled", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_keeps_its_provider_when_another_takes_the_name() {
    use harness_subagent::SubagentRegistry;
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.provider.script([MockChild::text("first").until_finished(), MockChild::text("second")]);
    let run = bench.start(request().with_args(json!(2))).await;
    bench.provider.wait_for_child(1).await;
    assert!(bench.registry.unregister(&bench.engine.config().provider).is_some());
    bench.provider.finish(1);
    assert_eq!(run.result().await.value(), Some(&json!(["first", "second"])));
    run.dispose().await.unwrap();
    let refused = bench.engine.start(request(), CancellationToken::new()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Provider);
    bench.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_known_id_is_refused_also_after_the_runs_end() {
    let bench = Bench::new(Body::new(ask_in_turn));
    bench.run(request().with_run_id("once")).await;
    let error =
        bench.engine.start(request().with_run_id("once"), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RunExists);
    let error = bench.engine.start(request().with_run_id(""), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_swallows_its_cap_still_counts_only_what_was_accepted() {
    let bench = Bench::new(Body::new(|context| async move {
        let mut values = 0;
        while let Ok(AgentOutcome::Value(_)) = context.agent(AgentCall::new("again")).await {
            values += 1;
        }
        Ok(json!(values))
    }));
    let result = bench.run(request().with_max_agents(3)).await;
    assert_eq!(result.value(), Some(&json!(3)));
    assert_eq!(result.agents_started(), 3);
}
