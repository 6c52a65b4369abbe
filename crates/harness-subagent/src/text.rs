/// Cuts `text` to at most `max_bytes` bytes of UTF-8, `marker` included, never inside a character.
///
/// Text that fits is returned as it is.
pub(crate) fn bounded(text: String, max_bytes: usize, marker: &str) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let mut cut = text;
    cut.truncate(cut.floor_char_boundary(max_bytes.saturating_sub(marker.len())));
    cut.push_str(marker);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_is_cut_between_characters_and_marked() {
        for length in 0..40 {
            let text = "aé漢😀".repeat(4);
            let cut = bounded(text.clone(), length, "[cut]");
            assert!(cut.len() <= length.max("[cut]".len()), "{length}: {cut:?}");
            assert!(cut == text || cut.ends_with("[cut]"), "{length}: {cut:?}");
        }
    }
}
