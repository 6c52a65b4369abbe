use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
use crate::sys;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is known of a child that may have exited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    NotYet,
    Status(ExitStatus),
    /// Somebody else took the exit status.
    Lost,
}

/// Looks whether the child `pid` has exited, and leaves it as it is.
pub(crate) fn peek(pid: Pid) -> Exit {
    look(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// Takes the exit status of the child `pid`, whose pid may be used for another process after this.
pub(crate) fn reap(pid: Pid) -> Exit {
    look(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
}

/// Returns whether a child of ours is alive, whichever thread started it. The dead that wait to be reaped do not count.
#[cfg(target_os = "linux")]
pub(crate) fn is_any_alive() -> bool {
    // Who asks for the stopped alone is told that there is nobody to wait for, however many are dead.
    let found = waitid(WaitId::All, WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
    !matches!(found, Err(rustix::io::Errno::CHILD))
}

/// Returns whether a child of ours is dead and waits to be reaped.
#[cfg(target_os = "linux")]
pub(crate) fn is_any_dead() -> bool {
    matches!(
        waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT),
        Ok(Some(_)) | Err(rustix::io::Errno::INTR)
    )
}

/// Waits until the child `pid` has exited or the time is up, and leaves it as it is. For a thread that may
/// be blocked.
pub(crate) fn wait_blocking(pid: Pid, until: Instant) {
    while peek(pid) == Exit::NotYet && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn look(pid: Pid, options: WaitIdOptions) -> Exit {
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(None) => return Exit::NotYet,
            Ok(Some(status)) => {
                return raw(&status).map_or(Exit::Lost, |raw| Exit::Status(ExitStatus::from_raw(raw)));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Exit::Lost,
        }
    }
}

/// Returns the status as the older wait functions encode it, which is what the standard library takes.
fn raw(status: &WaitIdStatus) -> Option<i32> {
    let dumped = if status.dumped() { 0x80 } else { 0 };
    let exited = status.exit_status().map(|code| (code & 0xff) << 8);
    exited.or_else(|| status.terminating_signal().map(|signal| signal | dumped))
}

/// Tells when a child of ours has exited, without a handler for `SIGCHLD` where the kernel has a better way.
#[derive(Debug)]
pub(crate) enum ExitWatch {
    #[cfg(target_os = "linux")]
    Descriptor(AsyncFd<OwnedFd>),
    Signal(Signal),
}

impl ExitWatch {
    pub(crate) fn new(pid: Pid) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Ok(descriptor) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            return Ok(Self::Descriptor(sys::watch(descriptor)?));
        }
        let _ = pid;
        Self::by_signal()
    }

    fn by_signal() -> io::Result<Self> {
        Ok(Self::Signal(signal(SignalKind::child())?))
    }

    /// Waits until the child `pid` has exited. Does not take its exit status. Cancel safe.
    pub(crate) async fn exited(&mut self, pid: Pid) {
        loop {
            match self {
                // Once the descriptor is readable it stays so; the readiness is never cleared.
                #[cfg(target_os = "linux")]
                Self::Descriptor(descriptor) => {
                    if descriptor.readable().await.is_ok() {
                        return;
                    }
                    std::future::pending::<()>().await;
                }
                Self::Signal(signals) => {
                    if peek(pid) != Exit::NotYet {
                        return;
                    }
                    if signals.recv().await.is_none() {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn an_exit_is_noticed_by_signal_too() {
        let mut watch = ExitWatch::by_signal().unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read line; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert_eq!(peek(pid), Exit::NotYet);
        drop(child.stdin.take());
        tokio::time::timeout(Duration::from_secs(10), watch.exited(pid)).await.unwrap();
        assert_eq!(peek(pid), Exit::Status(ExitStatus::from_raw(7 << 8)));
        assert_eq!(reap(pid), Exit::Status(ExitStatus::from_raw(7 << 8)));
        assert_eq!(reap(pid), Exit::Lost);
        assert!(child.try_wait().is_err());
    }
}
