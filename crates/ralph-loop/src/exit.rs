use std::io;

use ralph_tool::{Envelope, RalphError, RalphStatus};

/// How the program ends. The numbers are part of what users rely on; `--help` lists them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Complete = 0,
    Usage = 2,
    Blocked = 10,
    BudgetLimited = 11,
    RoundFailed = 12,
    InvalidReport = 13,
    Cancelled = 14,
    Deadline = 15,
    Environment = 16,
    Failed = 17,
}

impl Exit {
    /// Sorts the outcome of a run. `deadline` says that its time was up.
    pub(crate) fn of(outcome: &Result<Envelope, RalphError>, deadline: bool) -> Self {
        match outcome {
            Ok(envelope) => match envelope.result().status() {
                RalphStatus::Complete => Self::Complete,
                RalphStatus::Blocked => Self::Blocked,
                RalphStatus::BudgetLimited => Self::BudgetLimited,
            },
            Err(error) => match error {
                RalphError::InvalidArguments { .. }
                | RalphError::ObjectiveEmpty
                | RalphError::MaxRounds(_)
                | RalphError::InvalidHandoff { .. } => Self::Usage,
                RalphError::RoundFailed { .. } => Self::RoundFailed,
                RalphError::InvalidReport { .. } => Self::InvalidReport,
                RalphError::Cancelled { .. } if deadline => Self::Deadline,
                RalphError::Cancelled { .. } => Self::Cancelled,
                RalphError::EngineStart(_) => Self::Environment,
                _ => Self::Failed,
            },
        }
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A failure that ends the program with a status of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// The user asked for something that cannot be.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// The user asked for something that cannot be; says why.
    pub(crate) fn refuse(message: impl Into<String>) -> Self {
        Self::usage(anyhow::Error::msg(message.into()))
    }

    /// This machine lacks something.
    pub(crate) fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Environment, error: error.into() }
    }

    /// True if all that went wrong is that nobody reads our output any more.
    pub(crate) fn is_lost_reader(&self) -> bool {
        self.error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, error }
    }
}

/// Standard output failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::environment(error)
    }
}

impl From<harness_engine_local::JournalError> for Failure {
    fn from(error: harness_engine_local::JournalError) -> Self {
        Self::environment(error)
    }
}
