//! The in-process subagent registry: providers by name, checked starts, limits, lifecycle events.
//!
//! [`LocalRegistry`] implements the contract of [`harness_subagent::SubagentRegistry`] for one process. It
//! runs nothing itself and spawns nothing; it finds providers, checks requests, enforces the schemas of
//! output contracts and the limits of each tree of agents, and tells observers what happens.
//!
//! An application depends on this crate, fills a registry with providers, and hands it to whatever starts
//! children. Code that only starts children should be generic over the contract.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use harness_registry_local::LocalRegistry;
//! use harness_subagent::{
//!     AgentId, Capabilities, OutputContract, Parent, Result, StartSubagent, StopReason, SubagentProvider,
//!     SubagentRegistry, SubagentRegistryExt, SubagentResult, SubagentRun,
//! };
//! use serde_json::{Value, json};
//!
//! /// Its children hand in their prompt, read as JSON.
//! #[derive(Debug)]
//! struct Parrot;
//!
//! #[derive(Debug)]
//! struct ParrotRun(AgentId, Value);
//!
//! #[async_trait]
//! impl SubagentProvider for Parrot {
//!     fn name(&self) -> &str {
//!         "parrot"
//!     }
//!
//!     fn capabilities(&self) -> Capabilities {
//!         Capabilities::NONE.with_output_contract(true)
//!     }
//!
//!     fn inherits_parent_context(&self) -> bool {
//!         false
//!     }
//!
//!     async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
//!         let value = serde_json::from_str(&request.prompt).unwrap_or_default();
//!         Ok(Box::new(ParrotRun("parrot-1".into(), value)))
//!     }
//! }
//!
//! #[async_trait]
//! impl SubagentRun for ParrotRun {
//!     fn id(&self) -> &AgentId {
//!         &self.0
//!     }
//!
//!     async fn result(&self) -> Result<SubagentResult> {
//!         Ok(SubagentResult::handed_in(self.1.clone()))
//!     }
//!
//!     async fn dispose(&self) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = LocalRegistry::builder().max_active_per_tree(4).build()?;
//! registry.register(Arc::new(Parrot))?;
//!
//! let schema = json!({
//!     "type": "object",
//!     "properties": { "answer": { "type": "string" } },
//!     "required": ["answer"],
//! });
//! let request = StartSubagent::new(r#"{ "answer": 42 }"#, Parent::new("me", "/tmp"))
//!     .with_output(OutputContract::new(schema)?);
//!
//! let run = registry.start("parrot", request).await?;
//! let result = run.result().await?;
//! assert_eq!(result.stop_reason, StopReason::SCHEMA_REFUSED);
//! assert_eq!(result.structured, Some(json!({ "answer": 42 }))); // To be looked at.
//! run.dispose().await?;
//! # Ok(())
//! # }
//! ```

mod budget;
mod observers;
mod providers;
mod registry;
mod run;
mod verdict;

pub use registry::{InvalidLimit, LocalRegistry, LocalRegistryBuilder};
