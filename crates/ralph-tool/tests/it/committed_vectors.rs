//! The committed test vectors, and the rules by which they are run.

use std::io::{BufRead, BufReader};

use flate2::bufread::GzDecoder;

use crate::vectors::{Count, KINDS, Tally};

const FILES: [&[u8]; 5] = [
    include_bytes!("../vectors/config.jsonl.gz"),
    include_bytes!("../vectors/loop.jsonl.gz"),
    include_bytes!("../vectors/max-rounds.jsonl.gz"),
    include_bytes!("../vectors/render.jsonl.gz"),
    include_bytes!("../vectors/terminal.jsonl.gz"),
];

#[test]
fn every_committed_vector_passes_or_is_skipped_by_the_rule() {
    let mut tally = Tally::default();
    tally.most_interrupted = 20;
    for file in FILES {
        for line in BufReader::new(GzDecoder::new(file)).lines() {
            tally.run(&line.unwrap());
        }
    }
    assert!(tally.failures.is_empty(), "{:#?}", &tally.failures[..tally.failures.len().min(10)]);
    let count = |passed, skipped| Count { passed, failed: 0, skipped };
    let counts: Vec<_> = tally.kinds.iter().map(|(kind, count)| (*kind, *count)).collect();
    let [config, a_loop, max_rounds, render, terminal] = KINDS;
    assert_eq!(
        counts,
        [
            (config, count(317, 1)),
            (a_loop, count(575, 14)),
            (max_rounds, count(127, 0)),
            (render, count(493, 56)),
            (terminal, count(523, 17)),
        ]
    );
    assert_eq!((tally.embedded, tally.journaled), (309, 226));
}

/// Runs one line and returns what it was counted as, if it was.
#[track_caller]
fn check(line: &str, expected: Option<Count>) {
    let mut tally = Tally::default();
    tally.run(line);
    assert_eq!(tally.kinds.into_values().next(), expected, "{:?}", tally.failures);
}

const PASSED: Option<Count> = Some(Count { passed: 1, failed: 0, skipped: 0 });
const FAILED: Option<Count> = Some(Count { passed: 0, failed: 1, skipped: 0 });
const SKIPPED: Option<Count> = Some(Count { passed: 0, failed: 0, skipped: 1 });

