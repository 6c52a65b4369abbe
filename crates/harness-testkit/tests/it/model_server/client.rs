//! A client that hides nothing of what comes over the connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use harness_testkit::model_server::{Conversation, Dialect, ModelServer, Script, Turn};
use serde_json::{Value, json};

/// How long anything may take that is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    /// 0 if the connection broke before there was one.
    pub(super) status: u16,
    /// The head as it came, in lower case.
    pub(super) head: String,
    pub(super) body: String,
    /// True if the body came to the end that its head told of.
    pub(super) whole: bool,
}

/// A server that plays `turns` in every conversation.
pub(super) fn playing(turns: impl IntoIterator<Item = Turn>) -> ModelServer {
    start(Script::new([Conversation::new(turns)]))
}

pub(super) fn start(script: Script) -> ModelServer {
    ModelServer::start(script).unwrap()
}

/// The tools that [`question`] offers.
pub(super) const TOOLS: [&str; 2] = ["Bash", "mcp__s__hand_in"];

/// Returns the path and the body of a question.
pub(super) fn question(dialect: Dialect, streaming: bool, words: &str) -> (String, Value) {
    let described = TOOLS.map(|name| json!({"name": name, "description": "d"}));
    match dialect {
        Dialect::AnthropicMessages => (
            "/v1/messages".to_owned(),
            json!({
                "model": "m", "stream": streaming, "tools": described,
                "messages": [{"role": "user", "content": words}],
            }),
        ),
        Dialect::OpenAiResponses => (
            "/v1/responses".to_owned(),
            json!({
                "model": "m", "stream": streaming,
                "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}],
                "tools": [
                    {"type": "function", "name": "Bash"},
                    {"type": "custom", "name": "patch"},
                    {"type": "namespace", "name": "mcp__s", "tools": [{"type": "function", "name": "hand_in"}]},
                ],
            }),
        ),
        Dialect::OpenAiChat => (
            "/v1/chat/completions".to_owned(),
            json!({
                "model": "m", "stream": streaming, "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": words}],
                "tools": described.map(|tool| json!({"type": "function", "function": tool})),
            }),
        ),
        Dialect::Gemini => {
            let method = if streaming { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (
                format!("/v1beta/models/m:{method}"),
                json!({
                    "contents": [{"role": "user", "parts": [{"text": words}]}],
                    "tools": [{"functionDeclarations": described}],
                }),
            )
        }
    }
}

/// Asks the question of [`question`] and reads the answer to its end.
pub(super) fn ask(server: &ModelServer, dialect: Dialect, streaming: bool) -> Answer {
    ask_with(server, dialect, streaming, "hello")
}

pub(super) fn ask_with(server: &ModelServer, dialect: Dialect, streaming: bool, words: &str) -> Answer {
    let (path, body) = question(dialect, streaming, words);
    send(server, "POST", &path, &[], body.to_string().as_bytes())
}

pub(super) fn send(
    server: &ModelServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut connection = open(server, method, path, headers, body);
    let mut bytes = Vec::new();
    match connection.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    Answer::read(&String::from_utf8(bytes).unwrap())
}

/// Sends a request and leaves the answer to the caller.
pub(super) fn open(
    server: &ModelServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> TcpStream {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: model\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(body).unwrap();
    connection
}

impl Answer {
    fn read(text: &str) -> Self {
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(text.is_empty(), "half a head: {text}");
            return Self { status: 0, head: String::new(), body: String::new(), whole: false };
        };
        let head = head.to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let (body, whole) = if head.contains("transfer-encoding: chunked") {
            unchunk(body)
        } else {
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            (body.to_owned(), body.len() == length.parse::<usize>().unwrap())
        };
        Self { status, head, body, whole }
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        assert!(self.whole, "the answer broke off: {self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    /// The data of all events of a stream, with the names that stood before them.
    pub(super) fn events(&self) -> Vec<(Option<&str>, Value)> {
        let events = self.body.split_terminator("\n\n");
        let read = |event: &'_ str| -> Value {
            let data = event.rsplit_once("data: ").unwrap().1;
            serde_json::from_str(data).unwrap_or_else(|_| json!(data))
        };
        events
            .map(|event| {
                (event.strip_prefix("event: ").and_then(|rest| rest.split('\n').next()), read(event))
            })
            .collect()
    }
}

/// Takes the chunks apart; false if the last one is missing.
fn unchunk(mut text: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (body, true);
        }
        body.push_str(&rest[..length]);
        text = &rest[length + 2..];
    }
    (body, false)
}
