//! Who may depend on whom.

use anyhow::Result;
use cargo_metadata::DependencyKind;

use super::{Problem, Subject};
use crate::{policy, workspace::Crate};

/// No `harness-*` crate depends on a `ralph-*` crate, in its tests neither.
pub(super) fn harness_knows_no_ralph(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in subject.workspace.crates.iter().filter(|member| member.name.starts_with("harness-")) {
        for dependency in member.dependencies.iter().filter(|other| other.name.starts_with("ralph-")) {
            problems.push(Problem::new(
                &member.name,
                format!(
                    "drop the {} on `{}`; arrows point from ralph to harness",
                    kind(dependency.kind),
                    dependency.name
                ),
            ));
        }
    }
    Ok(problems)
}

/// A seam depends on exactly what is written down for it, whatever its tests use.
pub(super) fn seams_keep_their_list(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    Ok(subject
        .workspace
        .crates
        .iter()
        .filter_map(|member| Some((member, policy::SEAMS.iter().find(|seam| seam.name == member.name)?)))
        .flat_map(|(member, seam)| compare(member, seam.dependencies))
        .collect())
}

fn compare(member: &Crate, written: &[&str]) -> Vec<Problem> {
    let actual: Vec<String> = member
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(
            |dependency| {
                if dependency.optional { format!("{}?", dependency.name) } else { dependency.name.clone() }
            },
        )
        .collect();
    let surplus = actual.iter().filter(|name| !written.contains(&name.as_str())).map(|name| {
        format!("drop `{name}`, or write it down in xtask/src/policy.rs and give the reason in the commit")
    });
    let unused = written.iter().filter(|name| !actual.iter().any(|other| other == *name)).map(|name| {
        format!("strike `{name}` from the list in xtask/src/policy.rs: the crate does not depend on it")
    });
    surplus.chain(unused).map(|advice| Problem::new(&member.name, advice)).collect()
}

/// A library that is one crate's business is known to that crate alone.
pub(super) fn sole_users(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for (library, user) in policy::SOLE_USERS {
        for member in subject.workspace.crates.iter().filter(|member| member.name != *user) {
            for dependency in member.dependencies.iter().filter(|other| belongs_to(&other.name, library)) {
                problems.push(Problem::new(
                    &member.name,
                    format!(
                        "drop the {} on `{}`; only {user} knows it",
                        kind(dependency.kind),
                        dependency.name
                    ),
                ));
            }
        }
    }
    Ok(problems)
}

fn belongs_to(package: &str, library: &str) -> bool {
    package.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// xtask depends on no crate of the workspace, and none on it.
pub(super) fn xtask_stands_alone(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        for dependency in member.dependencies.iter().filter(|dependency| dependency.by_path) {
            if member.name == policy::XTASK || dependency.name == policy::XTASK {
                problems.push(Problem::new(
                    &member.name,
                    format!(
                        "drop the dependency on `{}`; make it an example or a test of the crate",
                        dependency.name
                    ),
                ));
            }
        }
    }
    Ok(problems)
}

/// A sibling is named by path alone for tests, by path and version for everything else.
pub(super) fn siblings_by_path(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for member in &subject.workspace.crates {
        for dependency in &member.dependencies {
            let name = &dependency.name;
            let is_sibling = subject.workspace.crates.iter().any(|other| other.name == *name);
            let for_tests = dependency.kind == DependencyKind::Development;
            let advice = match (is_sibling, dependency.by_path) {
                (true, false) => format!("name `{name}` by its path"),
                (true, true) if for_tests && dependency.has_version => {
                    format!("name `{name}` in [dev-dependencies] by its path alone")
                }
                (true, true) if !for_tests && !dependency.has_version => {
                    format!("give `{name}` its version beside the path, or it cannot be published")
                }
                (false, true) => format!("`{name}` is a folder outside the workspace; take a released one"),
                _ => continue,
            };
            problems.push(Problem::new(&member.name, advice));
        }
    }
    Ok(problems)
}

fn kind(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::Development => "dev-dependency",
        DependencyKind::Build => "build-dependency",
        _ => "dependency",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tidy::fixture::{member, places, problems},
        workspace::Dependency,
    };

    fn on(name: &str) -> Dependency {
        Dependency {
            name: name.to_owned(),
            kind: DependencyKind::Normal,
            optional: false,
            by_path: false,
            has_version: true,
        }
    }

    fn with(name: &str, dependencies: Vec<Dependency>) -> Crate {
        Crate { dependencies, ..member(name) }
    }

    #[test]
    fn a_harness_crate_may_not_test_with_ralph() {
        let on_ralph = Dependency { kind: DependencyKind::Development, ..on("ralph-report") };
        let crates = [with("harness-subagent", vec![on_ralph]), with("ralph-tool", vec![on("ralph-report")])];
        assert_eq!(places(harness_knows_no_ralph, &crates, &[]), ["harness-subagent"]);
    }

    #[test]
    fn a_seam_may_neither_exceed_its_list_nor_fall_short_of_it() {
        let seam = with(
            "ralph-report",
            vec![on("serde"), on("tokio"), Dependency { optional: true, ..on("proptest") }],
        );
        let advice: Vec<String> = compare(&seam, &["proptest?", "serde", "thiserror"])
            .into_iter()
            .map(|problem| problem.advice)
            .collect();
        assert_eq!(advice.len(), 2);
        assert!(advice[0].contains("drop `tokio`"), "{advice:?}");
        assert!(advice[1].contains("strike `thiserror`"), "{advice:?}");
    }

    #[test]
    fn a_required_dependency_is_not_the_optional_one_of_the_list() {
        assert_eq!(compare(&with("ralph-report", vec![on("proptest")]), &["proptest?"]).len(), 2);
    }

    #[test]
    fn test_dependencies_are_not_on_the_list() {
        let for_tests = Dependency { kind: DependencyKind::Development, ..on("jsonschema") };
        assert!(compare(&with("ralph-report", vec![for_tests]), &[]).is_empty());
    }

    #[test]
    fn one_crate_alone_knows_the_command_line_parser() {
        let crates = [
            with("ralph-loop", vec![on("clap")]),
            with("ralph-mcp", vec![on("clap_complete")]),
            with("xtask", vec![on("clapper")]),
        ];
        assert_eq!(places(sole_users, &crates, &[]), ["ralph-mcp"]);
    }

    #[test]
    fn xtask_depends_on_no_crate() {
        let sibling = Dependency { by_path: true, ..on("ralph-report") };
        let crates = [member("ralph-report"), with("xtask", vec![sibling])];
        assert_eq!(places(xtask_stands_alone, &crates, &[]), ["xtask"]);
    }

    #[test]
    fn siblings_have_a_version_except_in_tests() {
        let sibling =
            |kind, has_version| Dependency { kind, by_path: true, has_version, ..on("ralph-report") };
        let check = |dependency: Dependency| {
            problems(siblings_by_path, &[member("ralph-report"), with("ralph-tool", vec![dependency])], &[])
                .len()
        };
        assert_eq!(check(sibling(DependencyKind::Normal, false)), 1);
        assert_eq!(check(sibling(DependencyKind::Development, true)), 1);
        assert_eq!(check(on("ralph-report")), 1);
        assert_eq!(check(Dependency { by_path: true, ..on("elsewhere") }), 1);
        assert_eq!(check(sibling(DependencyKind::Normal, true)), 0);
        assert_eq!(check(sibling(DependencyKind::Development, false)), 0);
        assert_eq!(check(on("serde")), 0);
    }
}
