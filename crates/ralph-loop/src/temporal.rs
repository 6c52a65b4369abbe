//! Runs on a Temporal server: their client, their worker, and those who look at them.

mod inspect;
mod remote_run;
mod server;
mod watch;
mod worker;

use crate::arguments::{
    AttachArguments, ContinueArguments, DisplayArguments, RunArguments, ShowArguments, WorkerArguments,
};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// What is asked for.
pub(crate) enum Request {
    Run(RunArguments),
    Continue(ContinueArguments),
    Attach(AttachArguments),
    Runs(DisplayArguments),
    Show(ShowArguments),
    Cancel(String),
    Worker(WorkerArguments),
}

/// Looks whether the server answers and whether somebody works there, for `doctor`. `false` with what is said means that
/// nobody does.
pub(crate) fn look(settings: &Settings) -> Result<(bool, String), Failure> {
    inspect::look(settings)
}

/// Does it.
pub(crate) fn carry_out(request: Request, settings: Settings) -> Result<Exit, Failure> {
    match request {
        Request::Run(arguments) => remote_run::run(&arguments, settings),
        Request::Continue(arguments) => remote_run::go_on(&arguments, settings),
        Request::Attach(arguments) => remote_run::attach(&arguments, &settings),
        Request::Runs(display) => inspect::runs(display, &settings),
        Request::Show(arguments) => inspect::show(&arguments, &settings),
        Request::Cancel(run) => inspect::cancel(&run, &settings),
        Request::Worker(arguments) => worker::worker(&arguments, settings),
    }
}
