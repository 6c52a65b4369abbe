//! The children that calls of this process have started and not yet taken leave of.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Their pids, each with a start time that no process of its tree is older than.
static LIVE: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// Held shared while a child is started and entered in the list, and alone while the list is compared with
/// what the kernel says, so that a child just born is not taken for somebody's leftover.
static BIRTHS: RwLock<()> = RwLock::new(());

/// Must be held from before a child is started until it is entered.
pub(crate) fn birth() -> RwLockReadGuard<'static, ()> {
    BIRTHS.read().unwrap_or_else(PoisonError::into_inner)
}

/// While this is held, no child is started and no other call reaps one.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    BIRTHS.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn enter(pid: u32, start: u64) {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, start);
}

pub(crate) fn leave(pid: u32) {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Returns the list as it is.
#[cfg(target_os = "linux")]
pub(crate) fn list() -> BTreeMap<u32, u64> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
