//! Providers by their names.

use std::pin::pin;

use harness_subagent::{Capabilities, ErrorKind, ProviderInfo, StopReason, SubagentRegistryExt};

use super::{PATIENCE, ok_result, release, request, start, started, with_mock};
use crate::subagent::{MockChild, MockProvider, RegistryFixture};
use crate::wait::{poll_once, within};

/// A registered provider is available under its name, used verbatim.
pub async fn registered_provider_is_available(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let info = ProviderInfo::new(" Odd/näme ", Capabilities::NONE).with_inherited_context(true);
    let (provider, handle) = MockProvider::with_info(info.clone());
    registry.register(provider).expect("the name is free");
    let found = registry.provider(&info.name).expect("the provider is found by its name");
    assert_eq!(ProviderInfo::from(&*found), info);
    for other in ["Odd/näme", "odd/näme", ""] {
        assert!(registry.provider(other).is_none(), "{other:?} finds {:?}", info.name);
    }
    let run = within(PATIENCE, "the start", registry.start(&info.name, request())).await;
    release(started(run)).await;
    assert_eq!(handle.starts(), 1, "the provider was not asked");
}

/// A name that is taken is refused, and the first provider stays.
pub async fn taken_name_is_refused_and_the_first_stays(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let (first, handle) = MockProvider::new(Capabilities::NONE);
    let (second, other) = MockProvider::new(Capabilities::ALL);
    registry.register(first).expect("the name is free");
    match registry.register(second) {
        Ok(()) => panic!("the second provider of a name was taken"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::DuplicateProvider, "{error}"),
    }
    let run = within(PATIENCE, "the start", registry.start("mock", request())).await;
    release(started(run)).await;
    assert_eq!((handle.starts(), other.starts()), (1, 0), "the first provider did not stay");
    assert_eq!(registry.providers().len(), 1);
}

/// Unregistering returns the provider, or nothing when there is none of that name.
pub async fn unregister_returns_the_provider_or_nothing(fixture: &dyn RegistryFixture) {
    let (registry, _handle) = with_mock(fixture, Capabilities::NONE);
    assert!(registry.unregister("other").is_none(), "a provider was returned that is not there");
    let taken = registry.unregister("mock").expect("the provider is returned");
    assert_eq!(taken.name(), "mock");
    assert!(registry.unregister("mock").is_none(), "the provider was returned twice");
}

/// Further starts under the name of an unregistered provider are refused, and the name is free again.
pub async fn unregistered_name_is_refused_and_free(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    registry.unregister("mock");
    match within(PATIENCE, "the start", registry.start("mock", request())).await {
        Ok(_) => panic!("a start on an unregistered name was let through"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NoProvider, "{error}"),
    }
    assert_eq!(handle.starts(), 0, "the provider was called");
    assert!(registry.providers().is_empty());
    let (next, _handle) = MockProvider::new(Capabilities::NONE);
    registry.register(next).expect("the name is free again");
}

/// Children of a provider live on when it is unregistered.
pub async fn children_outlive_the_unregistering(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    handle.script([MockChild::hanging()]);
    let run = start(&*registry, request()).await;
    registry.unregister("mock");
    assert!(poll_once(pin!(run.result())).await.is_none(), "the child ended with the unregistering");
    handle.finish(1);
    assert_eq!(ok_result(&*run).await.stop_reason, StopReason::COMPLETED);
    release(run).await;
}

/// Whoever holds an unregistered provider may still start children on it.
pub async fn unregistered_provider_can_be_started_on(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let pinned = registry.provider("mock").expect("it is registered");
    registry.unregister("mock");
    let run = within(PATIENCE, "the start", registry.start_on(&pinned, request())).await;
    release(started(run)).await;
    assert_eq!(handle.starts(), 1);
}

/// Providers are described in the order in which they were registered.
pub async fn providers_are_listed_in_their_order(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let infos = ["zebra", "ant", "mule"].map(|name| ProviderInfo::new(name, Capabilities::NONE));
    for info in &infos {
        registry.register(MockProvider::with_info(info.clone()).0).expect("the name is free");
    }
    assert_eq!(registry.providers(), infos);
    let first = registry.unregister("zebra").expect("it is registered");
    registry.register(first).expect("the name is free again");
    let [zebra, ant, mule] = infos;
    assert_eq!(registry.providers(), [ant, mule, zebra], "a provider that comes back comes last");
}
