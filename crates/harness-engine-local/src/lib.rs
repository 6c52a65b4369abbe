//! The embedded workflow engine: in-process, on tokio, with a durable journal.

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
