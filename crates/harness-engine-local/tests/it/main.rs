//! Tests of the embedded engine through its public surface.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bodies;
mod calls;
mod cancellation;
mod conformance;
#[cfg(unix)]
mod crash;
#[cfg(target_os = "linux")]
mod disk;
mod journal;
mod leaks;
mod model;
