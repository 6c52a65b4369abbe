//! What stands in for runs on a Temporal server in a build that has none.

use anyhow::anyhow;

use crate::arguments::{
    AttachArguments, ContinueArguments, DisplayArguments, RunArguments, ShowArguments, WorkerArguments,
};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// What is asked for.
#[expect(dead_code, reason = "this build can only say that it cannot do it")]
pub(crate) enum Request {
    Run(RunArguments),
    Continue(ContinueArguments),
    Attach(AttachArguments),
    Runs(DisplayArguments),
    Show(ShowArguments),
    Cancel(String),
    Worker(WorkerArguments),
}

/// Says that this build lacks it.
pub(crate) fn look(_: &Settings) -> Result<(bool, String), Failure> {
    Err(lacking())
}

/// Says that this build lacks it.
pub(crate) fn carry_out(_: Request, _: Settings) -> Result<Exit, Failure> {
    Err(lacking())
}

fn lacking() -> Failure {
    Failure::environment(anyhow!(
        "this build of ralph-loop has no Temporal engine; build one that has, with \
         `cargo install --path crates/ralph-loop --features temporal`"
    ))
}
