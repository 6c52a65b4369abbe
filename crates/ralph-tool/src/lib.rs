//! The `ralph` tool: the Ralph loop as a workflow, and its model-facing tool.

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
