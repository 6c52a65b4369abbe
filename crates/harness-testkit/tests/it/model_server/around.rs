//! The requests around the questions, and what is remembered of them all.

use std::time::Duration;

use harness_testkit::model_server::{Conversation, Dialect, Ending, Place, Purpose, Script, Turn};
use serde_json::json;

use super::client::{ask, ask_with, playing, question, send, start};

#[test]
fn it_listens_on_the_loopback_interface_alone() {
    let server = playing([]);
    assert!(server.address().ip().is_loopback());
    assert_eq!(server.url(), format!("http://{}", server.address()));
}

#[test]
fn tokens_models_and_health_are_told() {
    let server = start(Script::default().with_model("a").with_model("b"));
    let body = question(Dialect::AnthropicMessages, false, "hello").1.to_string();
    let count = |path: &str| send(&server, "POST", path, &[], body.as_bytes()).json();
    let tokens = body.len() / 4;
    assert_eq!(count("/v1/messages/count_tokens"), json!({"input_tokens": tokens}));
    assert_eq!(count("/v1beta/models/m:countTokens"), json!({"totalTokens": tokens}));
    let models = send(&server, "GET", "/v1/models?limit=5", &[], b"").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][1]["id"]), (&json!("a"), &json!("b")));
    assert_eq!(send(&server, "GET", "/v1beta/models", &[], b"").json()["models"][1]["name"], "models/b");
    assert_eq!(send(&server, "GET", "/", &[], b"").json(), json!({"ok": true}));
    assert_eq!(send(&server, "HEAD", "/", &[], b"").status, 200);
    assert_eq!(server.exchanges().pop().unwrap().ending, Some(Ending::Answered), "a head has no body");
    assert_eq!(send(&playing([]), "GET", "/models", &[], b"").json()["data"][0]["id"], "fake-model");
    assert_eq!(server.exchanges().len(), 6);
    assert!(server.exchanges().iter().all(|exchange| exchange.place.is_none()));
}

#[test]
fn unknown_paths_and_unreadable_bodies_are_refused_and_remembered() {
    let server = playing([Turn::text("fine").forever()]);
    for (method, path) in [("GET", "/nowhere"), ("POST", "/v1/nowhere"), ("PUT", "/v1/messages")] {
        assert_eq!(send(&server, method, path, &[], b"{}").status, 404, "{method} {path}");
    }
    assert_eq!(send(&server, "POST", "/v1/messages", &[], b"no JSON").status, 415);
    let packed = [("content-encoding", "gzip")];
    let answer = send(&server, "POST", "/v1/messages", &packed, b"{}");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("gzip"));
    let all = server.exchanges();
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|exchange| matches!(exchange.purpose, Purpose::Unknown)));
}

#[test]
fn an_exchange_remembers_everything_but_keys() {
    let server = playing([Turn::text("fine")]);
    let (path, body) = question(Dialect::Gemini, true, "hello");
    let headers =
        [("x-goog-api-key", "secret"), ("authorization", "Bearer secret"), ("user-agent", "agent/1")];
    send(&server, "POST", &format!("/gemini{path}&key=secret"), &headers, body.to_string().as_bytes());
    let exchange = &server.exchanges()[0];
    assert!(!format!("{exchange:?}").contains("secret"));
    assert_eq!(exchange.path, format!("/gemini{path}"));
    assert_eq!((exchange.method.as_str(), exchange.number), ("POST", 1));
    assert_eq!(exchange.header("user-agent"), Some("agent/1"));
    assert_eq!(exchange.body, body);
    let question = exchange.question().unwrap();
    assert_eq!((question.opening().as_str(), question.tools.len()), ("hello", 2));
}

#[test]
fn conversations_are_told_apart_and_play_in_order() {
    let conversation = |turns: [&str; 2]| Conversation::new(turns.map(Turn::text));
    let server = start(Script::in_order([conversation(["a", "b"]), conversation(["c", "d"])]));
    let say = |session: &str, words: &str| {
        let (path, body) = question(Dialect::OpenAiChat, false, words);
        let answer = send(&server, "POST", &path, &[("session_id", session)], body.to_string().as_bytes());
        (answer.status, answer.json()["choices"][0]["message"]["content"].clone())
    };
    assert_eq!(say("1", "x"), (200, json!("a")));
    assert_eq!(say("2", "x"), (200, json!("c")));
    assert_eq!(say("1", "y"), (200, json!("b")));
    assert_eq!(say("2", "y"), (200, json!("d")));
    assert_eq!(say("2", "z").0, 400, "the script is at its end");
    assert_eq!(say("3", "x").0, 400, "the script has no third conversation");
    let places: Vec<_> = server.conversation(2).iter().map(|exchange| exchange.place.unwrap().turn).collect();
    assert_eq!(places, [1, 2, 3]);
}

#[test]
fn what_comes_after_the_end_can_be_said() {
    let conversation = Conversation::new([]).containing("never").then(Turn::error(500));
    let server = start(Script::new([conversation, Conversation::default().then(Turn::text("again"))]));
    for _ in 0..2 {
        assert_eq!(ask(&server, Dialect::OpenAiResponses, true).status, 200);
    }
    assert_eq!(ask_with(&server, Dialect::OpenAiResponses, true, "never mind").status, 500);
}

#[test]
fn requests_without_tools_are_asides() {
    let server =
        start(Script::new([Conversation::new([Turn::text("fine")])]).with_aside("a title", Turn::text("T")));
    let (path, mut body) = question(Dialect::OpenAiChat, false, "hello");
    body["tools"] = json!([]);
    let answer = send(&server, "POST", &path, &[], body.to_string().as_bytes());
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "ok");
    let answer = ask_with(&server, Dialect::OpenAiChat, false, "make a title");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "T");
    let answer = ask(&server, Dialect::OpenAiChat, false);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "fine");
    let places: Vec<_> = server.exchanges().iter().map(|exchange| exchange.place.map(turn)).collect();
    assert_eq!(places, [None, None, Some(1)]);
}

fn turn(place: Place) -> usize {
    place.turn
}

#[test]
fn waiting_in_vain_ends() {
    let server = playing([]);
    assert_eq!(server.wait_until(Duration::from_millis(1), |all| all.first().map(|_| ())), None);
}
