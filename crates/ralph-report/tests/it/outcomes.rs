//! What comes out: reports, in each of their forms, and violations in their order.

use std::collections::HashSet;

use ralph_report::{
    Field, InvalidReport, Limits, Measure, Outcome, RoundReport, RoundReportRef, Status, Violation,
    ViolationKind,
};
use serde_json::{Value, json};

#[test]
fn auto_traits_are_part_of_the_api() {
    fn check<T: Send + Sync + Unpin + std::panic::UnwindSafe + 'static>() {}
    check::<Field>();
    check::<InvalidReport>();
    check::<Limits>();
    check::<Measure>();
    check::<Outcome<'static>>();
    check::<RoundReport>();
    check::<RoundReportRef<'static>>();
    check::<Status>();
    check::<Violation>();
    check::<ViolationKind>();
}

/// Checks that `report` breaks exactly these rules, each at its pointer, as text and as value.
#[track_caller]
fn check(report: &Value, expected: &[(ViolationKind, &str)]) -> InvalidReport {
    let limits = Limits::default();
    let refusal = RoundReport::from_value(report, &limits).unwrap_err();
    let found: Vec<_> = refusal.violations().iter().map(|found| (found.kind(), found.pointer())).collect();
    assert_eq!(found, expected);
    assert_eq!(RoundReport::parse(report.to_string(), &limits).unwrap_err(), refusal);
    refusal
}

/// The same in the order of a consumer that expects `status`.
#[track_caller]
fn check_as(status: Status, report: &Value, expected: &[(ViolationKind, Field, &str)]) {
    let limits = Limits::default();
    let refusal = RoundReport::from_value_as(report, status, &limits).unwrap_err();
    let violations = refusal.violations().iter();
    let found: Vec<_> =
        violations.map(|found| (found.kind(), found.field().unwrap(), found.pointer())).collect();
    assert_eq!(found, expected);
    assert_eq!(RoundReport::parse_as(report.to_string(), status, &limits).unwrap_err(), refusal);
}

#[test]
fn every_violation_is_listed_in_the_order_of_the_loop() {
    use ViolationKind::{
        BlockerNotNormalized, CompleteNeedsEvidence, ListNotNormalized, StatusInvalid, SummaryNotNormalized,
        UnknownKey,
    };

    let report = json!({
        "zeta": 1, "Alpha": 2,
        "status": "complete", "summary": "", "evidence": ["ok", " ", 7, "", "\u{feff}x"], "nextSteps": "none",
        "blocker": "wait\n",
    });
    check(
        &report,
        &[
            (SummaryNotNormalized, "/summary"),
            (ListNotNormalized, "/evidence/1"),
            (ListNotNormalized, "/evidence/2"),
            (ListNotNormalized, "/evidence/3"),
            (ListNotNormalized, "/evidence/4"),
            (ListNotNormalized, "/nextSteps"),
            (BlockerNotNormalized, "/blocker"),
            (CompleteNeedsEvidence, "/blocker"),
            (UnknownKey, "/Alpha"),
            (UnknownKey, "/zeta"),
        ],
    );
    check(
        &json!({}),
        &[
            (SummaryNotNormalized, "/summary"),
            (ListNotNormalized, "/evidence"),
            (ListNotNormalized, "/nextSteps"),
            (BlockerNotNormalized, "/blocker"),
            (StatusInvalid, "/status"),
        ],
    );
}

#[test]
fn every_violation_is_listed_in_the_order_of_the_consumer() {
    use ViolationKind::{BlockedNeedsBlocker, CompleteNeedsEvidence, MalformedReport};

    check_as(
        Status::Complete,
        &json!({"zeta": 1, "status": "continue", "summary": 7, "nextSteps": [""], "blocker": ""}),
        &[
            (MalformedReport, Field::Keys, "/evidence"),
            (MalformedReport, Field::Keys, "/zeta"),
            (MalformedReport, Field::Status, "/status"),
            (MalformedReport, Field::Summary, "/summary"),
            (MalformedReport, Field::NextSteps, "/nextSteps/0"),
        ],
    );
    check_as(
        Status::Complete,
        &json!({"status": "complete", "summary": "s", "evidence": [], "nextSteps": ["n"], "blocker": "b"}),
        &[
            (CompleteNeedsEvidence, Field::Evidence, "/evidence"),
            (CompleteNeedsEvidence, Field::NextSteps, "/nextSteps"),
            (CompleteNeedsEvidence, Field::Blocker, "/blocker"),
        ],
    );
    check_as(
        Status::Blocked,
        &json!({"status": "blocked", "summary": "s", "evidence": [], "nextSteps": [], "blocker": ""}),
        &[(BlockedNeedsBlocker, Field::Blocker, "/blocker")],
    );
    check_as(Status::Blocked, &json!([]), &[(MalformedReport, Field::Object, "")]);
}

#[test]
fn the_size_is_judged_last_and_says_both_numbers() {
    let text = r#"{"status":"continue","summary":"s😀","evidence":[],"nextSteps":[],"blocker":"","x":1}"#;
    let refusal = RoundReport::parse(text, &Limits::default().with_max_report_chars(5)).unwrap_err();
    let kinds: Vec<_> = refusal.violations().iter().map(Violation::kind).collect();
    assert_eq!(
        kinds,
        [ViolationKind::ContinueNeedsNextSteps, ViolationKind::UnknownKey, ViolationKind::HandoffOversized],
    );
    let size = &refusal.violations()[2];
    assert_eq!((size.measure().unwrap().actual, size.measure().unwrap().limit), (79, 5));
    assert_eq!(size.to_string(), "the report has 79 characters as compact JSON: shorten it to 5");
    assert_eq!(size.field(), None);
}

