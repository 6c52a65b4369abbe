use std::future::pending;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::deadline;

/// What stops a run from outside: signals and its deadline.
#[derive(Debug)]
pub(crate) struct Stops {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    deadline: Option<Timestamp>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) cause: StopCause,
}

/// Why a run is stopped, once it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopCause(Arc<OnceLock<Cause>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    Signal(&'static str),
    TimeIsUp,
}

impl StopCause {
    /// Returns the words for the journal.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.0.get().map(|cause| match cause {
            Cause::Signal(reason) => *reason,
            Cause::TimeIsUp => TIME_IS_UP,
        })
    }

    pub(crate) fn is_deadline(&self) -> bool {
        self.0.get() == Some(&Cause::TimeIsUp)
    }
}

/// The reason of a run that is cancelled because its time is up.
pub(crate) const TIME_IS_UP: &str = "the time given by --until is up";

impl Stops {
    /// Listens from now on. A signal that was ignored when this program was started stays ignored, as `nohup` and the
    /// shells' background jobs want it.
    pub(crate) fn new(deadline: Option<Timestamp>) -> Result<Self> {
        let ignored = ignored_signals();
        let listen = |number: u32, kind| {
            let is_ignored = ignored & (1 << (number - 1)) != 0;
            if is_ignored { Ok(None) } else { signal(kind).map(Some) }
        };
        Ok(Self {
            interrupt: listen(2, SignalKind::interrupt())?,
            terminate: listen(15, SignalKind::terminate())?,
            hangup: listen(1, SignalKind::hangup())?,
            deadline,
            cancellation: CancellationToken::new(),
            cause: StopCause::default(),
        })
    }

    /// Cancels at the first stop. Returns at an interrupt after that, which is to force the end.
    pub(crate) async fn watch(mut self, tell: impl Fn(&str)) {
        let time_is_up = async {
            match self.deadline {
                Some(moment) => deadline::wait_until(moment).await,
                None => pending().await,
            }
        };
        let cause = tokio::select! {
            () = received(&mut self.interrupt) => Cause::Signal("interrupted by SIGINT"),
            () = received(&mut self.terminate) => Cause::Signal("asked to stop by SIGTERM"),
            () = received(&mut self.hangup) => Cause::Signal("the terminal went away (SIGHUP)"),
            () = time_is_up => Cause::TimeIsUp,
        };
        // Nobody else sets it.
        let _ = self.cause.0.set(cause);
        tell(match cause {
            Cause::Signal(_) => "cancelling, and waiting for the agent to be gone; Ctrl-C forces the end",
            Cause::TimeIsUp => {
                "the time is up: cancelling, and waiting for the agent to be gone; Ctrl-C forces the end"
            }
        });
        self.cancellation.cancel();
        received(&mut self.interrupt).await;
    }
}

/// Waits for the next signal, for ever where it is not listened to.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}

/// Returns the set of the signals that this process ignores; empty where that cannot be told.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
