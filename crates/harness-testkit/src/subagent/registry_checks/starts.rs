//! What a start is checked for, and what reaches the provider.

use std::pin::pin;

use harness_subagent::{
    Capabilities, Error, ErrorKind, ModelChoice, Origin, Parent, StartSubagent, SubagentRegistryExt,
    ToolRestriction,
};
use serde_json::json;

use super::{PATIENCE, contract, drive, limited, refused, release, request, start, started, with_mock};
use crate::subagent::{MockChild, RegistryFixture, TreeLimits};
use crate::wait::{poll_once, within};

/// A capability that the request needs and the provider lacks is refused before the provider is called.
pub async fn lacking_capability_is_refused(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let requests = [
        ("output contract", request().with_output(contract())),
        ("depth limit", request().with_max_depth(9)),
        ("required tool restriction", request().with_tools(ToolRestriction::deny(["shell"]))),
        ("persona", request().with_persona("reviewer")),
        ("model choice", request().with_model(ModelChoice::model("small"))),
    ];
    for (needed, request) in requests {
        match within(PATIENCE, "the start", registry.start("mock", request)).await {
            Ok(_) => panic!("a provider without the capability was asked for: {needed}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnsupportedCapability, "{needed}: {error}"),
        }
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
}

/// A preferred tool restriction that the provider lacks is dropped.
pub async fn preferred_restriction_is_dropped_where_lacking(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let restricted = request().with_tools(ToolRestriction::deny(["shell"]).preferred());
    let run = within(PATIENCE, "the start", registry.start("mock", restricted)).await;
    release(started(run)).await;
    assert_eq!(handle.request(1).tools, None, "the provider got a restriction that it lacks");
}

/// The provider is called once, and gets the request unchanged.
pub async fn provider_gets_the_request_unchanged_and_once(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let asked = request()
        .with_label("label")
        .with_origin(Origin::new("run", 1, 1))
        .with_output(contract())
        .with_max_depth(3)
        .with_tools(ToolRestriction::allow_only(["read"]).preferred())
        .with_persona("reviewer")
        .with_model(ModelChoice::model("small").with_provider("vendor"));
    handle.script([MockChild::value(json!({ "answer": "yes" }))]);
    let run = start(&*registry, asked.clone()).await;
    assert_eq!(handle.starts(), 1, "the provider is called once");
    let got = handle.request(1);
    asked.cancellation.cancel();
    assert!(got.cancellation.is_cancelled(), "the provider got another cancellation token");
    assert_eq!(format!("{got:?}"), format!("{asked:?}"));
    release(run).await;
}

/// A child that would be deeper than the request's limit is refused before the provider is called.
pub async fn child_deeper_than_the_limit_is_refused(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::ALL);
    let at = |depth, limit| {
        StartSubagent::new("work", Parent::new("deep", "workspace").with_depth(depth)).with_max_depth(limit)
    };
    for (depth, limit) in [(0, 0), (3, 3), (7, 2), (u32::MAX, u32::MAX)] {
        match within(PATIENCE, "the start", registry.start("mock", at(depth, limit))).await {
            Ok(_) => panic!("a child of a parent at depth {depth} was started under the limit {limit}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::DepthExceeded, "{error}"),
        }
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
    for (depth, limit) in [(0, 1), (3, 4), (0, u32::MAX)] {
        release(start(&*registry, at(depth, limit)).await).await;
    }
}

/// Capabilities are checked before the depth.
pub async fn capabilities_are_checked_before_the_depth(fixture: &dyn RegistryFixture) {
    let capabilities = Capabilities::NONE.with_depth_limit(true);
    let (registry, _handle) = with_mock(fixture, capabilities);
    let asked = request().with_max_depth(0).with_persona("reviewer");
    refused(&*registry, asked, ErrorKind::UnsupportedCapability).await;
}

/// The provider's error is passed on unchanged.
pub async fn providers_error_is_passed_on_unchanged(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    for kind in [ErrorKind::Provider, ErrorKind::Cancelled, ErrorKind::RunLost] {
        let error = Error::new(kind, "of the provider's own making").with_source("its source");
        handle.script([MockChild::refused_with(error.clone())]);
        let Err(got) = within(PATIENCE, "the start", registry.start("mock", request())).await else {
            panic!("the provider's refusal was lost");
        };
        assert_eq!((got.kind(), got.to_string()), (error.kind(), error.to_string()));
        let source = std::error::Error::source(&got).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("its source"));
    }
}

/// If the future of a start is dropped, no child is left behind and its place is free.
pub async fn dropped_start_leaves_nothing(fixture: &dyn RegistryFixture) {
    let limits = TreeLimits::active(1);
    let (registry, handle) =
        limited(fixture, limits).unwrap_or_else(|| with_mock(fixture, Capabilities::NONE));
    handle.script([MockChild::default().with_held_start()]);
    {
        let mut start = pin!(registry.start("mock", request()));
        assert!(poll_once(start.as_mut()).await.is_none(), "the start is held");
        assert_eq!(handle.starts(), 1);
    }
    handle.release_start(1);
    tokio::task::yield_now().await;
    handle.assert_nothing_left();
    release(start(&*registry, request()).await).await;
}

/// A registry must not start tasks or threads of its own: it works without a runtime.
pub async fn registry_needs_no_runtime(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::text("no runtime")]);
    let outside = std::thread::spawn(move || {
        let run = drive(registry.start("mock", request()))?;
        let result = drive(run.result())?;
        drive(run.dispose())?;
        Ok::<_, Error>(result.output)
    });
    match outside.join() {
        Ok(Ok(output)) => assert_eq!(output, "no runtime"),
        Ok(Err(error)) => panic!("outside a runtime the registry failed: {error}"),
        Err(_) => panic!("outside a runtime the registry panicked"),
    }
}
