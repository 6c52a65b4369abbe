//! The prompt, the environment and the workspace of a child.

use std::error::Error as _;

use harness_provider_cli::PromptChannel;
use harness_subagent::{ErrorKind, Parent, StartSubagent, SubagentProvider};

use crate::support::{Bench, any_object};

fn hostile_prompt() -> String {
    "it's `x` $(touch pwned) [ ] ; \" \\ \n---\n漢字 😀 \u{1b}[31m\r\n".repeat(40_000)
}

#[tokio::test]
async fn a_prompt_of_megabytes_arrives_byte_for_byte_before_the_paragraph() {
    for channel in [PromptChannel::StandardInput, PromptChannel::File] {
        let bench = Bench::new();
        let script = match channel {
            PromptChannel::File => "cat \"$HARNESS_PROMPT_FILE\" > got; cat >> got",
            _ => "cat > got",
        };
        let prompt = hostile_prompt();
        bench.run(&bench.shell(script).with_prompt(channel), bench.request(&prompt)).await;
        let got = std::fs::read_to_string(bench.workspace().join("got")).unwrap();
        let rest = got.strip_prefix(&prompt).expect("the prompt comes first and unchanged");
        assert!(rest.starts_with("\n\n") && rest.trim_start().lines().count() == 1, "{rest:?}");
        assert!(rest.contains("HARNESS_VALUE_FILE"));
        assert!(!bench.workspace().join("pwned").exists());
    }
}

#[tokio::test]
async fn a_child_that_is_asked_for_no_value_gets_its_prompt_alone() {
    let bench = Bench::new();
    let request = StartSubagent::new("just this", bench.parent());
    let result = bench.run(&bench.shell("cat; echo; env | grep -c VALUE_FILE"), request).await;
    assert_eq!(result.output, "just this\n0\n");
}

#[tokio::test]
async fn a_child_that_reads_nothing_is_no_fault() {
    let bench = Bench::new();
    let result = bench
        .run(&bench.shell("exec <&-; echo '{}' > \"$HARNESS_VALUE_FILE\""), bench.request(&hostile_prompt()))
        .await;
    assert!(result.stop_reason.is_completed(), "{result:?}");
}

#[tokio::test]
async fn the_environment_names_the_call_and_holds_nothing_that_was_not_let_through() {
    let bench = Bench::new();
    bench
        .run(
            &bench.shell("env > got; cat \"$HARNESS_SCHEMA_FILE\" > schema; pwd > here"),
            bench.request("go"),
        )
        .await;
    let read = |name: &str| std::fs::read_to_string(bench.workspace().join(name)).unwrap();
    let environment = read("got");
    let value = |name: &str| {
        environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    assert_eq!(value("HARNESS_RUN").as_deref(), Some("run"));
    assert_eq!(value("HARNESS_CALL").as_deref(), Some("1"));
    assert_eq!(value("HARNESS_ATTEMPT").as_deref(), Some("1"));
    assert_eq!(value("HARNESS_DEPTH").as_deref(), Some("1"));
    assert!(value("HARNESS_MARK").is_some_and(|mark| mark.ends_with("run/1/1")));
    assert!(value("CARGO_MANIFEST_DIR").is_none(), "our own variables stay with us");
    assert_eq!(read("schema"), any_object().schema().to_string());
    assert_eq!(std::path::Path::new(read("here").trim_end()), bench.workspace().canonicalize().unwrap());
}

#[tokio::test]
async fn a_workspace_that_is_no_absolute_path_is_refused() {
    let bench = Bench::new();
    for workspace in ["", ".", "relative", "/no/such/place"] {
        let request = StartSubagent::new("go", Parent::new("parent", workspace));
        let error = bench.shell("true").start(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{workspace:?}");
    }
}

#[tokio::test]
async fn a_prompt_longer_than_the_program_takes_is_refused_and_leaves_no_files() {
    let bench = Bench::new();
    let provider = bench.shell("cat").with_max_prompt_bytes(10);
    let request = |prompt: &str| StartSubagent::new(prompt, bench.parent());
    let error = provider.start(request("12345678901")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("11 bytes") && why.contains("10 at most"), "{why}");
    assert!(error.source().is_some());
    assert!(crate::support::files_below(&bench.files()).is_empty());
    assert_eq!(bench.run(&provider, request("1234567890")).await.output, "1234567890");
}

#[tokio::test]
async fn a_parent_at_the_greatest_depth_has_no_child() {
    let bench = Bench::new();
    let parent = bench.parent().with_depth(u32::MAX);
    let error = bench.shell("true").start(StartSubagent::new("go", parent)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
}

#[tokio::test]
async fn a_transcript_holds_the_beginning_up_to_its_cap() {
    let bench = Bench::new();
    let provider = bench.shell("printf 0123456789").with_transcript_cap(5);
    bench.run(&provider, bench.request("go")).await;
    let transcript = std::fs::read_to_string(bench.files().join("run/1-1/transcript.log")).unwrap();
    assert_eq!(transcript, "01234");
}

#[tokio::test]
async fn what_it_says_is_told_without_what_a_terminal_would_obey() {
    let bench = Bench::new();
    let request = StartSubagent::new("go", bench.parent());
    let result = bench.run(&bench.shell("printf '\\033[31mred\\007\\ttab\\r\\n'"), request).await;
    assert_eq!(result.output, "␛[31mred␇\ttab\n");
}
