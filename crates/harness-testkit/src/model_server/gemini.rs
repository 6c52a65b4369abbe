//! Gemini's `generateContent` API.

use serde_json::{Value, json};

use super::reply::{Block, Event, Reply, pieces};
use super::turn::Cut;

pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let parts = reply.blocks.iter().enumerate().map(|(at, block)| part(reply, at, block)).collect();
    response(reply, parts, true)
}

fn part(reply: &Reply<'_>, at: usize, block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({"text": text}),
        Block::Call { name, input, .. } => {
            json!({"functionCall": {"id": reply.id("fc", at), "name": name, "args": input}})
        }
    }
}

fn response(reply: &Reply<'_>, parts: Vec<Value>, is_last: bool) -> Value {
    let usage = reply.usage;
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if is_last {
        candidate["finishReason"] = json!(match reply.cut {
            Some(Cut::Truncated) => "MAX_TOKENS",
            Some(Cut::Refused) => "SAFETY",
            None => "STOP",
        });
    }
    json!({
        "candidates": [candidate], "modelVersion": reply.question.model, "responseId": reply.id("resp", 0),
        "usageMetadata": {
            "promptTokenCount": usage.input, "candidatesTokenCount": usage.output,
            "cachedContentTokenCount": usage.cached, "totalTokenCount": usage.input + usage.output,
        },
    })
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<Event> {
    let mut parts = Vec::new();
    for (at, block) in reply.blocks.iter().enumerate() {
        match block {
            Block::Text(text) => parts.extend(pieces(text).into_iter().map(|piece| json!({"text": piece}))),
            Block::Call { .. } => parts.push(part(reply, at, block)),
        }
    }
    if parts.is_empty() {
        parts.push(json!({"text": ""}));
    }
    let last = parts.len() - 1;
    let response = |(at, part)| response(reply, vec![part], at == last);
    parts.into_iter().enumerate().map(response).map(Event::unnamed).collect()
}
