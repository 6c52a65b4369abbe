//! A workflow engine on Temporal: runs that outlive processes, children on a pool of machines.
//!
//! [`TemporalEngine`] implements the contract of [`harness_workflow::WorkflowEngine`] as a client of a Temporal server;
//! [`TemporalWorker`] is the process that runs bodies and children. Bodies that were written for another engine run
//! here unchanged.
//!
//! An application depends on this crate when its children are to run on more than one machine, or when its runs must
//! outlive every process of its own. On one machine the embedded engine does with less.
//!
//! # A complete example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use harness_engine_temporal::{
//!     DeclaredRoutes, Endpoint, Route, TemporalConfig, TemporalEngine, TemporalWorker, WorkerConfig,
//! };
//! use harness_subagent::{Capabilities, Parent, ProviderInfo, SubagentRegistry};
//! use harness_workflow::{StartRun, WorkflowCatalog, WorkflowEngine, WorkflowRef, WorkflowRun};
//! use tokio_util::sync::CancellationToken;
//!
//! /// The process on each machine of the pool. Its registry has the provider `coder`.
//! async fn work(catalog: WorkflowCatalog, registry: Arc<dyn SubagentRegistry>) -> Result<(), Box<dyn std::error::Error>> {
//!     let endpoint = Endpoint::new("http://temporal.internal:7233").with_namespace("agents");
//!     let worker = TemporalWorker::start(endpoint, catalog, registry, WorkerConfig::default()).await?;
//!     worker.ended().await?;
//!     Ok(())
//! }
//!
//! /// The process that starts a run, wherever it is.
//! async fn ask(catalog: WorkflowCatalog) -> Result<(), Box<dyn std::error::Error>> {
//!     let endpoint = Endpoint::new("http://temporal.internal:7233").with_namespace("agents");
//!     let routes = DeclaredRoutes::default().with(Route::new("harness", ProviderInfo::new("coder", Capabilities::ALL)));
//!     let config = TemporalConfig::default().with_provider("coder");
//!     let engine = TemporalEngine::connect(&endpoint, catalog, Arc::new(routes), config).await?;
//!
//!     let request = StartRun::new(WorkflowRef::new("survey", 1), Parent::new("me", "/srv/work/survey"));
//!     let run = engine.start(request, CancellationToken::new()).await?;
//!     println!("{:?}", run.result().await);
//!     run.dispose().await?;
//!     Ok(())
//! }
//! # fn main() {}
//! ```
//!
//! What is wrong with an address is said before anything is tried:
//!
//! ```
//! use std::sync::Arc;
//!
//! use harness_engine_temporal::{ConnectError, DeclaredRoutes, Endpoint, TemporalConfig, TemporalEngine};
//! use harness_workflow::WorkflowCatalog;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let endpoint = Endpoint::new("temporal.internal");
//! let routes = Arc::new(DeclaredRoutes::default());
//! let engine =
//!     TemporalEngine::connect(&endpoint, WorkflowCatalog::new(), routes, TemporalConfig::default()).await;
//! assert!(matches!(engine, Err(ConnectError::Address { .. })));
//! # }
//! ```
//!
//! # How a run is carried out
//!
//! The run's id is the id of a Temporal workflow, so a second start of one id finds the run that there is. The workflow
//! polls the body by hand, with no wake-ups: each call for a child is an activity, and the body is polled once after
//! each answer. The order of the answers alone decides what a body does, and the server keeps that order.
//!
//! What a body says is written into the history, and so are arguments, prompts and values, as they are. They must not be
//! secrets. A client reads the history as it grows and tells its observers; what children do meanwhile comes with the
//! workers' heartbeats and is lossy.
//!
//! # What is counted
//!
//! A call counts once, whatever becomes of its child. An attempt counts when a worker has had it. A worker that is
//! silent for longer than the heartbeat timeout is lost, and the call is tried again, on whatever worker is free, with
//! a greater [fencing token](Workplace::fence), up to a limit of its own. The child of a lost attempt may still run
//! while the next one does, until its worker hears that it is lost; what it publishes must not count.
//!
//! # What a body may not do
//!
//! What the contract says of every body, and there is no leniency here: a body that waits for anything but its context
//! waits for ever. The run then ends only by its cancellation.
//!
//! # Limits
//!
//! One value, prompt or checkpoint may have about 1.5 MB. A run whose history grows goes on with a fresh one, and takes
//! the answers that its body got along; once they have more than that, it stays with the history that it has, which
//! the server ends at 50 MiB or 51 200 events.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod body;
mod child;
mod client;
mod config;
mod engine;
mod fold;
mod host;
mod record;
mod replay;
mod routes;
mod run;
mod wire;
mod worker;
mod workspace;

pub use client::{ConnectError, Endpoint, Tls};
pub use config::{TemporalConfig, WorkerConfig};
pub use engine::TemporalEngine;
pub use record::{AttemptRecord, CallRecord, RunRecord, SeenWorker, Work};
pub use replay::{ReplayError, replay};
pub use routes::{DeclaredRoutes, OwnRoutes, Route, Routes};
pub use worker::{TemporalWorker, WorkerError};
pub use workspace::{CallEnding, HookCommand, SharedFolders, Workplace, WorkspaceError, Workspaces};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
