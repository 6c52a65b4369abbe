//! Finding and killing processes that are not ours to wait for alone.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
    },
};
use tokio::time::timeout_at;

use crate::{
    process_table::{self, Stat},
    sys,
};

/// A process that was sent KILL.
#[derive(Debug)]
pub(crate) struct Quarry {
    stat: Stat,
    /// Missing where the kernel has no such descriptors.
    descriptor: Option<OwnedFd>,
}

/// The outcome of sending KILL.
#[derive(Debug)]
pub(crate) enum Shot {
    Sent(Quarry),
    /// It is no longer that process.
    Gone,
    /// We may not.
    Refused,
}

/// How often a process is looked at that the kernel cannot tell us about.
const LOOK: Duration = Duration::from_millis(2);

/// Sends KILL to the process that `stat` describes, and to no other that has its pid by now.
pub(crate) fn shoot(stat: Stat) -> Shot {
    let Some(pid) = pid(stat.pid) else { return Shot::Gone };
    // The descriptor holds on to whoever has the pid now. If that one has the right start time, it is the
    // right one from here on, whatever becomes of the pid.
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok();
    if process_table::stat(stat.pid).is_none_or(|now| now.start != stat.start) {
        return Shot::Gone;
    }
    let sent = match &descriptor {
        Some(descriptor) => pidfd_send_signal(descriptor, Signal::KILL),
        None => kill_process(pid, Signal::KILL),
    };
    match sent {
        Ok(()) => Shot::Sent(Quarry { stat, descriptor }),
        Err(rustix::io::Errno::SRCH) => Shot::Gone,
        Err(_) => Shot::Refused,
    }
}

impl Quarry {
    /// Waits until the process is dead or the time is up.
    pub(crate) async fn dead(self, until: Instant) {
        let watch = self.descriptor.and_then(|descriptor| sys::watch(descriptor).ok());
        let Some(watch) = watch else {
            while is_alive(self.stat) && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
            return;
        };
        let _ = timeout_at(until.into(), watch.readable()).await;
    }

    /// The same for a thread that may be blocked.
    pub(crate) fn dead_blocking(self, until: Instant) {
        let left = || until.saturating_duration_since(Instant::now());
        match &self.descriptor {
            Some(descriptor) => {
                let timeout = Timespec::try_from(left()).ok();
                let _ = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], timeout.as_ref());
            }
            None => {
                while is_alive(self.stat) && !left().is_zero() {
                    std::thread::sleep(LOOK);
                }
            }
        }
    }
}

fn is_alive(stat: Stat) -> bool {
    process_table::stat(stat.pid).is_some_and(|now| now.start == stat.start && !now.zombie)
}

/// Takes the exit status of an adopted process that is dead. Does nothing for any other.
pub(crate) fn bury(stat: Stat) {
    if let Some(pid) = pid(stat.pid) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn pid(raw: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(raw).ok()?)
}
