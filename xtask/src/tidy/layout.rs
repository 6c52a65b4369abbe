//! Where things stand and what they are called.

use anyhow::Result;

use super::{Problem, Subject};
use crate::policy;

/// Names that say nothing about what is inside.
const NAMELESS: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];

/// The top holds what is on the list, and dotfiles.
pub(super) fn top_level(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let names = subject.tree.paths().map(|path| path.split('/').next().unwrap_or(path));
    Ok(names
        .filter(|name| !name.starts_with('.') && !policy::TOP_LEVEL.contains(name))
        .map(|name| Problem::new(name, "nothing else belongs at the top; move it into a crate or into docs/"))
        .collect())
}

/// A crate's folder has the crate's name, below `crates/`.
pub(super) fn folder_names(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        let expected = if member.name == policy::XTASK {
            member.name.clone()
        } else {
            format!("crates/{}", member.name)
        };
        if member.folder != expected {
            problems.push(Problem::new(
                &member.folder,
                format!("this is the crate {}; move it to {expected}", member.name),
            ));
        }
        if ![policy::XTASK].contains(&member.name.as_str())
            && !member.name.starts_with("harness-")
            && !member.name.starts_with("ralph-")
        {
            problems
                .push(Problem::new(&member.name, "a crate is `harness-…`, or `ralph-…` if it knows Ralph"));
        }
    }
    Ok(problems)
}

/// No module is called `utils` or the like, as a file, a folder or in line.
pub(super) fn module_names(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for (path, text) in subject.tree.texts(".rs") {
        let parts = path.strip_suffix(".rs").unwrap_or(path).split('/');
        for name in parts.filter(|part| NAMELESS.contains(part)) {
            problems.push(Problem::new(path, format!("`{name}` names nothing; call it for the thing in it")));
        }
        for (number, line) in text.lines().enumerate() {
            let Some((_, rest)) = line.split_once("mod ") else { continue };
            let name = rest.trim_end().trim_end_matches('{').trim_end();
            if NAMELESS.contains(&name) {
                problems.push(Problem::new(
                    format!("{path}:{}", number + 1),
                    format!("`{name}` names nothing; call it for the thing in it"),
                ));
            }
        }
    }
    Ok(problems)
}

/// A crate reads no file from outside its folder while it is built: its package would not have it.
pub(super) fn crates_are_whole(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        let folder = format!("{}/", member.folder);
        for (path, text) in subject.tree.texts(".rs").filter(|(path, _)| path.starts_with(&folder)) {
            for (number, line) in text.lines().enumerate() {
                let outside = included(line).filter(|file| !stays_inside(&path[folder.len()..], file));
                problems.extend(outside.map(|file| {
                    Problem::new(
                        format!("{path}:{}", number + 1),
                        format!(
                            "`{file}` lies outside the crate; copy it inside, or the package cannot be built"
                        ),
                    )
                }));
            }
        }
    }
    Ok(problems)
}

/// Returns the files that a line of source takes in while it is compiled.
fn included(line: &str) -> impl Iterator<Item = &str> {
    ["include!(\"", "include_bytes!(\"", "include_str!(\"", "#[path = \""].into_iter().flat_map(|opening| {
        line.match_indices(opening).filter_map(|(at, _)| line[at + opening.len()..].split('"').next())
    })
}

/// True if `file`, seen from the source at `from` inside a crate, is inside the crate too.
fn stays_inside(from: &str, file: &str) -> bool {
    let mut depth = from.matches('/').count();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tidy::fixture::{member, places},
        workspace::Crate,
    };

    #[test]
    fn only_the_list_and_dotfiles_stand_at_the_top() {
        let files = [("notes.txt", ""), ("src/lib.rs", ""), (".ci/run", ""), ("docs/architecture.md", "")];
        assert_eq!(places(top_level, &[], &files), ["notes.txt", "src"]);
    }

    #[test]
    fn a_folder_with_another_name_is_found() {
        let crates =
            [Crate { folder: "crates/report".to_owned(), ..member("ralph-report") }, member("xtask")];
        assert_eq!(places(folder_names, &crates, &[]), ["crates/report"]);
    }

    #[test]
    fn a_crate_of_neither_family_is_found() {
        assert_eq!(places(folder_names, &[member("loop-report")], &[]), ["loop-report"]);
    }

    #[test]
    fn nameless_modules_are_found_as_file_folder_and_block() {
        let files = [
            ("crates/a/src/utils.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/src/lib.rs", "mod good;\npub(crate) mod helpers {\n}\nmod common_ground;\n"),
        ];
        assert_eq!(
            places(module_names, &[], &files),
            ["crates/a/src/lib.rs:2", "crates/a/src/utils.rs", "crates/a/tests/common/mod.rs"]
        );
    }

    #[test]
    fn a_crate_that_reads_a_file_outside_is_found() {
        let source = concat!(
            "const A: &str = include_str!(\"../README.md\");\n",
            "const B: &[u8] = include_bytes!(\"../../other/data\");\n"
        );
        let files = [("crates/ralph-report/src/lib.rs", source)];
        assert_eq!(
            places(crates_are_whole, &[member("ralph-report")], &files),
            ["crates/ralph-report/src/lib.rs:2"]
        );
    }
}
