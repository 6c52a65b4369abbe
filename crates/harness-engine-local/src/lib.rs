//! The embedded workflow engine: in-process, on tokio, with a durable journal.
//!
//! [`LocalEngine`] implements the contract of [`harness_workflow::WorkflowEngine`]. It needs no server and no
//! configuration: a registry to start children through, and a catalog of workflows.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod body;
mod call;
mod child;
mod config;
mod engine;
mod known;
mod run;

pub use config::LocalConfig;
pub use engine::LocalEngine;
