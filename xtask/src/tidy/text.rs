//! What no file may say.

use anyhow::Result;

use super::{Problem, Subject};

/// First parts of absolute paths that exist on one machine only.
const MACHINE: &[&str] = &["Users", "home", "root", "work"];

/// No file names a path of someone's machine, or a folder beside the clone.
pub(super) fn machine_paths(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    Ok(each_line(subject, "", |line| {
        if names_machine_path(line) {
            Some("this path exists on one machine only; use one inside the clone, or a made-up place")
        } else if line.contains(concat!("../", "shared")) {
            Some("the repository stands alone; copy what is needed into the crate")
        } else {
            None
        }
    }))
}

fn names_machine_path(line: &str) -> bool {
    MACHINE.iter().any(|name| {
        line.match_indices(&format!("/{name}/")).any(|(at, matched)| {
            let before = line[..at].chars().next_back();
            let after = line[at + matched.len()..].chars().next();
            // In `docs/work/x`, `{home}/work/x` or `https://host/home/x` it is a part of something longer.
            let begins = before.is_none_or(|char| !(char.is_alphanumeric() || "._-/~}>)]*$".contains(char)));
            begins && after.is_some_and(|char| char.is_alphanumeric() || char == '.' || char == '_')
        })
    })
}

/// No source file holds a place that panics because it is not written yet.
pub(super) fn unfinished(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    Ok(each_line(subject, ".rs", |line| {
        let unfinished = [concat!("todo", "!("), concat!("unimplemented", "!(")];
        unfinished.iter().any(|call| line.contains(call)).then_some("write it, or leave it out")
    }))
}

fn each_line(subject: &Subject<'_>, ending: &str, check: fn(&str) -> Option<&'static str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in subject.tree.texts(ending) {
        for (number, line) in text.lines().enumerate() {
            if let Some(advice) = check(line) {
                problems.push(Problem::new(format!("{path}:{}", number + 1), advice));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::places;

    #[test]
    fn absolute_paths_of_a_machine_are_found() {
        for name in MACHINE {
            for line in ["@a", "see `@b/c`", "\"@a.txt\"", "dir=@_x"] {
                let line = line.replace('@', &format!("/{name}/"));
                assert!(names_machine_path(&line), "{line}");
            }
        }
    }

    #[test]
    fn parts_of_other_paths_are_free() {
        for line in [
            "docs/work/a",
            "https://example.org/home/a",
            "{state}/root/a",
            "~/work/a",
            "$HOME/work/a",
            "/network/a",
        ] {
            assert!(!names_machine_path(line), "{line}");
        }
    }

    #[test]
    fn a_folder_beside_the_clone_is_found() {
        let text = concat!("fine\nsee ../", "shared/spec\n");
        assert_eq!(places(machine_paths, &[], &[("docs/a.md", text)]), ["docs/a.md:2"]);
    }

    #[test]
    fn unfinished_code_is_found_in_sources_only() {
        let text = concat!("fn a() {\n    todo", "!()\n}\n");
        let files = [("crates/a/src/lib.rs", text), ("docs/a.md", text)];
        assert_eq!(places(unfinished, &[], &files), ["crates/a/src/lib.rs:2"]);
    }
}
