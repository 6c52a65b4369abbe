//! What the model says, before a dialect gives it its shape.

use serde_json::{Value, json};

use super::question::{Dialect, OfferedTool, Question};
use super::turn::{Act, Cut, Pick, Refusal, ToolCall, Turn, TurnUsage};
use super::{anthropic, chat, gemini, responses};

/// The tools by which agents take values of their own accord.
const CAPTURE_TOOLS: &[&str] = &["StructuredOutput", "structured_output"];

/// What is said where a script leaves it open.
const FILLER: &str = "an answer that is long enough for several events";

/// When every answer and every model was made, in seconds since 1970.
pub(super) const CREATED: u64 = 1_700_000_000;

/// How many characters of a text one event of a stream carries.
const PIECE: usize = 24;

/// A whole answer of the model.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    /// The number of the exchange, which all ids are made of.
    pub(super) number: usize,
    pub(super) question: &'a Question,
    /// The body of the request, for what only one dialect asks.
    pub(super) request: &'a Value,
    pub(super) blocks: Vec<Block>,
    pub(super) cut: Option<Cut>,
    pub(super) usage: TurnUsage,
}

#[derive(Clone, Debug)]
pub(super) enum Block {
    Text(String),
    Call { name: String, namespace: Option<String>, takes_text: bool, input: Value },
}

/// One event of a stream.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: Option<String>,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Json(Value),
    /// The word with which Chat Completions ends a stream.
    Done,
}

impl<'a> Reply<'a> {
    pub(super) fn new(
        number: usize,
        question: &'a Question,
        request: &'a Value,
        turn: &Turn,
        capture_tools: &[String],
    ) -> Self {
        let mut said = turn.said.clone().map(Block::Text).into_iter();
        let blocks = match &turn.act {
            Act::Call { calls, pick } => {
                said.chain(chosen(calls, *pick, question).map(|call| Block::call(call, question))).collect()
            }
            Act::HandIn { value, as_text } => {
                said.chain([hand_in(value, *as_text, question, capture_tools)]).collect()
            }
            // A turn that is about what goes wrong needs an answer that can be cut in half.
            Act::Refuse(_) | Act::Hang { .. } | Act::Disconnect => {
                vec![said.next_back().unwrap_or_else(|| Block::Text(FILLER.to_owned()))]
            }
        };
        Self { number, question, request, blocks, cut: turn.cut, usage: turn.usage }
    }

    pub(super) fn whole(&self) -> Value {
        match self.question.dialect {
            Dialect::AnthropicMessages => anthropic::whole(self),
            Dialect::OpenAiResponses => responses::whole(self),
            Dialect::OpenAiChat => chat::whole(self),
            Dialect::Gemini => gemini::whole(self),
        }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        match self.question.dialect {
            Dialect::AnthropicMessages => anthropic::events(self),
            Dialect::OpenAiResponses => responses::events(self),
            Dialect::OpenAiChat => chat::events(self),
            Dialect::Gemini => gemini::events(self),
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Call { .. }))
    }

    /// Returns an id that nothing else of this server has.
    pub(super) fn id(&self, kind: &str, at: usize) -> String {
        format!("{kind}_{:06}_{at:02}", self.number)
    }
}

impl Block {
    fn call(call: &ToolCall, question: &Question) -> Self {
        match question.tool(&call.name) {
            Some(tool) => Self::offered(tool, call.input.clone()),
            None => Self::Call {
                name: call.name.clone(),
                namespace: None,
                takes_text: false,
                input: call.input.clone(),
            },
        }
    }

    fn offered(tool: &OfferedTool, input: Value) -> Self {
        Self::Call {
            name: tool.name.clone(),
            namespace: tool.namespace.clone(),
            takes_text: tool.takes_text,
            input,
        }
    }
}

fn chosen<'a>(
    calls: &'a [ToolCall],
    pick: Pick,
    question: &Question,
) -> impl Iterator<Item = &'a ToolCall> + use<'a> {
    let offered = calls.iter().position(|call| question.tool(&call.name).is_some()).unwrap_or(0);
    let range = match pick {
        Pick::All => 0..calls.len(),
        Pick::FirstOffered => offered..calls.len().min(offered + 1),
    };
    calls[range].iter()
}

fn hand_in(value: &Value, as_text: bool, question: &Question, capture_tools: &[String]) -> Block {
    let names = capture_tools.iter().map(String::as_str).chain(CAPTURE_TOOLS.iter().copied());
    let tool = if as_text { None } else { names.filter_map(|name| question.tool(name)).next() };
    match tool {
        Some(tool) => Block::offered(tool, value.clone()),
        None => Block::Text(value.to_string()),
    }
}

impl Event {
    /// An event that a dialect gives no name.
    pub(super) fn unnamed(data: Value) -> Self {
        Self { name: None, data: Data::Json(data) }
    }

    /// An event whose name is also the `type` of its data.
    pub(super) fn typed(data: Value) -> Self {
        Self { name: data["type"].as_str().map(str::to_owned), data: Data::Json(data) }
    }

    pub(super) fn to_sse(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.to_json())
    }

    pub(super) fn to_json(&self) -> String {
        match &self.data {
            Data::Json(data) => data.to_string(),
            Data::Done => "[DONE]".to_owned(),
        }
    }
}

/// Returns the text in pieces, at least one.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = chars.chunks(PIECE).map(|piece| piece.iter().collect()).collect();
    if pieces.is_empty() { vec![String::new()] } else { pieces }
}

/// The arguments of a call, as dialects that have them as a text want them.
pub(super) fn arguments(input: &Value, takes_text: bool) -> String {
    match input {
        Value::String(text) if takes_text => text.clone(),
        other => other.to_string(),
    }
}

/// An error as the dialect shows it in the body of an answer.
pub(super) fn error_body(dialect: Dialect, refusal: &Refusal, id: &str) -> Value {
    let Refusal { message, retry_after, .. } = refusal;
    let kind = kind(refusal);
    match dialect {
        Dialect::AnthropicMessages => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": id})
        }
        Dialect::OpenAiResponses | Dialect::OpenAiChat => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
        }
        Dialect::Gemini => {
            let status = refusal.status.as_u16();
            let name = refusal.kind.as_deref().unwrap_or_else(|| gemini_status(status));
            let mut error = json!({"code": status, "message": message, "status": name});
            if let Some(seconds) = retry_after {
                error["details"] = json!([{
                    "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s"),
                }]);
            }
            json!({"error": error})
        }
    }
}

/// An error as the dialect shows it inside of a stream that has begun.
pub(super) fn error_event(dialect: Dialect, refusal: &Refusal, id: &str) -> Event {
    match dialect {
        Dialect::AnthropicMessages => Event::typed(error_body(dialect, refusal, id)),
        Dialect::OpenAiResponses => Event::typed(json!({
            "type": "response.failed",
            "response": {
                "id": id, "object": "response", "status": "failed",
                "error": {"code": kind(refusal), "message": refusal.message},
            },
        })),
        Dialect::OpenAiChat | Dialect::Gemini => Event::unnamed(error_body(dialect, refusal, id)),
    }
}

fn kind(refusal: &Refusal) -> &str {
    refusal.kind.as_deref().unwrap_or_else(|| usual_kind(refusal.status.as_u16()))
}

fn usual_kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn gemini_status(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}
