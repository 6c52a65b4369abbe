//! The `ralph` tool: a Ralph loop as a workflow, and the tool by which a model calls it.
//!
//! A Ralph loop gives one objective to a row of agents, one after the other. Each starts with an empty context, works in
//! the workspace, hands in one small report, and is gone; the next one gets the objective, the workspace and that report.
//! The loop ends when a worker reports that the objective is reached, when one reports that nobody can go on, or when
//! the rounds are used up.
//!
//! The crate has two halves, and a harness wires both:
//!
//! - [`workflow()`] is the loop. It goes into the catalog of whatever [`WorkflowEngine`] runs it, together with
//!   [`report_rule()`] for the providers of workers.
//! - [`RalphTool`] is what a model sees: a [definition](RalphTool::definition), a
//!   [section of the system prompt](RalphTool::prompt_section), and a [call](RalphTool::call) that starts a run, waits
//!   for it, disposes of it, and judges what came of it. [`install`] puts it into a [`ToolHost`].
//!
//! It starts no agents and knows no model: that is the business of the [`SubagentRegistry`] behind the engine. It takes
//! no worker's word for a verdict either; what it returns is worded as what a worker reported.
//!
//! Depend on it to offer the tool in a harness, or to run the loop from a program of your own.
//!
//! # A complete embedding
//!
//! ```
//! use std::sync::Arc;
//!
//! use harness_engine_local::{LocalConfig, LocalEngine};
//! use harness_registry_local::LocalRegistry;
//! use harness_subagent::{Parent, SubagentRegistry, SubagentResult};
//! # use harness_testkit::subagent::InstantProvider;
//! use ralph_tool::{CallContext, RalphConfig, RalphStatus, RalphTool, workflows};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Stands for a provider of real agents: its workers are done at once.
//! # let provider = InstantProvider::new(SubagentResult::handed_in(json!({
//! #     "status": "complete",
//! #     "summary": "The parser is ported.",
//! #     "evidence": ["cargo test: 203 passed"],
//! #     "nextSteps": [],
//! #     "blocker": "",
//! # })));
//! // The registry knows who runs agents; here a provider that is named `instant`.
//! let registry = Arc::new(LocalRegistry::new());
//! registry.register(Arc::new(provider))?;
//!
//! // The engine has the loop in its catalog and starts the agents through the registry.
//! let engine = LocalEngine::new(Arc::clone(&registry) as _, workflows(), LocalConfig::default());
//! let config = RalphConfig::from_value(&json!({ "subagentProvider": "instant", "maxRounds": 20 }))?;
//! let tool = RalphTool::new(config, Arc::new(engine), registry)?;
//!
//! // A model has called the tool.
//! let args = json!({ "objective": "Port the parser. It is done when `cargo test` passes." });
//! let context = CallContext::new(Parent::new("main-agent", "the-workspace"));
//! let outcome = tool.call(&args, context).await;
//!
//! // The model is shown a bounded text; the harness keeps the envelope.
//! let shown = tool.render(&outcome);
//! assert!(shown.starts_with("Ralph ended after 1 round: a worker reported the objective complete."));
//! let envelope = outcome?;
//! assert_eq!(envelope.result().status(), RalphStatus::Complete);
//! assert_eq!(envelope.to_value()["result"]["report"]["evidence"][0], "cargo test: 203 passed");
//! # Ok(())
//! # }
//! ```
//!
//! The example `embed_in_a_harness` shows the same with a model, a system prompt and a list of tools around it.
//!
//! # How a call can end
//!
//! A report that the objective is reached, a report of a blocker, and a used-up budget of rounds are results. Everything
//! else is a [`RalphError`] with a stable [code](RalphError::code), and on every path that had a run it carries the last
//! good report, from which a new run can go on ([`CallContext::with_handoff`]). The workflow leaves a checkpoint after
//! each accepted report ([`Progress`]), so this holds for cancellations and lost runs, too.
//!
//! [`WorkflowEngine`]: harness_workflow::WorkflowEngine
//! [`SubagentRegistry`]: harness_subagent::SubagentRegistry

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod arguments;
mod call;
mod config;
mod definition;
mod error;
mod fence;
mod host;
mod number;
mod progress;
mod prompt;
pub mod render;
mod result;
mod rule;
mod shown;
pub mod terminal;
mod tool;
mod workflow;

pub use arguments::Handoff;
pub use call::CallContext;
pub use config::{ConfigWarning, InvalidConfig, InvalidMaxRounds, RalphConfig};
pub use definition::{CallView, PromptSection, ResultView, TOOL_NAME, ToolDefinition};
pub use error::{EndedRun, ProviderProblem, RalphError};
pub use host::{Installation, Registration, ToolHost, install};
pub use progress::Progress;
pub use result::{Envelope, RalphResult, RalphStatus};
pub use rule::{REPORT_RULE, report_rule, rules};
pub use tool::{EngineLacksWorkflow, RalphTool};
pub use workflow::{
    INVALID_REPORT, PHASE, WORKFLOW_NAME, WORKFLOW_VERSION, workflow, workflow_ref, workflows,
};
