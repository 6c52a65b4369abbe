use std::{process::ExitStatus, time::Duration};

use crate::{Limit, TranscriptReport};

/// How a call ended, from the child's exit and from what was done to it. Nothing is read into its words.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It exited by itself.
    Exited {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// A signal ended it that this call did not send.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// It was made to end after it had [delivered](crate::Child::delivered).
    Delivered,
    /// It was made to end because the caller cancelled, or dropped the child.
    Cancelled,
    /// It was made to end because it exceeded a limit.
    TimedOut(Limit),
    /// It ended, and nobody knows how: other code of this process took its exit status (by waiting for any
    /// child, or by ignoring `SIGCHLD`), or the runtime shut down first.
    Lost,
}

/// What there is to say about a call that is over.
#[non_exhaustive]
#[derive(Debug)]
pub struct CallReport {
    /// How it ended.
    pub ending: Ending,
    /// The child's exit status, also when it was made to end. Without meaning for most programs then.
    pub status: Option<ExitStatus>,
    /// From the start to the end of clean-up, time asleep included.
    pub wall: Duration,
    /// From the start to the first byte of output, time asleep left out.
    pub first_byte: Option<Duration>,
    /// How many bytes of [`Input::Bytes`](crate::Input::Bytes) and of the caller's writes the child's pipe
    /// took.
    pub stdin_bytes: u64,
    /// How many bytes the child and its descendants wrote to standard output.
    pub stdout_bytes: u64,
    /// How many bytes they wrote to standard error.
    pub stderr_bytes: u64,
    /// The beginning of standard output, with [`Output::Collect`](crate::Output::Collect).
    pub collected: Option<Collected>,
    /// The last 8 KiB of standard output. Pass it through [`sanitize`](crate::sanitize) before a terminal
    /// sees it.
    pub stdout_tail: Vec<u8>,
    /// The last 8 KiB of standard error. Pass it through [`sanitize`](crate::sanitize) before a terminal
    /// sees it.
    pub stderr_tail: Vec<u8>,
    /// What became of the transcript, when there was one.
    pub transcript: Option<TranscriptReport>,
    /// The processes that the child had left and that were killed.
    pub leftovers: Vec<u32>,
    /// The processes of the call that could not be ended in time. Empty unless the kernel holds them, or
    /// they belong to another user.
    pub survivors: Vec<u32>,
}

/// Standard output as it was collected.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Collected {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// There were more.
    pub truncated: bool,
}

impl CallReport {
    /// Returns whether the child exited by itself with code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Exited { code: 0 }
    }

    pub(crate) fn lost() -> Self {
        Self {
            ending: Ending::Lost,
            status: None,
            wall: Duration::ZERO,
            first_byte: None,
            stdin_bytes: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            collected: None,
            stdout_tail: Vec::new(),
            stderr_tail: Vec::new(),
            transcript: None,
            leftovers: Vec::new(),
            survivors: Vec::new(),
        }
    }
}
