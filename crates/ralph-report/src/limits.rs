//! What a report may cost.

/// How large a report may be, and how much is spent on finding out.
///
/// Three bounds that do not stand in for one another:
///
/// - [`max_report_chars`](Self::max_report_chars) belongs to the contract. It bounds the canonical compact JSON of the
///   report, in UTF-16 code units, whatever spelling the report came in. It is judged last.
/// - [`max_bytes`](Self::max_bytes) bounds the text that is parsed at all, in bytes. It is judged first, before the
///   text is looked at.
/// - [`max_depth`](Self::max_depth) bounds the arrays and objects in one another, the outermost one counted. The
///   parser never descends further.
///
/// The last two do not concern a [`serde_json::Value`], which somebody has parsed and paid for already.
///
/// ```
/// use ralph_report::Limits;
///
/// let limits = Limits::default().with_max_report_chars(4096);
/// assert_eq!(limits.max_report_chars(), 4096);
/// assert_eq!(limits.max_bytes(), 1024 * 1024);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limits {
    max_report_chars: usize,
    max_bytes: usize,
    max_depth: usize,
}

impl Limits {
    /// The default of [`max_report_chars`](Self::max_report_chars): 16384 UTF-16 code units.
    pub const DEFAULT_REPORT_CHARS: usize = 16_384;

    /// The default of [`max_bytes`](Self::max_bytes): one MiB.
    pub const DEFAULT_BYTES: usize = 1024 * 1024;

    /// The default of [`max_depth`](Self::max_depth), and the most it can be: 127 levels.
    pub const MOST_DEPTH: usize = 127;

    /// Returns the default limits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            max_report_chars: Self::DEFAULT_REPORT_CHARS,
            max_bytes: Self::DEFAULT_BYTES,
            max_depth: Self::MOST_DEPTH,
        }
    }

    /// Returns the limits with another bound on the report, in UTF-16 code units of its canonical compact JSON.
    ///
    /// A report of exactly this length passes. No report is shorter than 77 units.
    #[must_use]
    pub const fn with_max_report_chars(mut self, units: usize) -> Self {
        self.max_report_chars = units;
        self
    }

    /// Returns the limits with another bound on the text to parse, in bytes. A text of exactly this length passes.
    ///
    /// The memory that parsing takes is at most a few dozen times this.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Returns the limits with another bound on nesting. A text of exactly this many levels passes; a report has two.
    ///
    /// More than [`MOST_DEPTH`](Self::MOST_DEPTH) is the same as `MOST_DEPTH`.
    #[must_use]
    pub const fn with_max_depth(mut self, levels: usize) -> Self {
        self.max_depth = if levels < Self::MOST_DEPTH { levels } else { Self::MOST_DEPTH };
        self
    }

    /// Returns the most UTF-16 code units that a report's canonical compact JSON may have.
    #[must_use]
    pub const fn max_report_chars(&self) -> usize {
        self.max_report_chars
    }

    /// Returns the most bytes that a text to parse may have.
    #[must_use]
    pub const fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Returns the most levels of arrays and objects that a text to parse may have.
    #[must_use]
    pub const fn max_depth(&self) -> usize {
        self.max_depth
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}
