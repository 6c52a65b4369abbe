//! What observers hear of.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};

use harness_subagent::{
    Capabilities, ErrorKind, Origin, StopReason, SubagentEvent, SubagentObserver, SubagentRegistry,
    SubagentRegistryExt,
};

use super::{PATIENCE, contract, dispose, drive, ok_result, release, request, start, with_mock};
use crate::subagent::{
    MockChild, MockProvider, MockProviderHandle, RegistryFixture, SeenEnding, SeenEvent, SubagentRecorder,
};
use crate::wait::within;

/// An observer hears of providers that come and go, once they have.
pub async fn providers_are_observed_as_they_come_and_go(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    let provider = MockProvider::new(Capabilities::NONE).0;
    registry.register(provider.clone()).expect("the name is free");
    // What becomes of the second of each is the matter of other checks.
    let _ = registry.register(provider);
    registry.unregister("mock");
    registry.unregister("mock");
    let events = recorder.events();
    let matches = matches!(
        &events[..],
        [SeenEvent::ProviderAdded(added), SeenEvent::ProviderRemoved(removed)] if added == "mock" && removed == "mock"
    );
    assert!(matches, "{events:?}");
}

/// Every observer hears of every child, as long as the registry lives.
pub async fn every_observer_hears_of_every_child(fixture: &dyn RegistryFixture) {
    let (registry, _handle) = with_mock(fixture, Capabilities::NONE);
    let recorders = [SubagentRecorder::new(), SubagentRecorder::new()];
    for recorder in &recorders {
        registry.observe(Arc::new(recorder.clone()));
    }
    for _ in 0..3 {
        release(start(&*registry, request()).await).await;
    }
    for recorder in &recorders {
        assert_eq!((recorder.started().len(), recorder.ended().len()), (3, 3), "{:?}", recorder.events());
    }
}

/// A panic in an observer reaches neither the other observers nor the children.
pub async fn panic_of_an_observer_is_contained(fixture: &dyn RegistryFixture) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(PanickingObserver));
    registry.observe(Arc::new(recorder.clone()));
    let run = start(&*registry, request()).await;
    assert_eq!(ok_result(&*run).await.output, "done");
    release(run).await;
    assert_eq!((recorder.started().len(), recorder.ended().len()), (1, 1), "{:?}", recorder.events());
    handle.assert_nothing_left();
}

/// A child's start is told before its end, also when it had ended before its start returned.
pub async fn start_is_told_before_the_end(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let run = start(&*registry, request()).await;
    assert_eq!(recorder.started().len(), 1, "the start is told before it returns");
    ok_result(&*run).await;
    let events = recorder.events();
    let ordered = matches!(&events[..], [SeenEvent::Started(_), SeenEvent::Ended(..)]);
    assert!(ordered, "{events:?}");
    release(run).await;
}

/// Every child whose start was told ends exactly once.
pub async fn every_started_child_ends_once(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let run = start(&*registry, request()).await;
    ok_result(&*run).await;
    ok_result(&*run).await;
    dispose(&*run).await;
    dispose(&*run).await;
    drop(run);
    let ended = recorder.ended();
    assert_eq!(ended.len(), 1, "{ended:?}");
}

/// A start that fails causes neither a start nor an end.
pub async fn failed_start_causes_no_event(fixture: &dyn RegistryFixture) {
    let (registry, recorder, handle) = observed(fixture);
    handle.script([MockChild::refused()]);
    let failed = within(PATIENCE, "the start", registry.start("mock", request())).await;
    assert!(failed.is_err(), "the provider's refusal was lost");
    let refused = registry.start("mock", request().with_persona("nobody"));
    assert!(within(PATIENCE, "the start", refused).await.is_err(), "a lacking capability was let through");
    assert!(recorder.events().is_empty(), "{:?}", recorder.events());
}

