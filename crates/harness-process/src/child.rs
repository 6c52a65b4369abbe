use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::Stdio,
    sync::{Arc, RwLockReadGuard},
};

use tokio::{
    net::unix::pipe,
    sync::{oneshot, watch},
};

use crate::{
    CallReport, ChildSpec, ChildStdin, ChildStdout, Input, Isolation, StartError, StartErrorKind,
    clock::{Clock, SystemClock},
    course::Course,
    environment::Variables,
    exit::ExitWatch,
    input::Feed,
    live, program,
    streams::Streams,
    supervise::{Call, Wishes},
    sys::{self, Failure},
    tree::Tree,
};

/// A child process that is being supervised.
///
/// A task of the runtime does the supervising: output is drained, limits are kept and the tree is ended
/// whether or not anybody waits. Dropping the child before its report is there kills it and all that it
/// started, in the background; if the runtime shuts down, that happens then, and blocks it for 2 seconds
/// at most.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    isolation: Isolation,
    control: ChildControl,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    report: Report,
}

#[derive(Debug)]
enum Report {
    Awaited(oneshot::Receiver<CallReport>),
    There(Arc<CallReport>),
}

/// Says what should become of a child, from anywhere. Repeating a wish changes nothing, and so does a wish
/// about a child that is gone.
#[derive(Clone, Debug)]
pub struct ChildControl {
    wishes: Arc<watch::Sender<Wishes>>,
}

/// Starts what `spec` describes.
///
/// Must be called within a tokio runtime whose I/O and time are enabled. Takes about as long as the system
/// needs to start a process, and does not wait for anything else.
///
/// # Errors
///
/// Everything that can be known before the program runs. Nothing is left behind.
///
/// # Panics
///
/// When the runtime has I/O or time switched off.
pub fn start(spec: ChildSpec) -> Result<Child, StartError> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
        StartError::new(
            StartErrorKind::NoRuntime,
            "there is no tokio runtime here, start the child inside one",
        )
    })?;
    let segment = spec.mark.segment()?;
    let mut variables = spec.environment.resolve(std::env::vars_os());
    variables.insert(spec.mark.variable(), &spec.mark.value(&segment));
    let program = program::locate(&spec.program, variables.value("PATH"))?;

    let (stdin_theirs, stdin) = open_input(spec.input)?;
    let (stdout_theirs, stdout_ours) = output_pipe("standard output")?;
    let (stderr_theirs, stderr_ours) = output_pipe("standard error")?;
    let transcript = spec.transcript.map(crate::Transcript::create).transpose()?;

    let started = SystemClock.now();
    let image = Image {
        program: &program,
        name: spec.program.as_os_str(),
        arguments: &spec.arguments,
        directory: spec.directory.as_deref(),
        variables: &variables,
        stdio: [stdin_theirs, stdout_theirs, stderr_theirs],
    };
    let (birth, pid, isolation) = match image.spawn_when_free(spec.isolation) {
        Ok(spawned) => spawned,
        Err(error) => {
            if let Some(transcript) = transcript {
                transcript.discard();
            }
            // What the system says does not tell a missing program from a missing directory.
            program::check(&program)?;
            spec.directory.as_deref().map_or(Ok(()), check_directory)?;
            return Err(error);
        }
    };
    let tree = Tree::plant(pid, started.elapsed, spec.mark.variable(), segment);
    drop((birth, image));
    // From here on, dropping the tree ends the child.
    let exit =
        ExitWatch::new(tree.leader()).map_err(|error| StartError::from_resource("an exit watch", error))?;
    let (stdin, stdin_half) = stdin.feed()?;
    let (stdout_ours, stderr_ours) =
        (receiver("standard output", stdout_ours)?, receiver("standard error", stderr_ours)?);
    let (streams, stdout_half) = Streams::new(stdout_ours, stderr_ours, spec.output, transcript);

    let (wishes, wishes_ours) = watch::channel(Wishes::default());
    let (sender, report) = oneshot::channel();
    let call = Call {
        tree,
        exit,
        stdin,
        streams,
        course: Course::new(spec.limits, spec.shutdown.clone(), started),
        shutdown: spec.shutdown,
        wishes: wishes_ours,
        cancellation: spec.cancellation,
        started,
    };
    runtime.spawn(async move {
        let (report, remains) = call.run().await;
        // The caller may have dropped the child, and then nobody is interested.
        let _ = sender.send(report);
        // Whoever waits for the report goes first.
        tokio::task::yield_now().await;
        drop(remains);
    });
    Ok(Child {
        pid,
        isolation,
        control: ChildControl { wishes: Arc::new(wishes) },
        stdin: stdin_half,
        stdout: stdout_half,
        report: Report::Awaited(report),
    })
}

