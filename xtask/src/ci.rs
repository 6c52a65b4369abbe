//! `ci`: every check of the gate, cheapest first, the tests last so that their closing lines stay
//! next to the summary.
//!
//! A step that fails does not stop the ones after it: one run shows all that is wrong.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{
    apart, api, args::Args, deny, doc, fmt, lint, outcome::Outcome, package, test, tidy, workspace::Workspace,
};

type Step = (&'static str, fn(Args, &Workspace) -> Result<Outcome>);

/// `lint`, `doc` and `api` share one set of checked dependencies, so they follow one another.
const STEPS: &[Step] = &[
    ("fmt", fmt::run),
    ("tidy", tidy::run),
    ("lint", lint::run),
    ("doc", doc::run),
    ("api", api::run),
    ("package", package::run),
    ("deny", deny::run),
    ("apart", apart::run),
    ("test", test::run),
];

pub(crate) fn run(args: Args, workspace: &Workspace) -> Result<Outcome> {
    args.finish()?;
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        println!("==> {name}");
        let start = Instant::now();
        let outcome = step(Args::default(), workspace);
        let minutes = minutes(start.elapsed());
        let line = match &outcome {
            Ok(Outcome::Passed) => format!("passed   {minutes}  {name}"),
            Ok(Outcome::Skipped(why)) => format!("skipped  {minutes}  {name}: {why}"),
            Err(error) => {
                eprintln!("error: {name}: {error:#}");
                failed.push(*name);
                format!("FAILED   {minutes}  {name}")
            }
        };
        println!("<== {line}");
        lines.push(line);
    }
    println!("\nsummary");
    for line in lines {
        println!("  {line}");
    }
    if failed.is_empty() { Ok(Outcome::Passed) } else { bail!("failed: {}", failed.join(", ")) }
}

fn minutes(time: Duration) -> String {
    format!("{:5.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_have_one_decimal() {
        assert_eq!(minutes(Duration::from_secs(93)), "  1.6 min");
    }

    #[test]
    fn the_tests_come_last() {
        assert_eq!(STEPS.last().map(|step| step.0), Some("test"));
    }
}
