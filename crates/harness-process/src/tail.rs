/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    kept: Vec<u8>,
}

/// Enough to show what went wrong, and little enough to hold for every call.
const MAX: usize = 8 * 1024;

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(MAX)..];
        if self.kept.len() + bytes.len() > 2 * MAX {
            let keep = MAX - bytes.len();
            self.kept.drain(..self.kept.len() - keep);
        }
        self.kept.extend_from_slice(bytes);
    }

    /// Returns the tail, which does not begin inside a character.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut cut = self.kept.len().saturating_sub(MAX);
        if cut > 0 {
            let inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
            cut += self.kept[cut..].iter().take(3).take_while(|byte| inside(byte)).count();
        }
        self.kept.drain(..cut);
        self.kept.shrink_to_fit();
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_stay_whatever_the_pieces() {
        let text: Vec<u8> = (0..100_000u32).map(|number| b'a' + (number % 23) as u8).collect();
        for piece in [1, 7, 1000, MAX - 1, MAX, MAX + 1, 50_000] {
            let mut tail = Tail::default();
            for bytes in text.chunks(piece) {
                tail.push(bytes);
                assert!(tail.kept.len() <= 2 * MAX);
            }
            assert_eq!(tail.finish(), text[text.len() - MAX..], "in pieces of {piece}");
        }
    }

    #[test]
    fn a_tail_never_begins_inside_a_character() {
        for before in 0..4 {
            let mut tail = Tail::default();
            tail.push(&b"x".repeat(before));
            tail.push("😀".repeat(MAX).as_bytes());
            tail.push(&b"y".repeat(before));
            assert!(std::str::from_utf8(&tail.finish()).is_ok(), "{before}");
        }
    }
}
