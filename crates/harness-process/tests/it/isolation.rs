//! What a child gets from us and what not.

use std::os::fd::AsRawFd;

use harness_process::{ChildSpec, Environment, Isolation, Mark, Output, start};

use crate::call::{alone, bare, label, run, sh};

async fn says(spec: ChildSpec) -> String {
    let report = run(spec.with_output(Output::Collect { max: 100_000 })).await;
    String::from_utf8(report.collected.as_ref().unwrap().bytes.clone()).unwrap()
}

#[tokio::test]
async fn only_named_variables_and_the_mark_arrive() {
    let environment = Environment::empty().set("GIVEN", "a b").allow("NEVER_SET_ANYWHERE");
    let mark = Mark::new(label()).with_variable("MY_MARK");
    let spec = ChildSpec::new("/usr/bin/env").with_environment(environment).with_mark(mark);
    let text = says(spec).await;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], "GIVEN=a b");
    assert!(lines[1].starts_with("MY_MARK="), "{text}");
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let nasty = ["", " ", "it's `x`", "$(touch pwned)", "*", "-n", "a\nb", "é😀"];
    let spec = sh("for a; do printf '<%s>' \"$a\"; done").with_arguments(["sh"]).with_arguments(nasty);
    let expected: String = nasty.iter().map(|word| format!("<{word}>")).collect();
    assert_eq!(says(spec).await, expected);
}

#[tokio::test]
async fn a_child_leads_a_session_without_a_terminal() {
    for directory in ["/", "/tmp"] {
        let spec = sh("cut -d' ' -f1,5,6,7 /proc/$$/stat; pwd; (exec </dev/tty) 2>/dev/null || echo none")
            .with_directory(directory);
        let child = start(spec.clone()).unwrap();
        assert_eq!(child.isolation(), Isolation::Session);
        drop(child);
        let text = says(spec).await;
        let mut lines = text.lines();
        let numbers: Vec<_> = lines.next().unwrap().split(' ').collect();
        assert_eq!(numbers[0], numbers[1], "group");
        assert_eq!(numbers[0], numbers[2], "session");
        assert_eq!(numbers[3], "0", "terminal");
        assert_eq!(lines.collect::<Vec<_>>(), [directory, "none"]);
    }
}

#[tokio::test]
async fn a_child_may_stay_in_our_session() {
    let spec = sh("cut -d' ' -f1,5,6 /proc/$$/stat; cat; exit 3")
        .with_isolation(Isolation::Group)
        .with_directory("/tmp");
    let mut child = start(spec.with_output(Output::Collect { max: 100 })).unwrap();
    assert_eq!(child.isolation(), Isolation::Group);
    let report = child.wait().await;
    let text = String::from_utf8(report.collected.as_ref().unwrap().bytes.clone()).unwrap();
    let numbers: Vec<_> = text.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "group");
    assert_ne!(numbers[0], numbers[2], "session");
    assert_eq!(report.status.unwrap().code(), Some(3));
}

#[tokio::test]
#[cfg_attr(not(target_env = "gnu"), ignore = "the C library cannot close what is not marked")]
async fn no_descriptor_of_ours_arrives_marked_or_not() {
    let leak = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let high = rustix::io::dup(&leak).unwrap();
    let text = says(sh("ls /proc/self/fd")).await;
    let numbers: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() == 4, "0, 1, 2, and the directory being listed: {text}");
    assert!(!numbers[..3].contains(&high.as_raw_fd()));
}

#[tokio::test]
async fn no_signal_is_blocked_or_ignored() {
    let text = says(ChildSpec::new("/bin/cat").with_arguments(["/proc/self/status"])).await;
    let mut seen = 0;
    for line in
        text.lines().filter(|line| ["SigBlk", "SigIgn", "SigCgt"].contains(&&line[..line.len().min(6)]))
    {
        let signals = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // The C library keeps two signals for itself, and ignores them in every program it starts.
        assert_eq!(signals & !(0b11 << 31), 0, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn a_mark_that_we_carry_stays_in_front() {
    alone("isolation::nested", &[(Mark::VARIABLE, "outer".as_ref()), ("CLAUDECODE", "1".as_ref())]);
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn nested() {
    let spec = ChildSpec::new("/usr/bin/env").with_mark(Mark::new("inner")).with_output(Output::Discard);
    let text = says(spec).await;
    let mark = text.lines().find_map(|line| line.strip_prefix("HARNESS_MARK=")).unwrap();
    let (outer, own) = mark.split_once(',').unwrap();
    assert_eq!(outer, "outer");
    assert!(own.ends_with(":inner"), "{mark}");
    assert!(!text.contains("CLAUDECODE"));
}

/// The `script` program gives the test a terminal, which the child must not get at.
#[test]
fn a_child_cannot_open_our_terminal() {
    let test = std::env::current_exe().unwrap();
    let command = format!("'{}' --exact isolation::terminal --ignored --nocapture", test.display());
    let output = std::process::Command::new("/usr/bin/script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn terminal() {
    std::fs::File::open("/dev/tty").unwrap();
    let script = "if (exec </dev/tty) 2>/dev/null; then read line </dev/tty; echo got; else echo none; fi";
    assert_eq!(says(bare(script)).await, "none\n");
}

#[test]
fn what_the_caller_holds_can_go_to_other_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<ChildSpec>();
    check::<harness_process::Child>();
    check::<harness_process::ChildControl>();
    check::<harness_process::ChildStdin>();
    check::<harness_process::ChildStdout>();
    check::<harness_process::CallReport>();
    check::<harness_process::StartError>();
}
