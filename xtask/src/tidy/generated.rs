//! Committed files that a program writes.

use std::fs;

use anyhow::{Context as _, Result};

use super::{Problem, Subject};
use crate::{cargo, policy};

/// Each generated file is what its program writes today.
pub(super) fn fresh(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for generated in policy::GENERATED {
        let text = cargo::output(&mut cargo::cargo(&subject.workspace.root, generated.cargo))?;
        if subject.write {
            fs::write(subject.workspace.root.join(generated.file), text)
                .with_context(|| format!("could not write `{}`", generated.file))?;
            println!("wrote {}", generated.file);
        } else {
            problems.extend(compare(generated.file, subject.tree.text(generated.file), &text));
        }
    }
    Ok(problems)
}

fn compare(file: &str, committed: Option<&str>, fresh: &str) -> Option<Problem> {
    let line = match committed {
        Some(committed) if committed == fresh => return None,
        Some(committed) => {
            let same = committed.lines().zip(fresh.lines()).take_while(|(old, new)| old == new).count();
            format!("{file}:{}", same + 1)
        }
        None => file.to_owned(),
    };
    Some(Problem::new(line, "not what its program writes; `cargo xtask tidy --write`, then commit it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_shown_at_its_first_other_line() {
        assert_eq!(compare("docs/a.md", Some("a\nb\nc\n"), "a\nB\nc\n").unwrap().place, "docs/a.md:2");
        assert_eq!(compare("docs/a.md", Some("a\n"), "a\nb\n").unwrap().place, "docs/a.md:2");
    }

    #[test]
    fn a_missing_file_is_stale() {
        assert_eq!(compare("docs/a.md", None, "").unwrap().place, "docs/a.md");
    }

    #[test]
    fn an_equal_file_is_fresh() {
        assert_eq!(compare("docs/a.md", Some("a\n"), "a\n"), None);
    }
}
