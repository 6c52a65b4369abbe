//! What goes wrong on the way, as the script wants it.

use std::io::Read as _;
use std::time::{Duration, Instant};

use harness_testkit::model_server::{Dialect, Ending, Exchange, Turn};
use serde_json::{Value, json};

use super::client::{PATIENCE, ask, open, playing, question};

fn endings(exchanges: &[Exchange]) -> Vec<Option<Ending>> {
    exchanges.iter().map(|exchange| exchange.ending).collect()
}

#[test]
fn an_error_has_the_shape_of_the_dialect() {
    let turn = Turn::error(429).with_message("slow down").with_retry_after(3).with_header("x-more", "1");
    for dialect in Dialect::ALL {
        for streaming in [false, true] {
            let answer = ask(&playing([turn.clone()]), dialect, streaming);
            assert_eq!(answer.status, 429);
            assert!(
                answer.head.contains("retry-after: 3") && answer.head.contains("x-more: 1"),
                "{answer:?}"
            );
            let body = answer.json();
            let error = &body["error"];
            assert_eq!(error["message"], "slow down");
            match dialect {
                Dialect::AnthropicMessages => {
                    assert_eq!(
                        (&body["type"], &error["type"]),
                        (&json!("error"), &json!("rate_limit_error"))
                    );
                    assert!(answer.head.contains("request-id: req_"));
                }
                Dialect::OpenAiResponses | Dialect::OpenAiChat => {
                    assert_eq!((&error["type"], &error["param"]), (&json!("rate_limit_error"), &Value::Null));
                    assert!(answer.head.contains("x-request-id: req_"));
                }
                Dialect::Gemini => {
                    assert_eq!(
                        (&error["code"], &error["status"]),
                        (&json!(429), &json!("RESOURCE_EXHAUSTED"))
                    );
                    assert_eq!(error["details"][0]["retryDelay"], "3s");
                }
            }
        }
    }
}

#[test]
fn every_status_that_agents_tell_apart_has_its_name() {
    let names = [
        (400, "invalid_request_error", "INVALID_ARGUMENT"),
        (401, "authentication_error", "UNAUTHENTICATED"),
        (403, "permission_error", "PERMISSION_DENIED"),
        (404, "not_found_error", "NOT_FOUND"),
        (413, "request_too_large", "INTERNAL"),
        (500, "api_error", "INTERNAL"),
        (503, "api_error", "UNAVAILABLE"),
        (529, "overloaded_error", "INTERNAL"),
    ];
    for (status, kind, of_gemini) in names {
        let turn = || playing([Turn::error(status)]);
        let answer = ask(&turn(), Dialect::AnthropicMessages, true);
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (status, &json!(kind)));
        let answer = ask(&turn(), Dialect::Gemini, true);
        assert_eq!((answer.status, &answer.json()["error"]["status"]), (status, &json!(of_gemini)));
    }
}

#[test]
fn an_error_can_be_called_something_else() {
    let limit = Turn::error(429).with_kind("usage_limit_reached");
    for (dialect, name) in [
        (Dialect::AnthropicMessages, "type"),
        (Dialect::OpenAiResponses, "code"),
        (Dialect::Gemini, "status"),
    ] {
        let answer = ask(&playing([limit.clone()]), dialect, true);
        assert_eq!(answer.json()["error"][name], "usage_limit_reached");
    }
}

#[test]
fn an_error_in_the_middle_of_a_stream_is_its_last_event() {
    let turn = Turn::error(529).with_message("too much").mid_stream();
    for dialect in Dialect::ALL {
        let answer = ask(&playing([turn.clone()]), dialect, true);
        assert_eq!((answer.status, answer.whole), (200, true));
        let events = answer.events();
        assert!(events.len() > 1, "{dialect:?} is to begin with half an answer");
        let (name, last) = events.last().unwrap();
        match dialect {
            Dialect::AnthropicMessages => {
                assert_eq!((*name, &last["error"]["type"]), (Some("error"), &json!("overloaded_error")));
            }
            Dialect::OpenAiResponses => {
                assert_eq!(*name, Some("response.failed"));
                assert_eq!(
                    last["response"]["error"],
                    json!({"code": "overloaded_error", "message": "too much"})
                );
            }
            Dialect::OpenAiChat | Dialect::Gemini => assert_eq!(last["error"]["message"], "too much"),
        }
        // What comes in one piece has no middle.
        assert_eq!(ask(&playing([turn.clone()]), dialect, false).status, 529);
    }
}

