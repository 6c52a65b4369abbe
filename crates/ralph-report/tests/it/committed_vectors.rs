//! The committed test vectors, and the rules by which they are run.

use std::io::{BufRead, BufReader};

use flate2::bufread::GzDecoder;

use crate::vectors::{Count, KINDS, Tally};

const FILES: [&[u8]; 3] = [
    include_bytes!("../vectors/objective-trim.jsonl.gz"),
    include_bytes!("../vectors/report-consumer.jsonl.gz"),
    include_bytes!("../vectors/report-workflow.jsonl.gz"),
];

#[test]
fn every_committed_vector_passes_or_is_skipped_by_the_rule() {
    let mut tally = Tally::default();
    for file in FILES {
        for line in BufReader::new(GzDecoder::new(file)).lines() {
            tally.run(&line.unwrap());
        }
    }
    assert!(tally.failures.is_empty(), "{:#?}", &tally.failures[..tally.failures.len().min(10)]);
    let count = |passed, skipped| Count { passed, failed: 0, skipped };
    let counts: Vec<_> = tally.kinds.into_iter().collect();
    assert_eq!(counts, [(KINDS[0], count(267, 3)), (KINDS[1], count(3225, 0)), (KINDS[2], count(2756, 0))]);
}

/// Runs one line and returns what it was counted as, if it was.
#[track_caller]
fn check(line: &str, expected: Option<Count>) {
    let mut tally = Tally::default();
    tally.run(line);
    assert_eq!(tally.kinds.into_values().next(), expected);
}

const PASSED: Option<Count> = Some(Count { passed: 1, failed: 0, skipped: 0 });
const FAILED: Option<Count> = Some(Count { passed: 0, failed: 1, skipped: 0 });
const SKIPPED: Option<Count> = Some(Count { passed: 0, failed: 0, skipped: 1 });

#[test]
fn a_vector_is_skipped_only_if_it_cannot_be_represented_and_nothing_replaces_its_expectation() {
    let head = r#""id":"x","kind":"objective-trim""#;
    let input = r#""inputJson":"{\"objective\":\"\\ud800\"}","expectJson":"{\"verdict\":\"accept\"}""#;
    check(&format!(r#"{{{head},"rustUnrepresentable":true,{input}}}"#), SKIPPED);

    let report = r#""id":"x","kind":"report-workflow""#;
    let input = r#""inputJson":"{\"value\":\"\\ud800\",\"maxHandoffChars\":99}","expectJson":"{}""#;
    let ours = r#""ours":{"verdict":"reject","category":"unparsable"}"#;
    check(&format!(r#"{{{report},"rustUnrepresentable":true,{input},{ours}}}"#), PASSED);

    let plain = r#""input":{"objective":" x "},"expect":{"verdict":"accept","objective":"x","length":1}"#;
    check(&format!("{{{head},{plain}}}"), PASSED);
}

#[test]
fn a_kind_without_a_runner_is_not_counted() {
    check(r#"{"id":"x","kind":"render","input":{},"expect":{}}"#, None);
}

#[test]
fn a_wrong_expectation_fails_whichever_field_it_is_in() {
    let wrong = |kind: &str, input: &str, expect: &str| {
        let line =
            |expect: &str| format!(r#"{{"id":"x","kind":"{kind}","input":{{{input}}},"expect":{expect}}}"#);
        check(&line(expect), FAILED);
    };
    let objective = r#""objective":" x ""#;
    wrong("objective-trim", objective, r#"{"verdict":"reject","category":"objective-empty"}"#);
    wrong("objective-trim", objective, r#"{"verdict":"accept","objective":" x "}"#);
    wrong("objective-trim", objective, r#"{"verdict":"accept","length":3}"#);

    let report = r#""value":{"status":"continue","summary":"s","evidence":[],"nextSteps":[],"blocker":""}"#;
    let workflow = format!(r#"{report},"maxHandoffChars":99"#);
    wrong("report-workflow", &workflow, r#"{"verdict":"accept"}"#);
    wrong("report-workflow", &workflow, r#"{"verdict":"reject","category":"status-invalid"}"#);
    wrong("report-workflow", &workflow, r#"{"verdict":"reject","field":"blocker"}"#);
    wrong("report-workflow", &workflow, r#"{"verdict":"reject","schemaValid":false}"#);

    let consumer = format!(r#"{workflow},"expectedStatus":"complete""#);
    wrong("report-consumer", &consumer, r#"{"verdict":"accept"}"#);
    wrong("report-consumer", &consumer, r#"{"verdict":"reject","field":"nextSteps"}"#);
    wrong("report-consumer", &consumer, r#"{"verdict":"reject","category":"handoff-oversized"}"#);
}

#[test]
fn a_replaced_expectation_alone_is_judged() {
    let vector = |ours: &str| {
        format!(
            r#"{{"id":"x","kind":"objective-trim","input":{{"objective":" x "}},"expect":{{"length":7}}{ours}}}"#
        )
    };
    check(&vector(""), FAILED);
    check(&vector(r#","ours":{"verdict":"accept"}"#), PASSED);
}
