//! Children that hand in something else than one value.

use harness_provider_cli::HandIn;
use harness_subagent::StopReason;

use super::case::Case;

pub(crate) fn cases() -> Vec<Case> {
    let unreadable = StopReason::UNREADABLE_VALUE;
    let no_value = StopReason::NO_VALUE;
    let completed = StopReason::COMPLETED;
    let printed = |name, format: &str| Case::new(name, format!("printf '{format}' > \"$v\""), &unreadable);
    let said = |name, script, reason| Case::new(name, script, reason).with_hand_in(HandIn::StandardOutput);
    vec![
        Case::new("hands in an empty file", ": > \"$v\"", &no_value),
        printed("hands in white space", " \\n"),
        printed("stops in the middle of its value", "{\"a\":"),
        printed("hands in two values", "{\"a\":1}{\"a\":2}"),
        printed("fences its value", "```json\\n{\"a\":1}\\n```"),
        printed("adds a word", "{\"a\":1} done"),
        printed("gives a key twice", "{\"a\":1,\"a\":2}"),
        printed("begins with a byte order mark", "\\357\\273\\277{\"a\":1}"),
        printed("writes UTF-16", "\\377\\376{\\000}\\000"),
        printed("writes bytes that are no text", "{\"a\":\"\\377\"}"),
        printed("writes half a surrogate", "{\"a\":\"\\\\ud800\"}"),
        printed("writes a number beyond all numbers", "{\"a\":1e999}"),
        printed("adds a NUL", "{\"a\":1}\\000"),
        printed("colours its value", "\\033[32m{\"a\":1}\\033[0m"),
        Case::new("nests without end", "head -c 500000 /dev/zero | tr '\\0' '[' > \"$v\"", &unreadable),
        Case::new(
            "hands in too much",
            "{ printf '{\"a\":\"'; head -c 1100000 /dev/zero | tr '\\0' x; printf '\"}'; } > \"$v\"",
            &unreadable,
        ),
        Case::new(
            "hands in a million numbers",
            "{ printf '{\"a\":[0'; yes ,0 | head -c 900000 | tr -d '\\n'; printf ']}'; } > \"$v\"",
            &unreadable,
        ),
        Case::new(
            "hands in a hundred thousand objects",
            "{ printf '{\"a\":[{\"\":0}'; yes ',{\"\":0}' | head -n 110000 | tr -d '\\n'; printf ']}'; } > \"$v\"",
            &unreadable,
        ),
        Case::new(
            "hands in terabytes of nothing",
            "truncate -s 5T \"$v\" || truncate -s 1G \"$v\"",
            &unreadable,
        ),
        Case::new("hands in a link", "printf '{\"a\":1}' > value; ln -s \"$PWD/value\" \"$v\"", &unreadable),
        Case::new("hands in a link to endless nothing", "ln -s /dev/zero \"$v\"", &unreadable),
        Case::new("hands in a pipe", "mkfifo \"$v\"", &unreadable),
        Case::new("hands in a directory", "mkdir \"$v\"", &unreadable),
        Case::new("takes its value back", "hand_in; rm \"$v\"", &no_value),
        Case::new("deletes the files of its call", "hand_in; rm -r \"$(dirname \"$v\")\"", &no_value),
        Case::new(
            "hands in under another name",
            "printf '{\"a\":1}' > \"$(dirname \"$v\")/value.json\"",
            &no_value,
        ),
        Case::new("leaves handing in to one that stays behind", "(sleep 5; hand_in) & exit 0", &no_value),
        Case::new(
            "leaves handing in to a daemon",
            "setsid sh -c 'sleep 5; echo {} > \"$HARNESS_VALUE_FILE\"' & exit 0",
            &no_value,
        ),
        said("says three values", r#"echo '{"a":1}'; echo '{"a":2}'; echo '{"a":3}'"#, &unreadable),
        said("says words around its value", r#"echo 'Here it is:'; echo '{"a":1}'"#, &unreadable),
        said("says its value in colour", r#"printf '\033[1m{"a":1}\033[0m\n'"#, &unreadable),
        said("says its value and floods", r#"echo '{"a":1}'; head -c 50000000 /dev/zero"#, &unreadable),
        said("says its value to the wrong stream", r#"echo '{"a":1}' >&2"#, &no_value),
        said("says its value and stays", r#"echo '{"a":1}'; sleep 600"#, &completed),
        said("says its value and leaves one who goes on", r#"echo '{"a":1}'; sleep 600 &"#, &completed),
    ]
}
