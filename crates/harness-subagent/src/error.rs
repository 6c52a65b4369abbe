use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The result of an operation of this seam.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The tree that the child would belong to cannot be told, so its limits cannot be checked.
    BudgetAncestryUnavailable,
    /// The tree has started as many children as it may. It never gets more.
    BudgetExhausted,
    /// The start was cancelled before there was a child.
    Cancelled,
    /// The tree has as many children alive as it may. Try again when one has ended.
    Capacity,
    /// The child would be deeper than the request allows.
    DepthExceeded,
    /// The name is taken. The first provider stays.
    DuplicateProvider,
    /// The name is taken. The first output rule stays.
    DuplicateRule,
    /// No provider has that name.
    NoProvider,
    /// The provider failed to start the child. The source says why.
    Provider,
    /// What the child held could not be released. The source says why.
    Release,
    /// The child was lost and its end is unknown. The source says why.
    RunLost,
    /// No output rule has that name.
    UnknownRule,
    /// The provider lacks a capability that the request needs.
    UnsupportedCapability,
    /// The schema of the output contract cannot be enforced.
    UnsupportedSchema,
}

impl ErrorKind {
    /// Returns the stable name of the kind, for logs and other programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BudgetAncestryUnavailable => "budget-ancestry-unavailable",
            Self::BudgetExhausted => "budget-exhausted",
            Self::Cancelled => "cancelled",
            Self::Capacity => "capacity",
            Self::DepthExceeded => "depth-exceeded",
            Self::DuplicateProvider => "duplicate-provider",
            Self::DuplicateRule => "duplicate-rule",
            Self::NoProvider => "no-provider",
            Self::Provider => "provider",
            Self::Release => "release",
            Self::RunLost => "run-lost",
            Self::UnknownRule => "unknown-rule",
            Self::UnsupportedCapability => "unsupported-capability",
            Self::UnsupportedSchema => "unsupported-schema",
        }
    }
}

/// The error of every operation of this seam.
///
/// Code decides by [`kind`](Self::kind); the message and the [source](StdError::source) are for people. An
/// implementation puts its own error in the source. Clones share it, since a run answers every
/// request for its result alike.
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
