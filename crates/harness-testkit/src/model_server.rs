//! A scripted stand-in for the HTTP APIs of language models, for tests that run real agents.
//!
//! [`ModelServer`] speaks Anthropic Messages, `OpenAI` Responses, `OpenAI` Chat Completions and Gemini
//! `generateContent`, each as a stream and in one piece, with the small requests around them (counting tokens,
//! listing models, health). It listens on the loopback interface alone and plays a [`Script`]: a [`Conversation`]
//! is one talk of one agent with its model, a [`Turn`] is what the model does in it. Everything that was asked is
//! kept and can be looked at: see [`Exchange`].
//!
//! It needs no runtime. A test starts it, points an agent at [`url`](ModelServer::url) and drops it at the end.
//!
//! # What each turn can be
//!
//! | turn | what the agent sees |
//! |---|---|
//! | [`Turn::text`] | an answer of text |
//! | [`Turn::call`], [`Turn::calls`], [`Turn::first_offered`] | the model wants tools to be called |
//! | [`Turn::value`] | the model hands in a value: by a tool if the agent offers one for it, else as text |
//! | [`Turn::error`] | an HTTP error in the dialect's shape, or an error in the middle of a stream |
//! | [`Turn::hang`], [`Turn::hang_for`] | nothing at all, or half an answer and then nothing |
//! | [`Turn::disconnect`] | a connection that breaks, before or in the middle of the answer |
//!
//! Any of them can be truncated, delayed, slowed down, repeated and given numbers of usage.
//!
//! # Which conversation a request belongs to
//!
//! The id of the session that the agent sends along decides, where it sends one. Else the opening words of the user
//! do; an agent that begins again with the same words and no history begins a new conversation. A request that
//! offers no tools is an aside (agents ask for titles and the like): it is answered with `ok`, and no conversation
//! moves on, unless the script says that [toolless requests count](Script::counting_toolless).
//!
//! # Examples
//!
//! ```
//! use std::io::{Read as _, Write as _};
//! use std::net::TcpStream;
//!
//! use harness_testkit::model_server::{Conversation, ModelServer, Script, Turn};
//! use serde_json::json;
//!
//! # fn main() -> std::io::Result<()> {
//! let server = ModelServer::start(Script::new([Conversation::new([
//!     Turn::call("Bash", json!({ "command": "make test" })),
//!     Turn::value(json!({ "answer": 42 })),
//! ])]))?;
//!
//! // Instead of this, a test starts an agent with ANTHROPIC_BASE_URL set to `server.url()`.
//! let body = json!({
//!     "model": "m",
//!     "messages": [{ "role": "user", "content": "What is the answer?" }],
//!     "tools": [{ "name": "Bash" }],
//! })
//! .to_string();
//! let mut client = TcpStream::connect(server.address())?;
//! write!(client, "POST /v1/messages HTTP/1.1\r\nhost: model\r\nconnection: close\r\n")?;
//! write!(client, "content-length: {}\r\n\r\n{body}", body.len())?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//!
//! assert!(answer.contains(r#""stop_reason":"tool_use""#));
//! let first = &server.conversation(1)[0];
//! assert_eq!(first.question().map(|question| question.opening()), Some("What is the answer?".to_owned()));
//! # Ok(())
//! # }
//! ```

mod answer;
mod anthropic;
mod chat;
mod conversations;
mod exchange;
mod framing;
mod gemini;
mod played;
mod question;
mod reply;
mod responses;
mod script;
mod server;
mod turn;

pub use exchange::{Ending, Exchange, Place, Purpose};
pub use question::{Dialect, Message, OfferedTool, Question};
pub use script::{Conversation, Script};
pub use server::ModelServer;
pub use turn::{ToolCall, Turn, TurnUsage};
