//! The embedded workflow engine: in-process, on tokio, with a durable journal.
//!
//! [`LocalEngine`] implements the contract of [`harness_workflow::WorkflowEngine`]. It needs no server and no
//! configuration: a registry to start children through, and a catalog of workflows.

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
