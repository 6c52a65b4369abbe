//! `test`: every test and doctest, with the runner's own words left as they are.
//!
//! The crates and xtask are built apart, because features unify over everything that is built
//! together: what xtask's libraries switch on must not help a crate to pass.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::{
    args::Args,
    cargo,
    outcome::Outcome,
    policy,
    workspace::{Crate, Workspace, features_of},
};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let names = args.names();
    args.finish()?;
    let (own, crates): (Vec<&Crate>, Vec<&Crate>) =
        workspace.chosen(&names)?.into_iter().partition(|member| member.name == policy::XTASK);

    let nextest = cargo::has_subcommand(&workspace.root, "nextest");
    if !nextest {
        println!("cargo-nextest is not installed: the tests run with `cargo test`");
    }
    let mut failures = Vec::new();
    for run in plan(&crates, &own, nextest) {
        if let Err(error) = cargo::run(&mut cargo::cargo(&workspace.root, run)) {
            failures.push(error.to_string());
        }
    }
    if failures.is_empty() { Ok(Outcome::Passed) } else { bail!("{}", failures.join("\n")) }
}

/// Returns the cargo commands in the order in which they run: the largest last, so that its closing
/// lines end the output.
///
/// A feature that is for tests alone is what another crate of a build may switch on; the crates that
/// declare it are tested again with it.
fn plan(crates: &[&Crate], own: &[&Crate], nextest: bool) -> Vec<Vec<String>> {
    let libraries: Vec<&Crate> = crates.iter().copied().filter(|member| member.has_library).collect();
    // `cargo test` runs the doctests too, nextest cannot.
    let (runner, doctests): (&[&str], &[&Crate]) = if nextest {
        (&["nextest", "run", "--no-tests", "pass"], &libraries)
    } else {
        (&["test", "--no-fail-fast"], &[])
    };

    let mut plan = vec![command(runner, own, None)];
    let features: BTreeSet<&str> = crates.iter().flat_map(|member| member.test_features()).collect();
    for feature in features {
        let again: Vec<&Crate> =
            crates.iter().copied().filter(|member| member.has_feature(feature)).collect();
        plan.push(command(runner, &again, Some(feature)));
    }
    plan.push(command(&["test", "--no-fail-fast", "--doc"], doctests, None));
    plan.push(command(runner, crates, None));
    plan.into_iter().flatten().collect()
}

/// Returns the runner's command for these crates; `None` without any.
fn command(runner: &[&str], crates: &[&Crate], also: Option<&str>) -> Option<Vec<String>> {
    let mut args: Vec<String> = runner.iter().map(|word| (*word).to_owned()).collect();
    args.extend(crates.iter().flat_map(|member| ["--package".to_owned(), member.name.clone()]));
    args.extend(features_of(crates, also));
    (!crates.is_empty()).then_some(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, features: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            features: features.iter().map(|name| (*name).to_owned()).collect(),
            has_library: true,
            ..Crate::default()
        }
    }

    #[test]
    fn the_crates_never_share_a_build_with_xtask() {
        let (report, xtask) = (member("ralph-report", &[]), member("xtask", &[]));
        for run in plan(&[&report], &[&xtask], true) {
            let line = run.join(" ");
            assert!(!(line.contains("ralph-report") && line.contains("xtask")), "{line}");
        }
    }

    #[test]
    fn a_test_feature_is_a_run_of_the_crates_that_declare_it() {
        let report =
            member("ralph-report", &["proptest1", "test-arbitrary-precision", "test-preserve-order"]);
        let tool = member("ralph-tool", &["test-preserve-order"]);
        let lines: Vec<String> = plan(&[&report, &tool], &[], true).iter().map(|run| run.join(" ")).collect();
        assert_eq!(
            lines[..2],
            [
                "nextest run --no-tests pass --package ralph-report \
                 --features ralph-report/proptest1,ralph-report/test-arbitrary-precision",
                "nextest run --no-tests pass --package ralph-report --package ralph-tool \
                 --features ralph-report/proptest1,ralph-report/test-preserve-order,ralph-tool/test-preserve-order",
            ]
        );
    }

    #[test]
    fn the_run_of_everything_comes_last() {
        let report = member("ralph-report", &["proptest1", "test-preserve-order"]);
        let last = plan(&[&report], &[], true).pop().unwrap().join(" ");
        assert_eq!(
            last,
            "nextest run --no-tests pass --package ralph-report --features ralph-report/proptest1"
        );
    }

    #[test]
    fn doctests_run_once_with_either_runner() {
        let report = member("ralph-report", &[]);
        let lines = |nextest| -> Vec<String> {
            plan(&[&report], &[], nextest).into_iter().map(|run| run.join(" ")).collect()
        };
        assert_eq!(lines(true)[0], "test --no-fail-fast --doc --package ralph-report");
        assert_eq!(lines(false), ["test --no-fail-fast --package ralph-report"]);
    }
}
