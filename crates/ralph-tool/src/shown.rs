//! Foreign data in messages: quoted, on one line, and short.

use ralph_report::text;
use serde_json::Value;

const MOST_UNITS: usize = 80;

/// Returns `value` as JSON on one line, cut where it is long.
pub(crate) fn value(value: &Value) -> String {
    cut(&value.to_string(), MOST_UNITS)
}

/// Returns the first line of a message that somebody else wrote, cut to `most_units` UTF-16 code units.
///
/// What follows the first line of a foreign error is a stack trace more often than not.
pub(crate) fn first_line(message: &str, most_units: usize) -> String {
    let line = message.lines().next().unwrap_or_default();
    if !line.contains(char::is_control) {
        return cut(text::trim(line), most_units);
    }
    let harmless: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(text::trim(&harmless), most_units)
}

fn cut(shown: &str, most_units: usize) -> String {
    if text::utf16_len(shown) <= most_units {
        return shown.to_owned();
    }
    format!("{}…", text::truncate_utf16(shown, most_units.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_value_is_cut_between_characters() {
        assert_eq!(value(&json!({ "a": [1, "two"] })), r#"{"a":[1,"two"]}"#);
        let shown = value(&json!("😀".repeat(100)));
        assert_eq!(text::utf16_len(&shown), MOST_UNITS);
        assert!(shown.ends_with("😀…"), "{shown}");
    }

    #[test]
    fn of_a_foreign_message_one_harmless_line_is_left() {
        assert_eq!(first_line("it broke\n    at run (engine.js:1:2)", 100), "it broke");
        assert_eq!(first_line("\u{1b}[31mred\u{1b}[0m", 100), "[31mred [0m");
        assert_eq!(first_line("abcdef", 4), "abc…");
        assert_eq!(first_line("", 4), "");
    }
}
