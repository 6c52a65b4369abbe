//! Notices, while text still comes in, that a JSON document is whole.

/// Follows the brackets of one JSON object through pieces of text.
///
/// It decides nothing: that a document looks whole only says that now is the time to wait no longer for more.
#[derive(Debug, Default)]
pub(crate) struct DocumentScanner {
    depth: usize,
    in_text: bool,
    escaped: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    #[default]
    Before,
    Within,
    Whole,
    /// There is something beside one object.
    Spoilt,
}

impl DocumentScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.state {
                State::Spoilt => return,
                State::Before | State::Whole if byte.is_ascii_whitespace() => {}
                State::Before if byte == b'{' => {
                    self.state = State::Within;
                    self.depth = 1;
                }
                State::Before | State::Whole => self.state = State::Spoilt,
                State::Within => self.within(byte),
            }
        }
    }

    /// Says whether all text so far is one object from its first to its last bracket.
    pub(crate) fn is_whole(&self) -> bool {
        self.state == State::Whole
    }

    fn within(&mut self, byte: u8) {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.state = State::Whole;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, whole: bool) {
        for piece in [1, 3, text.len().max(1)] {
            let mut scanner = DocumentScanner::default();
            text.as_bytes().chunks(piece).for_each(|bytes| scanner.feed(bytes));
            assert_eq!(scanner.is_whole(), whole, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn an_object_is_whole_at_its_last_bracket_and_not_before() {
        check("", false);
        check("{\"a\":[1,{\"b\":\"}\\\"}\"}]", false);
        check(" {\"a\":[1,{\"b\":\"}\\\"}\"}]}\n", true);
        check("{}", true);
    }

    #[test]
    fn an_object_beside_other_text_is_not_whole() {
        check("x{}", false);
        check("{} x", false);
        check("{}{}", false);
        check("[]", false);
    }
}
