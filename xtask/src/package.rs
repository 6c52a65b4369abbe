//! `package`: every crate that can be published, packaged and built from its package.
//!
//! The build of a package proves what a build of the workspace hides: that nothing it needs is left
//! out, and that the crate asks for every feature of its dependencies by itself.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(args: Args, workspace: &Workspace) -> Result<Outcome> {
    args.finish()?;
    let mut command = cargo::cargo(&workspace.root, ["package", "--quiet", "--workspace", "--allow-dirty"]);
    for member in workspace.crates.iter().filter(|member| !member.published) {
        command.args(["--exclude", &member.name]);
    }
    cargo::run(&mut command)?;
    Ok(Outcome::Passed)
}
