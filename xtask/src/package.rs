//! `package`: every crate that can be published, as the registry would get it; every seam, as its users
//! would build it.
//!
//! A build of the workspace hides what a crate forgets to ask for, because another member asks for it.
//! So each seam is also built alone. Building every crate from its package proves the same for all, but
//! cargo starts from nothing for each, so that is left to `--verify`, before a release.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, policy, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let verify = args.flag("--verify");
    args.finish()?;
    let mut command = cargo::cargo(&workspace.root, ["package", "--quiet", "--workspace", "--allow-dirty"]);
    for member in workspace.crates.iter().filter(|member| !member.published) {
        command.args(["--exclude", &member.name]);
    }
    if verify {
        return cargo::run(&mut command).map(|()| Outcome::Passed);
    }
    cargo::run(command.arg("--no-verify"))?;
    for seam in policy::SEAMS {
        cargo::run(&mut cargo::cargo(
            &workspace.root,
            ["check", "--quiet", "--lib", "--package", seam.name],
        ))?;
    }
    Ok(Outcome::Passed)
}
