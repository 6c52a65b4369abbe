//! A pid namespace for the tests: a worker or a `ralph-loop` that somebody else starts on this machine would sweep what the
//! killed workers of a trial have left.

use std::process::{Command, ExitCode};
use std::thread;

/// Set in the process that has the namespace.
const ALONE: &str = "TEMPORAL_E2E_ALONE";

/// Goes on in a process with a pid namespace of its own, where the machine allows that; in that process there is nothing
/// to do.
pub(crate) fn go_on(words: &[String]) -> Option<ExitCode> {
    const BASE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    if std::env::var_os(ALONE).is_some() {
        end_when_interrupted();
        return None;
    }
    let users: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let works = |user: &&[&str]| {
        let probe = Command::new("unshare").args(*user).args(BASE).arg("true").output();
        probe.is_ok_and(|output| output.status.success())
    };
    let Some(user) = users.iter().copied().find(works) else {
        println!("without a pid namespace of its own: others on this machine may end what a trial needs");
        return None;
    };
    let exe = std::env::current_exe().unwrap();
    let status = Command::new("unshare").args(user).args(BASE).arg(exe).args(words).env(ALONE, "1").status();
    Some(if status.unwrap().success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first process of a namespace is not ended by a signal that it does not handle. When it ends, all others do.
fn end_when_interrupted() {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            std::process::exit(130);
        }
    });
}
