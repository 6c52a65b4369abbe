use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use harness_workflow::RunId;

use crate::state::State;
use crate::{shown, typed};

/// Holds a workspace for one loop.
///
/// The operating system lets go of it when the process ends, however it ends, so no lock is ever stale. The file keeps
/// the run's id, and is emptied by a runner that ends as it should: a name that is found in it is that of a runner that
/// was killed.
#[derive(Debug)]
pub(crate) struct WorkspaceLock {
    file: Option<File>,
    abandoned: Option<String>,
}

impl WorkspaceLock {
    /// Takes the workspace for `run`. With `shared` others may work there too, which they must allow as well.
    pub(crate) fn take(state: &State, workspace: &Path, run: &RunId, shared: bool) -> Result<Self> {
        let path = path_of(state, workspace);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let locked = if shared { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) => {
                let mut before = String::new();
                file.read_to_string(&mut before)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                if !before.is_empty() {
                    file.set_len(0)?;
                    file.rewind()?;
                }
                write!(file, "{run}").with_context(|| format!("cannot write {}", path.display()))?;
                let abandoned = (!shared && !before.is_empty()).then_some(before);
                Ok(Self { file: Some(file), abandoned })
            }
            // Whoever allows others may come beside one who did not.
            Err(TryLockError::WouldBlock) if shared => Ok(Self { file: None, abandoned: None }),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.read_to_string(&mut holder);
                let short: String = holder.chars().take(8).collect();
                bail!(
                    "run {holder} works in {}; wait for its end, cancel it with `{}`, or pass \
                     --allow-shared-workspace if both may work there at once",
                    shown::path(workspace),
                    typed::command(&format!("cancel {short}"))
                )
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// Takes the workspace for `run` if the last runner was killed here, and leaves it alone otherwise.
    pub(crate) fn take_abandoned(state: &State, workspace: &Path, run: &RunId) -> Option<Self> {
        // What is empty was left by a runner that ended as it should, and need not be touched.
        let is_named = std::fs::metadata(path_of(state, workspace)).is_ok_and(|file| file.len() > 0);
        let lock = if is_named { Self::take(state, workspace, run, false).ok()? } else { return None };
        lock.abandoned().is_some().then_some(lock)
    }

    /// The run whose runner was killed here, if the last one was.
    pub(crate) fn abandoned(&self) -> Option<&str> {
        self.abandoned.as_deref()
    }
}

impl Drop for WorkspaceLock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // At worst the next runner looks for leftovers that are not there.
            let _ = file.set_len(0);
        }
    }
}

fn path_of(state: &State, workspace: &Path) -> PathBuf {
    state.locks().join(name_of(workspace.as_os_str().as_encoded_bytes()))
}

/// Names the file of a workspace: the FNV-1a hash of its path, of 128 bits.
///
/// Nobody gains by two workspaces that share a file, so it need not withstand anybody. It is at hand at once, and what
/// does withstand asks the processor first what it can do, which takes longer than all else about a lock.
fn name_of(path: &[u8]) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = path.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fnv_1a_hashes() {
        assert_eq!(name_of(b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(name_of(b"a"), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(name_of(b"foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }
}
