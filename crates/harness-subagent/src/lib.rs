//! The subagent contract of an agent harness.
//!
//! A [`SubagentProvider`] runs children; a [`SubagentRegistry`] finds the provider for a request and guards
//! what it may ask. Neither knows why a child is run or what its value means, and nothing here runs
//! anything: there is no runtime in this crate and no I/O.
//!
//! Application code wants a registry with providers in it, not this crate. Depend on `harness-subagent` to
//! write either, or to be generic over them.
//!
//! # One child from start to end
//!
//! 1. A caller builds a [`StartSubagent`]: the prompt, the [`Parent`], perhaps an [`OutputContract`].
//! 2. The registry checks it against the provider's [`Capabilities`] and its own limits, and calls
//!    [`SubagentProvider::start`] once.
//! 3. The provider hands over a [`SubagentRun`]; from here on the caller owns the child.
//! 4. The caller waits for the [`SubagentResult`]. Only [`StopReason::COMPLETED`] is success, and under an
//!    output contract the registry lets it stand only with a value that the schema admits.
//! 5. The caller disposes of the run, on every path.
//!
//! # A complete provider
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use harness_subagent::{
//!     AgentId, Capabilities, Error, ErrorKind, Parent, Result, StartSubagent, SubagentProvider,
//!     SubagentResult, SubagentRun,
//! };
//!
//! /// Its children say their prompt back and are done.
//! #[derive(Debug)]
//! struct Echo;
//!
//! #[derive(Debug)]
//! struct EchoRun {
//!     id: AgentId,
//!     said: String,
//! }
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
//!     async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
//!         if request.cancellation.is_cancelled() {
//!             return Err(Error::new(ErrorKind::Cancelled, "the request was cancelled before the start"));
//!         }
//!         let id = AgentId::new(format!("{}/echo", request.parent.id));
//!         Ok(Box::new(EchoRun { id, said: request.prompt }))
//!     }
//! }
//!
//! #[async_trait]
//! impl SubagentRun for EchoRun {
//!     fn id(&self) -> &AgentId {
//!         &self.id
//!     }
//!
//!     async fn result(&self) -> Result<SubagentResult> {
//!         Ok(SubagentResult::completed(self.said.clone()))
//!     }
//!
//!     async fn dispose(&self) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let provider: Arc<dyn SubagentProvider> = Arc::new(Echo);
//! let run = provider.start(StartSubagent::new("hello", Parent::new("me", "/tmp"))).await?;
//! assert_eq!(run.result().await?.output, "hello");
//! run.dispose().await?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/in_process_provider.rs` is one for real: it runs agents of its own harness in tasks, lets a child
//! hand in a value and correct it in the same turn, heeds cancellation, and disposes of everything.
//!
//! The test kit, `harness-testkit`, holds a provider or a registry to this contract.
//!
//! # Traces
//!
//! Implementations open the span [`trace::child_span`] around the work for one child.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod activity;
mod agent;
mod error;
mod event;
mod output;
mod provider;
mod registry;
mod request;
mod result;
mod rule;
mod run;
pub mod schema;
mod text;
pub mod trace;

pub use activity::{Activity, ActivitySender, ActivityStream};
pub use agent::{AgentId, Origin, Parent};
pub use error::{Error, ErrorKind, Result};
pub use event::{ChildEnding, StartedChild, SubagentEvent, SubagentObserver};
pub use output::{OutputContract, RuleRef};
pub use provider::{Capabilities, ProviderInfo, SubagentProvider};
pub use registry::{SubagentRegistry, SubagentRegistryExt};
pub use request::{ModelChoice, RestrictionStrength, StartSubagent, ToolFilter, ToolRestriction};
pub use result::{Diagnostic, StopReason, SubagentResult, Usage};
pub use rule::{OutputRule, OutputRuleCatalog, OutputViolation};
pub use run::SubagentRun;
pub use schema::{InvalidSchema, Schema, SchemaViolation};
