//! How a command that did not fail has ended.

/// A failure is an `Err`; everything else is one of these.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// All that was asked for was done and holds.
    Passed,
    /// This machine cannot run the check; the text says what is missing.
    Skipped(String),
}