impl Child {
    /// Returns the child's pid. After the report is there, it may be another process's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns how far the child is kept apart, which may be less than was asked for.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Returns a handle that says what should become of the child.
    #[must_use]
    pub fn control(&self) -> ChildControl {
        self.control.clone()
    }

    /// Hands out the child's standard input, once, with [`Input::Piped`].
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Hands out the child's standard output, once, with [`Output::Stream`](crate::Output::Stream).
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// See [`ChildControl::delivered`].
    pub fn delivered(&self) {
        self.control.delivered();
    }

    /// See [`ChildControl::cancel`].
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// See [`ChildControl::kill`].
    pub fn kill(&self) {
        self.control.kill();
    }

    /// Waits for the end of the call, clean-up included. A repeat returns the same report.
    ///
    /// What has not been taken of the streams is dropped: a child waiting for input that nobody will write
    /// gets its end, and output that nobody will read does not hold it up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call goes on, and a later wait returns its report.
    pub async fn wait(&mut self) -> Arc<CallReport> {
        self.stdin = None;
        self.stdout = None;
        let report = match &mut self.report {
            Report::There(report) => return Arc::clone(report),
            // Nobody sends when the runtime is shut down from under the call.
            Report::Awaited(report) => Arc::new(report.await.unwrap_or_else(|_| CallReport::lost())),
        };
        self.report = Report::There(Arc::clone(&report));
        report
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Report::Awaited(_) = self.report {
            self.kill();
        }
    }
}

impl ChildControl {
    /// Says that the child has delivered what it was started for.
    ///
    /// Its limits no longer count. If it is still there after the delivered grace, it is made to end, and
    /// the call ends as [`Ending::Delivered`](crate::Ending::Delivered).
    pub fn delivered(&self) {
        self.wish(|wishes| &mut wishes.delivered);
    }

    /// Makes the child end: the gentle step, then TERM, then KILL.
    pub fn cancel(&self) {
        self.wish(|wishes| &mut wishes.cancel);
    }

    /// Makes the child end by KILL at once, also when a gentler way has begun.
    pub fn kill(&self) {
        self.wish(|wishes| &mut wishes.kill);
    }

    fn wish(&self, field: impl FnOnce(&mut Wishes) -> &mut bool) {
        self.wishes.send_if_modified(|wishes| !std::mem::replace(field(wishes), true));
    }
}

fn check_directory(directory: &Path) -> Result<(), StartError> {
    let shown = directory.display();
    let refused = |message: String| StartError::new(StartErrorKind::Directory, message).at(directory);
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(refused(format!("working directory {shown} is not a directory, name one"))),
        Err(error) => {
            Err(refused(format!("working directory {shown} cannot be used, create it")).because(error))
        }
    }
}

fn open_file(path: &Path) -> Result<File, StartError> {
    let shown = path.display();
    let refused = |message: String| StartError::new(StartErrorKind::Input, message).at(path);
    let cannot =
        |error| refused(format!("input file {shown} cannot be opened, check its path")).because(error);
    // Opening something else might wait for ever.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(refused(format!("input {shown} is no regular file, name one")));
    }
    File::open(path).map_err(cannot)
}

/// Our half of the child's standard input, before the child is there.
enum Prepared {
    Done(usize),
    Bytes { pipe: OwnedFd, bytes: Vec<u8>, at: usize },
    Piped(OwnedFd),
}

fn open_input(input: Input) -> Result<(OwnedFd, Prepared), StartError> {
    let fault = |error: io::Error| StartError::from_resource("standard input", error);
    let (theirs, ours) = match input {
        Input::Empty => (File::open("/dev/null").map_err(fault)?.into(), Prepared::Done(0)),
        Input::File(path) => (open_file(&path)?.into(), Prepared::Done(0)),
        Input::Bytes(bytes) => {
            let (theirs, pipe) = input_pipe().map_err(fault)?;
            // Most prompts fit the empty pipe, and then there is nothing left to feed.
            let at = rustix::io::write(&pipe, &bytes).unwrap_or(0);
            let rest = at < bytes.len();
            (theirs, if rest { Prepared::Bytes { pipe, bytes, at } } else { Prepared::Done(at) })
        }
        Input::Piped => {
            let (theirs, pipe) = input_pipe().map_err(fault)?;
            (theirs, Prepared::Piped(pipe))
        }
    };
    Ok((above_stdio(theirs).map_err(fault)?, ours))
}

impl Prepared {
    fn feed(self) -> Result<(Feed, Option<ChildStdin>), StartError> {
        let sender = |pipe| {
            pipe::Sender::from_owned_fd_unchecked(pipe)
                .map_err(|error| StartError::from_resource("standard input", error))
        };
        Ok(match self {
            Self::Done(written) => (Feed::done(written), None),
            Self::Bytes { pipe, bytes, at } => (Feed::bytes(sender(pipe)?, bytes, at), None),
            Self::Piped(pipe) => {
                let (feed, half) = Feed::piped(sender(pipe)?);
                (feed, Some(half))
            }
        })
    }
}

