//! The tests of the crate from outside.

mod committed_vectors;
mod hostile;
mod outcomes;
mod schemas;
#[path = "../vectors/mod.rs"]
mod vectors;
