//! Text as the report contract measures it: what is blank, how long a text is, where it may be cut.
//!
//! The contract comes from a JavaScript world, so its lengths count **UTF-16 code units** and its white space is
//! the ECMAScript one. Rust's own notions are close to both and equal to neither, hence this module. Everything
//! here is pure and runs in one pass over the text; nothing allocates.
//!
//! ```
//! use ralph_report::text;
//!
//! // U+FEFF is blank here and not for `str::trim`; with U+0085 it is the other way around.
//! assert_eq!(text::trim("\u{feff} ready\n"), "ready");
//! assert_eq!(text::trim("\u{85}"), "\u{85}");
//!
//! assert_eq!(text::utf16_len("e\u{301} 😀"), 5);
//! assert_eq!(text::json_utf16_len("tab\t"), r#""tab\t""#.len());
//! assert_eq!(text::truncate_utf16("ab😀", 3), "ab");
//! ```

/// The blanks, in order.
pub(crate) const BLANKS: [char; 25] = [
    '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}',
    '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}',
    '\u{2028}', '\u{2029}', '\u{202f}', '\u{205f}', '\u{3000}', '\u{feff}',
];

/// Returns whether `c` is one of the 25 code points that the contract calls blank.
///
/// They are U+0009 to U+000D, U+0020, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F, U+3000 and
/// U+FEFF. Against [`char::is_whitespace`]: U+0085 is not blank, U+FEFF is.
#[must_use]
pub const fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\u{9}'..='\u{d}'
            | ' '
            | '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}'
            | '\u{feff}'
    )
}

/// Returns `text` without the [blanks](is_blank) at both of its ends.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// Returns whether `text` equals its own [`trim`]. The empty text does.
#[must_use]
pub fn is_trimmed(text: &str) -> bool {
    // Most texts start and end in visible ASCII.
    let visible = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
    let bytes = text.as_bytes();
    (visible(bytes.first()) && visible(bytes.last()))
        || !(text.starts_with(is_blank) || text.ends_with(is_blank))
}

/// Returns whether `text` is normalized: not empty, and no [blank](is_blank) at either end.
#[must_use]
pub fn is_normalized(text: &str) -> bool {
    !text.is_empty() && is_trimmed(text)
}

/// Returns the length of `text` in UTF-16 code units: one for a character up to U+FFFF, two above.
#[must_use]
pub fn utf16_len(text: &str) -> usize {
    sum_over_bytes(text.as_bytes(), utf16_units, &UTF16_UNITS)
}

/// Returns the length in UTF-16 code units that `text` has as a JSON string, its two quotes included.
///
/// This is the length of what [`serde_json::to_string`] writes, without writing it: `"`, `\` and the control
/// characters with a short escape take two units, other characters below U+0020 take six, and everything else is
/// written as itself.
#[must_use]
pub fn json_utf16_len(text: &str) -> usize {
    2 + sum_over_bytes(text.as_bytes(), json_units, &JSON_UNITS)
}

/// Returns the longest beginning of `text` that has at most `max` UTF-16 code units.
///
/// A character of two units is kept whole or left out whole, so the result may be one unit shorter than `max`.
#[must_use]
pub fn truncate_utf16(text: &str, max: usize) -> &str {
    // A character never has more UTF-16 units than UTF-8 bytes.
    if text.len() <= max {
        return text;
    }
    let mut room = max;
    for (at, c) in text.char_indices() {
        let Some(left) = room.checked_sub(c.len_utf16()) else {
            return &text[..at];
        };
        room = left;
    }
    text
}

/// Units that the first byte of a character stands for; its other bytes stand for none.
const fn utf16_units(byte: u8) -> u8 {
    let starts_a_character = byte & 0xc0 != 0x80;
    starts_a_character as u8 + (byte >= 0xf0) as u8
}

/// The same for a character inside a JSON string.
const fn json_units(byte: u8) -> u8 {
    let quoted = byte == b'"' || byte == b'\\';
    let control = byte < b' ';
    let short = matches!(byte, 0x08 | b'\t' | b'\n' | 0x0c | b'\r');
    // A control character becomes `\u00xx`, five units more, or a backslash and a letter, four units less again.
    utf16_units(byte) + quoted as u8 + control as u8 * 5 - short as u8 * 4
}