/// Returns the child's end and ours, on which no write waits.
fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = io::pipe()?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((theirs.into(), ours.into()))
}

/// Returns the child's end and ours, on which no read waits.
fn output_pipe(what: &str) -> Result<(OwnedFd, OwnedFd), StartError> {
    let make = || {
        let (ours, theirs) = io::pipe()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok((above_stdio(theirs.into())?, ours.into()))
    };
    make().map_err(|error: io::Error| StartError::from_resource(what, error))
}

/// Makes tokio tell when there is something to read. That can wait until the child is there.
fn receiver(what: &str, pipe: OwnedFd) -> Result<pipe::Receiver, StartError> {
    pipe::Receiver::from_owned_fd_unchecked(pipe).map_err(|error| StartError::from_resource(what, error))
}

/// A process that was itself started without standard streams gets 0, 1 or 2 for its next descriptors, and
/// those would get in each other's way when they become the child's.
fn above_stdio(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() > 2 {
        return Ok(descriptor);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, 3)?)
}

/// What the new process is made of.
struct Image<'a> {
    program: &'a Path,
    /// What the program is told it was called.
    name: &'a std::ffi::OsStr,
    arguments: &'a [std::ffi::OsString],
    directory: Option<&'a Path>,
    variables: &'a Variables,
    stdio: [OwnedFd; 3],
}

/// So often a start is repeated whose program was held open.
const BUSY_TRIES: usize = 5;

impl Image<'_> {
    /// Starts the process, and returns what keeps it from being taken for a leftover meanwhile.
    ///
    /// A child that is being started holds all our descriptors for a moment, also one by which another
    /// thread has just written a program; that program then counts as being written. It no longer does
    /// when all starts that were under way are over.
    fn spawn_when_free(
        &self,
        isolation: Isolation,
    ) -> Result<(RwLockReadGuard<'static, ()>, u32, Isolation), StartError> {
        let mut tries = 0;
        loop {
            let birth = live::birth();
            match self.spawn(isolation) {
                Err(error) if error.is_busy() && tries < BUSY_TRIES => {
                    tries += 1;
                    drop(birth);
                    drop(live::alone());
                }
                outcome => return outcome.map(|(pid, isolation)| (birth, pid, isolation)),
            }
        }
    }

    fn spawn(&self, isolation: Isolation) -> Result<(u32, Isolation), StartError> {
        if isolation == Isolation::Group {
            return self.spawn_in_group();
        }
        let text = |text: &std::ffi::OsStr| {
            CString::new(text.as_bytes()).map_err(|_| {
                let message = format!("argument {text:?} holds a NUL byte, remove it");
                StartError::new(StartErrorKind::Invalid, message)
            })
        };
        let program = text(self.program.as_os_str())?;
        let names = [self.name].into_iter().chain(self.arguments.iter().map(std::ffi::OsString::as_os_str));
        let arguments = names.map(text).collect::<Result<Vec<_>, _>>()?;
        let environment = self.variables.block()?;
        let directory = self.directory.map(|directory| text(directory.as_os_str())).transpose()?;
        let outcome = sys::spawn(&sys::Request {
            program: &program,
            arguments: &arguments,
            environment: &environment,
            directory: directory.as_deref(),
            stdio: self.stdio.each_ref().map(AsFd::as_fd),
        });
        match outcome {
            Ok(pid) => Ok((pid, Isolation::Session)),
            Err(Failure::NoDirectory) => self.spawn_in_group(),
            Err(Failure::System(error)) => Err(StartError::from_spawn(self.program, error)),
        }
    }

    /// Leaves it to the standard library, which knows process groups and no sessions.
    fn spawn_in_group(&self) -> Result<(u32, Isolation), StartError> {
        self.variables.block()?;
        let copy = |descriptor: &OwnedFd| {
            let copy = descriptor.try_clone().map(Stdio::from);
            copy.map_err(|error| StartError::from_resource("standard streams", error))
        };
        let [stdin, stdout, stderr] = &self.stdio;
        let (stdin, stdout, stderr) = (copy(stdin)?, copy(stdout)?, copy(stderr)?);
        let mut command = std::process::Command::new(self.program);
        command.arg0(self.name).args(self.arguments).env_clear().envs(self.variables.iter());
        command.process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                StartError::new(StartErrorKind::Invalid, "an argument holds a NUL byte, remove it")
                    .because(error)
            }
            _ => StartError::from_spawn(self.program, error),
        })?;
        Ok((child.id(), Isolation::Group))
    }
}
