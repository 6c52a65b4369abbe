//! Calls of real children, most of them hostile, with a look at the process table afterwards.
//!
//! All calls here are made by a process that has become a subreaper, in parallel; what needs another kind
//! of process runs in one of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod call;
mod ending;
mod isolation;
mod refusal;
mod streams;
mod sweep;
