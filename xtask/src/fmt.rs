//! `fmt`: the formatting of every member and every fuzz target.

use anyhow::{Result, bail};

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let fix = args.flag("--fix");
    args.finish()?;
    if !cargo::has_subcommand(&workspace.root, "fmt") {
        return Ok(Outcome::Skipped("rustfmt is not installed".to_owned()));
    }
    // A fuzz target is a workspace of its own inside the crate it belongs to.
    let fuzz = workspace.crates.iter().map(|member| format!("{}/fuzz/Cargo.toml", member.folder));
    let fuzz = fuzz.filter(|manifest| workspace.root.join(manifest).exists());
    let mut commands = vec![cargo::cargo(&workspace.root, ["fmt", "--all"])];
    commands
        .extend(fuzz.map(|manifest| cargo::cargo(&workspace.root, ["fmt", "--manifest-path", &manifest])));
    let mut failures = Vec::new();
    for command in &mut commands {
        if !fix {
            command.arg("--check");
        }
        failures.extend(cargo::run(command).err().map(|error| error.to_string()));
    }
    if failures.is_empty() {
        Ok(Outcome::Passed)
    } else {
        bail!("{}; `cargo xtask fmt --fix` applies it", failures.join("; "))
    }
}
