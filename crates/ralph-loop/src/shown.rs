//! How texts of others are shown.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use harness_subagent::Usage;
use textwrap::core::display_width;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Prints a line on standard error. Nothing can be done about one that is closed.
pub(crate) fn warn(line: &str) {
    // In one piece: standard error has no buffer.
    let _ = anstream::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Tells on standard error what ends the program. On a terminal it is wrapped; a log gets it in one piece.
pub(crate) fn fail(text: &str) {
    let text = format!("ralph-loop: {text}");
    let text = match io::stderr().is_terminal() {
        true => wrapped(&text, "", ""),
        false => harness_process::sanitize(&text).into_owned(),
    };
    warn(&text.replacen("ralph-loop:", &format!("{BAD}ralph-loop:{BAD:#}"), 1));
}

/// Wraps `text` to the terminal: the first line behind `first`, all others behind `rest`. Control characters are shown
/// harmlessly.
pub(crate) fn wrapped(text: &str, first: &str, rest: &str) -> String {
    wrapped_to(terminal_width(), text, first, rest)
}

fn wrapped_to(width: usize, text: &str, first: &str, rest: &str) -> String {
    // What has no room beside its indent is better too wide than a column of single words.
    let width = width.max(display_width(rest) + 24);
    if let Some(line) = unwrapped(width, text, first) {
        return line;
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        let clean = harness_process::sanitize(line).replace('\t', "    ");
        let start = if lines.is_empty() { first } else { rest };
        let options = textwrap::Options::new(width)
            .initial_indent(start)
            .subsequent_indent(rest)
            .break_words(false)
            // A path or an option that is torn at its hyphen cannot be copied.
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        lines.extend(textwrap::wrap(&clean, options).into_iter().map(|line| line.trim_end().to_owned()));
    }
    if lines.is_empty() { first.trim_end().to_owned() } else { lines.join("\n") }
}

/// A text that is one short line, which is what most are.
fn unwrapped(width: usize, text: &str, first: &str) -> Option<String> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let fits = text.len() + first.len() <= width && is_plain(text) && is_plain(first) && !text.is_empty();
    fits.then(|| format!("{first}{text}").trim_end().to_owned())
}

/// The first line of `text`, cut to `width` columns, without control characters.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    cut(&harness_process::sanitize(line).replace('\t', " "), width)
}

/// Cuts a line to `width` columns.
pub(crate) fn cut(line: &str, width: usize) -> String {
    if display_width(line) <= width {
        return line.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for character in line.chars() {
        used += display_width(character.encode_utf8(&mut [0; 4]));
        if used + 1 > width {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}

/// The end of a line, such as a path, cut to `width` columns.
pub(crate) fn cut_front(line: &str, width: usize) -> String {
    if display_width(line) <= width {
        return line.to_owned();
    }
    let mut start = line.len();
    let mut used = 1;
    for (index, character) in line.char_indices().rev() {
        used += display_width(character.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        start = index;
    }
    format!("…{}", &line[start..])
}

/// A path for people: what lies in their home begins with `~`.
pub(crate) fn path(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    below_home(path, home.as_deref())
}

fn below_home(path: &Path, home: Option<&Path>) -> String {
    let text = path.to_string_lossy();
    let clean = |text: &str| harness_process::sanitize(text).into_owned();
    // A home of `/` says nothing about a path.
    match home.filter(|home| home.parent().is_some()).and_then(|home| path.strip_prefix(home).ok()) {
        // What would read as another path stays as it is.
        _ if text.starts_with('~') => clean(&text),
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", clean(&rest.to_string_lossy())),
        None => clean(&text),
    }
}

/// Adds blanks to fill `width` columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(display_width(text))))
}

/// A duration for people: `47ms`, `3.2s`, `4m 05s`, `2h 03m`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A duration as it can be given: `1h30m`, `90s` becomes `1m30s`.
pub(crate) fn exact(duration: Duration) -> String {
    let (seconds, milliseconds) = (duration.as_secs(), duration.subsec_millis());
    let parts =
        [(seconds / 3600, "h"), (seconds % 3600 / 60, "m"), (seconds % 60, "s"), (milliseconds.into(), "ms")];
    parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect()
}

/// How long ago something was, in one unit.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// The time since a moment in milliseconds since 1970.
pub(crate) fn since(moment_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(moment_ms))
}

/// Tokens and cost, as far as they are known: `12.3k tokens, $0.42`, or nothing.
pub(crate) fn usage(usage: Usage) -> Option<String> {
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    let tokens = (tokens > 0).then(|| format!("{} tokens", count(tokens)));
    let cost = usage.cost_usd_micros.map(dollars);
    match (tokens, cost) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one),
        (Some(tokens), Some(cost)) => Some(format!("{tokens}, {cost}")),
    }
}

