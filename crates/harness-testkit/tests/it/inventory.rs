//! The inventory of cases names tests that exist, and gives a reason where it names none.

use std::fs;
use std::path::{Path, PathBuf};

const INVENTORY: &str = include_str!("../../inventory.md");

/// Returns the source files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Says whether `path`, such as `harness-subagent::schema::a_test`, names a function of this workspace.
fn exists(path: &str) -> bool {
    let parts: Vec<&str> = path.split("::").collect();
    let [krate, modules @ .., function] = &parts[..] else { return false };
    let Some(module) = modules.last() else { return false };
    let krate = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate);
    let in_module = |file: &PathBuf| {
        file.file_stem().is_some_and(|stem| stem == *module)
            || file.parent().and_then(Path::file_name).is_some_and(|folder| folder == *module)
    };
    ["src", "tests", "examples"].iter().flat_map(|part| sources(&krate.join(part))).filter(in_module).any(
        |file| {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.contains(&format!("fn {function}("))
        },
    )
}

/// Returns the case and what holds it, for each row of the tables.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cells = |line: &'static str| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
    INVENTORY.lines().filter_map(cells).filter(|(case, _)| *case != "case").collect()
}

#[test]
fn every_case_names_tests_that_exist_or_a_reason() {
    let mut wrong = Vec::new();
    for (case, held) in rows() {
        let named: Vec<&str> =
            held.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        let reason = held.strip_prefix("none: ");
        if reason.is_some_and(|reason| !reason.ends_with('.') || reason.len() < 20) {
            wrong.push(format!("{case}: a reason is a sentence"));
        }
        if reason.is_none() && named.is_empty() {
            wrong.push(format!("{case}: neither a test nor a reason"));
        }
        wrong.extend(named.iter().filter(|name| !exists(name)).map(|name| format!("{case}: no test {name}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_table_of_the_inventory_is_read() {
    let lines = INVENTORY.lines().filter(|line| line.starts_with('|')).count();
    let heads = INVENTORY.lines().filter(|line| *line == "|---|---|").count();
    assert_eq!(rows().len() + 2 * heads, lines, "a row has two cells");
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    assert!(exists("harness-testkit::inventory::a_test_that_is_not_there_is_noticed"));
    assert!(!exists("harness-testkit::inventory::no_such_test"));
    assert!(!exists("harness-testkit::clauses::a_test_that_is_not_there_is_noticed"));
    assert!(!exists("no-such-crate::inventory::a_test_that_is_not_there_is_noticed"));
}
