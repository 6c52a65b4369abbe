//! What a round says about the objective.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a round says about the objective.
///
/// A status is spelled in lower case on the wire; `"Complete"` is no status.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a fourth status would be another contract")]
pub enum Status {
    /// Work is left, and the report says what comes next.
    Continue,
    /// The objective is reached, and the report says what shows it.
    Complete,
    /// The work cannot go on, and the report says why.
    Blocked,
}

impl Status {
    /// The three of them.
    pub const ALL: [Self; 3] = [Self::Continue, Self::Complete, Self::Blocked];

    /// Returns the spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Complete => "complete",
            Self::Blocked => "blocked",
        }
    }

    /// Returns the status that is spelled exactly `name`, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