/// [`utf16_units`] of every byte.
static UTF16_UNITS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = utf16_units(byte as u8);
        byte += 1;
    }
    table
};

/// [`json_units`] of every byte.
static JSON_UNITS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = json_units(byte as u8);
        byte += 1;
    }
    table
};

/// Sums `units` over `bytes`. `table` holds the same as `units`.
///
/// Whole rows are summed in bytes side by side, flushed before one can overflow, and the compiler makes vector code
/// of it. The few bytes behind the last row are looked up one by one, which is quicker than to set up a row for them.
#[inline(always)]
fn sum_over_bytes(bytes: &[u8], units: impl Fn(u8) -> u8, table: &[u8; 256]) -> usize {
    const LANES: usize = 16;
    const MOST_UNITS: usize = 6;
    const MOST_ROWS: usize = u8::MAX as usize / MOST_UNITS;

    let (rows, rest) = bytes.as_chunks::<LANES>();
    let mut total: usize = rest.iter().map(|byte| usize::from(table[usize::from(*byte)])).sum();
    for block in rows.chunks(MOST_ROWS) {
        let mut lanes = [0; LANES];
        // A closure per row keeps the inner loop together, where it becomes a handful of vector instructions.
        let mut add = |row: &[u8; LANES]| {
            for (lane, byte) in lanes.iter_mut().zip(row) {
                *lane += units(*byte);
            }
        };
        block.iter().for_each(&mut add);
        total += sum_of_lanes(lanes);
    }
    total
}

/// Adds up the lanes, eight at a time.
fn sum_of_lanes(lanes: [u8; 16]) -> usize {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    const ONES: u64 = 0x0001_0001_0001_0001;

    let (words, _) = lanes.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let quarters: u64 = words.map(|word| (word & EVEN) + (word >> 8 & EVEN)).sum();
    // The top 16 bits of the product are the sum of the four quarters, which is at most 16 * 255.
    (quarters.wrapping_mul(ONES) >> 48) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_25_code_points_are_blank() {
        let blank: Vec<char> = ('\0'..=char::MAX).filter(|c| is_blank(*c)).collect();
        assert_eq!(blank, BLANKS);
    }

    #[test]
    fn every_character_costs_what_the_serializer_writes() {
        for c in '\0'..=char::MAX {
            let text = c.to_string();
            assert_eq!(utf16_len(&text), c.len_utf16(), "{c:?}");
            let written = serde_json::to_string(&text).unwrap();
            assert_eq!(json_utf16_len(&text), written.encode_utf16().count(), "{c:?}");
        }
    }

    #[test]
    fn long_texts_of_the_dearest_characters_do_not_overflow_a_lane() {
        for length in [0, 1, 31, 32, 33, 1343, 1344, 1345, 10_000] {
            assert_eq!(json_utf16_len(&"\u{1}".repeat(length)), 2 + 6 * length);
            assert_eq!(json_utf16_len(&"\n".repeat(length)), 2 + 2 * length);
            assert_eq!(utf16_len(&"😀".repeat(length)), 2 * length);
        }
    }

    #[test]
    fn a_cut_never_splits_a_pair() {
        #[track_caller]
        fn check(text: &str, max: usize, expected: &str) {
            assert_eq!(truncate_utf16(text, max), expected);
        }
        check("", 0, "");
        check("abc", 0, "");
        check("abc", 2, "ab");
        check("abc", 3, "abc");
        check("é€", 1, "é");
        check("é€", 2, "é€");
        check("a😀b", 1, "a");
        check("a😀b", 2, "a");
        check("a😀b", 3, "a😀");
        check("a😀b", 4, "a😀b");
        check("a😀b", usize::MAX, "a😀b");
    }

    #[test]
    fn the_empty_text_is_trimmed_but_not_normalized() {
        assert!(is_trimmed(""));
        assert!(!is_normalized(""));
        for blank in BLANKS {
            assert!(!is_trimmed(&format!("{blank}x")), "{blank:?}");
            assert!(!is_normalized(&format!("x{blank}")), "{blank:?}");
            assert!(is_normalized(&format!("x{blank}x")), "{blank:?}");
            assert_eq!(trim(&format!("{blank}x{blank}")), "x", "{blank:?}");
        }
    }
}
