//! What every crate says about itself.

use anyhow::Result;

use super::{Problem, Subject};
use crate::{policy, workspace::Crate};

/// Every crate has a README, a CHANGELOG, a `rust-version` and the licence.
pub(super) fn present(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        if !member.has_rust_version {
            problems.push(Problem::new(&member.name, "state the `rust-version`"));
        }
        if member.licence.as_deref() != Some("MIT") {
            problems.push(Problem::new(&member.name, "the licence is MIT"));
        }
    }
    for member in products(subject) {
        for (file, advice) in [
            ("README.md", "say what it is for, who should depend on it, how stable it is and how to use it"),
            ("CHANGELOG.md", "begin one: a heading for the version, then what was added"),
        ] {
            let path = format!("{}/{file}", member.folder);
            // A heading alone says nothing.
            if subject.tree.text(&path).is_none_or(|text| text.trim().lines().count() < 2) {
                problems.push(Problem::new(path, advice));
            }
        }
    }
    Ok(problems)
}

/// The docs of every crate hold an example that `cargo test` runs; a program without a library has
/// docs at least.
pub(super) fn runnable_example(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in products(subject) {
        let file = if member.has_library { "lib.rs" } else { "main.rs" };
        let path = format!("{}/src/{file}", member.folder);
        let Some(source) = subject.tree.text(&path) else {
            problems.push(Problem::new(path, "missing; a crate's docs begin there"));
            continue;
        };
        let mut docs = crate_docs(source);
        if source.contains("include_str!(\"../README.md\")") {
            docs.push_str(subject.tree.text(&format!("{}/README.md", member.folder)).unwrap_or_default());
        }
        if docs.trim().is_empty() {
            problems.push(Problem::new(path, "begin with crate docs (`//!`)"));
        } else if member.has_library && !has_runnable_example(&docs) {
            problems.push(Problem::new(
                path,
                "show a complete example in the crate docs, as a doctest that runs",
            ));
        }
    }
    Ok(problems)
}

fn products<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Crate> {
    subject.workspace.crates.iter().filter(|member| member.name != policy::XTASK)
}

/// Returns the text of the `//!` lines.
fn crate_docs(source: &str) -> String {
    let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// True if some fenced block is Rust that rustdoc compiles and runs, and is not empty.
fn has_runnable_example(docs: &str) -> bool {
    let mut lines = docs.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let runs = runs(info);
        let body = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
        if body.filter(|line| !line.trim().is_empty()).count() > 0 && runs {
            return true;
        }
    }
    false
}

fn runs(info: &str) -> bool {
    info.split([',', ' '])
        .map(str::trim)
        .all(|word| matches!(word, "" | "rust" | "should_panic") || word.starts_with("edition"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::{member, places};

    #[test]
    fn blocks_that_nobody_runs_are_no_examples() {
        for info in ["text", "ignore", "no_run", "rust,no_run", "compile_fail", "toml", "sh"] {
            assert!(!has_runnable_example(&format!("Intro.\n```{info}\nlet x = 1;\n```\n")), "{info}");
        }
        assert!(!has_runnable_example("```\n\n```\n"), "empty");
        assert!(
            !has_runnable_example("```text\na\n```\nprose between the blocks\n```toml\nb\n```\n"),
            "between"
        );
    }

    #[test]
    fn a_rust_block_is_an_example_wherever_it_stands() {
        for docs in ["```\nx();\n```", "```rust\nx();\n```", "```text\na\n```\n\n```should_panic\nx();\n```"]
        {
            assert!(has_runnable_example(docs), "{docs}");
        }
    }

    #[test]
    fn the_example_may_stand_in_the_included_readme() {
        let source = "#![doc = include_str!(\"../README.md\")]\n";
        let check = |readme: &str| {
            let files =
                [("crates/ralph-report/src/lib.rs", source), ("crates/ralph-report/README.md", readme)];
            places(runnable_example, &[member("ralph-report")], &files)
        };
        assert_eq!(check("# x\n"), ["crates/ralph-report/src/lib.rs"]);
        assert!(check("# x\n```\nx();\n```\n").is_empty());
    }

    #[test]
    fn a_program_needs_docs_but_no_doctest() {
        let program = Crate { has_library: false, ..member("ralph-loop") };
        let check = |source| {
            places(
                runnable_example,
                std::slice::from_ref(&program),
                &[("crates/ralph-loop/src/main.rs", source)],
            )
        };
        assert_eq!(check("fn main() {}"), ["crates/ralph-loop/src/main.rs"]);
        assert!(check("//! Runs loops.\nfn main() {}").is_empty());
    }

    #[test]
    fn a_heading_alone_is_no_readme() {
        let files = [
            ("crates/ralph-report/README.md", "# ralph-report\n"),
            ("crates/ralph-report/CHANGELOG.md", "# Changelog\n\n## 0.1.0\n"),
        ];
        assert_eq!(places(present, &[member("ralph-report")], &files), ["crates/ralph-report/README.md"]);
    }

    #[test]
    fn licence_and_rust_version_are_asked_of_xtask_too() {
        let bare = Crate { has_rust_version: false, licence: None, ..member("xtask") };
        assert_eq!(places(present, &[bare], &[]), ["xtask", "xtask"]);
    }
}
