use std::sync::Arc;

use harness_workflow::*;

/// Auto traits are promises: a type that loses one breaks its users.
#[test]
fn every_public_type_can_be_sent_and_shared() {
    fn assert_send_sync<T: Send + Sync + ?Sized>() {}
    assert_send_sync::<AgentCall>();
    assert_send_sync::<AgentOutcome>();
    assert_send_sync::<CallEnd>();
    assert_send_sync::<CallInfo>();
    assert_send_sync::<CallOutcome>();
    assert_send_sync::<CatalogEntry>();
    assert_send_sync::<Claim>();
    assert_send_sync::<ContextLimits>();
    assert_send_sync::<EngineCapabilities>();
    assert_send_sync::<Error>();
    assert_send_sync::<ErrorCode>();
    assert_send_sync::<ErrorKind>();
    assert_send_sync::<InvalidMeta>();
    assert_send_sync::<InvariantObserver>();
    assert_send_sync::<InvariantViolation>();
    assert_send_sync::<NoValue>();
    assert_send_sync::<NumberedCall>();
    assert_send_sync::<PhaseMeta>();
    assert_send_sync::<RunError>();
    assert_send_sync::<RunId>();
    assert_send_sync::<RunResult>();
    assert_send_sync::<RunStopReason>();
    assert_send_sync::<Settlement>();
    assert_send_sync::<Stage<'static>>();
    assert_send_sync::<StageInput>();
    assert_send_sync::<StartRun>();
    assert_send_sync::<WorkflowCatalog>();
    assert_send_sync::<WorkflowContext>();
    assert_send_sync::<WorkflowError>();
    assert_send_sync::<WorkflowEvent>();
    assert_send_sync::<WorkflowEventKind>();
    assert_send_sync::<WorkflowMeta>();
    assert_send_sync::<WorkflowObservers>();
    assert_send_sync::<WorkflowRef>();
    assert_send_sync::<dyn Workflow>();
    assert_send_sync::<dyn WorkflowEngine>();
    assert_send_sync::<dyn WorkflowHost>();
    assert_send_sync::<dyn WorkflowObserver>();
    assert_send_sync::<dyn WorkflowRun>();
}

#[test]
fn what_a_context_returns_can_be_awaited_on_another_thread() {
    fn assert_send<T: Send>(_future: &T) {}
    let host = crate::host::HandHost::new();
    let context = host.context();
    assert_send(&context.agent(AgentCall::new("work")));
    assert_send(&context.parallel([async { Ok(()) }]));
    assert_send(&context.pipeline(Vec::new(), &[]));
}

#[test]
fn an_error_keeps_its_source_and_leaves_it_out_of_its_words() {
    use std::error::Error as _;

    let error = Error::new(ErrorKind::Engine, "the store is gone").with_source("connection refused");
    assert_eq!(error.to_string(), "the store is gone");
    assert_eq!(error.source().unwrap().to_string(), "connection refused");
    assert_eq!(error.clone().kind(), ErrorKind::Engine);
}

#[test]
fn the_names_of_the_kinds_are_stable() {
    let names = [
        (ErrorKind::Closed, "closed"),
        (ErrorKind::Engine, "engine"),
        (ErrorKind::InvalidArgument, "invalid-argument"),
        (ErrorKind::InvalidWorkflow, "invalid-workflow"),
        (ErrorKind::Provider, "provider"),
        (ErrorKind::Release, "release"),
        (ErrorKind::RunExists, "run-exists"),
        (ErrorKind::UnknownWorkflow, "unknown-workflow"),
    ];
    for (kind, name) in names {
        assert_eq!(kind.as_str(), name);
    }
}

#[test]
fn clones_of_an_id_share_its_text() {
    let id = RunId::new("run");
    assert_eq!(id.clone().as_str().as_ptr(), id.as_str().as_ptr());
    assert_eq!((id.to_string(), format!("{id:?}")), ("run".into(), "RunId(\"run\")".into()));
    assert_eq!(Arc::<str>::from(id.as_str()), Arc::from("run"));
}
