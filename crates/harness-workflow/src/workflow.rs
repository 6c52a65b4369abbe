use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Error, ErrorKind, Result, WorkflowContext, WorkflowError, WorkflowMeta, WorkflowRef};

/// A workflow body: deterministic code whose only way to the world is its context.
///
/// # Contract
///
/// An engine calls it; the author of a workflow implements it. The engine may run a body again from its
/// beginning and answer the calls that had ended from its journal, on another machine perhaps, so:
///
/// - the same arguments and the same answers must lead to the same sequence of calls. A body may not read a
///   clock, random numbers, the environment, files, or the order of a hash map, and may not keep anything
///   between runs;
/// - a body waits only for futures of its [`WorkflowContext`] and for combinations of them that need no
///   wake-up of their own: [`parallel`](WorkflowContext::parallel) and
///   [`pipeline`](WorkflowContext::pipeline) are such, timers, channels, spawned tasks and locks of a runtime
///   are not;
/// - a body that changes its sequence of calls gets a new version in its [`meta`](Self::meta).
///
/// One body may serve many runs at once.
#[async_trait]
pub trait Workflow: Debug + Send + Sync + 'static {
    /// Returns what the workflow says of itself. Never changes.
    fn meta(&self) -> &WorkflowMeta;

    /// Runs the body to its value.
    ///
    /// # Cancel safety
    ///
    /// The engine drops the future to end a run early. Whatever the body has started through its context is
    /// then the engine's to clean up.
    ///
    /// # Errors
    ///
    /// Any error ends the run in `error`; a fatal one that the context returned should be passed on.
    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError>;
}

/// The workflow bodies that one process knows, by name and version.
///
/// Whoever wires an application fills it once and gives it to the engine. What a workflow says of itself is
/// checked here, once, so a request can only be wrong about its name. Clones share the bodies.
#[derive(Clone, Debug, Default)]
pub struct WorkflowCatalog {
    entries: Arc<BTreeMap<WorkflowRef, CatalogEntry>>,
}

/// A workflow in a [`WorkflowCatalog`].
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    meta: Arc<WorkflowMeta>,
    workflow: Arc<dyn Workflow>,
}

impl CatalogEntry {
    /// Returns what the workflow says of itself. Runs and events share it.
    #[must_use]
    pub fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.meta
    }

    /// Returns the body.
    #[must_use]
    pub fn workflow(&self) -> &Arc<dyn Workflow> {
        &self.workflow
    }
}

impl WorkflowCatalog {
    /// Makes an empty catalog.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow under the name and version of its meta.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidWorkflow`], with every violation in the message, when its meta is not usable or
    /// its name and version are taken; the first workflow stays.
    pub fn with(mut self, workflow: Arc<dyn Workflow>) -> Result<Self> {
        let meta = Arc::new(workflow.meta().clone());
        meta.check().map_err(|error| Error::new(ErrorKind::InvalidWorkflow, error.to_string()))?;
        if self.entries.contains_key(&meta.workflow) {
            return Err(Error::new(
                ErrorKind::InvalidWorkflow,
                format!("{} is there already; give this one another version", meta.workflow),
            ));
        }
        let key = meta.workflow.clone();
        Arc::make_mut(&mut self.entries).insert(key, CatalogEntry { meta, workflow });
        Ok(self)
    }

    /// Finds a workflow.
    #[must_use]
    pub fn get(&self, workflow: &WorkflowRef) -> Option<&CatalogEntry> {
        self.entries.get(workflow)
    }

    /// Lists the workflows, by name and version.
    pub fn iter(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.entries.values()
    }

    /// Finds the workflow that a request names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownWorkflow`], with the workflows that are known.
    pub fn resolve(&self, workflow: &WorkflowRef) -> Result<&CatalogEntry> {
        self.get(workflow).ok_or_else(|| {
            let known: Vec<String> = self.entries.keys().map(ToString::to_string).collect();
            Error::new(
                ErrorKind::UnknownWorkflow,
                format!("workflow {workflow} is not in the catalog; known are: {}", known.join(", ")),
            )
        })
    }
}
