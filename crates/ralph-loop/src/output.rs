//! Standard output, whose reader may go away at any time.

use std::io::{self, Write};
use std::sync::LazyLock;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

/// Prints `text`, styled where standard output is a terminal and `NO_COLOR` does not forbid it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    static CHOICE: LazyLock<ColorChoice> = LazyLock::new(|| AutoStream::choice(&io::stdout()));
    match *CHOICE {
        ColorChoice::Never => print_plain(&strip_str(text).to_string()),
        choice => {
            let mut out = AutoStream::new(io::stdout().lock(), choice);
            out.write_all(text.as_bytes())?;
            out.flush()
        }
    }
}

/// Prints `text` as it is.
pub(crate) fn print_plain(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints one JSON object on a line of its own.
pub(crate) fn json(object: &impl Serialize) -> io::Result<()> {
    print_plain(&format!("{}\n", json_line(object)?))
}

/// Writes one JSON object as a line, without its end.
pub(crate) fn json_line(object: &impl Serialize) -> io::Result<String> {
    Ok(escape_controls(serde_json::to_string(object)?))
}

/// Escapes what JSON lets pass and a terminal does not: DEL, the C1 controls, and what turns the direction of writing.
///
/// Outside of strings JSON text holds none of them.
fn escape_controls(json: String) -> String {
    if json.chars().all(is_harmless) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_harmless(character) {
            escaped.push(character);
        } else {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        }
    }
    escaped
}

fn is_harmless(character: char) -> bool {
    !matches!(
        character,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn escaped_json_means_the_same_and_holds_no_control() {
        let value = json!({ "said": "\u{1b}[31m \u{9b}31m \u{7f} \u{202e} 漢字 😀" });
        let escaped = escape_controls(value.to_string());
        assert!(escaped.chars().all(|character| is_harmless(character) && !character.is_control()));
        assert!(escaped.contains("漢字 😀"));
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
    }
}
