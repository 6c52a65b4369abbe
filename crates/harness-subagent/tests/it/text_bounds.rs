//! Text that a child or a provider writes is bounded in bytes and never cut inside a character.

use harness_subagent::{Activity, Diagnostic};
use serde_json::json;

#[track_caller]
fn cut(text: &str) -> String {
    let message = Diagnostic::new(text).message().to_owned();
    assert!(message.len() <= Diagnostic::MAX_MESSAGE_BYTES, "{} bytes", message.len());
    let kept = message.strip_suffix(" [cut]").expect("a cut message is marked");
    assert!(text.starts_with(kept));
    assert!(
        message.len() > Diagnostic::MAX_MESSAGE_BYTES - 4,
        "{} bytes: no more is cut than must be",
        message.len()
    );
    message
}

#[test]
fn a_message_of_just_the_bound_is_kept() {
    assert_eq!(Diagnostic::MAX_MESSAGE_BYTES, 4096);
    for text in ["a".repeat(4096), "é".repeat(2048), "😀".repeat(1024), "漢".repeat(1365) + "a"] {
        assert_eq!(text.len(), 4096);
        assert_eq!(Diagnostic::new(text.clone()).message(), text);
    }
}

#[test]
fn a_message_over_the_bound_is_cut_between_characters_and_marked() {
    cut(&"a".repeat(4097));
    for shift in 0..4 {
        for character in ["é", "漢", "😀"] {
            cut(&("a".repeat(shift) + &character.repeat(4096)));
        }
    }
}

#[test]
fn a_message_that_comes_over_the_wire_is_bounded_too() {
    let details: serde_json::Map<String, serde_json::Value> =
        (0..40).map(|index| (format!("{index:02}{}", "n".repeat(400)), json!("漢".repeat(400)))).collect();
    let wire = json!({ "message": "漢".repeat(4096), "details": details });
    let diagnostic: Diagnostic = serde_json::from_value(wire).unwrap();
    assert!(diagnostic.message().len() <= Diagnostic::MAX_MESSAGE_BYTES);
    assert_eq!(diagnostic.details().len(), Diagnostic::MAX_DETAILS);
    for (name, value) in diagnostic.details() {
        assert!(name.len() <= Diagnostic::MAX_DETAIL_BYTES && value.len() <= Diagnostic::MAX_DETAIL_BYTES);
    }
}

#[test]
fn a_detail_past_the_last_is_left_out() {
    let full = (0..Diagnostic::MAX_DETAILS)
        .fold(Diagnostic::new("m"), |diagnostic, index| diagnostic.with_detail(index.to_string(), "v"));
    let more = full.clone().with_detail("more", "v");
    assert_eq!(more, full);
}

#[test]
fn an_activity_is_cut_between_characters() {
    let text = Activity::new("漢".repeat(1000)).text;
    assert!(text.len() <= Activity::MAX_TEXT_BYTES && text.ends_with("漢…"), "{text}");
    assert_eq!(Activity::new("short").text, "short");
}
