//! The embedded workflow engine: in-process, on tokio, with a durable journal.
//!
//! [`LocalEngine`] implements the contract of [`harness_workflow::WorkflowEngine`] for one process. It needs no
//! server and no configuration: a registry to start children through, and a catalog of workflows. With a
//! [`JsonlStore`] its runs survive a crash or a reboot, and [`LocalEngine::resume`] takes them up again.
//!
//! An application depends on this crate to make an engine. Code that only starts runs should be generic over the
//! contract. [`RunHistory`] tells what the journals say, and needs no engine.
//!
//! # A complete example
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use harness_engine_local::{JsonlStore, LocalConfig, LocalEngine, RunHistory, RunState};
//! use harness_registry_local::LocalRegistry;
//! use harness_subagent::{
//!     AgentId, Capabilities, Parent, StartSubagent, SubagentProvider, SubagentRegistry, SubagentResult, SubagentRun,
//! };
//! use harness_workflow::{
//!     AgentCall, AgentOutcome, StartRun, Workflow, WorkflowCatalog, WorkflowContext, WorkflowEngine, WorkflowError,
//!     WorkflowMeta, WorkflowRef, WorkflowRun,
//! };
//! use serde_json::{Value, json};
//! use tokio_util::sync::CancellationToken;
//!
//! /// Its children say their prompt back.
//! #[derive(Debug)]
//! struct Echo;
//!
//! #[derive(Debug)]
//! struct EchoRun(AgentId, String);
//!
//! #[async_trait]
//! impl SubagentProvider for Echo {
//!     fn name(&self) -> &str {
//!         "echo"
//!     }
//!
//!     fn capabilities(&self) -> Capabilities {
//!         Capabilities::NONE
//!     }
//!
//!     fn inherits_parent_context(&self) -> bool {
//!         false
//!     }
//!
//!     async fn start(&self, request: StartSubagent) -> harness_subagent::Result<Box<dyn SubagentRun>> {
//!         Ok(Box::new(EchoRun("echo-1".into(), request.prompt)))
//!     }
//! }
//!
//! #[async_trait]
//! impl SubagentRun for EchoRun {
//!     fn id(&self) -> &AgentId {
//!         &self.0
//!     }
//!
//!     async fn result(&self) -> harness_subagent::Result<SubagentResult> {
//!         Ok(SubagentResult::completed(self.1.clone()))
//!     }
//!
//!     async fn dispose(&self) -> harness_subagent::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! /// Asks one child and returns what it says.
//! #[derive(Debug)]
//! struct Ask(WorkflowMeta);
//!
//! #[async_trait]
//! impl Workflow for Ask {
//!     fn meta(&self) -> &WorkflowMeta {
//!         &self.0
//!     }
//!
//!     async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
//!         match context.agent(AgentCall::new(context.args().to_string())).await? {
//!             AgentOutcome::Value(value) => Ok(value),
//!             AgentOutcome::NoValue(why) => Ok(json!({ "nothing": why.stop_reason })),
//!         }
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Arc::new(LocalRegistry::default());
//! registry.register(Arc::new(Echo))?;
//! let catalog = WorkflowCatalog::new().with(Arc::new(Ask(WorkflowMeta::new("ask", 1, "Asks one child."))))?;
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let journals = Arc::new(JsonlStore::open(folder.join("runs"))?);
//! let config = LocalConfig::default().with_provider("echo");
//! let engine = LocalEngine::durable(registry, catalog, config, Arc::clone(&journals) as _);
//!
//! let request = StartRun::new(WorkflowRef::new("ask", 1), Parent::new("me", "/tmp")).with_args(json!([1, 2]));
//! let run = engine.start(request, CancellationToken::new()).await?;
//! let result = run.result().await;
//! run.dispose().await?;
//! assert_eq!(result.value(), Some(&json!("[1,2]")));
//!
//! // What happened can be read by any process, and a run that has ended gives its result again.
//! let history = RunHistory::read(&*journals, run.id())?;
//! assert_eq!(history.state, RunState::Finished(result.clone()));
//! let again = engine.resume(run.id(), CancellationToken::new()).await?;
//! assert_eq!(again.result().await, result);
//! again.dispose().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How a run ends
//!
//! The body's value, a cancellation whose grace is over, and the loss of the runtime all claim the run's end; the
//! first decides. Children that the body has left are disposed of before the end is told. A cancelled run has the
//! [grace](LocalConfig::cancellation_grace) to end by itself; then its body is dropped, its result is there, and what
//! its children have not released by then is given up.
//!
//! # What is on the disk
//!
//! See [`JsonlStore`] for the files and [`Entry`] for what is recorded. The start of a child is synced to the disk
//! before the child is started, and with it everything before; an end is written at once, so that it outlives the
//! process, and synced with the next start. After a power cut the last call may therefore be tried once more. A sync
//! takes a thread that may be blocked, unless the one before took less than half a millisecond: then it is done on the
//! thread that polls the run, as the way to another thread and back is no shorter. A disk that stops answering between
//! two syncs therefore holds that thread up, and a current-thread runtime with it. The end of a run always takes a
//! thread that may be blocked, and is waited for no longer than ten seconds.
//! Arguments and values are stored as they are: they must not be secrets.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod body;
mod call;
mod child;
mod config;
mod digest;
mod engine;
mod history;
mod journal;
mod jsonl;
mod known;
mod line;
mod recorder;
mod run;

pub use config::LocalConfig;
pub use engine::LocalEngine;
pub use history::{AttemptHistory, CallHistory, ListedRun, RunHistory, RunState};
pub use journal::{Answer, CallFingerprint, Entry, Journal, JournalError, JournalStore, Record, StoredRun};
pub use jsonl::JsonlStore;

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
