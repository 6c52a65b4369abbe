//! Input that means harm, or comes from a program that has gone wrong.

use ralph_report::{InvalidReport, Limits, RoundReport, RoundReportRef, Status, ViolationKind};
use serde_json::{Value, json};

const GOOD: &str = r#"{"status":"complete","summary":"s","evidence":["e"],"nextSteps":[],"blocker":""}"#;

/// Judges `text` in every way there is, and expects to hear the same thing, at the pointer of the first violation.
#[track_caller]
fn check(text: impl AsRef<[u8]>, expected: ViolationKind, pointer: &str) -> InvalidReport {
    let text = text.as_ref();
    let limits = Limits::default();
    let refusal = RoundReport::parse(text, &limits).unwrap_err();
    assert_eq!((refusal.category(), refusal.first().pointer()), (expected, pointer), "{refusal}");
    assert_eq!(RoundReportRef::parse(text, &limits).unwrap_err(), refusal);
    assert!(RoundReport::parse_as(text, Status::Complete, &limits).is_err());
    refusal
}

#[test]
fn a_text_that_is_not_one_document_is_unparsable() {
    use ViolationKind::Unparsable;

    check("", Unparsable, "");
    check(" \n", Unparsable, "");
    check("done", Unparsable, "");
    check(&GOOD[..GOOD.len() - 1], Unparsable, "");
    check(format!("{GOOD},"), Unparsable, "");
    check(format!("{GOOD}{GOOD}"), Unparsable, "");
    check(format!("{GOOD}\n{GOOD}\n"), Unparsable, "");
    check(format!("{GOOD}\0"), Unparsable, "");
    check(format!("\u{feff}{GOOD}"), Unparsable, "");
    check(format!("```json\n{GOOD}\n```"), Unparsable, "");
    check(GOOD.replace("[]", "[,]"), Unparsable, "");
    check(GOOD.replace("\"s\"", "'s'"), Unparsable, "");
    check(GOOD.replace("\"s\"", "\"\0\""), Unparsable, "");
    check(GOOD.replace("\"s\"", "\"a\nb\""), Unparsable, "");
    check(GOOD.replace('s', "\u{b}s"), Unparsable, "");
}

#[test]
fn what_no_text_or_number_can_hold_is_unparsable_wherever_it_stands() {
    use ViolationKind::Unparsable;

    for surrogate in [r"\ud800", r"\udc00", r"\udc00\ud800", r"\ud800x", r"\ud83d\u0041"] {
        check(GOOD.replace("\"s\"", &format!("\"{surrogate}\"")), Unparsable, "");
        check(GOOD.replace("[]", &format!("{{\"{surrogate}\":1}}")), Unparsable, "");
    }
    for number in ["1e400", "-1e400", "[1e999999999999]", "1.7976931348623159e308"] {
        check(GOOD.replace("[]", number), Unparsable, "");
        check(GOOD.replace("[]", &format!("[],\"extra\":{number}")), Unparsable, "");
    }
    for word in ["NaN", "Infinity", "-Infinity", "undefined", "nan"] {
        check(GOOD.replace("[]", word), Unparsable, "");
    }
    check(GOOD.replace("\"s\"", "\"\u{1}\""), Unparsable, "");
    let mut broken = GOOD.as_bytes().to_vec();
    broken[GOOD.find("\"s\"").unwrap() + 1] = 0xff;
    check(broken, Unparsable, "");
}

#[test]
fn numbers_at_the_edge_of_what_is_finite_are_read() {
    for number in
        ["1.7976931348623157e308", "1.7976931348623158e308", "1e-999", "-0", "123456789012345678901234567890"]
    {
        check(GOOD.replace("[]", &format!("[],\"extra\":{number}")), ViolationKind::UnknownKey, "/extra");
    }
}

