//! `deny`: licences, advisories and sources of the dependencies, by `deny.toml`.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(args: Args, workspace: &Workspace) -> Result<Outcome> {
    args.finish()?;
    if !cargo::has_subcommand(&workspace.root, "deny") {
        return Ok(Outcome::Skipped("cargo-deny is not installed".to_owned()));
    }
    cargo::run(&mut cargo::cargo(&workspace.root, ["deny", "--workspace", "check"]))?;
    Ok(Outcome::Passed)
}
