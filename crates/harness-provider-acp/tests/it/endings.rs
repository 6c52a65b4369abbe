//! Each end of an agent has its stop reason.

use std::time::Duration;

use harness_process::Limits;
use harness_provider_acp::AcpProvider;
use harness_subagent::{ErrorKind, StopReason, SubagentProvider, Usage};
use serde_json::{Value, json};

use crate::support::{Bench, detail};

#[tokio::test]
async fn an_agent_that_exits_before_it_answers_has_failed() {
    for (script, status) in
        [("exits at once", "3"), ("exits at once and well", "0"), ("exits in the middle", "7")]
    {
        let result = Bench::new().play(script).await;
        assert_eq!(result.stop_reason, StopReason::ERROR, "{script}");
        assert_eq!(detail(&result, "exit-status"), status, "{script}");
        assert!(detail(&result, "transcript").ends_with("/transcript.log"));
    }
}

#[tokio::test]
async fn an_agent_that_falls_over_has_crashed() {
    let result = Bench::new().play("falls over").await;
    assert_eq!(result.stop_reason, StopReason::CRASHED);
    assert_eq!(detail(&result, "signal"), "6");
}

#[tokio::test]
async fn an_agent_that_closes_its_output_ends_at_a_limit() {
    let bench = Bench::new();
    let limits = Limits::default().with_idle(Duration::from_secs(1));
    let provider = bench.provider("closes its output").with_limits(limits);
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::TIMED_OUT, "{result:?}");
    assert_eq!(detail(&result, "limit"), "idle");
}

#[tokio::test]
async fn an_agent_that_does_not_keep_to_the_protocol_cannot_be_used() {
    for (script, word) in [
        ("speaks version 2", "version 2"),
        ("greets with nonsense", "initialize"),
        ("opens a session without an id", "session/new"),
        ("answers with nonsense", "session/prompt"),
    ] {
        let result = Bench::new().play(script).await;
        assert_eq!(result.stop_reason, StopReason::ERROR, "{script}");
        let message = result.diagnostic.unwrap().message().to_owned();
        assert!(message.contains(word), "{script}: {message}");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_ready_in_time_has_timed_out() {
    let bench = Bench::new();
    let provider = bench.provider("says nothing").with_handshake_limit(Duration::from_millis(300));
    let result = bench.run(&provider, bench.request("do it")).await;
    assert_eq!(result.stop_reason, StopReason::TIMED_OUT);
    assert_eq!(detail(&result, "limit"), "handshake");
}

#[tokio::test]
async fn a_prompt_that_never_settles_ends_at_a_limit() {
    let limits = Limits::default();
    let short = Duration::from_secs(3);
    for (limits, name) in [(limits.with_deadline(short), "deadline"), (limits.with_idle(short), "idle")] {
        let bench = Bench::new();
        let provider = bench.provider("does not know its cancellation").with_limits(limits);
        let result = bench.run(&provider, bench.request("do it")).await;
        assert_eq!(result.stop_reason, StopReason::TIMED_OUT, "{result:?}");
        assert_eq!(detail(&result, "limit"), name);
    }
}

#[tokio::test]
async fn each_stop_reason_of_the_protocol_has_one_here() {
    for (word, expected) in [
        ("end_turn", StopReason::COMPLETED),
        ("max_tokens", StopReason::MAX_TOKENS),
        ("max_turn_requests", StopReason::TURN_LIMIT),
        ("refusal", StopReason::REFUSAL),
        ("cancelled", StopReason::ERROR),
        ("from_the_future", StopReason::ERROR),
    ] {
        let bench = Bench::new();
        let result = bench.run(&bench.provider("stops"), bench.plain_request(word)).await;
        assert_eq!(result.stop_reason, expected, "{word}");
    }
}

#[tokio::test]
async fn an_error_of_the_agent_is_judged_by_its_structure() {
    let failed = json!({ "response_too_many_failed_attempts": { "http_status_code": 429 } });
    for (data, expected) in [
        (Value::Null, StopReason::ERROR),
        (json!({ "message": "429 rate_limit" }), StopReason::ERROR),
        (json!({ "errorKind": "rate_limit" }), StopReason::RATE_LIMITED),
        (json!({ "errorKind": "authentication_failed" }), StopReason::AUTHENTICATION),
        (json!({ "codex_error_info": failed }), StopReason::RATE_LIMITED),
    ] {
        let bench = Bench::new();
        let provider = bench.provider("is refused by its vendor");
        let result = bench.run(&provider, bench.request(&format!("{data}\n"))).await;
        assert_eq!(result.stop_reason, expected, "{data}");
        assert_eq!(detail(&result, "error-code"), "-32603");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_logged_in_says_so() {
    let result = Bench::new().play("wants to be logged in").await;
    assert_eq!(result.stop_reason, StopReason::AUTHENTICATION);
}

#[tokio::test]
async fn only_the_first_answer_to_a_prompt_counts() {
    let result = Bench::new().play("answers twice").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
}

#[tokio::test]
async fn what_a_child_used_is_told_with_its_cost_and_without() {
    let tokens = Bench::new().play("tells its tokens").await;
    assert_eq!(tokens.usage, Some(Usage::new(300, 60).with_cached_input_tokens(10)));
    let both = Bench::new().play("tells its tokens and its cost").await;
    assert_eq!(both.usage, Some(Usage::new(290, 60).with_cost_usd_micros(2500)));
    assert_eq!(Bench::new().play("hands in").await.usage, None);
}

#[tokio::test]
async fn an_agent_that_stays_when_it_is_done_is_ended() {
    let result = Bench::new().play("stays when it is done").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
}

#[tokio::test]
async fn what_an_agent_leaves_behind_is_ended() {
    let result = Bench::new().play("leaves orphans").await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_refused_and_leaves_no_files() {
    let bench = Bench::new();
    let provider = AcpProvider::new("acp", "/no/such/agent", bench.files());
    let error = provider.start(bench.plain_request("do it")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert_eq!(std::fs::read_dir(bench.files().join("run")).unwrap().count(), 0);
}
