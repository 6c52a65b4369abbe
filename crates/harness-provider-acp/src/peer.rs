use std::collections::VecDeque;

use agent_client_protocol_schema::v1::Error;
use harness_process::{ChildStdin, ChildStdout, Line, LineReader};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;

use crate::message::{self, Message};

/// The longest line of an agent that is read. A longer one is passed over.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// So many bytes of answers may wait for an agent that does not read them, before we stop reading what it asks.
const MAX_WAITING: usize = 1024 * 1024;

/// The other end of the conversation, whatever is said.
///
/// Both directions are bounded, and neither waits for the other: what we say goes out while we listen.
#[derive(Debug)]
pub(crate) struct Peer {
    lines: LineReader<ChildStdout>,
    /// Gone once the agent does not read any more.
    stdin: Option<ChildStdin>,
    waiting: VecDeque<u8>,
    /// How much may wait while we go on listening: our own few requests, however long, do not count.
    allowance: usize,
    requests: u64,
}

impl Peer {
    pub(crate) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        Self {
            lines: LineReader::new(stdout, MAX_LINE),
            stdin: Some(stdin),
            waiting: VecDeque::new(),
            allowance: MAX_WAITING,
            requests: 0,
        }
    }

    /// Stops listening, and keeps the way to the agent open for as long as it is kept.
    pub(crate) fn into_stdin(self) -> Option<ChildStdin> {
        self.stdin
    }

    /// Sends a request and returns its number, which the answer will name.
    pub(crate) fn request(&mut self, method: &str, parameters: &impl Serialize) -> u64 {
        let id = self.requests;
        self.requests += 1;
        let line = message::request(id, method, parameters);
        self.allowance += line.len();
        self.send(&line);
        id
    }

    pub(crate) fn notify(&mut self, method: &str, parameters: &impl Serialize) {
        let line = message::notification(method, parameters);
        self.allowance += line.len();
        self.send(&line);
    }

    pub(crate) fn answer(&mut self, id: &RawValue, result: &impl Serialize) {
        self.send(&message::answer(id, result));
    }

    pub(crate) fn refuse(&mut self, id: &RawValue, error: &Error) {
        self.send(&message::refusal(id, error));
    }

    fn send(&mut self, line: &[u8]) {
        if self.stdin.is_some() {
            self.waiting.extend(line);
        }
    }

    /// Waits for the next message, and sends what waits meanwhile. Nothing is the end of the agent's output.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost in either direction.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        loop {
            let listen = self.waiting.len() <= self.allowance;
            tokio::select! {
                written = write(&mut self.stdin, &self.waiting), if !self.waiting.is_empty() => match written {
                    Some(count) => drop(self.waiting.drain(..count)),
                    None => {
                        self.stdin = None;
                        self.waiting.clear();
                    }
                },
                line = self.lines.next_line(), if listen => match line {
                    Ok(Some(Line::Whole(line))) => match Message::read(line) {
                        Some(message) => return Some(message),
                        None => tracing::debug!(bytes = line.len(), "the agent printed something beside the protocol"),
                    },
                    Ok(Some(Line::TooLong { length })) => {
                        tracing::warn!(bytes = length, "a line of the agent is too long and was passed over");
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return None,
                },
            }
        }
    }
}

/// Writes some of what waits and returns how much, or nothing when the agent does not read any more.
async fn write(stdin: &mut Option<ChildStdin>, waiting: &VecDeque<u8>) -> Option<usize> {
    stdin.as_mut()?.write(waiting.as_slices().0).await.ok()
}
