//! What a model says, in every dialect.

use harness_testkit::model_server::{Dialect, Script, ToolCall, Turn, TurnUsage};
use serde_json::{Value, json};

use super::client::{Answer, ask, playing, question, send, start};

/// An answer as an agent would put it together.
#[derive(Debug, Default, PartialEq)]
struct Understood {
    text: String,
    /// The name (after the namespace, where there is one) and the arguments.
    calls: Vec<(String, Value)>,
    stop: String,
    /// In, out, cached.
    usage: [u64; 3],
}

fn understand(dialect: Dialect, streaming: bool, answer: &Answer) -> Understood {
    assert_eq!((answer.status, answer.whole), (200, true), "{answer:?}");
    let kind = if streaming { "text/event-stream" } else { "application/json" };
    assert!(answer.head.contains(&format!("content-type: {kind}")), "{}", answer.head);
    match (dialect, streaming) {
        (Dialect::AnthropicMessages, false) => of_message(&answer.json()),
        (Dialect::AnthropicMessages, true) => of_message(&gathered_message(answer)),
        (Dialect::OpenAiResponses, false) => of_response(&answer.json()),
        (Dialect::OpenAiResponses, true) => of_response(&gathered_response(answer)),
        (Dialect::OpenAiChat, false) => of_chat(&answer.json()),
        (Dialect::OpenAiChat, true) => of_chat(&gathered_chat(answer)),
        (Dialect::Gemini, false) => of_gemini([answer.json()]),
        (Dialect::Gemini, true) => of_gemini(answer.events().into_iter().map(|(_, data)| data)),
    }
}

fn of_message(message: &Value) -> Understood {
    let mut understood = Understood { stop: word(&message["stop_reason"]), ..Understood::default() };
    for block in message["content"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "text" => understood.text.push_str(block["text"].as_str().unwrap()),
            "tool_use" => understood.calls.push((word(&block["name"]), block["input"].clone())),
            other => panic!("{other}"),
        }
    }
    let usage = &message["usage"];
    understood.usage =
        [&usage["input_tokens"], &usage["output_tokens"], &usage["cache_read_input_tokens"]].map(number);
    understood
}

