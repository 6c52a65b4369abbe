//! What the tests share: a short way to make a call, and to look at what it left.

use std::{
    ffi::OsStr,
    fs,
    process::Command,
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use harness_process::{CallReport, ChildSpec, Environment, Limits, Mark, Shutdown, start};

/// Describes a shell script as a child with short limits and a mark that no other test has.
pub(crate) fn sh(script: &str) -> ChildSpec {
    static ADOPT: Once = Once::new();
    ADOPT.call_once(|| harness_process::become_subreaper().unwrap());
    bare(script)
}

/// The same without becoming a subreaper.
pub(crate) fn bare(script: &str) -> ChildSpec {
    ChildSpec::new("/bin/sh")
        .with_arguments(["-c", script])
        .with_environment(Environment::empty().set("PATH", "/usr/local/bin:/usr/bin:/bin"))
        .with_mark(Mark::new(label()))
        .with_limits(limits())
        .with_shutdown(shutdown())
}

pub(crate) fn label() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test/{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn limits() -> Limits {
    let long = Duration::from_secs(20);
    Limits::default().with_first_byte(long).with_idle(long).with_deadline(long)
}

pub(crate) fn shutdown() -> Shutdown {
    let mut shutdown = Shutdown::default()
        .with_graces(Duration::from_millis(300))
        .with_delivered_grace(Duration::from_millis(300))
        .with_drain(Duration::from_millis(100));
    // Nothing but a busy machine makes use of it.
    shutdown.kill_grace = Duration::from_secs(5);
    shutdown
}

/// Makes the call and waits for its report.
#[track_caller]
pub(crate) fn run(spec: ChildSpec) -> impl Future<Output = Arc<CallReport>> {
    let mut child = start(spec).unwrap();
    async move {
        let report = tokio::time::timeout(Duration::from_secs(25), child.wait()).await;
        let report = report.expect("a call ends");
        assert_eq!(report.survivors, [0; 0], "nothing survives");
        assert!(!is_there(child.pid()), "the child is gone and reaped");
        report
    }
}

/// Returns whether there is a process with this pid, dead or alive.
pub(crate) fn is_there(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}

/// Returns the pids that a script has printed, each a word of its own.
pub(crate) fn pids(text: &[u8]) -> Vec<u32> {
    String::from_utf8_lossy(text).split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Asserts that a script printed `count` pids and that none of those processes is there any more.
#[track_caller]
pub(crate) fn assert_gone(text: &[u8], count: usize) {
    let pids = pids(text);
    assert_eq!(pids.len(), count, "the script printed its pids");
    for pid in pids {
        assert!(!is_there(pid), "{pid} is still there");
    }
}

/// Runs an ignored test of this binary in a process of its own.
#[track_caller]
pub(crate) fn alone(test: &str, environment: &[(&str, &OsStr)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
