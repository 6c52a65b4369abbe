//! Drives the servers as clients do, over a connection in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod capture;
mod loops;