#[test]
fn a_connection_that_breaks_before_the_answer_gives_nothing() {
    for dialect in Dialect::ALL {
        let server = playing([Turn::disconnect(), Turn::text("fine")]);
        assert_eq!(ask(&server, dialect, true).status, 0);
        assert_eq!(ask(&server, dialect, true).status, 200);
        assert_eq!(endings(&server.conversation(1)), [Some(Ending::Broken), Some(Ending::Answered)]);
    }
}

#[test]
fn a_connection_that_breaks_in_the_middle_gives_half() {
    for dialect in Dialect::ALL {
        for streaming in [false, true] {
            let server =
                playing([Turn::disconnect().mid_stream(), Turn::disconnect().saying("x").mid_stream()]);
            for _ in 0..2 {
                let answer = ask(&server, dialect, streaming);
                assert_eq!((answer.status, answer.whole), (200, false), "{dialect:?} {streaming}");
            }
            assert_eq!(endings(&server.conversation(1)), [Some(Ending::Broken); 2]);
        }
    }
    let answer = ask(&playing([Turn::disconnect().mid_stream()]), Dialect::AnthropicMessages, true);
    assert_eq!(answer.events()[0].0, Some("message_start"), "the first half has arrived");
}

#[test]
fn a_client_that_leaves_is_noticed() {
    for turn in [Turn::hang(), Turn::hang().mid_stream(), Turn::text("late").after(PATIENCE)] {
        for dialect in Dialect::ALL {
            let server = playing([turn.clone()]);
            let (path, body) = question(dialect, true, "hello");
            let mut client = open(&server, "POST", &path, &[], body.to_string().as_bytes());
            if turn_is_mid_stream(&turn) {
                client.read_exact(&mut [0]).unwrap();
            }
            let asked = |all: &[Exchange]| (!all.is_empty()).then(|| all[0].ending);
            assert_eq!(server.wait_until(PATIENCE, asked), Some(None), "nobody has left yet");
            drop(client);
            let left = server.wait_until(PATIENCE, |all| all[0].ending);
            assert_eq!(left, Some(Ending::ClientLeft), "{dialect:?} {turn:?}");
        }
    }
}

fn turn_is_mid_stream(turn: &Turn) -> bool {
    format!("{turn:?}").contains("mid_stream: true")
}

#[test]
fn a_server_that_hangs_for_a_time_answers_after_it() {
    const TIME: Duration = Duration::from_millis(50);
    for turn in [
        Turn::hang_for(TIME),
        Turn::hang_for(TIME).mid_stream(),
        Turn::text("late").after(TIME),
        Turn::text("slow").with_pauses(TIME / 2),
    ] {
        for dialect in Dialect::ALL {
            let begun = Instant::now();
            let answer = ask(&playing([turn.clone()]), dialect, true);
            assert!(answer.whole && begun.elapsed() >= TIME / 2, "{answer:?}");
        }
    }
}

#[test]
fn a_server_that_is_dropped_lets_its_clients_go() {
    let server = playing([Turn::hang()]);
    let (path, body) = question(Dialect::OpenAiChat, true, "hello");
    let mut client = open(&server, "POST", &path, &[], body.to_string().as_bytes());
    server.wait_until(PATIENCE, |all| (!all.is_empty()).then_some(())).unwrap();
    drop(server);
    let mut rest = Vec::new();
    // Reset or closed, but not waiting.
    let _ = client.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn what_is_no_error_has_no_message() {
    let panic = std::panic::catch_unwind(|| Turn::text("fine").with_retry_after(1)).unwrap_err();
    assert!(panic.downcast::<String>().unwrap().contains("only an error"));
}
