//! `vectors`: a folder of test vectors, run by the crates that know their kinds.
//!
//! A crate takes part by having an example named `vectors`. It is given the folder, judges the kinds
//! it knows, and ends with one line of JSON: its name, and for each kind the numbers of vectors that
//! passed, failed and were skipped. Kinds that no crate knows are named and not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::{
    args::Args,
    cargo,
    outcome::Outcome,
    workspace::{Target, Workspace},
};

const EXAMPLE: &str = "vectors";

/// The last line of a runner.
#[derive(Debug, Deserialize)]
struct Verdict {
    #[serde(rename = "crate")]
    name: String,
    kinds: BTreeMap<String, Count>,
}

/// What became of the vectors of a kind.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let Some(dir) = args.name() else { bail!("which folder? `cargo xtask vectors DIR`") };
    args.finish()?;
    let dir = fs::canonicalize(&dir).with_context(|| format!("no folder `{dir}`"))?;
    let present = kinds_in(&dir)?;
    ensure!(!present.is_empty(), "no vectors in `{}`: no line of a *.jsonl file there", dir.display());

    let mut verdicts = Vec::new();
    let mut broken = Vec::new();
    for member in &workspace.crates {
        let Some(runner) = member.examples.iter().find(|target| target.name == EXAMPLE) else { continue };
        match judge(workspace, &member.name, runner, &dir) {
            Ok(verdict) => verdicts.push(verdict),
            Err(error) => {
                eprintln!("error: the runner of {} broke: {error:#}", member.name);
                broken.push(member.name.clone());
            }
        }
    }

    let total = report(&verdicts);
    let left: Vec<&str> = without_runner(&present, &verdicts);
    if !left.is_empty() {
        println!("kinds without a runner: {}", left.join(", "));
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    ensure!(broken.is_empty(), "broken runners: {}", broken.join(", "));
    ensure!(total.failed == 0, "{} vectors failed", total.failed);
    Ok(Outcome::Passed)
}

fn judge(workspace: &Workspace, name: &str, runner: &Target, dir: &Path) -> Result<Verdict> {
    let mut command =
        cargo::cargo(&workspace.root, ["run", "--quiet", "--package", name, "--example", EXAMPLE]);
    let last = cargo::last_line(command.args(runner.features()).arg("--").arg(dir))?;
    read_verdict(name, &last)
}

/// A runner that found failures may end with an error; one that found none must not.
fn read_verdict(name: &str, last: &cargo::LastLine) -> Result<Verdict> {
    let line = last.text.as_deref().context("it printed nothing")?;
    let verdict: Verdict =
        serde_json::from_str(line).with_context(|| format!("its last line is no verdict: {line}"))?;
    ensure!(verdict.name == name, "its verdict is about `{}`", verdict.name);
    ensure!(
        last.success || verdict.kinds.values().any(|count| count.failed > 0),
        "it failed without a failed vector"
    );
    Ok(verdict)
}

/// Prints a line for each kind and returns the sum.
fn report(verdicts: &[Verdict]) -> Count {
    let mut total = Count::default();
    for verdict in verdicts {
        for (kind, count) in &verdict.kinds {
            println!(
                "{}: {kind}: {} passed, {} failed, {} skipped",
                verdict.name, count.passed, count.failed, count.skipped
            );
            total.passed += count.passed;
            total.failed += count.failed;
            total.skipped += count.skipped;
        }
    }
    total
}

fn without_runner<'a>(present: &'a BTreeSet<String>, verdicts: &[Verdict]) -> Vec<&'a str> {
    let known = |kind: &&str| verdicts.iter().any(|verdict| verdict.kinds.contains_key(*kind));
    present.iter().map(String::as_str).filter(|kind| !known(kind)).collect()
}

/// Returns the kinds of all vectors in the `*.jsonl` files of `dir`.
fn kinds_in(dir: &Path) -> Result<BTreeSet<String>> {
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir(dir).with_context(|| format!("could not list `{}`", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let file = File::open(&path).with_context(|| format!("could not open `{}`", path.display()))?;
            for (number, line) in BufReader::new(file).lines().enumerate() {
                let place = || format!("{}:{}", path.display(), number + 1);
                let line = line.with_context(place)?;
                if !line.trim().is_empty() {
                    kinds.insert(kind_of(&line).with_context(place)?);
                }
            }
        }
    }
    Ok(kinds)
}

fn kind_of(line: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Vector {
        kind: String,
    }
    Ok(serde_json::from_str::<Vector>(line).context("not a vector")?.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(text: &str, success: bool) -> cargo::LastLine {
        cargo::LastLine { text: Some(text.to_owned()), success }
    }

    const GOOD: &str =
        r#"{"crate":"ralph-report","kinds":{"report-workflow":{"passed":3,"failed":0,"skipped":1}}}"#;
    const BAD: &str =
        r#"{"crate":"ralph-report","kinds":{"report-workflow":{"passed":2,"failed":1,"skipped":1}}}"#;

    #[test]
    fn a_runner_that_says_nothing_is_broken() {
        let silent = cargo::LastLine { text: None, success: true };
        assert!(read_verdict("ralph-report", &silent).is_err());
    }

    #[test]
    fn a_runner_whose_last_line_is_no_verdict_is_broken() {
        assert!(read_verdict("ralph-report", &ended("all fine", true)).is_err());
        assert!(read_verdict("ralph-report", &ended(r#"{"crate":"ralph-report"}"#, true)).is_err());
    }

    #[test]
    fn a_verdict_about_another_crate_is_refused() {
        assert!(read_verdict("ralph-tool", &ended(GOOD, true)).is_err());
    }

    #[test]
    fn a_runner_that_crashes_after_its_verdict_is_broken() {
        assert!(read_verdict("ralph-report", &ended(GOOD, false)).is_err());
    }

    #[test]
    fn failures_are_a_verdict_whatever_the_exit_code() {
        for success in [true, false] {
            let verdict = read_verdict("ralph-report", &ended(BAD, success)).unwrap();
            assert_eq!(report(&[verdict]), Count { passed: 2, failed: 1, skipped: 1 });
        }
    }

    #[test]
    fn kinds_that_no_runner_counts_are_left_over() {
        let present = BTreeSet::from(["loop".to_owned(), "report-workflow".to_owned()]);
        let verdict = read_verdict("ralph-report", &ended(GOOD, true)).unwrap();
        assert_eq!(without_runner(&present, &[verdict]), ["loop"]);
    }

    #[test]
    fn a_line_has_a_kind_however_deep_or_large_its_input_is() {
        let deep =
            format!(r#"{{"id":"x","input":{}1e400{},"kind":"loop"}}"#, "[".repeat(2000), "]".repeat(2000));
        assert_eq!(kind_of(&deep).unwrap(), "loop");
        assert!(kind_of(r#"{"id":"x"}"#).is_err());
    }
}
