//! `lint`: clippy, in one build that the documentation and the API listing share, on all targets, also on the tests that
//! only run by name.
//!
//! Every crate's own features are on, named one by one: `--all-features` over the workspace would
//! also switch on those of tests, and of dependencies that no user combines. That a seam also
//! builds alone, with its default features, is proved by `package`.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let names = args.names();
    args.finish()?;
    if !cargo::has_subcommand(&workspace.root, "clippy") {
        return Ok(Outcome::Skipped("clippy is not installed".to_owned()));
    }
    let mut command = cargo::cargo(&workspace.root, ["clippy", "--quiet", "--all-targets"]);
    for test in workspace.chosen(&names)?.iter().flat_map(|member| member.unlisted_tests()) {
        command.args(["--test", test]);
    }
    command.args(workspace.selection(&names)?).args(["--", "-D", "warnings"]);
    cargo::run(&mut command)?;
    Ok(Outcome::Passed)
}
