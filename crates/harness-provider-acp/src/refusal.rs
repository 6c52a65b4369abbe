//! How an agent's own error is judged: by its code and its structured data, never by its words.

use agent_client_protocol_schema::v1::{Error, ErrorCode};
use harness_subagent::StopReason;
use serde_json::Value;

/// Judges the error with which an agent answered.
///
/// The protocol has one code for everything that goes wrong at the model's vendor. The agents that tell more do so in
/// the error's data, each in its own words: `errorKind` is claude-agent-acp's, `codex_error_info` is codex-acp's. Both
/// say of a vendor that is overloaded no more than that something was wrong there, but in words.
pub(crate) fn reason(error: &Error) -> StopReason {
    if error.code == ErrorCode::AuthRequired {
        return StopReason::AUTHENTICATION;
    }
    let data = error.data.as_ref();
    let named = |key: &str| data.and_then(|data| data.get(key));
    let kind = named("errorKind").or_else(|| named("codex_error_info"));
    let status = kind.and_then(http_status).or_else(|| vendor_status(error));
    kind.and_then(name).and_then(by_name).or_else(|| status.map(by_status)).unwrap_or(StopReason::ERROR)
}

/// The HTTP status of the model's vendor, where the error has one.
pub(crate) fn vendor_status(error: &Error) -> Option<u16> {
    let told = error.data.as_ref().and_then(|data| data.get("codex_error_info")).and_then(http_status);
    told.or_else(|| u16::try_from(i32::from(error.code)).ok().filter(|code| (400..600).contains(code)))
}

/// A name, or an object with one key that is the name.
fn name(kind: &Value) -> Option<&str> {
    match kind {
        Value::String(name) => Some(name),
        Value::Object(entries) if entries.len() == 1 => entries.keys().next().map(String::as_str),
        _ => None,
    }
}

fn http_status(kind: &Value) -> Option<u16> {
    let Value::Object(entries) = kind else { return None };
    let status = entries.values().find_map(|details| details.get("http_status_code"))?;
    status.as_u64().and_then(|status| status.try_into().ok())
}

fn by_name(name: &str) -> Option<StopReason> {
    Some(match name {
        "rate_limit" | "usage_limit_exceeded" => StopReason::RATE_LIMITED,
        "overloaded" | "server_overloaded" => StopReason::OVERLOADED,
        "authentication_failed" | "oauth_org_not_allowed" | "unauthorized" => StopReason::AUTHENTICATION,
        "max_output_tokens" | "context_window_exceeded" => StopReason::MAX_TOKENS,
        "billing_error"
        | "invalid_request"
        | "model_not_found"
        | "server_error"
        | "bad_request"
        | "internal_server_error" => StopReason::API_ERROR,
        "cyber_policy" => StopReason::REFUSAL,
        _ => return None,
    })
}

fn by_status(status: u16) -> StopReason {
    match status {
        401 | 403 => StopReason::AUTHENTICATION,
        429 => StopReason::RATE_LIMITED,
        503 | 529 => StopReason::OVERLOADED,
        _ => StopReason::API_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(data: Value, expected: StopReason) {
        assert_eq!(reason(&Error::internal_error().data(data.clone())), expected, "{data}");
    }

    #[test]
    fn words_decide_nothing() {
        assert_eq!(
            reason(&Error::new(-32603, "429 rate limit exceeded, please run /login")),
            StopReason::ERROR
        );
        check(json!({ "message": "rate_limit" }), StopReason::ERROR);
        check(json!("rate_limit"), StopReason::ERROR);
    }

    #[test]
    fn an_error_of_the_vendor_is_told_apart_where_the_agent_does() {
        check(json!({ "errorKind": "rate_limit" }), StopReason::RATE_LIMITED);
        check(json!({ "errorKind": "overloaded" }), StopReason::OVERLOADED);
        check(json!({ "errorKind": "invalid_request" }), StopReason::API_ERROR);
        check(json!({ "errorKind": "unknown" }), StopReason::ERROR);
        // As the agents tell an HTTP status of 529.
        check(json!({ "errorKind": "server_error" }), StopReason::API_ERROR);
        check(
            json!({ "codex_error_info": "other", "message": "unexpected status 529: overloaded" }),
            StopReason::ERROR,
        );
        check(json!({ "codex_error_info": "unauthorized" }), StopReason::AUTHENTICATION);
        let failed = |status| json!({ "codex_error_info": { "http_connection_failed": { "http_status_code": status } } });
        check(failed(json!(429)), StopReason::RATE_LIMITED);
        check(failed(json!(529)), StopReason::OVERLOADED);
        check(failed(json!(400)), StopReason::API_ERROR);
        check(failed(Value::Null), StopReason::ERROR);
    }

    #[test]
    fn a_code_that_is_an_http_status_is_taken_for_one() {
        assert_eq!(reason(&Error::new(429, "slow down")), StopReason::RATE_LIMITED);
        assert_eq!(reason(&Error::new(400, "no")), StopReason::API_ERROR);
        assert_eq!(vendor_status(&Error::new(503, "busy")), Some(503));
        assert_eq!(reason(&Error::new(7, "no")), StopReason::ERROR);
    }

    #[test]
    fn the_code_for_missing_credentials_is_enough() {
        assert_eq!(reason(&Error::auth_required()), StopReason::AUTHENTICATION);
    }
}
