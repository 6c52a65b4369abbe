//! Why a report was refused.

use std::{error, fmt};

use serde::{Serialize, Serializer};

/// Why a report was refused: every rule that it breaks, in the order in which the contract judges them.
///
/// The first violation decides the [`category`](Self::category) of the refusal. At most
/// [`MOST_LISTED`](Self::MOST_LISTED) violations are listed, the rest are [counted](Self::unlisted), and each is
/// short, so the whole is bounded whatever was sent.
///
/// `Display` shows the first violation and how many more there are. To tell the author of the report all that is
/// wrong with it, show each of the [`violations`](Self::violations).
///
/// ```
/// use ralph_report::{Limits, RoundReport, ViolationKind};
///
/// let text = r#"{"status":"complete","summary":" Ported.","evidence":[],"nextSteps":[],"blocker":""}"#;
/// let refusal = RoundReport::parse(text, &Limits::default()).unwrap_err();
///
/// assert_eq!(refusal.category(), ViolationKind::SummaryNotNormalized);
/// let lines: Vec<String> = refusal.violations().iter().map(ToString::to_string).collect();
/// assert_eq!(lines, [
///     "/summary starts with white space (U+0020): remove it",
///     "/evidence is empty: a complete report names at least one piece of evidence",
/// ]);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidReport {
    /// Never empty.
    listed: Vec<Violation>,
    unlisted: usize,
}

impl InvalidReport {
    /// The most violations that are listed.
    pub const MOST_LISTED: usize = 100;

    /// Returns the kind of the first violation, which is the one the contract reports.
    #[must_use]
    pub fn category(&self) -> ViolationKind {
        self.first().kind
    }

    /// Returns the first violation.
    #[must_use]
    pub fn first(&self) -> &Violation {
        &self.listed[0]
    }

    /// Returns the listed violations, at least one, in the order in which the contract judges them.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.listed
    }

    /// Returns how many violations follow the listed ones.
    #[must_use]
    pub const fn unlisted(&self) -> usize {
        self.unlisted
    }
}

impl fmt::Display for InvalidReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "report is refused as {}: {}", self.category(), self.first())?;
        match self.listed.len() - 1 + self.unlisted {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more violation)"),
            more => write!(f, " (and {more} more violations)"),
        }
    }
}

impl error::Error for InvalidReport {}

/// Written as `{"category", "violations", "unlisted"}`.
impl Serialize for InvalidReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            category: ViolationKind,
            violations: &'a [Violation],
            unlisted: usize,
        }
        Written { category: self.category(), violations: &self.listed, unlisted: self.unlisted }
            .serialize(serializer)
    }
}

/// One rule that a report breaks, and where.
///
/// `Display` is a sentence for the author of the report: the place, what is wrong there, and what would satisfy the
/// rule. It is bounded, and what it quotes of the report is escaped.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Violation {
    kind: ViolationKind,
    pointer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Field>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    measure: Option<Measure>,
}

impl Violation {
    /// Returns the rule.
    #[must_use]
    pub const fn kind(&self) -> ViolationKind {
        self.kind
    }

    /// Returns the place as a JSON Pointer, the empty text for the whole report.
    ///
    /// A key that is missing is pointed to where it should be. A place whose pointer would have more than 256 bytes,
    /// because the report has keys that long, is named by the innermost array or object around it that has a
    /// shorter one.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns which part of the report was looked at, if it was one part.
    #[must_use]
    pub const fn field(&self) -> Option<Field> {
        self.field
    }

    /// Returns the number that was too large and its limit, for [`ViolationKind::HandoffOversized`] and
    /// [`ViolationKind::InputOversized`].
    #[must_use]
    pub const fn measure(&self) -> Option<Measure> {
        self.measure
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A rule of the contract.
///
/// The first four can only be broken by a text, not by a [`serde_json::Value`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ViolationKind {
    /// The text has more bytes than [`Limits::max_bytes`](crate::Limits::max_bytes).
    InputOversized,
    /// Arrays and objects nest deeper than [`Limits::max_depth`](crate::Limits::max_depth).
    NestingLimit,
    /// The text is not a single JSON document of Unicode characters and finite numbers.
    Unparsable,
    /// An object in the text has a key twice.
    DuplicateKey,
    /// The report is not an object.
    NotAnObject,
    /// `summary` is missing, is no text, is empty, or starts or ends with white space.
    SummaryNotNormalized,
    /// `evidence` or `nextSteps` is missing, or is no array of texts that are neither empty nor padded.
    ListNotNormalized,
    /// `blocker` is missing, is no text, or starts or ends with white space.
    BlockerNotNormalized,
    /// `continue` without `nextSteps`, or with a `blocker`.
    ContinueNeedsNextSteps,
    /// `complete` without `evidence`, or with `nextSteps` or a `blocker`.
    CompleteNeedsEvidence,
    /// `blocked` without a `blocker`.
    BlockedNeedsBlocker,
    /// `status` is missing or none of the three.
    StatusInvalid,
    /// There is a key beside the five.
    UnknownKey,
    /// The report is longer than [`Limits::max_report_chars`](crate::Limits::max_report_chars).
    HandoffOversized,
    /// In the consumer's order only: the report has not exactly the five keys, not the expected status, or a field
    /// that is not of its type or not normalized. [`Violation::field`] says which.
    MalformedReport,
}

impl ViolationKind {
    /// Returns the stable name, in kebab case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InputOversized => "input-oversized",
            Self::NestingLimit => "nesting-limit",
            Self::Unparsable => "unparsable",
            Self::DuplicateKey => "duplicate-key",
            Self::NotAnObject => "not-an-object",
            Self::SummaryNotNormalized => "summary-not-normalized",
            Self::ListNotNormalized => "list-not-normalized",
            Self::BlockerNotNormalized => "blocker-not-normalized",
            Self::ContinueNeedsNextSteps => "continue-needs-next-steps",
            Self::CompleteNeedsEvidence => "complete-needs-evidence",
            Self::BlockedNeedsBlocker => "blocked-needs-blocker",
            Self::StatusInvalid => "status-invalid",
            Self::UnknownKey => "unknown-key",
            Self::HandoffOversized => "handoff-oversized",
            Self::MalformedReport => "malformed-report",
        }
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for ViolationKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The part of a report whose inspection found a violation.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Field {
    /// The report as a whole.
    Object,
    /// Its set of keys.
    Keys,
    /// `status`
    Status,
    /// `summary`
    Summary,
    /// `evidence`, or an item of it.
    Evidence,
    /// `nextSteps`, or an item of it.
    NextSteps,
    /// `blocker`
    Blocker,
}

impl Field {
    /// Returns the stable name. For a field of the report that is its key.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Keys => "keys",
            Self::Status => "status",
            Self::Summary => "summary",
            Self::Evidence => "evidence",
            Self::NextSteps => "nextSteps",
            Self::Blocker => "blocker",
        }
    }
}

