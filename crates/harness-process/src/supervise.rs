use std::{os::unix::process::ExitStatusExt, pin::pin, process::ExitStatus, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    CallReport, Ending, Gentle, Shutdown,
    clock::{Clock, Reading, SystemClock},
    course::{Cause, Course, Step},
    exit::{Exit, ExitWatch},
    input::Feed,
    streams::{Spent, Streams},
    tree::Tree,
};

/// What the caller has asked for so far. Nothing of it is ever taken back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) delivered: bool,
    pub(crate) cancel: bool,
    pub(crate) kill: bool,
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) tree: Tree,
    pub(crate) exit: ExitWatch,
    pub(crate) stdin: Feed,
    pub(crate) streams: Streams,
    pub(crate) course: Course,
    pub(crate) shutdown: Shutdown,
    pub(crate) wishes: watch::Receiver<Wishes>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) started: Reading,
}

/// What a call that is over has still open.
#[derive(Debug)]
pub(crate) struct Remains {
    _exit: ExitWatch,
    _streams: Spent,
}

/// The clocks are looked at this often, as a timer does not notice that the machine was asleep.
const LOOK: Duration = Duration::from_secs(5);

impl Call {
    /// Sees the call through to its end. Dropping the future ends it at once, blocking.
    ///
    /// Returns what came of it, and what it needed for that: closing it takes a moment that nobody has to wait for.
    pub(crate) async fn run(mut self) -> (CallReport, Remains) {
        self.until_exit().await;
        self.drain().await;
        let ended = self.tree.end(self.shutdown.kill_grace).await;
        // What came between the last look and the end of those who wrote it.
        self.streams.work_now();

        let status = match ended.exit {
            Exit::Status(status) => Some(status),
            Exit::NotYet | Exit::Lost => None,
        };
        let ending = match self.course.cause() {
            Some(Cause::Cancelled) => Ending::Cancelled,
            Some(Cause::Delivered) => Ending::Delivered,
            Some(Cause::TimedOut(limit)) => Ending::TimedOut(limit),
            None => status.map_or(Ending::Lost, of_its_own),
        };
        let (streams, spent) = self.streams.finish();
        let report = CallReport {
            ending,
            status,
            wall: SystemClock.now().since(self.started).elapsed,
            first_byte: self.course.watch().first_byte(),
            stdin_bytes: self.stdin.written(),
            stdout_bytes: streams.stdout_bytes,
            stderr_bytes: streams.stderr_bytes,
            collected: streams.collected,
            stdout_tail: streams.stdout_tail,
            stderr_tail: streams.stderr_tail,
            transcript: streams.transcript,
            leftovers: ended.killed,
            survivors: ended.survivors,
        };
        (report, Remains { _exit: self.exit, _streams: spent })
    }

    /// Supervises until the child has exited, or does not even die of KILL.
    async fn until_exit(&mut self) {
        let leader = self.tree.leader();
        let cancellation = self.cancellation.clone();
        let mut cancelled = pin!(cancellation.cancelled());
        let mut cancellable = true;
        let mut listening = true;
        let mut timer = pin!(sleep_until(Instant::now() + LOOK));
        loop {
            let now = SystemClock.now();
            if self.streams.is_stalled() {
                self.course.watch().excuse(now);
            }
            let wait = loop {
                match self.course.look(now) {
                    Ok(wait) => break wait,
                    Err(Step::GiveUp) => return,
                    Err(step) => self.take(step),
                }
            };
            timer.as_mut().reset(Instant::now() + wait.min(LOOK));
            // Output only puts limits off, so the timer may stay as it is, but for the first byte.
            loop {
                tokio::select! {
                    biased;
                    () = self.exit.exited(leader) => return,
                    changed = self.wishes.changed(), if listening => {
                        listening = changed.is_ok();
                        let wishes = *self.wishes.borrow_and_update();
                        // Nobody is left to want anything: the child is of no use to anyone.
                        self.heed(Wishes { kill: wishes.kill || !listening, ..wishes });
                        break;
                    }
                    () = &mut cancelled, if cancellable => {
                        cancellable = false;
                        self.heed(Wishes { cancel: true, ..Wishes::default() });
                        break;
                    }
                    () = &mut timer => {
                        self.tree.tend();
                        break;
                    }
                    () = self.stdin.work(), if self.stdin.is_open() => {}
                    length = self.streams.work(), if self.streams.is_open() => {
                        if self.note_life(length) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Takes note of so many bytes of output, and returns whether they are the first.
    fn note_life(&mut self, length: usize) -> bool {
        let watch = self.course.watch();
        let first = watch.first_byte().is_none() && length > 0;
        if length > 0 {
            watch.life(SystemClock.now());
        }
        first
    }

    fn heed(&mut self, wishes: Wishes) {
        let now = SystemClock.now();
        if wishes.delivered {
            self.course.delivered(now);
        }
        let step = match wishes {
            Wishes { kill: true, .. } => self.course.kill(now),
            Wishes { cancel: true, .. } => self.course.end(Cause::Cancelled, now),
            _ => None,
        };
        if let Some(step) = step {
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        self.tree.remember();
        match step {
            Step::Gentle => {
                let done = match &self.shutdown.gentle {
                    Gentle::None => false,
                    Gentle::Interrupt => {
                        self.tree.interrupt();
                        true
                    }
                    Gentle::Write(bytes) => self.stdin.last_words(bytes),
                    Gentle::CloseInput => self.stdin.close(),
                };
                if !done {
                    let next = self.course.skip_gentle(SystemClock.now());
                    self.take(next);
                }
            }
            Step::Term => self.tree.terminate(),
            Step::Kill => self.tree.kill(),
            Step::GiveUp => {}
        }
    }

    /// Reads what the child has left in its pipes, and for a moment what others add to it.
    async fn drain(&mut self) {
        self.stdin.close();
        self.streams.last_pieces();
        // As a rule that is all, and there is nothing to wait for.
        let length = self.streams.work_now();
        self.note_life(length);
        if !self.streams.is_open() {
            return;
        }
        let mut over = pin!(sleep_until(Instant::now() + self.shutdown.drain));
        while self.streams.is_open() {
            tokio::select! {
                biased;
                () = &mut over => return,
                length = self.streams.work() => {
                    self.note_life(length);
                }
            }
        }
    }
}

fn of_its_own(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited { code },
        (None, Some(signal)) => Ending::Signalled { signal },
        (None, None) => Ending::Lost,
    }
}
