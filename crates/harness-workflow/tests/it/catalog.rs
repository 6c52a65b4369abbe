use std::sync::Arc;

use async_trait::async_trait;
use harness_workflow::{
    ErrorKind, PhaseMeta, Workflow, WorkflowCatalog, WorkflowContext, WorkflowError, WorkflowMeta,
    WorkflowRef,
};
use serde_json::Value;

#[derive(Debug)]
struct Nothing(WorkflowMeta);

#[async_trait]
impl Workflow for Nothing {
    fn meta(&self) -> &WorkflowMeta {
        &self.0
    }

    async fn run(&self, _context: WorkflowContext) -> Result<Value, WorkflowError> {
        Ok(Value::Null)
    }
}

fn nothing(meta: WorkflowMeta) -> Arc<dyn Workflow> {
    Arc::new(Nothing(meta))
}

#[test]
fn a_meta_is_refused_with_all_that_is_wrong_with_it() {
    let meta = WorkflowMeta::new("", 1, "").with_phase(PhaseMeta::new("fine")).with_phase(PhaseMeta::new(""));
    let error = WorkflowCatalog::new().with(nothing(meta)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidWorkflow);
    for part in ["`name`", "`description`", "`phases[1].title`"] {
        assert!(error.to_string().contains(part), "{error} does not name {part}");
    }
}

#[test]
fn a_taken_name_and_version_is_refused_and_another_version_is_not() {
    let catalog = WorkflowCatalog::new().with(nothing(WorkflowMeta::new("w", 1, "first"))).unwrap();
    let error = catalog.clone().with(nothing(WorkflowMeta::new("w", 1, "second"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidWorkflow);
    let catalog = catalog.with(nothing(WorkflowMeta::new("w", 2, "second"))).unwrap();
    let described: Vec<&str> = catalog.iter().map(|entry| entry.meta().description.as_str()).collect();
    assert_eq!(described, ["first", "second"]);
}

#[test]
fn an_unknown_workflow_is_refused_with_those_that_are_known() {
    let catalog = WorkflowCatalog::new().with(nothing(WorkflowMeta::new("known", 7, "d"))).unwrap();
    let error = catalog.resolve(&WorkflowRef::new("known", 8)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownWorkflow);
    assert!(error.to_string().contains("known (version 7)"), "{error}");
    assert_eq!(catalog.resolve(&WorkflowRef::new("known", 7)).unwrap().meta().description, "d");
}
