use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use tokio_util::sync::CancellationToken;

use crate::{Environment, Limits, Mark, Shutdown, Transcript};

/// Describes one child process call. [`start`](crate::start) makes it happen.
///
/// ```
/// use harness_process::{ChildSpec, Input, Output};
///
/// let spec = ChildSpec::new("cat")
///     .with_input(Input::Bytes(b"hello".to_vec()))
///     .with_output(Output::Collect { max: 1024 });
/// ```
#[derive(Clone, Debug)]
#[must_use = "a description starts nothing"]
pub struct ChildSpec {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) environment: Environment,
    pub(crate) mark: Mark,
    pub(crate) isolation: Isolation,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) transcript: Option<Transcript>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: Shutdown,
    pub(crate) cancellation: CancellationToken,
}

/// What the child reads on standard input.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Input {
    /// Nothing: it is at its end at once.
    #[default]
    Empty,
    /// These bytes, then the end. They are fed while output is drained, so any length works. A child that
    /// does not read them all is no fault.
    Bytes(Vec<u8>),
    /// This file, opened for reading when the child is started.
    File(PathBuf),
    /// What the caller writes to [`ChildStdin`](crate::ChildStdin), for as long as it is kept.
    Piped,
}

/// What happens to the child's standard output, beside the transcript and the tail in the report.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Output {
    /// Nothing.
    #[default]
    Discard,
    /// The first `max` bytes are in the report.
    Collect {
        /// The bound on what is kept.
        max: usize,
    },
    /// The caller reads it from [`ChildStdout`](crate::ChildStdout). A caller that falls behind by 1 MiB
    /// makes the child wait.
    Stream,
}

/// How far a child is kept apart from us.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Isolation {
    /// In a session of its own, without a terminal, holding no descriptor of ours.
    ///
    /// With a glibc older than 2.29, a child in another working directory gets [`Isolation::Group`]
    /// instead. [`Child::isolation`](crate::Child::isolation) tells.
    #[default]
    Session,
    /// In a process group of its own, in our session: the child can open our terminal, and is stopped
    /// when it reads from it. Started by way of the standard library. What it leaves in our session is told
    /// from the application's own children by its mark and its process group alone.
    Group,
}

impl ChildSpec {
    /// Describes a call of `program` without arguments, with the defaults of everything else.
    ///
    /// A name with a slash is a path, from our working directory when relative. Any other name is looked
    /// up in the absolute entries of the child's `PATH`. No shell is involved.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: None,
            environment: Environment::basic(),
            mark: Mark::default(),
            isolation: Isolation::default(),
            input: Input::default(),
            output: Output::default(),
            transcript: None,
            limits: Limits::default(),
            shutdown: Shutdown::default(),
            cancellation: CancellationToken::new(),
        }
    }

    /// Adds `arguments` behind those there are.
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Starts the child in `directory` instead of our working directory.
    pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Replaces the environment, [`Environment::basic`] by default.
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Replaces the mark. The child's environment holds one in any case.
    pub fn with_mark(mut self, mark: Mark) -> Self {
        self.mark = mark;
        self
    }

    /// Replaces how far the child is kept apart.
    pub fn with_isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Replaces what the child reads, nothing by default.
    pub fn with_input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Replaces what happens to standard output.
    pub fn with_output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Writes a transcript.
    pub fn with_transcript(mut self, transcript: Transcript) -> Self {
        self.transcript = Some(transcript);
        self
    }

    /// Replaces the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Replaces how a child that has to go is told so.
    pub fn with_shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Cancels the call when `token` is cancelled, as [`Child::cancel`](crate::Child::cancel) does.
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }
}
