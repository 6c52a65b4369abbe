//! What a start is refused for, in which order, and what reaches the provider.

use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Capabilities, Error, ErrorKind, ModelChoice, Origin, Parent, StartSubagent, SubagentRegistry, ToolFilter,
    ToolRestriction,
};

use crate::double::{Double, Step, contract, request, root};

async fn refuses(capabilities: Capabilities, request: StartSubagent, kind: ErrorKind, words: &str) {
    let provider = Double::with_capabilities("p", capabilities);
    let error = LocalRegistry::new().start_on(&(provider.clone() as _), request).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(provider.requests().is_empty(), "the provider must not be called");
}

/// Asks for everything that a capability stands for.
fn everything() -> StartSubagent {
    request()
        .with_output(contract())
        .with_max_depth(0)
        .with_tools(ToolRestriction::deny(["shell"]))
        .with_persona("critic")
        .with_model(ModelChoice::model("m"))
}

#[tokio::test]
async fn lacking_capabilities_are_refused_in_their_order_and_before_the_depth() {
    let lacking = ErrorKind::UnsupportedCapability;
    let mut able = Capabilities::NONE;
    refuses(able, everything(), lacking, "output_contract").await;
    able = able.with_output_contract(true);
    refuses(able, everything(), lacking, "depth_limit").await;
    able = able.with_depth_limit(true);
    refuses(able, everything(), lacking, "tool_restriction").await;
    able = able.with_tool_restriction(true);
    refuses(able, everything(), lacking, "persona").await;
    able = able.with_persona(true);
    refuses(able, everything(), lacking, "model_choice").await;
    able = able.with_model_choice(true);
    assert_eq!(able, Capabilities::ALL);
    refuses(able, everything(), ErrorKind::DepthExceeded, "deeper than 0").await;
}

#[tokio::test]
async fn each_capability_is_needed_for_its_own_part_alone() {
    let lacking = ErrorKind::UnsupportedCapability;
    let all = Capabilities::ALL;
    refuses(all.with_output_contract(false), request().with_output(contract()), lacking, "output_contract")
        .await;
    refuses(all.with_depth_limit(false), request().with_max_depth(9), lacking, "depth_limit").await;
    let tools = ToolRestriction::allow_only(["read"]);
    refuses(all.with_tool_restriction(false), request().with_tools(tools), lacking, "tool_restriction").await;
    refuses(all.with_persona(false), request().with_persona("p"), lacking, "persona").await;
    refuses(
        all.with_model_choice(false),
        request().with_model(ModelChoice::model("m")),
        lacking,
        "model_choice",
    )
    .await;
}

#[tokio::test]
async fn a_child_deeper_than_the_limit_is_refused() {
    let at = |depth, most| StartSubagent::new("x", root().with_depth(depth)).with_max_depth(most);
    refuses(Capabilities::ALL, at(0, 0), ErrorKind::DepthExceeded, "depth 0").await;
    refuses(Capabilities::ALL, at(3, 3), ErrorKind::DepthExceeded, "depth 3").await;
    refuses(Capabilities::ALL, at(u32::MAX, u32::MAX), ErrorKind::DepthExceeded, "deeper").await;
    let unlimited = StartSubagent::new("x", root().with_depth(u32::MAX));
    refuses(Capabilities::ALL, unlimited, ErrorKind::DepthExceeded, "deeper").await;
}

#[tokio::test]
async fn a_child_just_as_deep_as_the_limit_is_started() {
    let provider = Double::new("p");
    let request = StartSubagent::new("x", root().with_depth(2)).with_max_depth(3);
    LocalRegistry::new().start_on(&(provider.clone() as _), request).await.unwrap();
    assert_eq!(provider.requests()[0].max_depth, Some(3));
}

#[tokio::test]
async fn a_preferred_tool_restriction_is_dropped_where_it_is_lacking() {
    let registry = LocalRegistry::new();
    let unable = Double::with_capabilities("p", Capabilities::ALL.with_tool_restriction(false));
    let tools = ToolRestriction::deny(["shell"]).preferred();
    registry.start_on(&(unable.clone() as _), request().with_tools(tools.clone())).await.unwrap();
    assert_eq!(unable.requests()[0].tools, None);

    let able = Double::new("q");
    registry.start_on(&(able.clone() as _), request().with_tools(tools)).await.unwrap();
    let passed = able.requests()[0].tools.clone().unwrap();
    assert_eq!(passed.filter, ToolFilter::Deny(vec!["shell".to_owned()]));
}

#[tokio::test]
async fn a_request_reaches_the_provider_unchanged() {
    let provider = Double::new("p");
    let sent = StartSubagent::new("  verbatim\n", Parent::new("me", "/w").with_depth(1))
        .with_label("label")
        .with_origin(Origin::new("run", 3, 2))
        .with_output(contract())
        .with_max_depth(5)
        .with_tools(ToolRestriction::allow_only(["read"]))
        .with_persona("critic")
        .with_model(ModelChoice::model("m").with_provider("v"));
    LocalRegistry::new().start_on(&(provider.clone() as _), sent.clone()).await.unwrap();

    let [got] = &provider.requests()[..] else { panic!("one start") };
    // Rendered, the cancellation token tells its state; that it is the same one is checked below.
    assert_eq!(format!("{got:?}"), format!("{sent:?}"));
    sent.cancellation.cancel();
    assert!(got.cancellation.is_cancelled());
}

#[tokio::test]
async fn a_provider_error_is_passed_on_unchanged() {
    let refusal = Error::new(ErrorKind::Provider, "no such program").with_source("exec failed");
    let provider = Double::new("p").then(Step::Fail(refusal));
    let error = LocalRegistry::new().start_on(&(provider.clone() as _), request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert_eq!(error.to_string(), "no such program");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "exec failed");
}
