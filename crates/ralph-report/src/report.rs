//! A report that has passed.

use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::Value;

use crate::{InvalidReport, Limits, RoundReportRef, Status, text};

/// A round report that has passed validation.
///
/// There is no other way to get one, so whoever holds a `RoundReport` need not check it again:
///
/// - `summary` and every item of `evidence` and `next_steps` is [normalized](text::is_normalized).
/// - `blocker` is empty, or normalized.
/// - The [`outcome`](Self::outcome) has what its status asks for.
///
/// The limit on its size is the caller's: a report says how long it is
/// ([`serialized_len`](Self::serialized_len)), not which [`Limits`] it was judged by.
///
/// It serializes to what was accepted: the five fields in the order status, summary, evidence, nextSteps, blocker,
/// whichever order they came in.
///
/// ```
/// use ralph_report::{Limits, Outcome, RoundReport};
///
/// let text = r#"{
///     "summary": "The parser is ported, its tests are not.",
///     "evidence": ["cargo build passes"],
///     "nextSteps": ["Port the tests"],
///     "blocker": "",
///     "status": "continue"
/// }"#;
/// let report = RoundReport::parse(text, &Limits::default())?;
///
/// match report.outcome() {
///     Outcome::Continue { next_steps } => assert_eq!(next_steps, ["Port the tests"]),
///     Outcome::Complete { .. } | Outcome::Blocked { .. } => unreachable!("the report continues"),
/// }
/// assert_eq!(
///     report.to_json(),
///     concat!(
///         r#"{"status":"continue","summary":"The parser is ported, its tests are not.","#,
///         r#""evidence":["cargo build passes"],"nextSteps":["Port the tests"],"blocker":""}"#,
///     ),
/// );
/// # Ok::<(), ralph_report::InvalidReport>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RoundReport {
    pub(crate) status: Status,
    pub(crate) summary: String,
    pub(crate) evidence: Vec<String>,
    pub(crate) next_steps: Vec<String>,
    pub(crate) blocker: String,
}

impl RoundReport {
    /// Parses a JSON text and judges it as the loop does.
    ///
    /// This is what a plugin wants that is handed a report: each rule has a name of its own.
    ///
    /// # Errors
    ///
    /// Every rule that the text breaks, the first one first. The text itself stays with the caller.
    pub fn parse(text: impl AsRef<[u8]>, limits: &Limits) -> Result<Self, InvalidReport> {
        RoundReportRef::parse(text.as_ref(), limits).map(RoundReportRef::into_owned)
    }

    /// Parses a JSON text and judges it as a caller of the loop does that expects one status.
    ///
    /// A program that decodes what a finished loop returned wants this: the outcome around the report has already
    /// said which status the report must have. All about keys, status, types and normalization is one category here,
    /// [`MalformedReport`](crate::ViolationKind::MalformedReport).
    ///
    /// # Errors
    ///
    /// Every rule that the text breaks, the first one first.
    pub fn parse_as(
        text: impl AsRef<[u8]>,
        expected: Status,
        limits: &Limits,
    ) -> Result<Self, InvalidReport> {
        RoundReportRef::parse_as(text.as_ref(), expected, limits).map(RoundReportRef::into_owned)
    }

    /// Judges a JSON value as the loop does.
    ///
    /// Of the limits only [`max_report_chars`](Limits::max_report_chars) applies. A `Value` can no longer say whether
    /// a key was given twice: judge the text where there is one.
    ///
    /// # Errors
    ///
    /// Every rule that the value breaks, the first one first.
    pub fn from_value(value: &Value, limits: &Limits) -> Result<Self, InvalidReport> {
        RoundReportRef::from_value(value, limits).map(RoundReportRef::into_owned)
    }

    /// Judges a JSON value as a caller of the loop does that expects one status. See [`parse_as`](Self::parse_as).
    ///
    /// # Errors
    ///
    /// Every rule that the value breaks, the first one first.
    pub fn from_value_as(value: &Value, expected: Status, limits: &Limits) -> Result<Self, InvalidReport> {
        RoundReportRef::from_value_as(value, expected, limits).map(RoundReportRef::into_owned)
    }

