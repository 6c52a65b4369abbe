//! `doc`: rustdoc for every member, where a warning is an error.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let names = args.names();
    args.finish()?;
    let mut command = cargo::cargo(&workspace.root, ["doc", "--quiet", "--no-deps"]);
    command.args(workspace.selection(&names)?).env("RUSTDOCFLAGS", "-D warnings");
    cargo::run(&mut command)?;
    Ok(Outcome::Passed)
}
