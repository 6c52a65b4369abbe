use std::fmt;

use serde::{Deserialize, Serialize};

/// What a child may do without being asked. Nobody is there to be asked, so what is not permitted is denied.
///
/// What each agent makes of it is told by
/// [`permissions_in_words`](crate::AgentProvider::permissions_in_words). Agents differ in how far they can confine
/// a command; the words say so.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Permissions {
    /// Read the workspace, change nothing.
    ReadOnly,
    /// Change files in the workspace and run commands there, as far as the agent can tell it from the rest.
    #[default]
    Workspace,
    /// Whatever the user may do.
    Unrestricted,
}

impl Permissions {
    /// Every one, the narrowest first.
    pub const ALL: &'static [Self] = &[Self::ReadOnly, Self::Workspace, Self::Unrestricted];

    /// Returns the stable name, for settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Workspace => "workspace",
            Self::Unrestricted => "unrestricted",
        }
    }

    /// Returns the permissions of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|permissions| permissions.as_str() == name)
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