#[test]
fn a_key_given_twice_is_refused_wherever_it_stands() {
    use ViolationKind::DuplicateKey;

    let refusal = check(GOOD.replace("\"s\"", "\"s\",\"summary\":\"s\""), DuplicateKey, "/summary");
    assert_eq!(refusal.violations().len(), 1, "nothing else is judged: {refusal:?}");
    check(GOOD.replace("\"s\"", "\" \",\"s\\u0075mmary\":7"), DuplicateKey, "/summary");
    check(GOOD.replace("[]", r#"[],"x":[0,{"a/b":1,"a/b":1}]"#), DuplicateKey, "/x/1/a~1b");
    check(r#"[{"a":1,"a":2}]"#, DuplicateKey, "/0/a");
    // Nine keys and more are compared in another way than a few.
    let many: Vec<String> = (0..20).map(|n| format!("\"k{}\":0", n % 19)).collect();
    check(format!("{{{}}}", many.join(",")), DuplicateKey, "/k0");
    check(GOOD.replace("[]", "[],\"a\":{\"b\":1,\"b\":1},\"a\":0"), DuplicateKey, "/a/b");
}

#[test]
fn a_text_that_breaks_off_after_a_duplicate_key_is_unparsable() {
    check(r#"{"status":"complete","status":"complete""#, ViolationKind::Unparsable, "");
}

#[test]
fn the_wrong_shapes_are_told_apart() {
    use ViolationKind::{ListNotNormalized, NotAnObject, StatusInvalid, SummaryNotNormalized};

    for document in ["null", "true", "7", "\"text\"", "[]", &format!("[{GOOD}]")] {
        check(document, NotAnObject, "");
    }
    // Forms in which a derived decoder would take a struct and an enum.
    check(r#"["complete","s",["e"],[],""]"#, NotAnObject, "");
    check(GOOD.replace("\"complete\"", r#"{"complete":null}"#), StatusInvalid, "/status");
    check(GOOD.replace("complete", "Complete"), StatusInvalid, "/status");
    check(GOOD.replace("complete", " complete"), StatusInvalid, "/status");
    check(GOOD.replace("\"complete\"", "null"), StatusInvalid, "/status");
    check(GOOD.replace("[\"e\"]", "\"e\""), ListNotNormalized, "/evidence");
    check(GOOD.replace("[\"e\"]", "{\"0\":\"e\"}"), ListNotNormalized, "/evidence");
    check(GOOD.replace("[\"e\"]", "[\"e\",[\"e\"]]"), ListNotNormalized, "/evidence/1");
    check(GOOD.replace("[]", "null"), ListNotNormalized, "/nextSteps");
    check("{}", SummaryNotNormalized, "/summary");
}

#[test]
fn unusual_but_clear_texts_are_read_as_they_are() {
    for text in [
        GOOD.to_owned(),
        format!(" \t\r\n{GOOD}\n "),
        GOOD.replace("status", "st\\u0061tus"),
        GOOD.replace("\"s\"", r#""a\u0000b""#),
        GOOD.replace("\"s\"", r#""\ud83d\ude00""#),
        GOOD.replace("\"s\"", "\"\u{85}\u{200b}\u{fffd}\u{0}\"").replace('\0', "\\u0000"),
    ] {
        let report = RoundReport::parse(&text, &Limits::default()).unwrap();
        let given: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report.to_value(), given);
        assert_eq!(RoundReport::from_value(&given, &Limits::default()).unwrap(), report);
    }
}

/// A text with `levels` arrays or objects in one another, the outermost one counted.
fn nested(levels: usize) -> [String; 2] {
    let inner = levels - 1;
    [("[", "", "]"), ("{\"a\":", "0", "}")].map(|(open, middle, close)| {
        let value = format!("{}{middle}{}", open.repeat(inner), close.repeat(inner));
        GOOD.replace("[]", &format!("[],\"x\":{value}"))
    })
}

#[test]
fn nesting_is_bounded_exactly() {
    for text in nested(127) {
        check(text, ViolationKind::UnknownKey, "/x");
    }
    for levels in [128, 129, 1000, 100_000] {
        for text in nested(levels) {
            check(text, ViolationKind::NestingLimit, "");
        }
    }
    check("[".repeat(500_000), ViolationKind::NestingLimit, "");

    let kind = |text: &str, levels| {
        let limits = Limits::default().with_max_depth(levels);
        RoundReport::parse(text, &limits).map_err(|refusal| refusal.category())
    };
    assert!(kind(GOOD, 2).is_ok());
    for (levels, expected) in [(0, Err(ViolationKind::NestingLimit)), (1, Err(ViolationKind::NestingLimit))] {
        assert_eq!(kind(GOOD, levels), expected);
    }
    for levels in 3..9 {
        for text in nested(levels) {
            assert_eq!(kind(&text, levels), Err(ViolationKind::UnknownKey), "{text}");
            assert_eq!(kind(&text, levels - 1), Err(ViolationKind::NestingLimit), "{text}");
        }
    }
    assert_eq!(Limits::default().with_max_depth(usize::MAX).max_depth(), 127);
}

#[test]
fn bytes_are_bounded_exactly_and_before_anything_else() {
    let kind =
        |text: &str, limits: Limits| RoundReport::parse(text, &limits).map_err(|refusal| refusal.category());
    let limits = Limits::default().with_max_bytes(GOOD.len());
    assert!(kind(GOOD, limits).is_ok());
    assert_eq!(kind(&format!("{GOOD} "), limits), Err(ViolationKind::InputOversized));
    assert_eq!(kind(&"[".repeat(1000), limits), Err(ViolationKind::InputOversized));

    let refusal = check(" ".repeat(1024 * 1024 + 1), ViolationKind::InputOversized, "");
    let measure = refusal.first().measure().unwrap();
    assert_eq!((measure.actual, measure.limit), (1024 * 1024 + 1, 1024 * 1024));
}

#[test]
fn a_million_items_are_judged_and_the_answer_stays_small() {
    let limits = Limits::default().with_max_bytes(usize::MAX);
    let with = |items: String| GOOD.replace("[\"e\"]", &format!("[{items}]"));
    let million = |item: &str| with(format!("{item},").repeat(999_999) + item);

    let refusal = RoundReport::parse(million("\"\""), &limits).unwrap_err();
    assert_eq!(refusal.category(), ViolationKind::ListNotNormalized);
    assert_eq!(refusal.violations().len(), 100);
    // The report is too long as well, and that is the last of the violations.
    assert_eq!(refusal.unlisted(), 999_900 + 1);
    assert_eq!(refusal.violations()[99].pointer(), "/evidence/99");

    let refusal = RoundReport::parse(million("7"), &limits).unwrap_err();
    assert_eq!(refusal.violations().len() + refusal.unlisted(), 1_000_000);

    let refusal = RoundReport::parse(million("\"e\""), &limits).unwrap_err();
    assert_eq!(refusal.category(), ViolationKind::HandoffOversized);
    assert_eq!(refusal.violations().len(), 1);

    let refusal = check(million("\"e\""), ViolationKind::InputOversized, "");
    assert!(refusal.to_string().len() < 200);
}

#[test]
fn what_is_quoted_of_a_report_is_escaped_and_short() {
    let key = "\n\u{1b}[31m".to_owned() + &"k".repeat(100_000);
    let report = json!({
        "status": format!("\u{202e}\"{}", "s".repeat(100_000)),
        "summary": "s", "evidence": [], "nextSteps": [], "blocker": "", key: 1,
    });
    let refusal = RoundReport::from_value(&report, &Limits::default()).unwrap_err();
    let messages: Vec<String> = refusal.violations().iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            format!(
                r#"/status is "\u{{202e}}\"{}…": give "continue", "complete" or "blocked", in lower case"#,
                "s".repeat(38),
            ),
            format!(
                "the report has the unknown key \"\\n\\u{{1b}}[31m{}…\": give the keys status, summary, evidence, \
                 nextSteps and blocker, and no others",
                "k".repeat(34),
            ),
        ],
    );
}

#[test]
fn a_place_is_shown_escaped_and_pointed_to_as_it_is() {
    let refusal =
        check("{\"\\u001b/'\":{\"\\n\":1,\"\\n\":2}}", ViolationKind::DuplicateKey, "/\u{1b}~1'/\n");
    assert_eq!(refusal.first().to_string(), r"/\u{1b}~1'/\n is given more than once: give each key once");
}

#[test]
fn a_value_nested_too_deep_for_recursion_is_judged_without_it() {
    let mut deep = Value::Null;
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    let report =
        json!({"status": "complete", "summary": "s", "evidence": ["e"], "nextSteps": [], "blocker": ""});
    let mut report = report.as_object().unwrap().clone();
    report.insert("x".to_owned(), deep);
    let report = std::mem::ManuallyDrop::new(Value::Object(report));
    let refusal = RoundReport::from_value(&report, &Limits::default()).unwrap_err();
    assert_eq!(refusal.category(), ViolationKind::UnknownKey);
}

#[test]
fn serde_json_s_private_keys_do_not_change_a_verdict() {
    for key in ["$serde_json::private::Number", "$serde_json::private::RawValue"] {
        check(
            GOOD.replace("[]", &format!("[],\"{key}\":\"1\"")),
            ViolationKind::UnknownKey,
            &format!("/{key}"),
        );
        check(
            GOOD.replace("[]", &format!("[],\"x\":{{\"{key}\":\"[1]\"}}")),
            ViolationKind::UnknownKey,
            "/x",
        );
        check(
            GOOD.replace("[]", &format!("{{\"{key}\":\"[]\"}}")),
            ViolationKind::ListNotNormalized,
            "/nextSteps",
        );
        check(
            GOOD.replace("\"e\"", &format!("{{\"{key}\":\"\\\"e\\\"\"}}")),
            ViolationKind::ListNotNormalized,
            "/evidence/0",
        );
    }
}
