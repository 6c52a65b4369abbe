//! The test kit of the harness seams: scripted doubles, conformance suites, strategies.
//!
//! It has a module for each seam, behind a feature of the same name:
//!
//! - `subagent`: scripted providers and the suites that hold a provider or a registry to its contract.

pub mod conformance;
#[cfg(feature = "subagent")]
pub mod subagent;
#[cfg(feature = "subagent")]
mod wait;
