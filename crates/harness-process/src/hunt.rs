//! Finding and killing processes that are not ours to wait for alone.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
    },
};
use tokio::time::timeout_at;

use crate::{
    process_table::{self, Stat},
    sys,
};

/// A process that is held still until it is killed.
#[derive(Debug)]
pub(crate) struct Quarry {
    stat: Stat,
    /// Missing where the kernel has no such descriptors.
    descriptor: Option<OwnedFd>,
}

/// The outcome of reaching for a process.
#[derive(Debug)]
pub(crate) enum Catch {
    Held(Quarry),
    /// It is no longer that process.
    Gone,
    /// We may not.
    Refused,
}

/// How often a process is looked at that the kernel cannot tell us about.
const LOOK: Duration = Duration::from_millis(2);

/// Stops the process that `stat` describes, and no other that has its pid by now.
///
/// Those that are to be killed are all stopped before the first one is, so that none can replace another.
pub(crate) fn catch(stat: Stat) -> Catch {
    let Some(pid) = pid(stat.pid) else { return Catch::Gone };
    // The descriptor holds on to whoever has the pid now. If that one has the right start time, it is the
    // right one from here on, whatever becomes of the pid.
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok();
    if process_table::stat(stat.pid).is_none_or(|now| now.start != stat.start) {
        return Catch::Gone;
    }
    let quarry = Quarry { stat, descriptor };
    match quarry.send(Signal::STOP) {
        Ok(()) => Catch::Held(quarry),
        Err(Errno::SRCH) => Catch::Gone,
        Err(_) => Catch::Refused,
    }
}

impl Quarry {
    pub(crate) fn stat(&self) -> Stat {
        self.stat
    }

    pub(crate) fn kill(&self) {
        // It could be stopped, so it can be killed, or it is dead already.
        let _ = self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        match &self.descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None if !is_alive(self.stat) => Err(Errno::SRCH),
            None => kill_process(pid(self.stat.pid).ok_or(Errno::SRCH)?, signal),
        }
    }

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
                // A signal that this thread handles interrupts the wait, and tells nothing about the process.
                let mut awaited = [PollFd::new(descriptor, PollFlags::IN)];
                while poll(&mut awaited, Timespec::try_from(left()).ok().as_ref()) == Err(Errno::INTR) {}
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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Child, Command},
    };

    use super::*;

    fn sleeper() -> (Child, Stat) {
        let child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let stat = process_table::stat(child.id()).unwrap();
        (child, stat)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_process_with_another_start_time_is_left_alone() {
        let (mut child, stat) = sleeper();
        for start in [0, stat.start - 1, stat.start + 1] {
            assert!(matches!(catch(Stat { start, ..stat }), Catch::Gone), "{start}");
        }
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        held(stat).kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(matches!(catch(stat), Catch::Gone));
    }

    fn held(stat: Stat) -> Quarry {
        match catch(stat) {
            Catch::Held(quarry) => quarry,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn death_is_noticed_with_and_without_a_descriptor() {
        for blocking in [false, true] {
            for with_descriptor in [false, true] {
                let (mut child, stat) = sleeper();
                let mut quarry = held(stat);
                quarry.kill();
                if !with_descriptor {
                    quarry.descriptor = None;
                }
                let begun = Instant::now();
                if blocking {
                    quarry.dead_blocking(soon());
                } else {
                    quarry.dead(soon()).await;
                }
                assert!(begun.elapsed() < Duration::from_secs(9));
                bury(stat);
                assert_eq!(process_table::stat(stat.pid), None);
                assert!(child.wait().is_err(), "it has been reaped");
            }
        }
    }

    #[tokio::test]
    async fn a_signal_does_not_end_the_wait_for_a_death() {
        use nix::sys::pthread::{pthread_kill, pthread_self};
        let kind = tokio::signal::unix::SignalKind::user_defined1();
        let _handled = tokio::signal::unix::signal(kind).unwrap();
        let (mut child, stat) = sleeper();
        let quarry = held(stat);
        let wait = Duration::from_millis(100);
        let (sender, thread) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            sender.send(pthread_self()).unwrap();
            let begun = Instant::now();
            quarry.dead_blocking(begun + wait);
            let waited = begun.elapsed();
            // The thread stays until its signals have been sent.
            std::thread::park();
            waited
        });
        let thread = thread.recv().unwrap();
        for _ in 0..20 {
            pthread_kill(thread, nix::sys::signal::Signal::SIGUSR1).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        waiting.thread().unpark();
        let waited = waiting.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(waited >= wait, "{waited:?}");
    }

    #[tokio::test]
    async fn the_wait_for_a_death_is_bounded() {
        for blocking in [false, true] {
            for with_descriptor in [false, true] {
                let (mut child, stat) = sleeper();
                let mut quarry = held(stat);
                if !with_descriptor {
                    quarry.descriptor = None;
                }
                let until = Instant::now() + Duration::from_millis(30);
                if blocking {
                    quarry.dead_blocking(until);
                } else {
                    quarry.dead(until).await;
                }
                assert!(child.try_wait().unwrap().is_none());
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}
