//! The two ways to hand in a value, and that nobody else's is ever taken.

use harness_provider_cli::HandIn;
use harness_subagent::{ErrorKind, Origin, StopReason, SubagentProvider};
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn the_whole_of_standard_output_must_be_one_document() {
    for (script, reason) in [
        ("echo '{\"a\":1}'", StopReason::COMPLETED),
        ("echo; echo '{\"a\":1}'; echo", StopReason::COMPLETED),
        ("echo done; echo '{\"a\":1}'", StopReason::UNREADABLE_VALUE),
        ("echo '{\"a\":1}'; echo '{\"a\":2}'", StopReason::UNREADABLE_VALUE),
        ("echo '{\"a\":1'", StopReason::UNREADABLE_VALUE),
        ("head -c 2000000 /dev/zero", StopReason::UNREADABLE_VALUE),
        ("echo '{\"a\":1}' >&2", StopReason::NO_VALUE),
        ("echo", StopReason::NO_VALUE),
        ("echo '{\"a\":1}'; sleep 600", StopReason::COMPLETED),
    ] {
        let bench = Bench::new();
        let provider = bench.shell(script).with_hand_in(HandIn::StandardOutput);
        let result = bench.run(&provider, bench.request("go")).await;
        assert_eq!(result.stop_reason, reason, "{script}: {result:?}");
        if reason.is_completed() {
            assert_eq!(result.structured, Some(json!({ "a": 1 })), "{script}");
        }
    }
}

#[tokio::test]
async fn a_value_of_an_earlier_call_is_never_taken() {
    let bench = Bench::new();
    let first = bench.shell("printf '{\"call\":1}' > \"$HARNESS_VALUE_FILE\"");
    let result = bench.run(&first, bench.request("go")).await;
    assert_eq!(result.structured, Some(json!({ "call": 1 })));

    // It writes into every directory of a call, under every name of a value that it finds.
    let second = bench.shell(
        "for f in \"$(dirname \"$HARNESS_VALUE_FILE\")\"/../*/value-*.json; do printf '{}' > \"$f\"; done",
    );
    let request = bench.request("go").with_origin(Origin::new("run", 2, 1));
    let result = bench.run(&second, request).await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
}

#[tokio::test]
async fn an_attempt_that_was_made_before_is_refused_and_its_files_are_kept() {
    let bench = Bench::new();
    let provider = bench.shell("echo first");
    bench.run(&provider, bench.request("go")).await;
    let before = crate::support::files_below(&bench.files());
    let error = provider.start(bench.request("go")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert_eq!(crate::support::files_below(&bench.files()), before);
    let transcript = std::fs::read_to_string(bench.files().join("run/1-1/transcript.log")).unwrap();
    assert_eq!(transcript, "first\n");
}

#[tokio::test]
async fn a_value_survives_whatever_is_said_around_it() {
    let bench = Bench::new();
    let provider = bench
        .shell("head -c 3000000 /dev/urandom; printf '{\"text\":\"漢字 😀\"}' > \"$HARNESS_VALUE_FILE\"");
    let result = bench.run(&provider, bench.request("go")).await;
    assert_eq!(result.structured, Some(json!({ "text": "漢字 😀" })));
    assert!(result.output.len() < 1_000_000, "what is kept of the output is bounded");
}
