use std::io;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes this process adopt every orphan below it, so that nothing of a call's tree can get away.
///
/// For an application to call once, before its first call; this crate never does it unasked. It holds for
/// the whole process and cannot be undone. From then on each call ends what its child has left by the
/// kernel's list of our own children, daemons included. Without it, a call looks through all processes
/// for its mark, which takes longer and misses whoever has shed the mark.
///
/// An application that does this hands its orphans to this crate: a child of its own that it starts *in
/// another session*, without this crate and without a mark, may be taken for a leftover of a call, and
/// be killed or reaped. Children in its own session are left alone.
///
/// # Errors
///
/// The system's error when it refuses, and [`io::ErrorKind::Unsupported`] on macOS, where no process can
/// adopt orphans.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        ADOPTING.store(true, Ordering::Release);
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
pub(crate) fn is_adopting() -> bool {
    ADOPTING.load(Ordering::Acquire)
}
