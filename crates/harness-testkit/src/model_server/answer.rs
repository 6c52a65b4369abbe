//! From a request to its response.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::exchange::{Ending, Exchange, Purpose};
use super::framing::Framing;
use super::played::{Broken, Played, Receipt, Step};
use super::question::{Dialect, Question};
use super::reply::{CREATED, Reply, error_body, error_event};
use super::server::Shared;
use super::turn::{Act, Refusal, Turn};

/// The largest request body. The largest prompt that an agent is known to take is 10 MB.
const BODY_LIMIT: usize = 32 << 20;
/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How long a connection is kept for what was given to go out, before the script breaks it.
const FLUSH_TIME: Duration = Duration::from_millis(5);

/// Reads a request, notes it and does what the script has for it.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Played>, Broken> {
    let (head, body) = request.into_parts();
    let path = without_key(&head.uri.to_string());
    let body = match tokio::time::timeout(BODY_TIME, Limited::new(body, BODY_LIMIT).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long".to_owned()),
    };
    let bytes = body.as_ref().map_or(0, Bytes::len);
    let body = body.and_then(|body| read_json(&head.headers, &body));
    let headers = readable(&head.headers);
    let (purpose, problem) = match &body {
        Ok(body) => (purpose(&head.method, &path, &headers, body), None),
        Err(why) => (Purpose::Unknown, Some(format!("unreadable body: {why}"))),
    };
    let exchange = Exchange {
        number: 0,
        method: head.method.to_string(),
        path,
        headers,
        body: body.unwrap_or_default(),
        purpose,
        place: None,
        ending: None,
    };
    let asked = exchange.clone();
    let Some((number, turn)) = shared.begin(exchange, bytes) else {
        let receipt = Receipt::of_nothing(shared);
        return Ok(say_no(StatusCode::BAD_REQUEST, "the server keeps no more exchanges", receipt));
    };
    let mut receipt = Receipt::new(Arc::clone(&shared), number);
    match (&asked.purpose, turn) {
        (Purpose::Question(question), Some(turn)) => {
            let reply = Reply::new(number, question, &asked.body, &turn, &shared.script.capture_tools);
            play(&reply, &asked.path, &turn, receipt).await
        }
        (Purpose::TokenCount, _) => {
            // About four bytes are a token in English.
            let tokens = (bytes / 4).max(1);
            let gemini = asked.path.contains(":countTokens");
            let body = if gemini { json!({"totalTokens": tokens}) } else { json!({"input_tokens": tokens}) };
            Ok(give_json(StatusCode::OK, &body, receipt))
        }
        (Purpose::ModelList, _) => {
            Ok(give_json(StatusCode::OK, &model_list(&asked.path, &shared.script.models), receipt))
        }
        (Purpose::Health, _) => {
            if asked.method == "HEAD" {
                // Nobody will ask for the body.
                receipt.end(Ending::Answered);
            }
            Ok(give_json(StatusCode::OK, &json!({"ok": true}), receipt))
        }
        (Purpose::Question(_) | Purpose::Unknown, _) => match problem {
            Some(why) => Ok(say_no(StatusCode::UNSUPPORTED_MEDIA_TYPE, &why, receipt)),
            None => Ok(say_no(StatusCode::NOT_FOUND, "the model server has no such path", receipt)),
        },
    }
}

/// Plays one turn.
async fn play(
    reply: &Reply<'_>,
    path: &str,
    turn: &Turn,
    mut receipt: Receipt,
) -> Result<Response<Played>, Broken> {
    tokio::time::sleep(turn.delay).await;
    let question = reply.question;
    match &turn.act {
        Act::Refuse(refusal) if !(turn.mid_stream && question.streaming) => {
            return Ok(refuse(reply, refusal, receipt));
        }
        Act::Disconnect if !turn.mid_stream => {
            receipt.end(Ending::Broken);
            return Err(Broken);
        }
        Act::Hang { limit } if !turn.mid_stream => match limit {
            Some(limit) => tokio::time::sleep(*limit).await,
            // The connection drops this when the client leaves.
            None => std::future::pending().await,
        },
        _ => {}
    }
    let framing = Framing::of(question, path);
    let mut chunks = framing.chunks(reply);
    let length =
        matches!(framing, Framing::Whole).then(|| chunks.iter().map(|chunk| chunk.len() as u64).sum());
    let middle = if turn.mid_stream { chunks.len() / 2 } else { chunks.len() };
    let rest = chunks.split_off(middle);
    let mut steps = give(chunks, turn.pause);
    match &turn.act {
        Act::Refuse(refusal) => {
            let error = error_event(question.dialect, refusal, &reply.id("resp", 0));
            steps.extend(give(framing.last(&error, middle), turn.pause));
        }
        Act::Disconnect => steps.extend([Step::Wait(FLUSH_TIME), Step::Break]),
        Act::Hang { limit: None } => steps.push(Step::Hang),
        Act::Hang { limit: Some(limit) } => {
            steps.push(Step::Wait(*limit));
            steps.extend(give(rest, turn.pause));
        }
        Act::Call { .. } | Act::HandIn { .. } => steps.extend(give(rest, turn.pause)),
    }
    let mut response = Response::new(Played::new(steps, length, receipt));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type()));
    name_request(response.headers_mut(), reply);
    Ok(response)
}

