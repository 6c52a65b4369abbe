//! Tests of the local registry, through its public surface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checks;
mod conformance;
mod double;
mod events;
mod limits;
mod lineage;
mod output;
mod providers;
mod runs;
mod surface;
mod threads;
