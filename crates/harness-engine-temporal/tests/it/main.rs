//! What can be shown without a server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../bodies/mod.rs"]
mod bodies;
mod endpoint;
mod replay;
#[path = "../tls/mod.rs"]
mod tls;