fn line(kind: &str, input: &str, expect: &str) -> String {
    format!(r#"{{"id":"x","kind":"{kind}","input":{{{input}}},"expect":{{{expect}}}}}"#)
}

#[test]
fn a_vector_is_skipped_only_if_it_cannot_be_represented() {
    let unrepresentable =
        r#""rustUnrepresentable":true,"inputJson":"{\"config\":{\"subagentProvider\":\"\\ud800\"}}""#;
    check(&format!(r#"{{"id":"x","kind":"config",{unrepresentable},"expectJson":"{{}}"}}"#), SKIPPED);
    check(&line("config", r#""config":{"maxRounds":0}"#, r#""category":"max-rounds-invalid""#), PASSED);
}

#[test]
fn a_kind_without_a_runner_is_not_counted() {
    check(&line("report-workflow", "", ""), None);
}

#[test]
fn a_replaced_expectation_alone_is_judged() {
    let plain = r#""id":"x","kind":"max-rounds","input":{"ceiling":3},"expect":{"resolved":4}"#;
    check(&format!("{{{plain}}}"), FAILED);
    check(&format!(r#"{{{plain},"ours":{{"verdict":"accept"}}}}"#), PASSED);
}

#[test]
fn a_wrong_expectation_fails_whichever_kind_and_field_it_is_in() {
    let wrong = |kind: &str, input: &str, expect: &str| check(&line(kind, input, expect), FAILED);

    wrong("config", r#""config":{}"#, r#""verdict":"reject""#);
    wrong("config", r#""configJson":"{""#, r#""verdict":"accept""#);
    wrong("config", r#""config":{"maxRounds":"1"}"#, r#""category":"max-handoff-chars-invalid""#);
    wrong("max-rounds", r#""requested":2,"ceiling":1"#, r#""category":"max-rounds-invalid""#);
    wrong("max-rounds", r#""requested":1,"ceiling":1"#, r#""resolved":2"#);

    let report = r#"{"status":"complete","summary":"s","evidence":["e"],"nextSteps":[],"blocker":""}"#;
    let ended = format!(r#"{{"status":"complete","roundsStarted":1,"report":{report}}}"#);
    let terminal = format!(r#""value":{ended},"maxRounds":2,"maxHandoffChars":99"#);
    wrong("terminal", &terminal, r#""verdict":"reject""#);
    wrong("terminal", &terminal, r#""roundsStarted":2"#);
    wrong("terminal", &terminal, r#""report":{}"#);

    let fields = r#""overheadLength":62,"jsonLength":109,"endsWithMarker":false"#;
    let render = format!(r#""result":{ended},"maxResultChars":500"#);
    let whole = r#""length":171,"untruncatedLength":171,"truncated":false"#;
    check(&line("render", &render, &format!("{whole},{fields}")), PASSED);
    wrong("render", &render, &format!(r#"{whole},{fields},"json":"{{}}""#));
    wrong("render", &render, &format!(r#""length":170,"untruncatedLength":171,"truncated":false,{fields}"#));
    wrong("render", &render, &format!(r#""length":171,"untruncatedLength":170,"truncated":false,{fields}"#));
}

#[test]
fn a_wrong_expectation_of_a_loop_fails_in_each_field() {
    let report = r#"{"status":"complete","summary":"s","evidence":["e"],"nextSteps":[],"blocker":""}"#;
    let input = format!(
        r#""config":{{}},"arguments":{{"objective":"o","maxRounds":2}},"children":[{{"kind":"value","value":{report}}}]"#
    );
    let start = r#""start":{"subagentProvider":"spawn","maxTotalAgents":2,"maxRounds":2,"maxHandoffChars":16384,"objectiveLength":1}"#;
    let calls = r#""phaseCalls":1,"agentCalls":1,"calls":[{"label":"Ralph round 1","phase":"Fresh-agent rounds","hasPrior":false,"priorSerializedLength":0,"roundNumber":1,"maxRounds":2}]"#;
    let end = format!(
        r#""terminal":{{"status":"complete","roundsStarted":1,"hasReport":true}},"execute":{{"outcome":"resolves","agentsStarted":1,"status":"complete","roundsStarted":1,"report":{report}}},"disposeCalls":1,"cancelCalls":0"#
    );
    let right = format!("{start},{calls},{end}");
    check(&line("loop", &input, &right), PASSED);
    for (was, becomes) in [
        (r#""maxTotalAgents":2"#, r#""maxTotalAgents":1"#),
        (r#""objectiveLength":1"#, r#""objectiveLength":2"#),
        (r#""phaseCalls":1"#, r#""phaseCalls":0"#),
        (r#""agentCalls":1"#, r#""agentCalls":2"#),
        ("Ralph round 1", "Ralph round 2"),
        ("Fresh-agent rounds", "Rounds"),
        (r#""hasPrior":false"#, r#""hasPrior":true"#),
        (r#""roundNumber":1"#, r#""roundNumber":2"#),
        (r#""hasReport":true"#, r#""hasReport":false"#),
        (r#""outcome":"resolves""#, r#""outcome":"throws""#),
        (r#""evidence":["e"]"#, r#""evidence":["f"]"#),
        (r#""disposeCalls":1"#, r#""disposeCalls":0"#),
        (r#""cancelCalls":0"#, r#""cancelCalls":1"#),
    ] {
        let wrong = right.replace(was, becomes);
        assert_ne!(wrong, right, "{was}");
        check(&line("loop", &input, &wrong), FAILED);
    }
}