#[test]
fn a_report_of_exactly_the_limit_passes_in_any_spelling() {
    // The smallest reports there are.
    for (status, length) in [("continue", 80), ("complete", 80), ("blocked", 77)] {
        let list = |filled: bool| if filled { json!(["x"]) } else { json!([]) };
        let report = json!({
            "status": status, "summary": "s", "blocker": if status == "blocked" { "b" } else { "" },
            "evidence": list(status == "complete"), "nextSteps": list(status == "continue"),
        });
        let spelled = serde_json::to_string_pretty(&report).unwrap();
        let limits = Limits::default().with_max_report_chars(length);
        assert_eq!(RoundReport::parse(&spelled, &limits).unwrap().serialized_len(), length);
        let refusal = RoundReport::parse(&spelled, &limits.with_max_report_chars(length - 1)).unwrap_err();
        assert_eq!(refusal.category(), ViolationKind::HandoffOversized);
    }
}

const TEXT: &str = r#"{"blocker":"no disk","nextSteps":[],"evidence":["a","b\n"],"summary":"é \"q\" 😀","status":"blocked"}"#;

#[test]
fn a_report_is_written_in_one_order_whatever_order_it_came_in() {
    let text = TEXT.replace("b\\n", "b\\nc");
    let report = RoundReport::parse(&text, &Limits::default()).unwrap();
    let compact = r#"{"status":"blocked","summary":"é \"q\" 😀","evidence":["a","b\nc"],"nextSteps":[],"blocker":"no disk"}"#;
    assert_eq!(report.to_json(), compact);
    assert_eq!(report.serialized_len(), compact.encode_utf16().count());
    assert_eq!(
        report.to_json_pretty(),
        r#"{
  "status": "blocked",
  "summary": "é \"q\" 😀",
  "evidence": [
    "a",
    "b\nc"
  ],
  "nextSteps": [],
  "blocker": "no disk"
}"#,
    );
    let borrowed = RoundReportRef::parse(&text, &Limits::default()).unwrap();
    assert_eq!(serde_json::to_string(&borrowed).unwrap(), compact);
    assert_eq!(borrowed.serialized_len(), report.serialized_len());

    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(RoundReport::from_value(&value, &Limits::default()).unwrap(), report);
    assert_eq!(report.to_value(), value);
    assert_eq!(borrowed.into_owned(), report);
}

#[test]
fn both_forms_of_a_report_show_the_same_fields() {
    let text = TEXT.replace("b\\n", "b\\nc");
    let report = RoundReport::parse(&text, &Limits::default()).unwrap();
    assert_eq!(report.status(), Status::Blocked);
    assert_eq!(report.summary(), "é \"q\" 😀");
    assert_eq!(report.evidence(), ["a", "b\nc"]);
    assert!(report.next_steps().is_empty());
    assert_eq!(report.blocker(), "no disk");
    assert_eq!(report.outcome(), Outcome::Blocked { blocker: "no disk" });

    let borrowed = RoundReportRef::parse_as(&text, Status::Blocked, &Limits::default()).unwrap();
    assert_eq!(borrowed.status(), report.status());
    assert_eq!(borrowed.summary(), report.summary());
    assert!(borrowed.evidence().eq(report.evidence()));
    assert!(borrowed.next_steps().eq(report.next_steps()));
    assert_eq!(borrowed.blocker(), report.blocker());
}

#[test]
fn a_padded_text_is_refused_and_never_trimmed() {
    let refusal = RoundReport::parse(TEXT, &Limits::default()).unwrap_err();
    let messages: Vec<String> = refusal.violations().iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["/evidence/1 ends with white space (U+000A): remove it"]);
}

#[test]
fn violations_are_written_for_programs_too() {
    let refusal = check(
        &json!({"status": "done", "summary": "s", "evidence": ["\u{a0}"], "nextSteps": [], "blocker": ""}),
        &[(ViolationKind::ListNotNormalized, "/evidence/0"), (ViolationKind::StatusInvalid, "/status")],
    );
    assert_eq!(
        serde_json::to_value(&refusal).unwrap(),
        json!({
            "category": "list-not-normalized",
            "violations": [
                {
                    "kind": "list-not-normalized", "pointer": "/evidence/0", "field": "evidence",
                    "message": "/evidence/0 starts and ends with white space (U+00A0, U+00A0): remove it",
                },
                {
                    "kind": "status-invalid", "pointer": "/status", "field": "status",
                    "message": "/status is \"done\": give \"continue\", \"complete\" or \"blocked\", in lower case",
                },
            ],
            "unlisted": 0,
        }),
    );
    assert_eq!(
        refusal.to_string(),
        "report is refused as list-not-normalized: /evidence/0 starts and ends with white space (U+00A0, U+00A0): \
         remove it (and 1 more violation)",
    );
}

#[test]
fn names_are_distinct_and_spelled_in_kebab_case() {
    use ViolationKind as Kind;

    let kinds = [
        Kind::InputOversized,
        Kind::NestingLimit,
        Kind::Unparsable,
        Kind::DuplicateKey,
        Kind::NotAnObject,
        Kind::SummaryNotNormalized,
        Kind::ListNotNormalized,
        Kind::BlockerNotNormalized,
        Kind::ContinueNeedsNextSteps,
        Kind::CompleteNeedsEvidence,
        Kind::BlockedNeedsBlocker,
        Kind::StatusInvalid,
        Kind::UnknownKey,
        Kind::HandoffOversized,
        Kind::MalformedReport,
    ];
    let names: HashSet<_> = kinds.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), kinds.len());
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    for status in Status::ALL {
        assert_eq!(Status::from_name(status.as_str()), Some(status));
        assert_eq!(Status::from_name(&status.as_str().to_uppercase()), None);
    }
}
