//! `OpenAI`'s Chat Completions API.

use serde_json::{Value, json};

use super::reply::{Block, CREATED, Data, Event, Reply, arguments, pieces};
use super::turn::Cut;

pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": text(reply)});
    let calls: Vec<Value> = calls(reply).map(|(_, call)| call).collect();
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({
        "id": reply.id("chatcmpl", 0), "object": "chat.completion", "created": CREATED,
        "model": reply.question.model, "usage": usage(reply),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(reply), "logprobs": null}],
    })
}

fn text(reply: &Reply<'_>) -> Option<String> {
    let texts = reply.blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        Block::Call { .. } => None,
    });
    Some(texts.collect::<String>()).filter(|text| !text.is_empty())
}

fn calls(reply: &Reply<'_>) -> impl Iterator<Item = (String, Value)> {
    reply.blocks.iter().enumerate().filter_map(|(at, block)| match block {
        Block::Text(_) => None,
        Block::Call { name, takes_text, input, .. } => {
            let arguments = arguments(input, *takes_text);
            let call = json!({
                "id": reply.id("call", at), "type": "function",
                "function": {"name": name, "arguments": arguments},
            });
            Some((arguments, call))
        }
    })
}

fn finish_reason(reply: &Reply<'_>) -> &'static str {
    match reply.cut {
        Some(Cut::Truncated) => "length",
        Some(Cut::Refused) => "content_filter",
        None if reply.has_calls() => "tool_calls",
        None => "stop",
    }
}

fn usage(reply: &Reply<'_>) -> Value {
    let usage = reply.usage;
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output, "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<Event> {
    let frame = |choices: Value| {
        json!({
            "id": reply.id("chatcmpl", 0), "object": "chat.completion.chunk", "created": CREATED,
            "model": reply.question.model, "choices": choices,
        })
    };
    let chunk = |delta: Value| frame(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}))];
    for piece in text(reply).as_deref().map(pieces).unwrap_or_default() {
        events.push(chunk(json!({"content": piece})));
    }
    for (index, (arguments, mut call)) in calls(reply).enumerate() {
        call["index"] = json!(index);
        call["function"]["arguments"] = json!("");
        events.push(chunk(json!({"tool_calls": [call]})));
        for piece in pieces(&arguments) {
            let call = json!({"index": index, "function": {"arguments": piece}});
            events.push(chunk(json!({"tool_calls": [call]})));
        }
    }
    events.push(frame(json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(reply)}])));
    if reply.request["stream_options"]["include_usage"] == true {
        let mut last = frame(json!([]));
        last["usage"] = usage(reply);
        events.push(last);
    }
    let done = Event { name: None, data: Data::Done };
    events.into_iter().map(Event::unnamed).chain([done]).collect()
}
