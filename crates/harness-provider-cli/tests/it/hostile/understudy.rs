//! Faults that no shell can be brought to. The helper is this binary, started anew.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variable that says what the helper does.
pub(crate) const WHAT: &str = "HARNESS_TEST_HELPER";

pub(crate) fn arguments(token: &str) -> Vec<String> {
    // The token is one more filter, which no test matches: it is there to be seen in the process table.
    ["--exact", "hostile::understudy::help", token, "--ignored", "--nocapture", "--test-threads=1"]
        .map(str::to_owned)
        .to_vec()
}

#[test]
#[ignore = "is a child of other tests"]
#[expect(clippy::zombie_processes, reason = "to leave one is what it is for")]
fn help() {
    // Whoever runs all ignored tests runs this one too, with nothing to do.
    let Ok(what) = std::env::var(WHAT) else { return };
    match what.as_str() {
        "adopts" => {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
            let script = "setsid sleep 600 & (setsid sleep 600 &) & sleep 600 &";
            assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
            hand_in();
        }
        "hides" => {
            again("is hidden").spawn().unwrap();
            while !Path::new("ready").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            hand_in();
        }
        "is hidden" => {
            // Its environment can be read by nobody but the superuser.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).unwrap();
            std::fs::write("ready", "").unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }
        other => unreachable!("there is no helper for {other}"),
    }
}

/// This helper once more, in a session of its own, without a mark and with another task.
fn again(what: &str) -> Command {
    let mut command = Command::new("setsid");
    command.arg(std::env::current_exe().unwrap()).args(std::env::args().skip(1));
    command.env(WHAT, what).env_remove("HARNESS_MARK");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn hand_in() {
    std::fs::write(std::env::var(harness_provider_cli::VALUE_FILE).unwrap(), r#"{"a":1}"#).unwrap();
}
