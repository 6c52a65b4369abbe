//! What the types promise to their holders: shared between threads, held behind pointers.

use std::error::Error as StdError;
use std::sync::Arc;

use harness_subagent::{
    Activity, ActivitySender, ActivityStream, AgentId, Capabilities, ChildEnding, Diagnostic, Error,
    ErrorKind, InvalidSchema, ModelChoice, Origin, OutputContract, OutputRule, OutputRuleCatalog,
    OutputViolation, Parent, ProviderInfo, RestrictionStrength, RuleRef, SchemaViolation, StartSubagent,
    StartedChild, StopReason, SubagentEvent, SubagentObserver, SubagentProvider, SubagentRegistry,
    SubagentRegistryExt, SubagentResult, SubagentRun, ToolFilter, ToolRestriction, Usage,
};

fn is_shared<T: Send + Sync + ?Sized>() {}

#[test]
fn public_types_can_be_shared_between_threads() {
    is_shared::<Activity>();
    is_shared::<ActivitySender>();
    is_shared::<ActivityStream>();
    is_shared::<AgentId>();
    is_shared::<Capabilities>();
    is_shared::<ChildEnding<'static>>();
    is_shared::<Diagnostic>();
    is_shared::<Error>();
    is_shared::<ErrorKind>();
    is_shared::<InvalidSchema>();
    is_shared::<ModelChoice>();
    is_shared::<Origin>();
    is_shared::<OutputContract>();
    is_shared::<OutputRuleCatalog>();
    is_shared::<OutputViolation>();
    is_shared::<Parent>();
    is_shared::<ProviderInfo>();
    is_shared::<RestrictionStrength>();
    is_shared::<RuleRef>();
    is_shared::<SchemaViolation>();
    is_shared::<StartSubagent>();
    is_shared::<StartedChild>();
    is_shared::<StopReason>();
    is_shared::<SubagentEvent<'static>>();
    is_shared::<SubagentResult>();
    is_shared::<ToolFilter>();
    is_shared::<ToolRestriction>();
    is_shared::<Usage>();
}

#[test]
fn traits_can_be_held_behind_pointers() {
    is_shared::<Arc<dyn OutputRule>>();
    is_shared::<Arc<dyn SubagentObserver>>();
    is_shared::<Arc<dyn SubagentProvider>>();
    is_shared::<Arc<dyn SubagentRegistry>>();
    is_shared::<Box<dyn SubagentRun>>();
    fn starts<R: SubagentRegistryExt + ?Sized>(_: Option<&R>) {}
    starts::<dyn SubagentRegistry>(None);
    fn is_registry<R: SubagentRegistry>() {}
    is_registry::<Arc<dyn SubagentRegistry>>();
    fn is_provider<P: SubagentProvider>() {}
    is_provider::<Arc<dyn SubagentProvider>>();
}

#[test]
fn an_error_names_its_kind_and_keeps_its_source_out_of_its_words() {
    let error = Error::new(ErrorKind::Provider, "the agent is not installed").with_source("exec failed");
    assert_eq!(error.to_string(), "the agent is not installed");
    assert_eq!(error.source().unwrap().to_string(), "exec failed");
    assert_eq!(error.kind().as_str(), "provider");
    assert_eq!(error.clone().source().unwrap().to_string(), "exec failed");
}
