use std::borrow::Cow;

/// Turns bytes into text as they come, in pieces cut anywhere.
///
/// What is no UTF-8 becomes U+FFFD, as [`String::from_utf8_lossy`] does it for the whole.
///
/// ```
/// let mut decoder = harness_process::Utf8Decoder::default();
/// let mut text = decoder.decode(b"caf\xc3");
/// text += &decoder.decode(b"\xa9");
/// text += &decoder.finish();
/// assert_eq!(text, "café");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Utf8Decoder {
    /// The beginning of a character, at most 3 bytes.
    held: Vec<u8>,
}

impl Utf8Decoder {
    /// Returns the text of `bytes`. A character that is cut at their end is held back for the next time.
    pub fn decode(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.held);
            &joined
        };
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_begun(invalid) {
                self.held = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// Returns the text of what was held back: nothing, or U+FFFD for a character that never ended.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&held).into_owned()
    }
}

/// Returns whether more bytes could make a character of these.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Makes text harmless to a terminal: nothing in it moves the cursor, changes a colour, sets a title or
/// turns the direction of writing.
///
/// Newlines and tabs stay, and a carriage return before a newline goes. Every other control character,
/// and every character that changes the direction of writing, is replaced by a visible one.
///
/// ```
/// assert_eq!(harness_process::sanitize("\x1b[31mred\x07\r\n"), "␛[31mred␇\n");
/// ```
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            character if is_harmless(character) => clean.push(character),
            // The control characters have pictures, in the same order.
            '\0'..='\x1f' => clean.push(picture(character)),
            '\x7f' => clean.push('\u{2421}'),
            _ => clean.push(char::REPLACEMENT_CHARACTER),
        }
    }
    Cow::Owned(clean)
}

fn picture(control: char) -> char {
    char::from_u32(0x2400 + u32::from(control)).expect("every control character has a picture")
}

fn is_harmless(character: char) -> bool {
    match character {
        '\n' | '\t' => true,
        // Marks, embeddings, overrides and isolates of direction, and the two separators that end a line.
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        character => !character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_text_of_the_whole() {
        let samples: [&[u8]; 7] = [
            "plain, é, 語, 😀".as_bytes(),
            b"\xff\xfe\x80",
            b"a\xe8\xaa",
            b"\xf0\x9f\x98",
            b"\xf0\x9f\xc3\xa9\xed\xa0\x80",
            b"\xc3\xc3\xa9",
            b"",
        ];
        for bytes in samples {
            let whole = String::from_utf8_lossy(bytes);
            for size in 1..=bytes.len().max(1) {
                let mut decoder = Utf8Decoder::default();
                let mut text: String = bytes.chunks(size).map(|piece| decoder.decode(piece)).collect();
                text += &decoder.finish();
                assert_eq!(text, whole, "{bytes:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn no_more_than_a_character_is_held_back() {
        let mut decoder = Utf8Decoder::default();
        for byte in [0xf0, 0x9f, 0x98] {
            assert_eq!(decoder.decode(&[byte]), "");
            assert!(decoder.held.len() <= 3);
        }
        assert_eq!(decoder.decode(&[0x80, b'x']), "😀x");
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(sanitize(text), expected);
        assert_eq!(sanitize(&sanitize(text)), expected, "twice");
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        check("plain\ttext\nin two lines é😀", "plain\ttext\nin two lines é😀");
        check("\x1b]0;title\x07", "␛]0;title␇");
        check("over\rwritten\r\n", "over␍written\n");
        check("\u{9b}31m\u{85}", "\u{fffd}31m\u{fffd}");
        check("a\u{202e}b\u{2069}c", "a\u{fffd}b\u{fffd}c");
        check("\0\x7f\x08", "␀␡␈");
    }
}
