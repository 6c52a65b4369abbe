//! The tests of the crate from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod committed_vectors;
mod hostile;
mod outcomes;
mod properties;
mod schemas;
#[path = "../vectors/mod.rs"]
mod vectors;
