//! `test`: every test and doctest, with the runner's own words left as they are.
//!
//! The crates and xtask are built apart, because features unify over everything that is built
//! together: what xtask's libraries switch on must not help a crate to pass.

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
    let chosen: Vec<&Crate> = if names.is_empty() {
        workspace.crates.iter().collect()
    } else {
        names.iter().map(|name| workspace.find(name)).collect::<Result<_>>()?
    };
    let (own, crates): (Vec<&Crate>, Vec<&Crate>) =
        chosen.into_iter().partition(|member| member.name == policy::XTASK);

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
fn plan(crates: &[&Crate], own: &[&Crate], nextest: bool) -> Vec<Vec<String>> {
    let with_feature = |member: &&Crate| member.has_feature(policy::PRESERVE_ORDER);
    let ordered: Vec<&Crate> = crates.iter().copied().filter(with_feature).collect();
    let libraries: Vec<&Crate> = crates.iter().copied().filter(|member| member.has_library).collect();
    // `cargo test` runs the doctests too, nextest cannot.
    let (runner, doctests): (&[&str], &[&Crate]) = if nextest {
        (&["nextest", "run", "--no-tests", "pass"], &libraries)
    } else {
        (&["test", "--no-fail-fast"], &[])
    };

    [
        command(runner, own, &[]),
        command(runner, &ordered, &[policy::PRESERVE_ORDER]),
        command(&["test", "--no-fail-fast", "--doc"], doctests, &[]),
        command(runner, crates, &[]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the runner's command for these crates; `None` without any.
fn command(runner: &[&str], crates: &[&Crate], also: &[&str]) -> Option<Vec<String>> {
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
            features: features.iter().map(|name| ((*name).to_owned(), Vec::new())).collect(),
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
    fn only_crates_with_the_feature_run_again_with_ordered_keys() {
        let (report, other) = (member("ralph-report", &[policy::PRESERVE_ORDER]), member("ralph-tool", &[]));
        let lines: Vec<String> =
            plan(&[&report, &other], &[], true).iter().map(|run| run.join(" ")).collect();
        let ordered: Vec<&String> =
            lines.iter().filter(|line| line.contains(policy::PRESERVE_ORDER)).collect();
        assert_eq!(
            ordered,
            [
                "nextest run --no-tests pass --package ralph-report --features ralph-report/test-preserve-order"
            ]
        );
    }

    #[test]
    fn the_run_of_everything_comes_last() {
        let report = member("ralph-report", &["proptest1", policy::PRESERVE_ORDER]);
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