fn count(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        1000..1_000_000 => format!("{}.{}k", number / 1000, number % 1000 / 100),
        _ => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

/// Millionths of a dollar as dollars and cents.
pub(crate) fn dollars(micros: u64) -> String {
    format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

/// `1 round`, `2 rounds`.
pub(crate) fn rounds(count: u64) -> String {
    if count == 1 { "1 round".to_owned() } else { format!("{count} rounds") }
}

/// The width for text on the terminal, 80 where there is none.
pub(crate) fn terminal_width() -> usize {
    // What is no terminal does not become one, but a terminal may change its width.
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| {
        io::stdout().is_terminal() || io::stderr().is_terminal() || io::stdin().is_terminal()
    });
    if *IS_THERE { textwrap::termwidth().clamp(40, 120) } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_wide_texts_are_cut_to_columns() {
        assert_eq!(one_line("\n  hello\nworld", 10), "hello");
        assert_eq!(one_line("hello world", 6), "hello…");
        assert_eq!(one_line("漢字漢字", 5), "漢字…");
        assert_eq!(cut_front("/srv/漢字/work", 9), "…字/work");
        assert_eq!(padded("漢字", 6), "漢字  ");
        assert!(!one_line("a\u{1b}[31mb", 40).contains('\u{1b}'));
    }

    #[test]
    fn paths_in_the_home_begin_with_a_tilde() {
        let check = |path: &str, home: &str, expected: &str| {
            assert_eq!(below_home(Path::new(path), Some(Path::new(home))), expected);
        };
        check("/users/ada/work", "/users/ada", "~/work");
        check("/users/ada", "/users/ada/", "~");
        check("/users/adam", "/users/ada", "/users/adam");
        check("/srv/a\u{1b}b", "/users/ada", "/srv/a␛b");
        check("/srv", "/", "/srv");
        check("~/work", "/users/ada", "~/work");
        assert_eq!(below_home(Path::new("/srv"), None), "/srv");
    }

    #[test]
    fn wrapped_text_keeps_its_lines_and_loses_its_controls() {
        let text = "one two three four five six seven\n\u{1b}]0;title\u{7}eight";
        let wrapped = wrapped_to(30, text, "- ", "  ");
        assert_eq!(wrapped, "- one two three four five six\n  seven\n  ␛]0;title␇eight");
    }

    #[test]
    fn a_text_that_fits_is_shown_as_one_that_is_wrapped() {
        for (text, expected) in [("short ", "- short"), (" a  b", "-  a  b"), ("", "-"), ("  ", "-")] {
            assert_eq!(wrapped_to(30, text, "- ", "  "), expected, "{text:?}");
            // With a letter that is none of ASCII the long way is taken.
            assert_eq!(wrapped_to(30, &format!("{text}é"), "- ", "  "), format!("- {text}é"));
        }
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(Duration::from_millis(47)), "47ms");
        assert_eq!(duration(Duration::from_millis(3299)), "3.2s");
        assert_eq!(duration(Duration::from_secs(245)), "4m 05s");
        assert_eq!(duration(Duration::from_secs(7380)), "2h 03m");
        assert_eq!(exact(Duration::from_millis(5_400_250)), "1h30m250ms");
    }

    #[test]
    fn usage_is_told_as_far_as_it_is_known() {
        assert_eq!(usage(Usage::default()), None);
        assert_eq!(usage(Usage::new(900, 99)).unwrap(), "999 tokens");
        let known = Usage::new(1_200_000, 45_678).with_cost_usd_micros(1_429_999);
        assert_eq!(usage(known).unwrap(), "1.2M tokens, $1.42");
    }
}