fn give(chunks: Vec<String>, pause: Duration) -> Vec<Step> {
    let mut steps = Vec::new();
    for chunk in chunks {
        steps.push(Step::Give(chunk.into()));
        if !pause.is_zero() {
            steps.push(Step::Wait(pause));
        }
    }
    steps
}

fn purpose(method: &Method, path: &str, headers: &[(String, String)], body: &Value) -> Purpose {
    let place = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    if *method == Method::GET || *method == Method::HEAD {
        return match place {
            "" | "/health" => Purpose::Health,
            _ if place.ends_with("/models") => Purpose::ModelList,
            _ => Purpose::Unknown,
        };
    }
    if place.ends_with("/messages/count_tokens") || place.ends_with(":countTokens") {
        return Purpose::TokenCount;
    }
    let gemini = place.ends_with(":generateContent") || place.ends_with(":streamGenerateContent");
    let dialect = match place {
        _ if *method != Method::POST => return Purpose::Unknown,
        _ if place.ends_with("/messages") => Dialect::AnthropicMessages,
        _ if place.ends_with("/responses") => Dialect::OpenAiResponses,
        _ if place.ends_with("/chat/completions") => Dialect::OpenAiChat,
        _ if gemini => Dialect::Gemini,
        _ => return Purpose::Unknown,
    };
    Purpose::Question(Box::new(Question::read(dialect, path, headers, body)))
}

fn read_json(headers: &HeaderMap, body: &Bytes) -> Result<Value, String> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(format!("it is encoded as {encoding:?}"));
    }
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// The headers whose values are left out.
const SECRET: &[&str] =
    &["api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"];

fn readable(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &HeaderName, value: &HeaderValue| {
        let secret = SECRET.contains(&name.as_str());
        if secret { "(left out)".to_owned() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() }
    };
    headers.iter().map(|(name, text)| (name.as_str().to_owned(), value(name, text))).collect()
}

/// Gemini's key may stand in the query.
fn without_key(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

fn model_list(path: &str, models: &[String]) -> Value {
    let default = ["fake-model".to_owned()];
    let models = if models.is_empty() { &default } else { models };
    if path.contains("v1beta") {
        let model = |name: &String| json!({"name": format!("models/{name}"), "displayName": name});
        return json!({"models": models.iter().map(model).collect::<Vec<_>>()});
    }
    let model = |name: &String| {
        json!({
            "id": name, "type": "model", "object": "model", "created": CREATED, "owned_by": "nobody",
            "display_name": name, "created_at": "2023-11-14T22:13:20Z",
        })
    };
    let models: Vec<Value> = models.iter().map(model).collect();
    json!({"object": "list", "data": models, "has_more": false})
}

fn refuse(reply: &Reply<'_>, refusal: &Refusal, receipt: Receipt) -> Response<Played> {
    let Refusal { status, retry_after, headers, .. } = refusal;
    let body = error_body(reply.question.dialect, refusal, &reply.id("req", 0));
    let mut response = give_json(*status, &body, receipt);
    let target = response.headers_mut();
    name_request(target, reply);
    if let Some(seconds) = retry_after {
        target.insert(RETRY_AFTER, HeaderValue::from(*seconds));
    }
    for (name, value) in headers {
        target.insert(name.clone(), value.clone());
    }
    response
}

/// Each provider has its own name for the id of a request.
fn name_request(headers: &mut HeaderMap, reply: &Reply<'_>) {
    let name = match reply.question.dialect {
        Dialect::AnthropicMessages => "request-id",
        Dialect::OpenAiResponses | Dialect::OpenAiChat => "x-request-id",
        Dialect::Gemini => return,
    };
    let id = HeaderValue::try_from(reply.id("req", 0)).expect("an id is letters and digits");
    headers.insert(HeaderName::from_static(name), id);
}

fn say_no(status: StatusCode, why: &str, receipt: Receipt) -> Response<Played> {
    let kind = "invalid_request_error";
    give_json(status, &json!({"type": "error", "error": {"type": kind, "message": why}}), receipt)
}

fn give_json(status: StatusCode, body: &Value, receipt: Receipt) -> Response<Played> {
    let mut response = Response::new(Played::whole(body.to_string(), receipt));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
