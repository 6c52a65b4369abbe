//! What the manifests say, and how.

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::{Problem, Subject};
use crate::policy;

const ROOT: &str = "Cargo.toml";

/// Members name no versions: they inherit from the workspace, or point at a sibling.
pub(super) fn versions_in_one_table(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    each_member(subject, |manifest| {
        dependency_tables(manifest)
            .into_iter()
            .flatten()
            .filter(|(_, entry)| {
                !entry.get("path").is_some_and(Value::is_str) && !is_true(entry.get("workspace"))
            })
            .map(|(name, _)| {
                format!("write `{name}.workspace = true` and put the version into the root's [workspace.dependencies]")
            })
            .collect()
    })
}

/// The workspace's table switches default features off; each crate turns on what it uses.
pub(super) fn default_features_off(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let Some(root) = subject.tree.text(ROOT) else { return Ok(Vec::new()) };
    let root: Table = root.parse().context(ROOT)?;
    let table = root.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let entries = table.and_then(Value::as_table).into_iter().flatten();
    Ok(entries
        .filter(|(_, entry)| entry.get("default-features").and_then(Value::as_bool) != Some(false))
        .map(|(name, _)| Problem::new(ROOT, format!("`{name}` needs `default-features = false`")))
        .collect())
}

/// What is built by default is every member but those that [stand apart](policy::APART).
pub(super) fn default_members(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let Some(root) = subject.tree.text(ROOT) else { return Ok(Vec::new()) };
    let root: Table = root.parse().context(ROOT)?;
    let list = root.get("workspace").and_then(|workspace| workspace.get("default-members"));
    let list = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let written: Vec<&str> = list.collect();
    let expected: Vec<&str> = subject.workspace.together().map(|member| member.folder.as_str()).collect();
    let missing = expected.iter().filter(|folder| !written.contains(folder)).map(|folder| {
        format!(
            "add `{folder}` to default-members, or to the list of what stands apart in xtask/src/policy.rs"
        )
    });
    let surplus = written
        .iter()
        .filter(|folder| !expected.contains(folder))
        .map(|folder| format!("strike `{folder}` from default-members: it is no member, or it stands apart"));
    // A name in the list of what stands apart that no member has would excuse nothing.
    let unknown = policy::APART
        .iter()
        .filter(|name| !subject.workspace.crates.iter().any(|member| member.name == **name))
        .map(|name| format!("strike `{name}` from the list of what stands apart: there is no such member"));
    Ok(missing.chain(surplus).chain(unknown).map(|advice| Problem::new(ROOT, advice)).collect())
}

/// Edition, licence and lints come from the workspace; the version does not.
pub(super) fn inherits(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    each_member(subject, |manifest| {
        let package = manifest.get("package");
        let inherited = |key: &str| is_true(package.and_then(|package| package.get(key)?.get("workspace")));
        let mut advice: Vec<String> = ["edition", "license"]
            .into_iter()
            .filter(|key| !inherited(key))
            .map(|key| format!("write `{key}.workspace = true`"))
            .collect();
        if inherited("version") {
            advice.push("give the crate a version of its own".to_owned());
        }
        if !is_true(manifest.get("lints").and_then(|lints| lints.get("workspace"))) {
            advice.push("write `[lints] workspace = true`".to_owned());
        }
        advice
    })
}

/// Benches print rows of their own and so have no harness.
pub(super) fn benches_without_harness(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        let path = manifest_path(&member.folder);
        let Some(text) = subject.tree.text(&path) else { continue };
        let manifest: Table = text.parse().with_context(|| path.clone())?;
        let declared = manifest.get("bench").and_then(Value::as_array).into_iter().flatten();
        let bare: Vec<&str> = declared
            .filter(|bench| bench.get("harness").and_then(Value::as_bool) == Some(false))
            .filter_map(|bench| bench.get("name")?.as_str())
            .collect();
        for bench in member.benches.iter().filter(|bench| !bare.contains(&bench.name.as_str())) {
            problems.push(Problem::new(
                &path,
                format!("declare `[[bench]] name = \"{}\"` with `harness = false`", bench.name),
            ));
        }
    }
    Ok(problems)
}