    /// Returns what the round says about the objective.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Returns what was done. Never empty.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Returns what shows it. Not empty if the report is complete.
    #[must_use]
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }

    /// Returns what comes next. Not empty if the report continues, empty if it is complete.
    #[must_use]
    pub fn next_steps(&self) -> &[String] {
        &self.next_steps
    }

    /// Returns what stands in the way. Not empty if and only if the report is blocked.
    #[must_use]
    pub fn blocker(&self) -> &str {
        &self.blocker
    }

    /// Returns the status together with the field that it guarantees.
    #[must_use]
    pub fn outcome(&self) -> Outcome<'_> {
        match self.status {
            Status::Continue => Outcome::Continue { next_steps: &self.next_steps },
            Status::Complete => Outcome::Complete { evidence: &self.evidence },
            Status::Blocked => Outcome::Blocked { blocker: &self.blocker },
        }
    }

    /// Returns the length of [`to_json`](Self::to_json) in UTF-16 code units, without building the text.
    #[must_use]
    pub fn serialized_len(&self) -> usize {
        canonical_len(self.status, &self.summary, &self.evidence, &self.next_steps, &self.blocker)
    }

    /// Returns the canonical JSON: compact, in the fixed order of fields. Equal reports have equal texts.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "texts and lists of texts always serialize")]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts serialize")
    }

    /// Returns the JSON for people: two blanks of indentation, `[]` for an empty list, no line break at the end.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "texts and lists of texts always serialize")]
    pub fn to_json_pretty(&self) -> String {
        serde_json::to_string_pretty(self).expect("texts serialize")
    }

    /// Returns the JSON value. Its keys are in whichever order this build's [`serde_json`] keeps them.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "texts and lists of texts always serialize")]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("texts serialize")
    }
}

impl Serialize for RoundReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { status, summary, evidence, next_steps, blocker } = self;
        serialize(serializer, *status, summary, evidence, next_steps, blocker)
    }
}

/// The status of a report together with the field that it guarantees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "there is one for each status")]
pub enum Outcome<'a> {
    /// Work is left.
    Continue {
        /// What comes next, at least one step.
        next_steps: &'a [String],
    },
    /// The objective is reached.
    Complete {
        /// What shows it, at least one piece.
        evidence: &'a [String],
    },
    /// The work cannot go on.
    Blocked {
        /// What stands in the way. Not empty.
        blocker: &'a str,
    },
}

/// Writes the five fields in their order.
pub(crate) fn serialize<S: Serializer, T: Serialize>(
    serializer: S,
    status: Status,
    summary: &str,
    evidence: &[T],
    next_steps: &[T],
    blocker: &str,
) -> Result<S::Ok, S::Error> {
    let mut report = serializer.serialize_struct("RoundReport", 5)?;
    report.serialize_field("status", &status)?;
    report.serialize_field("summary", summary)?;
    report.serialize_field("evidence", evidence)?;
    report.serialize_field("nextSteps", next_steps)?;
    report.serialize_field("blocker", blocker)?;
    report.end()
}

/// Returns the length of the canonical JSON in UTF-16 code units.
pub(crate) fn canonical_len<T: AsRef<str>>(
    status: Status,
    summary: &str,
    evidence: &[T],
    next_steps: &[T],
    blocker: &str,
) -> usize {
    const REST: &str = r#"{"status":"","summary":,"evidence":,"nextSteps":,"blocker":}"#;

    let list = |items: &[T]| {
        let commas = items.len().saturating_sub(1);
        let texts: usize = items.iter().map(|item| text::json_utf16_len(item.as_ref())).sum();
        "[]".len() + commas + texts
    };
    REST.len()
        + status.as_str().len()
        + text::json_utf16_len(summary)
        + list(evidence)
        + list(next_steps)
        + text::json_utf16_len(blocker)
}
