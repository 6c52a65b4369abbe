//! `fmt`: the formatting of every member.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let fix = args.flag("--fix");
    args.finish()?;
    let mut command = cargo::cargo(&workspace.root, ["fmt", "--all"]);
    if !fix {
        command.arg("--check");
    }
    cargo::run(&mut command)?;
    Ok(Outcome::Passed)
}
