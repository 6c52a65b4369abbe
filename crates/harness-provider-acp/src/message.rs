//! One line of the conversation: a message of JSON-RPC 2.0.

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A message of the agent. What its parts mean is looked into by whoever wants them.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to one of our requests.
    Answer { to: u64, outcome: Result<Box<RawValue>, Error> },
    /// A request that must be answered, under the id that the agent chose: a number, a text, even null.
    Request { id: Box<RawValue>, method: String, parameters: Box<RawValue> },
    /// Something that the agent tells.
    Notification { method: String, parameters: Box<RawValue> },
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "present")]
    id: Option<Box<RawValue>>,
    method: Option<String>,
    #[serde(default, deserialize_with = "present")]
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<Error>,
}

/// Keeps a null apart from nothing at all.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl Message {
    /// Reads one line. Whatever is no message is [`None`]: agents print other things among their messages.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(line).ok()?;
        let parameters = || RawValue::from_string("null".to_owned()).expect("null is JSON");
        match wire {
            Wire { method: Some(method), id: Some(id), params, .. } => {
                Some(Self::Request { id, method, parameters: params.unwrap_or_else(parameters) })
            }
            Wire { method: Some(method), id: None, params, .. } => {
                Some(Self::Notification { method, parameters: params.unwrap_or_else(parameters) })
            }
            Wire { id: Some(id), result, error, .. } => {
                let to = id.get().parse().ok()?;
                let outcome = match (result, error) {
                    (_, Some(error)) => Err(error),
                    (Some(result), None) => Ok(result),
                    (None, None) => return None,
                };
                Some(Self::Answer { to, outcome })
            }
            Wire { .. } => None,
        }
    }
}

#[derive(Serialize)]
struct Outgoing<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

/// Writes a request as one line.
pub(crate) fn request(id: u64, method: &str, parameters: &impl Serialize) -> Vec<u8> {
    line(&Outgoing { jsonrpc: "2.0", id: Some(id), method, params: parameters })
}

/// Writes a notification as one line.
pub(crate) fn notification(method: &str, parameters: &impl Serialize) -> Vec<u8> {
    line(&Outgoing { jsonrpc: "2.0", id: None, method, params: parameters })
}

#[derive(Serialize)]
struct Answer<'a, R> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

/// Writes the answer to the request `id` as one line.
pub(crate) fn answer(id: &RawValue, result: &impl Serialize) -> Vec<u8> {
    line(&Answer { jsonrpc: "2.0", id, result: Some(result), error: None })
}

/// Writes the refusal of the request `id` as one line.
pub(crate) fn refusal(id: &RawValue, error: &Error) -> Vec<u8> {
    line(&Answer::<()> { jsonrpc: "2.0", id, result: None, error: Some(error) })
}

fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages have text keys and no failing parts");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_message_is_nothing() {
        for line in [
            "",
            "npm warn deprecated",
            "{",
            "[]",
            "17",
            "{}",
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}} x"#,
        ] {
            assert!(Message::read(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn an_answer_may_be_null() {
        let message = Message::read(br#"{"jsonrpc":"2.0","id":7,"result":null}"#);
        assert!(
            matches!(message, Some(Message::Answer { to: 7, outcome: Ok(result) }) if result.get() == "null")
        );
    }

    #[test]
    fn the_id_of_a_request_comes_back_as_it_was() {
        for id in ["0", r#""a-1""#, "null", "1.5", "18446744073709551616"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let Some(Message::Request { id: read, method, parameters }) = Message::read(line.as_bytes())
            else {
                panic!("{line} is a request");
            };
            assert_eq!((method.as_str(), parameters.get()), ("m", "null"));
            let written = String::from_utf8(answer(&read, &json!({}))).unwrap();
            assert_eq!(written, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"));
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_it_holds() {
        let line = request(0, "session/prompt", &json!({ "text": "one\ntwo\r\n\u{2028}" }));
        assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let line = notification("session/cancel", &json!({ "sessionId": "s" }));
        assert_eq!(
            line,
            b"{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"s\"}}\n"
        );
    }
}
