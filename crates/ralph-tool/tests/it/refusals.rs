//! What is refused before anything is started, and in which order.

use std::sync::Arc;

use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, ProviderInfo, SubagentRegistry};
use harness_testkit::subagent::MockProvider;
use harness_testkit::workflow::StubEngine;
use harness_workflow::{RunResult, WorkflowCatalog};
use ralph_tool::{CallContext, Handoff, RalphConfig, RalphTool, workflow_ref, workflows};
use serde_json::{Value, json};

use crate::stage::{Stage, complete, context, continuing, report};

async fn refused(stage: &Stage, args: Value, context: CallContext) -> String {
    let error = stage.tool.call(&args, context).await.unwrap_err();
    assert!(error.run().is_none());
    assert!(stage.engine.starts().is_empty(), "the engine must not be asked");
    assert_eq!(stage.engine.disposals(), 0);
    error.code().to_owned()
}

#[tokio::test]
async fn a_bad_call_is_refused_before_the_engine_is_asked() {
    let stage = Stage::settable(json!({ "maxRounds": 5 }));
    let ok = json!({ "objective": "o" });
    assert!(stage.tool.check(&ok).is_ok());
    assert_eq!(refused(&stage, ok, CallContext::default()).await, "no-calling-agent");
    for (args, code) in [
        (json!({}), "invalid-arguments"),
        (json!([]), "invalid-arguments"),
        (json!({ "objective": null }), "invalid-arguments"),
        (json!({ "objective": 7 }), "invalid-arguments"),
        (json!({ "objective": "" }), "objective-empty"),
        (json!({ "objective": " \u{feff}\u{2028}\t" }), "objective-empty"),
        (json!({ "objective": "o", "maxRounds": 0 }), "max-rounds-invalid"),
        (json!({ "objective": "o", "maxRounds": 1.5 }), "max-rounds-invalid"),
        (json!({ "objective": "o", "maxRounds": "NaN" }), "max-rounds-invalid"),
        (json!({ "objective": "o", "maxRounds": 6 }), "max-rounds-over-ceiling"),
    ] {
        assert_eq!(stage.tool.check(&args).unwrap_err().code(), code, "{args}");
        assert_eq!(refused(&stage, args.clone(), context()).await, code, "{args}");
    }
}

#[tokio::test]
async fn no_number_and_null_both_mean_the_configured_rounds() {
    for args in [json!({ "objective": "o" }), json!({ "objective": "o", "maxRounds": null })] {
        let value = json!({ "status": "complete", "roundsStarted": 1, "report": complete("s") });
        let stage = Stage::returning(json!({ "maxRounds": 5 }), value, 1);
        stage.call(args).await.unwrap();
        assert_eq!(stage.engine.starts()[0].max_agents, Some(5));
    }
}

#[tokio::test]
async fn a_provider_that_cannot_run_workers_is_refused() {
    let incapable = Capabilities::ALL.with_output_contract(false);
    for (provider, code, fragment) in [
        (None, "provider-not-registered", "is not registered"),
        (
            Some(ProviderInfo::new("spawn", incapable)),
            "provider-without-structured-output",
            "does not support structured output",
        ),
        (
            Some(ProviderInfo::new("spawn", Capabilities::ALL).with_inherited_context(true)),
            "provider-inherits-context",
            "inherits parent context",
        ),
        // Of the two the first complaint wins.
        (
            Some(ProviderInfo::new("spawn", incapable).with_inherited_context(true)),
            "provider-without-structured-output",
            "does not support structured output",
        ),
    ] {
        let stage = Stage::settable(json!({}));
        stage.registry.unregister("spawn").unwrap();
        if let Some(info) = provider {
            stage.registry.register(MockProvider::with_info(info).0).unwrap();
        }
        let error = stage.call(json!({ "objective": "o" })).await.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(fragment), "{error}");
        assert!(stage.engine.starts().is_empty());
    }
}

#[tokio::test]
async fn the_provider_is_looked_up_at_each_call() {
    let value = json!({ "status": "complete", "roundsStarted": 1, "report": complete("s") });
    let stage = Stage::returning(json!({}), value, 1);
    stage.call(json!({ "objective": "o" })).await.unwrap();
    let provider = stage.registry.unregister("spawn").unwrap();
    assert_eq!(stage.call(json!({ "objective": "o" })).await.unwrap_err().code(), "provider-not-registered");
    stage.registry.register(provider).unwrap();
    stage.call(json!({ "objective": "o" })).await.unwrap();
}

#[tokio::test]
async fn the_first_thing_that_is_wrong_decides() {
    let stage = Stage::settable(json!({ "maxRounds": 5 }));
    stage.registry.unregister("spawn").unwrap();
    let handoff = Handoff::new("r", report(&complete("nothing is left")));
    let agent = |agent: bool| if agent { context() } else { CallContext::default() };
    for (objective, rounds, has_agent, code) in [
        (json!(7), json!(9), false, "invalid-arguments"),
        (json!(" "), json!(9), false, "no-calling-agent"),
        (json!(" "), json!(0), true, "objective-empty"),
        (json!("o"), json!(9), true, "max-rounds-over-ceiling"),
        (json!("o"), json!(5), true, "provider-not-registered"),
    ] {
        let args = json!({ "objective": objective, "maxRounds": rounds });
        assert_eq!(refused(&stage, args, agent(has_agent).with_handoff(handoff.clone())).await, code);
    }
}

#[tokio::test]
async fn a_report_that_nothing_follows_or_that_does_not_fit_is_no_handoff() {
    let stage = Stage::settable(json!({ "maxHandoffChars": 90 }));
    for (handoff, fragment) in [
        (complete("done"), "nothing to go on with"),
        (continuing("a summary that needs more characters than there may be"), "90 are allowed"),
    ] {
        let context = context().with_handoff(Handoff::new("r", report(&handoff)));
        let error = stage.tool.call(&json!({ "objective": "o" }), context).await.unwrap_err();
        assert_eq!(error.code(), "handoff-invalid");
        assert!(error.to_string().contains(fragment), "{error}");
        assert!(stage.engine.starts().is_empty());
    }
}

#[test]
fn an_engine_without_the_loop_is_refused() {
    let (engine, _handle) = StubEngine::settable(WorkflowCatalog::new());
    let error =
        RalphTool::new(RalphConfig::default(), Arc::new(engine), Arc::new(LocalRegistry::new())).unwrap_err();
    assert_eq!(error.workflow, workflow_ref());
    assert!(error.to_string().contains("ralph-loop (version 1)"), "{error}");
}

#[tokio::test]
async fn a_tool_on_another_engine_keeps_everything_but_the_engine() {
    let (without_the_loop, _handle) = StubEngine::settable(WorkflowCatalog::new());
    let stage = Stage::settable(json!({ "maxRounds": 5 }));
    let error = stage.tool.with_engine(Arc::new(without_the_loop)).unwrap_err();
    assert_eq!(error.workflow, workflow_ref());

    let (other, its_handle) = StubEngine::settable(workflows());
    let value = json!({ "status": "complete", "roundsStarted": 1, "report": complete("s") });
    its_handle.settle(RunResult::completed(value).with_agents_started(1).with_attempts(1));
    let tool = stage.tool.with_engine(Arc::new(other)).unwrap();
    assert_eq!(tool.definition(), stage.tool.definition());
    tool.call(&json!({ "objective": "o" }), context()).await.unwrap();
    assert_eq!(its_handle.starts()[0].max_agents, Some(5));
    assert!(stage.engine.starts().is_empty());
}
