//! A terminal that a test holds the other end of.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::stage::{Said, Stage, signal_child, wait_until};

pub(crate) const ROWS: u16 = 60;
pub(crate) const COLUMNS: u16 = 80;

/// Our program with a terminal on all its streams.
pub(crate) struct Terminal {
    ours: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts it in the test's own session: the terminal can be written to, and interrupts nobody.
    pub(crate) fn start(stage: &Stage, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::run(stage.command(arguments), variables)
    }

    /// Starts it as a login does: the terminal controls it, and what is typed there interrupts it.
    pub(crate) fn start_controlled(stage: &Stage, arguments: &[&str]) -> Self {
        // A session of its own, whose leader is our program.
        let mut command = stage.command_of("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_ralph-loop")]).args(arguments);
        let terminal = Self::run(command, &[]);
        // What is typed before that would interrupt nobody. A program that has ended has been there.
        let program = Path::new(env!("CARGO_BIN_EXE_ralph-loop")).canonicalize().unwrap();
        let link = format!("/proc/{}/exe", terminal.child.id());
        wait_until("our program on its terminal", || {
            std::fs::read_link(&link).map_or(true, |path| path == program).then_some(())
        });
        terminal
    }

    fn run(mut command: Command, variables: &[(&str, &str)]) -> Self {
        let (ours, theirs) = pair();
        command.env("TERM", "xterm-256color").envs(variables.iter().copied());
        command.stdin(Stdio::from(theirs.try_clone().unwrap()));
        command.stdout(Stdio::from(theirs.try_clone().unwrap()));
        command.stderr(Stdio::from(theirs));
        let child = command.spawn().unwrap();
        drop(command);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut from = ours.try_clone().unwrap();
        let into = seen.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { ours, child, seen, reader: Some(reader) }
    }

    /// Types something.
    pub(crate) fn type_in(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Types Ctrl-C. The kernel makes a signal of it, for those in the foreground.
    pub(crate) fn type_interrupt(&mut self) {
        self.type_in("\u{3}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_child(&self.child, signal);
    }

    /// All that was written to the terminal so far.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// What a person sees.
    pub(crate) fn screen(&self) -> vt100::Screen {
        let mut parser = vt100::Parser::new(ROWS.try_into().unwrap(), COLUMNS.try_into().unwrap(), 0);
        parser.process(&self.seen.lock().unwrap());
        parser.screen().clone()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) {
        wait_until(part, || self.screen().contents().contains(part).then_some(()));
    }

    /// Waits for its end. What it wrote is all in `out`.
    pub(crate) fn end(&mut self) -> Said {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        Said::of(std::process::Output { status, stdout: self.seen().into_bytes(), stderr: Vec::new() })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, or the test has failed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pair() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (File::from(ours), theirs)
}
