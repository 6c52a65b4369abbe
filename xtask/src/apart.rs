//! `apart`: lint, documentation and tests of the crates that bring so much along that no other step builds them.

use anyhow::Result;

use crate::{args::Args, doc, lint, outcome::Outcome, policy, test, workspace::Workspace};

pub(crate) fn run(args: Args, workspace: &Workspace) -> Result<Outcome> {
    args.finish()?;
    let names = || Args::new(policy::APART.iter().map(|name| (*name).to_owned()));
    lint::run(names(), workspace)?;
    doc::run(names(), workspace)?;
    test::run(names(), workspace)
}
