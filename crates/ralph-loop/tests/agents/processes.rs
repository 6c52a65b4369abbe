//! What is alive of a case.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process that carries the mark of a case.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Alive {
    pub(crate) pid: i32,
    /// The beginning of its command line.
    pub(crate) command: String,
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.command)
    }
}

/// Returns the processes in whose environment `mark` is: the directory of a case, which is in the `HOME` of everything
/// that the case starts and that those start. A zombie has no environment.
pub(crate) fn alive(mark: &Path) -> Vec<Alive> {
    let mark = mark.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let carries = environment.windows(mark.len()).any(|part| part == mark);
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&words).replace('\0', " ");
            carries.then(|| Alive { pid, command: command.chars().take(160).collect() })
        })
        .collect()
}

/// Ends all of them; for cases that have failed already.
pub(crate) fn end_all(mark: &Path) {
    for process in alive(mark) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
