//! The workflow contract of an agent harness.
//!
//! A [`Workflow`] is a deterministic body that asks for children through a [`WorkflowContext`]; a
//! [`WorkflowEngine`] finds the body by name, runs it, and may do so again after a crash or on another machine.
//! Nothing here runs anything: there is no runtime in this crate and no I/O.
//!
//! Application code wants an engine, not this crate. Depend on `harness-workflow` to write a workflow, to write an
//! engine, or to be generic over engines.
//!
//! # One run from start to end
//!
//! 1. An application fills a [`WorkflowCatalog`] with bodies and makes an engine with it.
//! 2. A caller sends a [`StartRun`]: the workflow's name and version, plain arguments, the parent. The engine checks it
//!    and hands over a [`WorkflowRun`]; from here on the caller owns the run.
//! 3. The engine polls the body. Each [`WorkflowContext::agent`] is checked and counted here and carried out by the
//!    engine's [`WorkflowHost`].
//! 4. Whatever ends the run first claims its [`Settlement`]. The [`RunResult`] carries the value or a [`RunError`], and
//!    on every path the counts and the last checkpoint.
//! 5. The caller disposes of the run, on every path.
//!
//! Observers hear of all this as [`WorkflowEvent`]s; each engine owns the stream of its own runs, and an
//! [`InvariantObserver`] holds the stream to its promises.
//!
//! # A complete workflow
//!
//! ```
//! use async_trait::async_trait;
//! use harness_workflow::{
//!     AgentCall, AgentOutcome, Workflow, WorkflowCatalog, WorkflowContext, WorkflowError, WorkflowMeta,
//! };
//! use serde_json::{Value, json};
//!
//! /// Asks one child for each of the questions in its arguments.
//! #[derive(Debug)]
//! struct Survey {
//!     meta: WorkflowMeta,
//! }
//!
//! #[async_trait]
//! impl Workflow for Survey {
//!     fn meta(&self) -> &WorkflowMeta {
//!         &self.meta
//!     }
//!
//!     async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
//!         let questions: Vec<String> =
//!             context.args()["questions"].as_array().into_iter().flatten().map(Value::to_string).collect();
//!         let answers = context
//!             .parallel(questions.into_iter().map(|question| {
//!                 let context = context.clone();
//!                 async move {
//!                     match context.agent(AgentCall::new(question)).await? {
//!                         AgentOutcome::Value(answer) => Ok(answer),
//!                         AgentOutcome::NoValue(why) => Ok(json!({ "unanswered": why.stop_reason })),
//!                     }
//!                 }
//!             }))
//!             .await?;
//!         context.checkpoint(json!(answers))?;
//!         Ok(json!(answers))
//!     }
//! }
//!
//! let meta = WorkflowMeta::new("survey", 1, "Asks one child for each question.");
//! let catalog = WorkflowCatalog::new().with(std::sync::Arc::new(Survey { meta }))?;
//! assert_eq!(catalog.iter().count(), 1);
//! # Ok::<(), harness_workflow::Error>(())
//! ```
//!
//! The test kit, `harness-testkit`, holds an engine to this contract and brings an engine to test a workflow on.
//!
//! # Traces
//!
//! Engines open the spans of [`trace`] around a run and around each attempt at a call.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod agent;
mod context;
mod engine;
mod error;
mod event;
mod host;
mod invariant;
mod join;
mod meta;
mod request;
mod result;
mod settlement;
pub mod trace;
pub mod value;
mod workflow;

pub use agent::{AgentCall, AgentOutcome, NoValue, NumberedCall};
pub use context::{ContextLimits, Stage, StageInput, WorkflowContext};
pub use engine::{EngineCapabilities, WorkflowEngine, WorkflowRun};
pub use error::{Error, ErrorCode, ErrorKind, Result, RunError, WorkflowError};
pub use event::{
    CallEnd, CallInfo, CallOutcome, WorkflowEvent, WorkflowEventKind, WorkflowObserver, WorkflowObservers,
};
pub use host::WorkflowHost;
pub use invariant::{InvariantObserver, InvariantViolation};
pub use meta::{InvalidMeta, PhaseMeta, WorkflowMeta, WorkflowRef};
pub use request::{RunId, StartRun};
pub use result::{RunResult, RunStopReason};
pub use settlement::{Claim, Settlement};
pub use workflow::{CatalogEntry, Workflow, WorkflowCatalog};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
