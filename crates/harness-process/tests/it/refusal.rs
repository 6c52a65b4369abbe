//! Calls that never start.

use std::{fs, os::unix::fs::PermissionsExt};

use harness_process::{ChildSpec, Environment, Input, Mark, StartErrorKind, Transcript, start};

use crate::call::alone;

#[track_caller]
fn check(spec: ChildSpec, kind: StartErrorKind, named: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    let error = start(spec).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(named), "{error} does not name {named}");
}

#[test]
fn a_missing_program_is_named() {
    check(ChildSpec::new("/nowhere/agent"), StartErrorKind::ProgramMissing, "/nowhere/agent");
    check(ChildSpec::new("no-such-agent"), StartErrorKind::ProgramMissing, "no-such-agent");
    check(ChildSpec::new("/bin/sh/agent"), StartErrorKind::ProgramMissing, "/bin/sh/agent");
}

#[test]
fn a_directory_is_no_program() {
    check(ChildSpec::new("/usr/bin"), StartErrorKind::ProgramIsDirectory, "/usr/bin");
}

#[test]
fn a_file_that_may_not_be_executed_is_no_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    let name = path.to_str().unwrap();
    check(ChildSpec::new(&path), StartErrorKind::ProgramNotExecutable, name);
    let search = Environment::empty().set("PATH", directory.path());
    check(ChildSpec::new("agent").with_environment(search), StartErrorKind::ProgramNotExecutable, name);
}

#[test]
fn a_file_in_no_known_format_is_no_program() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [("text", "hello"), ("empty", ""), ("orphan", "#!/nowhere/interpreter\n")] {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        check(ChildSpec::new(&path), StartErrorKind::ProgramNotExecutable, path.to_str().unwrap());
    }
}

#[test]
fn a_fifo_is_no_program_and_is_not_waited_for() {
    check(ChildSpec::new("/dev/null"), StartErrorKind::ProgramNotExecutable, "/dev/null");
}

#[test]
fn a_relative_entry_of_the_search_path_is_not_searched() {
    let search = Environment::empty().set("PATH", ":.:bin:../../../../../../../../bin");
    check(ChildSpec::new("sh").with_environment(search), StartErrorKind::ProgramMissing, "sh");
}

#[test]
fn what_cannot_be_passed_on_is_refused() {
    let kind = StartErrorKind::Invalid;
    check(ChildSpec::new(""), kind, "empty");
    check(ChildSpec::new("a\0b"), kind, "NUL");
    check(ChildSpec::new("/bin/s\0h"), kind, "NUL");
    check(ChildSpec::new("/bin/sh").with_arguments(["a\0b"]), kind, "NUL");
    check(ChildSpec::new("/bin/sh").with_environment(Environment::empty().set("A=B", "")), kind, "A=B");
    check(ChildSpec::new("/bin/sh").with_mark(Mark::new("a b")), kind, "label");
}

#[test]
fn arguments_that_are_too_long_are_refused_as_such() {
    let spec = ChildSpec::new("/bin/sh").with_arguments(["x".repeat(200_000)]);
    check(spec, StartErrorKind::ArgumentsTooLong, "standard input");
}

#[test]
fn a_working_directory_must_be_one() {
    for directory in ["/nowhere", "/bin/sh"] {
        let spec = ChildSpec::new("/bin/sh").with_directory(directory);
        check(spec, StartErrorKind::Directory, directory);
    }
}

#[test]
fn an_input_file_must_be_readable() {
    let spec = ChildSpec::new("/bin/sh").with_input(Input::File("/nowhere".into()));
    check(spec, StartErrorKind::Input, "/nowhere");
}

#[test]
fn an_input_that_is_no_file_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in [path.as_path(), directory.path()] {
        let spec = ChildSpec::new("/bin/sh").with_input(Input::File(path.into()));
        check(spec, StartErrorKind::Input, path.to_str().unwrap());
    }
}

#[test]
fn a_program_just_written_starts_while_others_are_starting() {
    alone("refusal::just_written", &[]);
}

/// A child that is being started holds every descriptor of ours for a moment, and that of a program being
/// written among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "runs in a process of its own"]
async fn just_written() {
    let directory = tempfile::tempdir().unwrap();
    let workers = (0..8).map(|worker| {
        let directory = directory.path().to_owned();
        tokio::spawn(async move {
            for number in 0..40 {
                let path = directory.join(format!("{worker}-{number}"));
                fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
                let mut child = start(ChildSpec::new(&path)).unwrap();
                assert!(child.wait().await.succeeded());
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
}

#[test]
fn a_transcript_must_be_new() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path(), "/nowhere/transcript".as_ref()] {
        let spec = ChildSpec::new("/bin/sh").with_transcript(Transcript::new(path));
        check(spec, StartErrorKind::Transcript, path.to_str().unwrap());
    }
}

#[test]
fn a_refused_call_leaves_no_transcript() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transcript");
    let spec = ChildSpec::new("/bin/sh").with_arguments(["x".repeat(200_000)]);
    check(spec.with_transcript(Transcript::new(&path)), StartErrorKind::ArgumentsTooLong, "/bin/sh");
    assert!(!fs::exists(&path).unwrap());
}

#[test]
fn without_a_runtime_nothing_is_started() {
    let error = start(ChildSpec::new("/bin/sh")).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::NoRuntime);
}
