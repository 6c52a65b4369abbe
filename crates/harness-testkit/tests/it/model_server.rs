//! The scripted model server, asked over plain HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod around;
mod client;
mod failures;
