use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The result of an operation of this seam.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an engine or a catalog refused, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The engine takes no new runs any more.
    Closed,
    /// The engine itself failed: its store, its server. The source says why.
    Engine,
    /// A part of the request is out of its range.
    InvalidArgument,
    /// The workflow cannot enter the catalog.
    InvalidWorkflow,
    /// The provider that the request names cannot be used.
    Provider,
    /// Something of the run could not be released. The source says why.
    Release,
    /// A run of that id exists, and this engine does not attach to it.
    RunExists,
    /// No workflow of that name and version is in the engine's catalog.
    UnknownWorkflow,
}

impl ErrorKind {
    /// Returns the stable name of the kind, for logs and other programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Engine => "engine",
            Self::InvalidArgument => "invalid-argument",
            Self::InvalidWorkflow => "invalid-workflow",
            Self::Provider => "provider",
            Self::Release => "release",
            Self::RunExists => "run-exists",
            Self::UnknownWorkflow => "unknown-workflow",
        }
    }
}

/// The error of starting a run, of filling a catalog and of releasing a run.
///
/// Code decides by [`kind`](Self::kind); the message and the [source](StdError::source) are for people. An
/// implementation puts its own error in the source.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error. The message says what to do next, as a lower-case fragment.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns what a caller can act on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// A stable kebab-case name for what went wrong inside a run: an open set.
///
/// Engines use the constants. A workflow adds names of its own for its own failures.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The body asked for more children than the run may have.
    pub const AGENT_CAP: Self = Self::new("agent-cap");
    /// A child was lost: its provider cannot say how it ended.
    pub const AGENT_RESULT: Self = Self::new("agent-result");
    /// A child could not be started.
    pub const AGENT_START: Self = Self::new("agent-start");
    /// A call was tried as often as it may be and never came to its end.
    pub const ATTEMPTS_EXHAUSTED: Self = Self::new("attempts-exhausted");
    /// The run was cancelled.
    pub const CANCELLED: Self = Self::new("cancelled");
    /// The engine lost the run.
    pub const ENGINE_LOST: Self = Self::new("engine-lost");
    /// The body gave the context something that it does not take.
    pub const INVALID_ARGUMENT: Self = Self::new("invalid-argument");
    /// The body gave a combinator more items than one call may have.
    pub const ITEM_CAP: Self = Self::new("item-cap");
    /// The engine could not record what happened.
    pub const JOURNAL: Self = Self::new("journal");
    /// The body panicked.
    pub const PANIC: Self = Self::new("panic");
    /// The body's calls differ from those in the journal.
    pub const REPLAY_MISMATCH: Self = Self::new("replay-mismatch");
    /// The body's value cannot be stored.
    pub const RESULT_UNSERIALIZABLE: Self = Self::new("result-unserializable");

    /// Makes a code of a name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorCode({:?})", self.as_str())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self(Cow::Owned(name)))
    }
}

/// What a run says of its failure: data, bounded, and free of stack traces.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "WireRunError")]
pub struct RunError {
    code: ErrorCode,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

#[derive(Deserialize)]
struct WireRunError {
    code: ErrorCode,
    message: String,
    #[serde(default)]
    details: Option<Value>,
}

impl From<WireRunError> for RunError {
    fn from(wire: WireRunError) -> Self {
        let error = Self::new(wire.code, wire.message);
        match wire.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}

impl RunError {
    /// The longest message, in bytes of UTF-8, the marker of a cut one included.
    pub const MAX_MESSAGE_BYTES: usize = 4096;

    /// Makes an error. A longer message is cut between characters and marked.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        const CUT: &str = " [cut]";
        let mut message = message.into();
        if message.len() > Self::MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(Self::MAX_MESSAGE_BYTES - CUT.len()));
            message.push_str(CUT);
        }
        Self { code, message, details: None }
    }

    /// Adds details for programs, in a form that the code documents.
    ///
    /// They are the author's to bound; an engine may refuse to store more than a few hundred kilobytes.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Says that the run was cancelled for `reason`, which the details carry too.
    #[must_use]
    pub fn cancelled(reason: &str) -> Self {
        Self::new(ErrorCode::CANCELLED, format!("the run was cancelled: {reason}"))
            .with_details(serde_json::json!({ "reason": reason }))
    }

    /// Returns the stable name of what went wrong.
    #[must_use]
    pub fn code(&self) -> &ErrorCode {
        &self.code
    }

    /// Returns the words for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details for programs.
    #[must_use]
    pub fn details(&self) -> Option<&Value> {
        self.details.as_ref()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for RunError {}

/// What a body gets when the engine cannot go on, and what it returns when it fails.
///
/// A *fatal* error ends every combinator around it; an ordinary one only its own branch. Errors that an
/// engine causes are fatal, errors that a body makes are ordinary: a body cannot make a fatal one.
#[derive(Clone, Debug)]
pub struct WorkflowError {
    error: RunError,
    fatal: bool,
}

impl WorkflowError {
    /// Makes an ordinary error of the body's own.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { error: RunError::new(code, message), fatal: false }
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.error = self.error.with_details(details);
        self
    }

    pub(crate) fn fatal(error: RunError) -> Self {
        Self { error, fatal: true }
    }

    /// Says whether the engine caused it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Returns the stable name of what went wrong.
    #[must_use]
    pub fn code(&self) -> &ErrorCode {
        self.error.code()
    }

    /// Returns what the run will say of it.
    #[must_use]
    pub fn as_run_error(&self) -> &RunError {
        &self.error
    }
}

impl From<WorkflowError> for RunError {
    fn from(error: WorkflowError) -> Self {
        error.error
    }
}

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for WorkflowError {}
