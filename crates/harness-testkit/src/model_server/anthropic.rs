//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::reply::{Block, Event, Reply, arguments, pieces};
use super::turn::Cut;

pub(super) fn whole(reply: &Reply<'_>) -> Value {
    message(reply, reply.blocks.iter().enumerate().map(|(at, block)| content(reply, at, block)).collect())
}

fn message(reply: &Reply<'_>, content: Vec<Value>) -> Value {
    json!({
        "id": reply.id("msg", 0), "type": "message", "role": "assistant", "model": reply.question.model,
        "content": content, "stop_reason": stop_reason(reply), "stop_sequence": null, "usage": usage(reply),
    })
}

fn stop_reason(reply: &Reply<'_>) -> &'static str {
    match reply.cut {
        Some(Cut::Truncated) => "max_tokens",
        Some(Cut::Refused) => "refusal",
        None if reply.has_calls() => "tool_use",
        None => "end_turn",
    }
}

fn usage(reply: &Reply<'_>) -> Value {
    json!({
        "input_tokens": reply.usage.input, "output_tokens": reply.usage.output,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": reply.usage.cached,
    })
}

fn content(reply: &Reply<'_>, at: usize, block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Call { name, input, .. } => {
            json!({"type": "tool_use", "id": reply.id("toolu", at), "name": name, "input": input})
        }
    }
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<Event> {
    let mut start = message(reply, Vec::new());
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    let mut events = vec![json!({"type": "message_start", "message": start}), json!({"type": "ping"})];
    for (index, block) in reply.blocks.iter().enumerate() {
        let mut empty = content(reply, index, block);
        let deltas: Vec<Value> = match block {
            Block::Text(text) => {
                empty["text"] = json!("");
                pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect()
            }
            Block::Call { input, .. } => {
                empty["input"] = json!({});
                let pieces = pieces(&arguments(input, false)).into_iter();
                pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect()
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null},
        "usage": usage(reply),
    }));
    events.push(json!({"type": "message_stop"}));
    events.into_iter().map(Event::typed).collect()
}