/// A child is told of with its id, its provider, its parent, its origin and its label.
pub async fn child_is_told_of_with_its_circumstances(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    let origin = Origin::new("run", 3, 2);
    let run = start(&*registry, request().with_label("third try").with_origin(origin.clone())).await;
    ok_result(&*run).await;
    let (id, parent) = (run.id().clone(), request().parent);
    release(run).await;
    let ended = recorder.events().into_iter().filter_map(|event| match event {
        SeenEvent::Ended(child, _) => Some(child),
        _ => None,
    });
    let children: Vec<_> = recorder.started().into_iter().chain(ended).collect();
    assert_eq!(children.len(), 2, "{children:?}");
    for child in children {
        assert_eq!(child.id, id);
        assert_eq!(child.provider, "mock");
        assert_eq!(child.parent, parent);
        assert_eq!(child.origin.as_ref(), Some(&origin));
        assert_eq!(child.label.as_deref(), Some("third try"));
    }
}

/// Starts are numbered from 1, and no number comes again.
pub async fn starts_are_numbered(fixture: &dyn RegistryFixture) {
    let (registry, recorder, _handle) = observed(fixture);
    for _ in 0..3 {
        release(start(&*registry, request()).await).await;
    }
    let numbers: Vec<u64> = recorder.started().iter().map(|child| child.sequence).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

/// A child's end is told with its stop reason as passed on, and with what it said last unless it said nothing.
pub async fn end_is_told_as_passed_on(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let (provider, handle) = MockProvider::new(Capabilities::ALL);
    registry.register(provider).expect("the name is free");
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    handle.script([MockChild::text("said"), MockChild::schema_refused(), MockChild::lost()]);
    for request in [request(), request().with_output(contract()), request()] {
        let run = start(&*registry, request).await;
        let _ = within(PATIENCE, "the result", run.result()).await;
        release(run).await;
    }
    let result = |stop_reason, output: Option<&str>| SeenEnding::Result {
        stop_reason,
        output: output.map(str::to_owned),
    };
    let expected = [
        (1, result(StopReason::COMPLETED, Some("said"))),
        (2, result(StopReason::SCHEMA_REFUSED, None)),
        (3, SeenEnding::Lost(ErrorKind::RunLost)),
    ];
    assert_eq!(recorder.ended(), expected);
}

/// Every method may be called at any time, also by an observer that is being told of something.
pub async fn observer_may_call_the_registry(fixture: &dyn RegistryFixture) {
    let registry = fixture.registry();
    let caller = Arc::new(CallingObserver::default());
    registry.observe(caller.clone());
    let _ = caller.registry.set(Arc::downgrade(&registry));
    // A registry that holds a lock while it tells its observers never comes back, hence the thread.
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        registry.register(MockProvider::new(Capabilities::NONE).0).expect("the name is free");
        let run = drive(registry.start("mock", request())).expect("the provider starts a child");
        drive(run.result()).expect("the child completes");
        registry.unregister("mock");
        let _ = done.send(());
    });
    assert!(finished.recv_timeout(PATIENCE).is_ok(), "an observer that called the registry never returned");
    let heard = caller.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(heard, [true, true, true, false], "whether the provider was there at each event");
}

/// Makes a registry with a scripted provider that can nothing, and somebody who watches from then on.
fn observed(
    fixture: &dyn RegistryFixture,
) -> (Arc<dyn SubagentRegistry>, SubagentRecorder, MockProviderHandle) {
    let (registry, handle) = with_mock(fixture, Capabilities::NONE);
    let recorder = SubagentRecorder::new();
    registry.observe(Arc::new(recorder.clone()));
    (registry, recorder, handle)
}

#[derive(Debug)]
struct PanickingObserver;

impl SubagentObserver for PanickingObserver {
    fn observe(&self, _event: &SubagentEvent<'_>) {
        panic!("this observer always panics");
    }
}

/// At each event it asks the registry whether the provider is there.
#[derive(Debug, Default)]
struct CallingObserver {
    registry: OnceLock<Weak<dyn SubagentRegistry>>,
    heard: Mutex<Vec<bool>>,
}

impl SubagentObserver for CallingObserver {
    fn observe(&self, _event: &SubagentEvent<'_>) {
        let registry = self.registry.get().and_then(Weak::upgrade);
        let there = registry.is_some_and(|registry| {
            registry.observe(Arc::new(SubagentRecorder::new()));
            registry.provider("mock").is_some() && registry.providers().len() == 1
        });
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(there);
    }
}