fn gathered_message(answer: &Answer) -> Value {
    let mut message = Value::Null;
    let mut arguments = String::new();
    let events = answer.events();
    assert_eq!(events.last().unwrap().0, Some("message_stop"));
    for (name, data) in events {
        assert_eq!(name, data["type"].as_str());
        let at = data["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default();
        match name.unwrap() {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(data["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" if data["delta"]["type"] == "text_delta" => {
                let text = word(&message["content"][at]["text"]) + &word(&data["delta"]["text"]);
                message["content"][at]["text"] = json!(text);
            }
            "content_block_delta" => arguments += &word(&data["delta"]["partial_json"]),
            "content_block_stop" if !arguments.is_empty() => {
                message["content"][at]["input"] = serde_json::from_str(&arguments).unwrap();
            }
            "message_delta" => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["usage"] = data["usage"].clone();
            }
            "content_block_stop" | "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    message
}

fn of_response(response: &Value) -> Understood {
    let mut understood = Understood::default();
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "message" => understood.text.push_str(item["content"][0]["text"].as_str().unwrap()),
            "function_call" => {
                let name = match item["namespace"].as_str() {
                    Some(namespace) => format!("{namespace}/{}", word(&item["name"])),
                    None => word(&item["name"]),
                };
                understood.calls.push((name, arguments(&item["arguments"])));
            }
            "custom_tool_call" => understood.calls.push((word(&item["name"]), item["input"].clone())),
            other => panic!("{other}"),
        }
    }
    understood.stop = match response["incomplete_details"]["reason"].as_str() {
        Some(reason) => format!("{}: {reason}", word(&response["status"])),
        None => word(&response["status"]),
    };
    let usage = &response["usage"];
    understood.usage =
        [&usage["input_tokens"], &usage["output_tokens"], &usage["input_tokens_details"]["cached_tokens"]]
            .map(number);
    understood
}

fn gathered_response(answer: &Answer) -> Value {
    let events = answer.events();
    let (mut pieces, mut items) = (String::new(), Vec::new());
    for (at, (name, data)) in events.iter().enumerate() {
        assert_eq!((*name, &data["sequence_number"]), (data["type"].as_str(), &json!(at)));
        let name = name.unwrap();
        if name.ends_with(".delta") {
            pieces += &word(&data["delta"]);
        } else if name == "response.output_item.done" {
            let item = &data["item"];
            let whole = [&item["content"][0]["text"], &item["arguments"], &item["input"]];
            assert!(whole.into_iter().any(|text| *text == json!(pieces)), "{pieces} is not {item}");
            pieces.clear();
            items.push(item.clone());
        }
    }
    let (name, last) = events.last().unwrap();
    assert!(["response.completed", "response.incomplete"].contains(&name.unwrap()));
    assert_eq!(last["response"]["output"], json!(items));
    last["response"].clone()
}

fn of_chat(completion: &Value) -> Understood {
    let choice = &completion["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    let usage = &completion["usage"];
    Understood {
        text: word(&choice["message"]["content"]),
        calls: calls
            .iter()
            .map(|call| (word(&call["function"]["name"]), arguments(&call["function"]["arguments"])))
            .collect(),
        stop: word(&choice["finish_reason"]),
        usage: [
            &usage["prompt_tokens"],
            &usage["completion_tokens"],
            &usage["prompt_tokens_details"]["cached_tokens"],
        ]
        .map(number),
    }
}

fn gathered_chat(answer: &Answer) -> Value {
    let (mut content, mut calls, mut stop, mut usage) = (String::new(), Vec::new(), Value::Null, Value::Null);
    let events = answer.events();
    assert_eq!(events.last().unwrap().1, "[DONE]");
    for (_, data) in &events[..events.len() - 1] {
        usage = data["usage"].clone();
        let Some(choice) = data["choices"].get(0) else { continue };
        content += &word(&choice["delta"]["content"]);
        if let Some(call) = choice["delta"]["tool_calls"].get(0) {
            if !call["id"].is_null() {
                calls.push(call.clone());
            }
            let last: &mut Value = calls.last_mut().unwrap();
            assert_eq!(last["index"], call["index"]);
            if last != call {
                let text = word(&last["function"]["arguments"]) + &word(&call["function"]["arguments"]);
                last["function"]["arguments"] = json!(text);
            }
        }
        stop = choice["finish_reason"].clone();
    }
    json!({
        "choices": [{"message": {"content": content, "tool_calls": calls}, "finish_reason": stop}], "usage": usage,
    })
}

fn of_gemini(responses: impl IntoIterator<Item = Value>) -> Understood {
    let mut understood = Understood::default();
    for response in responses {
        let candidate = &response["candidates"][0];
        for part in candidate["content"]["parts"].as_array().unwrap() {
            understood.text += &word(&part["text"]);
            if let Some(call) = part.get("functionCall") {
                understood.calls.push((word(&call["name"]), call["args"].clone()));
            }
        }
        understood.stop = word(&candidate["finishReason"]);
        let usage = &response["usageMetadata"];
        understood.usage =
            [&usage["promptTokenCount"], &usage["candidatesTokenCount"], &usage["cachedContentTokenCount"]]
                .map(number);
    }
    understood
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn arguments(text: &Value) -> Value {
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Plays `turn` in every dialect, as a stream and in one piece.
#[track_caller]
fn check(script: impl Fn(Turn) -> Script, turn: &Turn, expected: impl Fn(Dialect) -> Understood) {
    for dialect in Dialect::ALL {
        for streaming in [false, true] {
            let server = start(script(turn.clone()));
            let answer = ask(&server, dialect, streaming);
            let understood = understand(dialect, streaming, &answer);
            assert_eq!(understood, expected(dialect), "{dialect:?}, streaming: {streaming}");
        }
    }
}

fn plain(turn: Turn) -> Script {
    Script::new([harness_testkit::model_server::Conversation::new([turn])])
}

fn stop_at_end(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::AnthropicMessages => "end_turn",
        Dialect::OpenAiResponses => "completed",
        Dialect::OpenAiChat => "stop",
        Dialect::Gemini => "STOP",
    }
}

fn stop_for_calls(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::AnthropicMessages => "tool_use",
        Dialect::OpenAiChat => "tool_calls",
        other => stop_at_end(other),
    }
}

const LONG: &str = "A text of several pieces, with an ä where one of the pieces might have ended.";

#[test]
fn text_and_usage_arrive_in_every_dialect() {
    let turn = Turn::text(LONG).with_usage(TurnUsage::new(7, 5).with_cached(3));
    check(plain, &turn, |dialect| Understood {
        text: LONG.to_owned(),
        stop: stop_at_end(dialect).to_owned(),
        usage: [7, 5, 3],
        ..Understood::default()
    });
}

#[test]
fn calls_arrive_in_every_dialect_with_the_names_that_were_offered() {
    let input = json!({"command": LONG, "list": [1, {"a": null}]});
    let calls = [
        ToolCall::new("Bash", input.clone()),
        ToolCall::new("hand_in", json!({})),
        ToolCall::new("other", json!({"n": 1})),
    ];
    check(plain, &Turn::calls(calls).saying("first this"), |dialect| {
        let hand_in = if dialect == Dialect::OpenAiResponses { "mcp__s/hand_in" } else { "mcp__s__hand_in" };
        Understood {
            text: "first this".to_owned(),
            calls: vec![
                ("Bash".to_owned(), input.clone()),
                (hand_in.to_owned(), json!({})),
                ("other".to_owned(), json!({"n": 1})),
            ],
            stop: stop_for_calls(dialect).to_owned(),
            usage: [100, 20, 0],
        }
    });
}

#[test]
fn of_several_calls_the_first_that_is_offered_is_made() {
    let calls =
        |names: [&str; 2]| Turn::first_offered(names.map(|name| ToolCall::new(name, json!({"n": name}))));
    for (names, made) in [(["shell", "Bash"], "Bash"), (["shell", "run"], "shell")] {
        let answer = ask(&playing([calls(names)]), Dialect::AnthropicMessages, false);
        let made: Vec<_> = [made].map(|name| (name.to_owned(), json!({"n": name}))).into();
        assert_eq!(understand(Dialect::AnthropicMessages, false, &answer).calls, made);
    }
}

#[test]
fn a_tool_that_takes_free_text_gets_it() {
    let server = playing([Turn::call("patch", json!("*** Begin\n+ä"))]);
    let answer = ask(&server, Dialect::OpenAiResponses, true);
    let understood = understand(Dialect::OpenAiResponses, true, &answer);
    assert_eq!(understood.calls, [("patch".to_owned(), json!("*** Begin\n+ä"))]);
}

#[test]
fn a_value_goes_through_the_capture_tool_where_one_is_offered() {
    let value = json!({"answer": 42});
    let capturing = |turn| plain(turn).with_capture_tool("nowhere").with_capture_tool("hand_in");
    check(capturing, &Turn::value(value.clone()), |dialect| {
        let name = if dialect == Dialect::OpenAiResponses { "mcp__s/hand_in" } else { "mcp__s__hand_in" };
        Understood {
            calls: vec![(name.to_owned(), value.clone())],
            stop: stop_for_calls(dialect).to_owned(),
            usage: [100, 20, 0],
            ..Understood::default()
        }
    });
    let as_text = |dialect| Understood {
        text: value.to_string(),
        stop: stop_at_end(dialect).to_owned(),
        usage: [100, 20, 0],
        ..Understood::default()
    };
    check(plain, &Turn::value(value.clone()), as_text);
    check(capturing, &Turn::value_as_text(value.clone()), as_text);
}

#[test]
fn an_agents_own_capture_tool_is_known() {
    let server = playing([Turn::value(json!({"answer": 42}))]);
    let (path, mut body) = question(Dialect::AnthropicMessages, false, "hello");
    body["tools"].as_array_mut().unwrap().push(json!({"name": "StructuredOutput"}));
    let answer = send(&server, "POST", &path, &[], body.to_string().as_bytes());
    assert_eq!(of_message(&answer.json()).calls[0].0, "StructuredOutput");
}

#[test]
fn a_truncated_or_refused_answer_says_so_in_every_dialect() {
    let expect = |stops: [&'static str; 4]| {
        move |dialect: Dialect| {
            let at = Dialect::ALL.iter().position(|other| *other == dialect).unwrap();
            Understood {
                text: "half".to_owned(),
                stop: stops[at].to_owned(),
                usage: [100, 20, 0],
                ..Understood::default()
            }
        }
    };
    let truncated = ["max_tokens", "incomplete: max_output_tokens", "length", "MAX_TOKENS"];
    check(plain, &Turn::text("half").truncated(), expect(truncated));
    let refused = ["refusal", "incomplete: content_filter", "content_filter", "SAFETY"];
    check(plain, &Turn::text("half").refused(), expect(refused));
}

#[test]
fn a_model_that_says_nothing_still_answers() {
    check(plain, &Turn::calls([]), |dialect| Understood {
        stop: stop_at_end(dialect).to_owned(),
        usage: [100, 20, 0],
        ..Understood::default()
    });
}

#[test]
fn gemini_streams_an_array_unless_events_are_asked_for() {
    let server = playing([Turn::text(LONG)]);
    let (path, body) = question(Dialect::Gemini, true, "hello");
    let path = path.replace("?alt=sse", "");
    let answer = send(&server, "POST", &path, &[], body.to_string().as_bytes());
    assert!(answer.head.contains("transfer-encoding: chunked"), "{}", answer.head);
    let elements = answer.json().as_array().unwrap().clone();
    assert!(elements.len() > 1);
    assert_eq!(of_gemini(elements).text, LONG);
}
