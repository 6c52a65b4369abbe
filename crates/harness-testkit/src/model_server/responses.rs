//! `OpenAI`'s Responses API.

use serde_json::{Value, json};

use super::reply::{Block, CREATED, Event, Reply, arguments, pieces};
use super::turn::Cut;

pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let usage = reply.usage;
    response(
        reply,
        if reply.cut.is_some() { "incomplete" } else { "completed" },
        reply.blocks.iter().enumerate().map(|(at, block)| item(reply, at, block)).collect(),
        json!({
            "input_tokens": usage.input, "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        }),
    )
}

fn response(reply: &Reply<'_>, status: &str, output: Vec<Value>, usage: Value) -> Value {
    let reason = match reply.cut {
        Some(Cut::Truncated) => json!({"reason": "max_output_tokens"}),
        Some(Cut::Refused) => json!({"reason": "content_filter"}),
        None => Value::Null,
    };
    json!({
        "id": reply.id("resp", 0), "object": "response", "created_at": CREATED, "status": status,
        "model": reply.question.model, "output": output, "error": null, "usage": usage,
        "incomplete_details": if status == "incomplete" { reason } else { Value::Null },
    })
}

fn item(reply: &Reply<'_>, at: usize, block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({
            "type": "message", "id": reply.id("msg", at), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        Block::Call { name, takes_text: true, input, .. } => json!({
            "type": "custom_tool_call", "id": reply.id("ctc", at), "call_id": reply.id("call", at),
            "name": name, "input": arguments(input, true), "status": "completed",
        }),
        Block::Call { name, namespace, input, .. } => {
            let mut item = json!({
                "type": "function_call", "id": reply.id("fc", at), "call_id": reply.id("call", at),
                "name": name, "arguments": arguments(input, false), "status": "completed",
            });
            if let Some(namespace) = namespace {
                item["namespace"] = json!(namespace);
            }
            item
        }
    }
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<Event> {
    let begun = response(reply, "in_progress", Vec::new(), Value::Null);
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    for (at, block) in reply.blocks.iter().enumerate() {
        let item = item(reply, at, block);
        match block {
            Block::Text(text) => message_events(&mut events, at, &item, text),
            Block::Call { takes_text, .. } => call_events(&mut events, at, &item, *takes_text),
        }
        events.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
    }
    let whole = whole(reply);
    let ending = if reply.cut.is_some() { "response.incomplete" } else { "response.completed" };
    events.push(json!({"type": ending, "response": whole}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events.into_iter().map(Event::typed).collect()
}

fn message_events(events: &mut Vec<Value>, at: usize, item: &Value, text: &str) {
    let event = |kind: &str, key: &str, value: Value| {
        json!({
            "type": kind, "item_id": item["id"], "output_index": at, "content_index": 0, key: value,
        })
    };
    let part = &item["content"][0];
    let (mut no_parts, mut no_text) = (item.clone(), part.clone());
    no_parts["content"] = json!([]);
    no_parts["status"] = json!("in_progress");
    no_text["text"] = json!("");
    events.push(json!({"type": "response.output_item.added", "output_index": at, "item": no_parts}));
    events.push(event("response.content_part.added", "part", no_text));
    for piece in pieces(text) {
        events.push(event("response.output_text.delta", "delta", json!(piece)));
    }
    events.push(event("response.output_text.done", "text", json!(text)));
    events.push(event("response.content_part.done", "part", part.clone()));
}

fn call_events(events: &mut Vec<Value>, at: usize, item: &Value, takes_text: bool) {
    let (field, kind) = if takes_text {
        ("input", "custom_tool_call_input")
    } else {
        ("arguments", "function_call_arguments")
    };
    let event = |kind: String, key: &str, value: Value| json!({"type": kind, "item_id": item["id"], "output_index": at, key: value});
    let mut begun = item.clone();
    begun[field] = json!("");
    begun["status"] = json!("in_progress");
    events.push(json!({"type": "response.output_item.added", "output_index": at, "item": begun}));
    for piece in pieces(item[field].as_str().unwrap_or_default()) {
        events.push(event(format!("response.{kind}.delta"), "delta", json!(piece)));
    }
    events.push(event(format!("response.{kind}.done"), field, item[field].clone()));
}
