//! `captures`: the pictures and the texts that the command line's tests hold its output to.
//!
//! Without `--write` this is what `cargo test` does, for these tests alone.

use anyhow::Result;

use crate::{args::Args, cargo, outcome::Outcome, workspace::Workspace};

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let write = args.flag("--write");
    args.finish()?;
    let mut command = cargo::cargo(
        &workspace.root,
        [
            "test",
            "--quiet",
            "--package",
            "ralph-loop",
            "--test",
            "it",
            "--",
            "captures::",
            "snapshots::",
            "help::",
        ],
    );
    if write {
        command.env("RALPH_LOOP_UPDATE", "1");
    }
    cargo::run(&mut command)?;
    Ok(Outcome::Passed)
}
