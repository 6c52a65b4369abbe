//! The Ralph loop for MCP, the Model Context Protocol.
//!
//! [`LoopServer`] is the `ralph` tool for every client that speaks MCP. Who runs the loops, with which agent and where,
//! is the business of a [`LoopHost`].
//!
//! [`Capture`] is the server by which an agent in a round hands in its report: one tool that checks what it is given,
//! answers a refusal with the reasons while the agent can still mend its report, and keeps the first report that it
//! accepts.
//!
//! It is the only crate here that knows the protocol, and keeps the protocol's types to itself: a server is made of
//! plain values and serves bytes. It reads no command line and no environment.
//!
//! Depend on it to write a program that agents or MCP clients start as their server.
//!
//! ```
//! use harness_subagent::{OutputContract, OutputRuleCatalog};
//! use ralph_mcp::{Capture, CaptureFiles};
//! use serde_json::json;
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let schema = json!({
//!     "type": "object",
//!     "properties": { "summary": { "type": "string" } },
//!     "required": ["summary"],
//!     "additionalProperties": false,
//! });
//! let files = CaptureFiles::new(folder.path().join("value"), folder.path().join("refused"));
//! let capture =
//!     Capture::new("submit_report", OutputContract::new(schema)?, &OutputRuleCatalog::new(), files.clone())?;
//!
//! // An agent speaks JSON-RPC to it, one message on each line.
//! let (agent, ours) = tokio::io::duplex(4096);
//! let (read, write) = tokio::io::split(ours);
//! let server = tokio::spawn(capture.serve(read, write, CancellationToken::new()));
//! let (answers, mut requests) = tokio::io::split(agent);
//! let mut answers = BufReader::new(answers).lines();
//! let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
//!     "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "agent", "version": "1" },
//! } });
//! requests.write_all(format!("{hello}\n").as_bytes()).await?;
//! assert!(answers.next_line().await?.ok_or("an answer")?.contains("2025-11-25"));
//! let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
//!     "name": "submit_report", "arguments": { "summary": "Ported the parser." },
//! } });
//! requests.write_all(format!("{call}\n").as_bytes()).await?;
//! assert!(answers.next_line().await?.ok_or("an answer")?.contains("accepted"));
//! assert_eq!(std::fs::read_to_string(&files.value)?, r#"{"summary":"Ported the parser."}"#);
//!
//! // The end of its input is the end of the server.
//! requests.shutdown().await?;
//! server.await??;
//! # Ok(())
//! # }
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod capture;
mod connection;
mod ending;
mod host;
mod live;
mod server;
mod status;
mod tools;

pub use capture::{Capture, CaptureFiles, UnusableContract};
pub use connection::ServeError;
pub use host::{LoopError, LoopHost, Refusal, RunFacts, RunWatch, Standing};
pub use server::LoopServer;