impl Field {
    /// Returns the field with exactly this key.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        match key {
            "status" => Some(Self::Status),
            "summary" => Some(Self::Summary),
            "evidence" => Some(Self::Evidence),
            "nextSteps" => Some(Self::NextSteps),
            "blocker" => Some(Self::Blocker),
            _ => None,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A number that was too large, beside its limit.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Measure {
    /// What was measured: UTF-16 code units of a report, bytes of a text.
    pub actual: usize,
    /// The most that would have passed.
    pub limit: usize,
}

/// Where a violation is.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// The violations found so far.
#[derive(Default)]
pub(crate) struct Findings {
    listed: Vec<Violation>,
    unlisted: usize,
}

impl Findings {
    /// Adds a violation. `complaint` says what is wrong at the place and what would satisfy the rule.
    pub(crate) fn add(
        &mut self,
        kind: ViolationKind,
        field: Field,
        place: &[Step<'_>],
        complaint: impl FnOnce() -> String,
    ) {
        self.list(|| {
            let pointer = pointer(place);
            let shown = if pointer.is_empty() { THE_REPORT.to_owned() } else { printable(&pointer) };
            let message = format!("{shown} {}", complaint());
            Violation { kind, pointer, field: Some(field), message, measure: None }
        });
    }

    /// Adds a key that should not be there: a violation of the object that has it, which points to the key.
    pub(crate) fn add_key(&mut self, kind: ViolationKind, key: &str, complaint: impl FnOnce() -> String) {
        self.list(|| Violation {
            kind,
            pointer: pointer(&[Step::Key(key)]),
            field: Some(Field::Keys),
            message: format!("{THE_REPORT} {}", complaint()),
            measure: None,
        });
    }

    /// Adds a violation of a limit on the report as a whole.
    pub(crate) fn add_excess(
        &mut self,
        kind: ViolationKind,
        measure: Measure,
        complaint: impl FnOnce() -> String,
    ) {
        self.list(|| Violation {
            kind,
            pointer: String::new(),
            field: None,
            message: format!("{THE_REPORT} {}", complaint()),
            measure: Some(measure),
        });
    }

    fn list(&mut self, violation: impl FnOnce() -> Violation) {
        if self.listed.len() < InvalidReport::MOST_LISTED {
            self.listed.push(violation());
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns the refusal, if anything was found.
    pub(crate) fn into_refusal(self) -> Option<InvalidReport> {
        let Self { listed, unlisted } = self;
        (!listed.is_empty()).then_some(InvalidReport { listed, unlisted })
    }
}

impl InvalidReport {
    /// Returns a refusal for one reason, which concerns the report as a whole.
    pub(crate) fn whole(kind: ViolationKind, field: Option<Field>, complaint: &str) -> Self {
        let message = format!("{THE_REPORT} {complaint}");
        Self {
            listed: vec![Violation { kind, pointer: String::new(), field, message, measure: None }],
            unlisted: 0,
        }
    }
}

/// How a message calls the whole of a report.
const THE_REPORT: &str = "the report";

/// Spells a place as a JSON Pointer, as far as it fits.
fn pointer(place: &[Step<'_>]) -> String {
    const MOST_BYTES: usize = 256;

    let mut pointer = String::new();
    for step in place {
        let token = match step {
            // What cannot fit once it is escaped need not be escaped.
            Step::Key(key) if key.len() >= MOST_BYTES => break,
            Step::Key(key) => key.replace('~', "~0").replace('/', "~1"),
            Step::Item(index) => index.to_string(),
        };
        if pointer.len() + 1 + token.len() > MOST_BYTES {
            break;
        }
        pointer.push('/');
        pointer.push_str(&token);
    }
    pointer
}

/// Makes what cannot be seen in `text` visible.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => printable.push(c),
            _ => printable.extend(c.escape_debug()),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped_and_end_where_they_would_grow_too_long() {
        #[track_caller]
        fn check(place: &[Step<'_>], expected: &str) {
            assert_eq!(pointer(place), expected);
        }
        let long = "k".repeat(200);
        check(&[], "");
        check(&[Step::Key("")], "/");
        check(&[Step::Key("a/b~c"), Step::Item(12)], "/a~1b~0c/12");
        check(&[Step::Key("a"), Step::Key(&long), Step::Key(&long)], &format!("/a/{long}"));
        check(&[Step::Key(&long.repeat(2))], "");
    }
}
