//! Registering, finding and listing providers.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use harness_registry_local::LocalRegistry;
use harness_subagent::{
    Capabilities, ErrorKind, ProviderInfo, SubagentEvent, SubagentObserver, SubagentProvider,
    SubagentRegistry, SubagentRegistryExt,
};

use crate::double::{Double, Notes, line, request};

fn names(registry: &LocalRegistry) -> Vec<String> {
    registry.providers().into_iter().map(|info| info.name).collect()
}

#[test]
fn a_taken_name_is_refused_and_the_first_provider_stays() {
    let registry = LocalRegistry::new();
    let first: Arc<dyn SubagentProvider> = Double::new("a");
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    registry.register(Arc::clone(&first)).unwrap();

    let error = registry.register(Double::new("a")).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::DuplicateProvider);
    assert!(Arc::ptr_eq(&registry.provider("a").unwrap(), &first));
    assert_eq!(notes.lines(), ["added a"]);
}

#[tokio::test]
async fn an_absent_name_is_refused_before_everything_else() {
    let registry = LocalRegistry::new();
    registry.register(Double::with_capabilities("plain", Capabilities::NONE)).unwrap();
    let error = registry.start("absent", request().with_persona("p")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoProvider);
    assert!(error.to_string().contains("\"plain\""), "{error}");
    assert!(registry.provider("absent").is_none());
    assert!(registry.unregister("absent").is_none());
}

#[test]
fn providers_are_listed_in_the_order_of_registration() {
    let registry = LocalRegistry::new();
    for name in ["zeta", "alpha", "Mid dle", ""] {
        registry.register(Double::new(name)).unwrap();
    }
    assert_eq!(names(&registry), ["zeta", "alpha", "Mid dle", ""], "names are used verbatim");

    registry.unregister("zeta").unwrap();
    registry.register(Double::new("zeta")).unwrap();
    assert_eq!(names(&registry), ["alpha", "Mid dle", "", "zeta"]);
}

#[test]
fn a_listing_tells_capabilities_and_inheritance() {
    let registry = LocalRegistry::new();
    let persona = Capabilities::NONE.with_persona(true);
    registry.register(Double::with_capabilities("one", persona)).unwrap();
    registry.register(Double::inheriting("two")).unwrap();
    assert_eq!(
        registry.providers(),
        [
            ProviderInfo::new("one", persona),
            ProviderInfo::new("two", Capabilities::ALL).with_inherited_context(true)
        ]
    );
}

#[tokio::test]
async fn unregistering_refuses_new_starts_and_leaves_children_alone() {
    let registry = LocalRegistry::new();
    let provider = Double::new("a");
    let child = provider.then_child("c");
    registry.register(provider.clone()).unwrap();
    let run = registry.start("a", request()).await.unwrap();

    let removed = registry.unregister("a").unwrap();

    assert_eq!(registry.start("a", request()).await.unwrap_err().kind(), ErrorKind::NoProvider);
    assert!(!child.is_dropped());
    child.ends(harness_subagent::SubagentResult::completed("fine"));
    assert_eq!(run.result().await.unwrap().output, "fine");
    registry.start_on(&removed, request()).await.unwrap();
    assert_eq!(provider.requests().len(), 2, "whoever holds the provider may still start on it");
}

#[test]
fn observers_hear_of_providers_that_come_and_go() {
    let registry = LocalRegistry::new();
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    registry.register(Double::new("a")).unwrap();
    registry.register(Double::new("b")).unwrap();
    registry.unregister("a").unwrap();
    assert_eq!(notes.lines(), ["added a", "added b", "removed a"]);
}

/// Removes each provider as soon as it hears of it, and checks that the registry answers meanwhile.
#[derive(Debug, Default)]
struct Remover {
    registry: OnceLock<Weak<LocalRegistry>>,
    heard: Mutex<Vec<String>>,
}

impl SubagentObserver for Remover {
    fn observe(&self, event: &SubagentEvent<'_>) {
        self.heard.lock().unwrap().push(line(event));
        let registry = self.registry.get().unwrap().upgrade().unwrap();
        if let SubagentEvent::ProviderAdded { provider } = event {
            assert!(registry.provider(provider).is_some(), "it can be used when it is announced");
            registry.unregister(provider).unwrap();
            registry.observe(Arc::new(Notes::default()));
        }
    }
}

#[test]
fn an_observer_may_call_back_and_others_still_hear_things_in_order() {
    let registry = Arc::new(LocalRegistry::new());
    let remover = Arc::new(Remover::default());
    remover.registry.set(Arc::downgrade(&registry)).unwrap();
    let notes = Arc::new(Notes::default());
    registry.observe(remover.clone());
    registry.observe(notes.clone());

    registry.register(Double::new("a")).unwrap();

    assert_eq!(*remover.heard.lock().unwrap(), ["added a", "removed a"]);
    assert_eq!(notes.lines(), ["added a", "removed a"]);
    assert!(registry.providers().is_empty());
}
