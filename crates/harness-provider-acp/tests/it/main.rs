//! Tests of the provider with agents that follow a script.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod cancelling;
mod conformance;
mod detecting;
mod endings;
mod handing_in;
mod lines;
mod permissions;
mod session;
mod support;
