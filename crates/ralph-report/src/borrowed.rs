//! A report that has passed and borrows its texts.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    InvalidReport, Limits, RoundReport, Status,
    document::Node,
    judge::{Order, judge, judge_text},
    report::{canonical_len, serialize},
};

/// A [`RoundReport`] that borrows from the text or value it was read from.
///
/// It has passed the same validation and gives the same guarantees. Only texts with escapes in them are copied, so
/// this is the form for whoever wants a verdict, or to pass a report on, more than to keep it.
///
/// ```
/// use ralph_report::{Limits, RoundReportRef, Status};
///
/// let text = br#"{"status":"blocked","summary":"Nothing builds.","evidence":[],"nextSteps":[],"blocker":"No compiler"}"#;
/// let report = RoundReportRef::parse(text, &Limits::default())?;
/// assert_eq!(report.status(), Status::Blocked);
///
/// let kept = report.into_owned();
/// assert_eq!(kept.blocker(), "No compiler");
/// # Ok::<(), ralph_report::InvalidReport>(())
/// ```
#[derive(Debug, Eq, PartialEq)]
pub struct RoundReportRef<'a> {
    pub(crate) status: Status,
    pub(crate) summary: Cow<'a, str>,
    pub(crate) evidence: Vec<Cow<'a, str>>,
    pub(crate) next_steps: Vec<Cow<'a, str>>,
    pub(crate) blocker: Cow<'a, str>,
}

impl<'a> RoundReportRef<'a> {
    /// Parses a JSON text and judges it as the loop does. See [`RoundReport::parse`].
    ///
    /// # Errors
    ///
    /// Every rule that the text breaks, the first one first.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &'a T, limits: &Limits) -> Result<Self, InvalidReport> {
        judge_text(text.as_ref(), Order::Loop, limits)
    }

    /// Parses a JSON text and judges it as a caller of the loop does that expects one status. See
    /// [`RoundReport::parse_as`].
    ///
    /// # Errors
    ///
    /// Every rule that the text breaks, the first one first.
    pub fn parse_as<T: AsRef<[u8]> + ?Sized>(
        text: &'a T,
        expected: Status,
        limits: &Limits,
    ) -> Result<Self, InvalidReport> {
        judge_text(text.as_ref(), Order::Consumer(expected), limits)
    }

    /// Judges a JSON value as the loop does. See [`RoundReport::from_value`].
    ///
    /// # Errors
    ///
    /// Every rule that the value breaks, the first one first.
    pub fn from_value(value: &'a Value, limits: &Limits) -> Result<Self, InvalidReport> {
        judge(Node::from_value(value), Order::Loop, limits)
    }

    /// Judges a JSON value as a caller of the loop does that expects one status. See [`RoundReport::from_value_as`].
    ///
    /// # Errors
    ///
    /// Every rule that the value breaks, the first one first.
    pub fn from_value_as(value: &'a Value, expected: Status, limits: &Limits) -> Result<Self, InvalidReport> {
        judge(Node::from_value(value), Order::Consumer(expected), limits)
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
    pub fn evidence(&self) -> impl ExactSizeIterator<Item = &str> {
        self.evidence.iter().map(|item| &**item)
    }

    /// Returns what comes next. Not empty if the report continues, empty if it is complete.
    #[must_use]
    pub fn next_steps(&self) -> impl ExactSizeIterator<Item = &str> {
        self.next_steps.iter().map(|item| &**item)
    }

    /// Returns what stands in the way. Not empty if and only if the report is blocked.
    #[must_use]
    pub fn blocker(&self) -> &str {
        &self.blocker
    }

    /// Returns the length of the canonical JSON in UTF-16 code units, without building the text.
    #[must_use]
    pub fn serialized_len(&self) -> usize {
        canonical_len(self.status, &self.summary, &self.evidence, &self.next_steps, &self.blocker)
    }

    /// Returns the report with texts of its own, copying those that are still borrowed.
    #[must_use]
    pub fn into_owned(self) -> RoundReport {
        let list = |items: Vec<Cow<'_, str>>| items.into_iter().map(Cow::into_owned).collect();
        RoundReport {
            status: self.status,
            summary: self.summary.into_owned(),
            evidence: list(self.evidence),
            next_steps: list(self.next_steps),
            blocker: self.blocker.into_owned(),
        }
    }
}

impl Serialize for RoundReportRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { status, summary, evidence, next_steps, blocker } = self;
        serialize(serializer, *status, summary, evidence, next_steps, blocker)
    }
}
