//! A subagent provider whose children are agents that speak the Agent Client Protocol (ACP).
//!
//! [`AcpProvider`] is a client of any command that serves version 1 of the protocol on its standard streams.
//! Supervision, time limits and the clean-up of whole process trees come from [`harness_process`]; the files of a call
//! and the way to hand in a value are those of [`harness_provider_cli`].
//!
//! # One child from start to end
//!
//! 1. The agent is started in the workspace of its parent, with the provider's
//!    [`Environment`](harness_process::Environment), the variables `HARNESS_RUN`, `HARNESS_CALL`, `HARNESS_ATTEMPT` and
//!    `HARNESS_DEPTH`, and a mark by which its processes are found again.
//! 2. It is greeted, without any capability: nobody lends it files or terminals. Where it is configured, it is told how to
//!    authenticate. It gets a session in the workspace, with the
//!    [capture server](harness_provider_cli::CaptureServer) where it is asked for a value, and then the configured mode and
//!    options. All of that has the [handshake limit](AcpProvider::with_handshake_limit).
//! 3. It gets the prompt, with one sentence appended on how to hand in the value. What it tells of its work is the
//!    child's activity; its messages, joined, are the child's output.
//! 4. An agent that ends its turn and has handed in nothing is reminded in the same session, a bounded number of times.
//! 5. When the prompt is settled, the agent's input ends. An agent that stays is ended, and so is all that it has started.
//!
//! The files of a call are those of a program's: `transcript.log` has every line that the agent wrote.
//!
//! # What an agent may ask
//!
//! | request | answer |
//! |---|---|
//! | `session/request_permission` for the tool of the capture server | the first option that allows |
//! | `session/request_permission` for anything else | what [`Permissions`] say, by the kinds of the options offered |
//! | the same after a cancellation, or with no fitting option | nobody chose (`cancelled`) |
//! | anything else | there is no such method |
//!
//! Ids of requests are given back as they came. Lines that are no message are passed over, and so are lines longer than
//! 16 MiB, updates longer than 1 MiB, and every answer to a request that is not open.
//!
//! # How its end is judged
//!
//! From what was done to the child, from the protocol and from the exit status, never from what a model said. An accepted
//! value completes every end but the first two.
//!
//! | end | stop reason | details of the diagnostic |
//! |---|---|---|
//! | cancelled, whatever the agent answers to it | `aborted` | |
//! | a time limit | `timed-out` | `limit`: `handshake`, `first-byte`, `idle` or `deadline` |
//! | `end_turn` with a value, accepted or refused, or without one where none was asked for | `completed` | |
//! | `end_turn` or `cancelled`, without a value, after a permission was refused | `permission-denied` | `refused` |
//! | `end_turn` without a value | `no-value` | |
//! | what was handed in is not one JSON document | `unreadable-value` | |
//! | `max_tokens`, `max_turn_requests`, `refusal` | `max-tokens`, `turn-limit`, `refusal` | |
//! | a JSON-RPC error whose code or structured data names the cause | `authentication`, `rate-limited`, `overloaded`, `api-error`, `max-tokens`, `refusal` | `error-code`, `api-status` |
//! | any other JSON-RPC error | `error` | `error-code` |
//! | another version of the protocol, no such mode, an answer that cannot be read, a stop reason that is not known | `error` | |
//! | exited before it answered | `error` | `exit-status` |
//! | ended by a signal that was not ours | `crashed` | `signal` |
//!
//! Every diagnostic names the `transcript`. What the agent used is told where it says so, for cancelled children too: tokens
//! at the end of its prompt, cost with its updates. The cost of an agent that tells no tokens stands beside zero tokens.
//!
//! # How a child is made to go
//!
//! On cancellation the agent is asked by `session/cancel` and has the gentle grace of the
//! [`Shutdown`](harness_process::Shutdown) to end its prompt. Then its input ends, and it has the delivered grace to exit.
//! Then it gets TERM, and KILL, each with its grace, and what it left is swept. Whatever it says meanwhile, the child was
//! cancelled. An agent whose value was accepted and that goes on is asked in the same way, after the
//! [settle grace](AcpProvider::with_settle_grace).
//!
//! # Example
//!
//! An agent of a few lines of shell, which knows what will be asked of it.
//!
//! ```
//! use harness_provider_acp::AcpProvider;
//! use harness_subagent::{Parent, StartSubagent, SubagentProvider};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = r#"
//! answer() { read -r request; echo "{\"jsonrpc\":\"2.0\",\"id\":$1,\"result\":$2}"; }
//! answer 0 '{"protocolVersion":1}'
//! answer 1 '{"sessionId":"s"}'
//! update='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"It works."}}'
//! echo "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":$update}}"
//! answer 2 '{"stopReason":"end_turn"}'
//! "#;
//! let files = tempfile::tempdir()?;
//! let workspace = tempfile::tempdir()?;
//! let provider = AcpProvider::new("toy", "sh", files.path()).with_arguments(["-c", agent]);
//!
//! let parent = Parent::new("me", workspace.path().to_str().ok_or("a path in UTF-8")?);
//! let run = provider.start(StartSubagent::new("Does it work?", parent)).await?;
//! let result = run.result().await?;
//! run.dispose().await?;
//! assert!(result.stop_reason.is_completed());
//! assert_eq!(result.output, "It works.");
//! # Ok(())
//! # }
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod conversation;
mod detect;
mod ending;
mod follow;
mod handed;
mod known;
mod message;
mod own_tool;
mod peer;
mod permission;
mod provider;
mod refusal;
mod said;
mod usage;

pub use detect::DetectedAgent;
pub use known::KnownAgent;
pub use permission::Permissions;
pub use provider::AcpProvider;

/// The examples of the read-me are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