fn each_member(subject: &Subject<'_>, check: fn(&Table) -> Vec<String>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        let path = manifest_path(&member.folder);
        let Some(text) = subject.tree.text(&path) else { continue };
        let manifest: Table = text.parse().with_context(|| path.clone())?;
        problems.extend(check(&manifest).into_iter().map(|advice| Problem::new(&path, advice)));
    }
    Ok(problems)
}

fn manifest_path(folder: &str) -> String {
    format!("{folder}/Cargo.toml")
}

/// Returns every dependency table of a manifest, those of its targets included.
fn dependency_tables(manifest: &Table) -> Vec<&Table> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table);
    let nested = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(nested)
        .flat_map(|table| KINDS.into_iter().filter_map(|kind| table.get(kind)?.as_table()))
        .collect()
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tidy::fixture::{member, problems},
        workspace::{Crate, Target},
    };

    const PATH: &str = "crates/ralph-report/Cargo.toml";

    #[track_caller]
    fn check(check: super::super::Check, manifest: &str, expected: &[&str]) {
        let found = problems(check, &[member("ralph-report")], &[(PATH, manifest)]);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (problem, expected) in found.iter().zip(expected) {
            assert!(problem.place == PATH && problem.advice.contains(expected), "{problem:?}");
        }
    }

    #[test]
    fn a_version_in_a_member_is_found_in_every_table() {
        check(versions_in_one_table, "[dependencies]\nserde = \"1\"", &["serde"]);
        check(versions_in_one_table, "[dev-dependencies]\nserde = { version = \"1\" }", &["serde"]);
        check(versions_in_one_table, "[target.'cfg(unix)'.dependencies]\nnix = \"1\"", &["nix"]);
    }

    #[test]
    fn inherited_dependencies_and_siblings_are_fine() {
        let manifest = "[dependencies]\nserde.workspace = true\n\
            harness-subagent = { path = \"../harness-subagent\", version = \"0.1.0\" }";
        check(versions_in_one_table, manifest, &[]);
    }

    #[test]
    fn default_features_must_be_switched_off() {
        let root = "[workspace.dependencies]\na = \"1\"\nb = { version = \"1\" }\n\
            c = { version = \"1\", default-features = false }";
        assert_eq!(problems(default_features_off, &[], &[(ROOT, root)]).len(), 2);
    }

    #[test]
    fn every_member_is_built_by_default_or_stands_apart() {
        let apart = policy::APART.iter().map(|name| member(name));
        let crates: Vec<Crate> = [member("ralph-report"), member("xtask")].into_iter().chain(apart).collect();
        let advice = |list: &str| -> Vec<String> {
            let root = format!("[workspace]\ndefault-members = {list}");
            problems(default_members, &crates, &[(ROOT, &root)])
                .into_iter()
                .map(|problem| problem.advice)
                .collect()
        };
        assert_eq!(advice("[\"crates/ralph-report\", \"xtask\"]"), [""; 0]);
        let missing = advice("[\"xtask\"]");
        assert!(missing.len() == 1 && missing[0].starts_with("add `crates/ralph-report`"), "{missing:?}");
        let surplus =
            advice(&format!("[\"crates/ralph-report\", \"crates/{}\", \"xtask\"]", policy::APART[0]));
        assert!(surplus.len() == 1 && surplus[0].starts_with("strike"), "{surplus:?}");
    }

    #[test]
    fn a_member_owns_its_version_and_nothing_else() {
        let own = "[package]\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense = \"MIT\"";
        check(inherits, own, &["edition", "license", "lints"]);
        let inherited = "[package]\nversion.workspace = true\nedition.workspace = true\n\
            license.workspace = true\n[lints]\nworkspace = true";
        check(inherits, inherited, &["version of its own"]);
        check(inherits, &inherited.replace("version.workspace = true", "version = \"0.1.0\""), &[]);
    }

    #[test]
    fn a_bench_with_a_harness_is_found() {
        let crates = [Crate { benches: vec![Target::named("report")], ..member("ralph-report") }];
        let count = |manifest| problems(benches_without_harness, &crates, &[(PATH, manifest)]).len();
        assert_eq!(count(""), 1);
        assert_eq!(count("[[bench]]\nname = \"report\""), 1);
        assert_eq!(count("[[bench]]\nname = \"report\"\nharness = false"), 0);
    }
}
