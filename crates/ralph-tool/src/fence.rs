//! Foreign text inside a prompt, fenced so that it cannot pass for anything else.
//!
//! A fence is a pair of lines around the text that name it and carry a token. The token occurs nowhere in any of the
//! foreign texts of the prompt, whatever they say, so none of them can close a fence or open another: where a text
//! ends can be told without trusting it. The token depends on the texts alone, so the same texts always get the same
//! prompt, which is what lets an engine replay a body and a model's vendor reuse what it has read.

use std::fmt::Write;

/// Adds `text` to `prompt`, fenced under the name `name`. `others` are the other foreign texts of the same prompt.
pub(crate) fn fence(prompt: &mut String, name: &str, text: &str, others: &[&str]) {
    let token = token(text, others);
    for part in ["[", name, " ", &token, " begins]\n", text, "\n[", name, " ", &token, " ends]"] {
        prompt.push_str(part);
    }
}

/// Returns 16 hexadecimal digits that occur neither in `text` nor in `others`, in either case of letters.
fn token(text: &str, others: &[&str]) -> String {
    let foreign = others.iter().chain([&text]).filter(|text| may_hold_a_token(text));
    let taken: Vec<String> = foreign.map(|text| text.to_ascii_lowercase()).collect();
    (0_u64..)
        .map(|attempt| format!("{:016x}", fnv1a(&attempt.to_be_bytes(), text.as_bytes())))
        .find(|token| !taken.iter().any(|text| text.contains(token)))
        .expect("a text of finite length cannot hold every token")
}

/// Returns whether there are as many hexadecimal digits in a row as a token has. Most texts never have.
fn may_hold_a_token(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        digits = if byte.is_ascii_hexdigit() { digits + 1 } else { 0 };
        digits == 16
    })
}

/// The 64-bit FNV-1a hash of `start` and `rest`: short, and the same in every build for ever.
fn fnv1a(start: &[u8], rest: &[u8]) -> u64 {
    start.iter().chain(rest).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Spells a JSON text without line breaks of any kind: what JSON leaves raw and some reader takes for a line break or
/// a command is escaped.
pub(crate) fn one_line(json: String) -> String {
    if json.bytes().all(|byte| byte < 0x7f) {
        return json;
    }
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                write!(line, "\\u{:04x}", u32::from(c)).expect("writing to a string succeeds");
            }
            _ => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_holds_its_own_token_gets_another() {
        // The others do not enter the hash, so a token that is known can be put into one of them.
        let first = token("text", &[]);
        assert_eq!(token("text", &["harmless"]), first);

        let second = token("text", &[&first.to_ascii_uppercase()]);
        assert_ne!(second, first);
        let third = token("text", &[&format!("{first} and {second}")]);
        assert!(third != first && third != second);
    }

    #[test]
    fn the_token_is_the_same_in_every_build() {
        assert_eq!(fnv1a(b"foo", b"bar"), 0x8594_4171_f739_67e8);
        let mut prompt = String::from("Data:\n");
        fence(&mut prompt, "data", "x", &[]);
        assert_eq!(prompt, "Data:\n[data e6047a3a24901c27 begins]\nx\n[data e6047a3a24901c27 ends]");
    }

    #[test]
    fn one_line_has_no_break_in_it_and_means_the_same() {
        let text: String = ('\0'..='\u{2100}').collect();
        let line = one_line(serde_json::to_string(&text).unwrap());
        assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')));
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
