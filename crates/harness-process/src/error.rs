use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a call could not be started. No process is left behind.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    kind: StartErrorKind,
    message: String,
    path: Option<PathBuf>,
    source: Option<io::Error>,
}

/// What was refused, as far as a caller can act on it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StartErrorKind {
    /// No file of that name exists, or the absolute entries of `PATH` hold none.
    ProgramMissing,
    /// The program's path names a directory.
    ProgramIsDirectory,
    /// The program exists and may not be executed, or is in no format the system can run.
    ProgramNotExecutable,
    /// The program, an argument, a variable or the mark's label holds something that cannot be passed on.
    Invalid,
    /// Arguments and environment exceed what the system hands to a program.
    ArgumentsTooLong,
    /// The working directory is missing or is not a directory.
    Directory,
    /// The file that was to be the child's standard input cannot be opened.
    Input,
    /// The transcript file cannot be created, or exists already.
    Transcript,
    /// There is no tokio runtime to supervise the child in.
    NoRuntime,
    /// The system has no process, descriptor or memory to spare, or the program's file is being written.
    /// A later try may succeed.
    Resources,
    /// The system refused for a reason not named here. The source says which.
    System,
}

impl StartError {
    /// Returns what was refused.
    #[must_use]
    pub fn kind(&self) -> StartErrorKind {
        self.kind
    }

    /// Returns the path of the program, directory or file that the refusal is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn new(kind: StartErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), path: None, source: None }
    }

    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    pub(crate) fn because(mut self, source: impl Into<io::Error>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns whether the program's file was open for writing.
    pub(crate) fn is_busy(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.raw_os_error() == Some(libc::ETXTBSY))
    }

    /// Sorts what the system said when it refused to run `program`.
    pub(crate) fn from_spawn(program: &Path, error: io::Error) -> Self {
        use StartErrorKind as Kind;
        let shown = program.display();
        let code = error.raw_os_error().unwrap_or(0);
        let (kind, message) = match code {
            libc::E2BIG => (
                Kind::ArgumentsTooLong,
                format!(
                    "arguments and environment are too long for {shown}, pass long text by standard input"
                ),
            ),
            libc::ENOENT => (
                Kind::ProgramNotExecutable,
                format!("the interpreter or loader that {shown} asks for is missing, install it"),
            ),
            libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::ELOOP | libc::EISDIR => (
                Kind::ProgramNotExecutable,
                format!("the system cannot execute {shown}, check its format and its permissions"),
            ),
            libc::ETXTBSY => {
                (Kind::Resources, format!("{shown} is open for writing, try again once it is closed"))
            }
            libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE => (
                Kind::Resources,
                format!("no process, descriptor or memory left to run {shown}, run less at once"),
            ),
            _ => (Kind::System, format!("the system refused to run {shown}")),
        };
        Self::new(kind, message).at(program).because(error)
    }

    pub(crate) fn from_resource(what: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let kind = match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM) => StartErrorKind::Resources,
            _ => StartErrorKind::System,
        };
        Self::new(kind, format_args!("cannot make {what} for the child")).because(error)
    }
}
