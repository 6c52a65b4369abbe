//! `apart`: lint, documentation and tests of the crates that bring so much along that no other step builds them, and of
//! the crates that a feature makes depend on them, with that feature.

use anyhow::Result;

use crate::{args::Args, doc, lint, outcome::Outcome, policy, test, workspace::Workspace};

pub(crate) fn run(args: Args, workspace: &Workspace) -> Result<Outcome> {
    args.finish()?;
    let users = workspace.crates.iter().filter(|member| !member.heavy.is_empty());
    let names: Vec<String> = policy::APART
        .iter()
        .map(|name| (*name).to_owned())
        .chain(users.map(|member| member.name.clone()))
        .collect();
    let names = || Args::new(names.iter().cloned());
    let workspace = workspace.with_heavy_features();
    lint::run(names(), &workspace)?;
    doc::run(names(), &workspace)?;
    test::run(names(), &workspace)
}
