//! Subagent providers whose children are command-line programs.
//!
//! [`CommandProvider`] runs any program as an agent, and [`AgentProvider`] a coding agent that it knows: its options, its
//! events and its ways to fail. What follows is about the former; the latter, and the modules [`claude_code`],
//! [`codex`], [`gemini`], [`opencode`] and [`qwen_code`], tell what is different with them. Supervision, time limits and the clean-up of whole process trees
//! come from [`harness_process`]; this crate adds how a program gets its prompt, how it hands in its value, and how
//! its end is judged.
//!
//! # What a child gets
//!
//! Its working directory is the workspace of its parent. Its prompt comes on standard input, or in a file, and never
//! on the command line; under an output contract one paragraph is appended that says how to hand in the value. Its
//! environment is the provider's [`Environment`](harness_process::Environment), a mark by which its processes are
//! found again, and
//!
//! | variable | meaning |
//! |---|---|
//! | [`HARNESS_VALUE_FILE`](VALUE_FILE) | where to write the value; see [`value_file`] for the format |
//! | [`HARNESS_SCHEMA_FILE`](SCHEMA_FILE) | a file with the JSON Schema that the value must match |
//! | [`HARNESS_PROMPT_FILE`](PROMPT_FILE) | the prompt, where it does not come on standard input |
//! | [`HARNESS_RUN`](RUN), [`HARNESS_CALL`](CALL), [`HARNESS_ATTEMPT`](ATTEMPT) | the call it works for, where it works for one |
//! | [`HARNESS_DEPTH`](DEPTH) | how many delegations lie between it and the human's own agent |
//!
//! # How its end is judged
//!
//! By exit status and value alone; nothing is ever searched for in what a program says.
//!
//! | end | stop reason | details of the diagnostic |
//! |---|---|---|
//! | exit status 0, a value where one was asked for | `completed` | |
//! | exit status 0, no value | `no-value` | |
//! | exit status 0, something that is not one JSON document | `unreadable-value` | |
//! | still there after handing in a whole value, and ended after the delivered grace | `completed` | |
//! | another exit status | `error` | `exit-status` |
//! | ended by a signal that was not ours | `crashed` | `signal` |
//! | cancelled | `aborted` | |
//! | a time limit | `timed-out` | `limit`: `first-byte`, `idle` or `deadline` |
//!
//! A value beside any other end than the first and the fourth is kept in the result to be looked at, and does not
//! count. Every diagnostic names the `transcript`. A value handed in by a child that stays is noticed within a second.
//! What a program says is told without the characters that a terminal would obey; its value and its transcript are as
//! they came.
//!
//! # Files
//!
//! Each attempt at each call has a directory of its own, `<files>/<run>/<call>-<attempt>`, that only the user may
//! enter: `transcript.log` with everything the child said, perhaps `prompt.txt`, and the value file. A schema is written
//! once for the calls of a run, beside their directories, as `schema-<unique>.json`; an agent's calls have a
//! `schema.json` each, a `home` while the agent runs, and a capture server's files. Nothing is ever overwritten: an
//! attempt that was made before is refused. Whoever makes the provider removes what is no longer wanted.
//!
//! The id of a child names its provider, its directory and its process: [`pid_of`] reads the last.
//!
//! # Example
//!
//! ```
//! use harness_provider_cli::CommandProvider;
//! use harness_subagent::{OutputContract, Parent, StartSubagent, SubagentProvider};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = tempfile::tempdir()?;
//! let workspace = tempfile::tempdir()?;
//! let script = r#"wc -l <&0 | { read -r lines; printf '{"lines":%d}' "$lines" > "$HARNESS_VALUE_FILE"; }"#;
//! let provider = CommandProvider::new("count", "sh", files.path()).with_arguments(["-c", script]);
//!
//! let contract = OutputContract::new(json!({
//!     "type": "object",
//!     "properties": { "lines": { "type": "integer" } },
//!     "required": ["lines"],
//!     "additionalProperties": false,
//! }))?;
//! let parent = Parent::new("me", workspace.path().to_str().ok_or("a path in UTF-8")?);
//! let run = provider.start(StartSubagent::new("one\ntwo", parent).with_output(contract)).await?;
//! let result = run.result().await?;
//! run.dispose().await?;
//! assert!(result.stop_reason.is_completed());
//! assert_eq!(result.structured, Some(json!({ "lines": 4 }))); // Two lines, and a paragraph after a blank one.
//! # Ok(())
//! # }
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod agent;
mod agent_provider;
mod call_files;
mod capture;
mod child_id;
pub mod claude_code;
pub mod codex;
mod command;
mod detect;
mod document;
mod ending;
mod features;
pub mod gemini;
mod instructions;
pub mod opencode;
pub mod parts;
mod permissions;
mod private_home;
pub mod qwen_code;
mod run;
mod schema_files;
mod strict_json;
mod talk;
pub mod value_file;
mod version;

pub use agent_provider::AgentProvider;
pub use capture::CaptureServer;
pub use child_id::pid_of;
pub use command::{CommandProvider, HandIn, PromptChannel};
pub use detect::{Detected, Login};
pub use features::{AgentHandIn, AgentKind, Features};
pub use permissions::Permissions;
pub use version::Version;

/// The variable that names the file in which a child hands in its value.
pub const VALUE_FILE: &str = "HARNESS_VALUE_FILE";
/// The variable that names the file in which a capture server leaves the last value it refused.
pub const REFUSED_FILE: &str = "HARNESS_REFUSED_FILE";
/// The variable that names the file with the output rule of the value, where it has one.
pub const RULE_FILE: &str = "HARNESS_RULE_FILE";
/// The variable that says how often a capture server hands a refused value back.
pub const CORRECTIONS: &str = "HARNESS_CORRECTIONS";
/// The variable with the name of the tool that a capture server serves.
pub const TOOL: &str = "HARNESS_TOOL";
/// The variable that names the file with the schema of the value.
pub const SCHEMA_FILE: &str = "HARNESS_SCHEMA_FILE";
/// The variable that names the file with the prompt, where it does not come on standard input.
pub const PROMPT_FILE: &str = "HARNESS_PROMPT_FILE";
/// The variable with the id of the run that made the call.
pub const RUN: &str = "HARNESS_RUN";
/// The variable with the number of the call in its run.
pub const CALL: &str = "HARNESS_CALL";
/// The variable with the number of the attempt at the call.
pub const ATTEMPT: &str = "HARNESS_ATTEMPT";
/// The variable with the child's depth.
pub const DEPTH: &str = "HARNESS_DEPTH";
