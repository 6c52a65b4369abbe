//! Tests of the workflow contract. Nothing here needs a runtime: futures are polled by hand with a waker that wakes
//! nobody.

#![expect(clippy::unwrap_used, reason = "a test panics to fail")]

mod catalog;
mod combinators;
mod context;
mod events;
mod host;
mod invariants;
mod observers;
mod types;
