//! How this program is called from the user's shell.

use std::ffi::OsStr;
use std::path::Path;

/// Returns `ralph-loop` and `arguments` as the user can type them where they typed the present command.
pub(crate) fn command(arguments: &str) -> String {
    format!("{} {arguments}", program())
}

fn program() -> String {
    const NAME: &str = "ralph-loop";
    let Ok(ours) = std::env::current_exe() else { return NAME.to_owned() };
    let found = harness_process::find_program(OsStr::new(NAME), std::env::var_os("PATH").as_deref());
    if found.is_ok_and(|found| same(&found, &ours)) {
        return NAME.to_owned();
    }
    // Set by cargo for what it runs.
    if std::env::var_os("CARGO").is_some() && std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return format!("cargo run -q -p {NAME} --");
    }
    match std::env::args_os().next() {
        Some(typed) if typed.as_encoded_bytes().contains(&b'/') => quoted(&typed.to_string_lossy()),
        _ => quoted(&ours.to_string_lossy()),
    }
}

fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Quotes a word for a POSIX shell, where it needs that.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("/opt/a-b/ralph-loop"), "/opt/a-b/ralph-loop");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
