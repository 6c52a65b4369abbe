//! Tests of the providers with real processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod conformance;
mod endings;
mod handing_in;
#[cfg(target_os = "linux")]
mod hostile;
mod support;
mod what_a_child_gets;
