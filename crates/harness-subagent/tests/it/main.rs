//! Tests of the subagent contract's vocabulary, and of the example that implements it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod activity;
mod conformance;
mod in_process_provider;
mod judging;
mod object_safety;
mod output_rule;
mod serialization;
mod text_bounds;
