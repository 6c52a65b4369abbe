//! Relative links in Markdown files.

use anyhow::Result;

use super::{Problem, Subject, tree::Tree};

/// Every relative link leads to a file or folder of the workspace.
pub(super) fn resolve(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for (path, text) in subject.tree.texts(".md") {
        for (line, target) in links(text) {
            if !leads_somewhere(subject.tree, path, target) {
                problems.push(Problem::new(
                    format!("{path}:{line}"),
                    format!(
                        "the link to `{target}` leads nowhere; links are relative to the file they stand in"
                    ),
                ));
            }
        }
    }
    Ok(problems)
}

fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    if target.starts_with('/') {
        return false;
    }
    let mut place: Vec<&str> = from.split('/').collect();
    place.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if place.pop().is_none() {
                    return false;
                }
            }
            name => place.push(name),
        }
    }
    tree.has(&place.join("/"))
}

/// Returns the relative targets of inline links and of reference definitions, with their lines.
/// Code is skipped; so are addresses, headings of the same file and paths of Rust items.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark)) {
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => {}
            }
            continue;
        }
        if fence.is_some() {
            continue;
        }
        let definition =
            start.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, rest)| rest);
        let targets = definition.into_iter().chain(inline(line)).filter_map(target);
        found.extend(targets.map(|target| (number + 1, target)));
    }
    found
}

/// Returns what stands between the parentheses of each inline link outside code spans.
fn inline(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, opening)| {
        let in_code = line[..at].matches('`').count() % 2 == 1;
        let rest = &line[at + opening.len()..];
        (!in_code).then(|| rest.split_once(')').map_or(rest, |(inside, _)| inside))
    })
}

/// Returns the target without its title, if it is relative.
fn target(written: &str) -> Option<&str> {
    let target = written.split_whitespace().next()?.trim_start_matches('<').trim_end_matches('>');
    let elsewhere = target.starts_with('#') || target.starts_with("mailto:");
    (!elsewhere && !target.contains("://") && !target.contains("::")).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::places;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&str> = links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn links_are_found_in_every_form() {
        check("see [a](docs/a.md) and [b](<b.md> \"title\")", &["docs/a.md", "b.md"]);
        check("[a]: docs/a.md", &["docs/a.md"]);
        check("[`code`](a.md)", &["a.md"]);
    }

    #[test]
    fn addresses_items_headings_and_code_are_no_relative_links() {
        check("[a](https://example.org) [b](#heading) [c](crate::Thing) [d](mailto:a@example.org)", &[]);
        check("`[a](b.md)`\n```text\n[a](b.md)\n```\n", &[]);
    }

    #[test]
    fn links_start_from_the_file_they_stand_in() {
        let files = [
            ("README.md", "[ok](docs/a.md#part) [ok](crates) [bad](a.md)"),
            ("docs/a.md", "[ok](../README.md)\n[bad](docs/a.md)\n[bad](../../outside.md) [bad](/README.md)"),
            ("crates/x/src/lib.rs", ""),
        ];
        assert_eq!(
            places(resolve, &[], &files),
            ["README.md:1", "docs/a.md:2", "docs/a.md:3", "docs/a.md:3"]
        );
    }
}
