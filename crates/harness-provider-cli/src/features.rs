use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Permissions, Version};

/// An agent that this crate knows how to run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AgentKind {
    /// Claude Code, Anthropic's `claude`. See [`claude_code`](crate::claude_code).
    ClaudeCode,
    /// Codex, OpenAI's `codex`. See [`codex`](crate::codex).
    Codex,
    /// Gemini CLI, Google's `gemini`. See [`gemini`](crate::gemini).
    Gemini,
    /// opencode. See [`opencode`](crate::opencode).
    Opencode,
    /// Qwen Code, Alibaba's `qwen`. See [`qwen_code`](crate::qwen_code).
    QwenCode,
}

impl AgentKind {
    /// Every one, by name.
    pub const ALL: &'static [Self] =
        &[Self::ClaudeCode, Self::Codex, Self::Gemini, Self::Opencode, Self::QwenCode];

    /// Returns the stable name, for settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::QwenCode => "qwen-code",
        }
    }

    /// Returns the agent of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// Returns what is known of the agent.
    #[must_use]
    pub fn features(self) -> &'static Features {
        self.agent().features()
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How an agent hands in its value.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AgentHandIn {
    /// By the agent's own schema mode: the agent itself is told the schema.
    Schema,
    /// By the tool of a [`CaptureServer`](crate::CaptureServer).
    Capture,
}

impl AgentHandIn {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Schema, Self::Capture];

    /// Returns the stable name, for settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Capture => "capture",
        }
    }

    /// Returns the way of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|way| way.as_str() == name)
    }
}

impl fmt::Display for AgentHandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of an agent, for whoever chooses one and for tables in documents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Features {
    /// What its vendor calls it.
    pub title: &'static str,
    /// Its program, looked up in `PATH` unless another one is given.
    pub program: &'static str,
    /// The package by which it is installed with npm.
    pub package: &'static str,
    /// The oldest and the newest version that were tested.
    pub tested: (Version, Version),
    /// The ways in which it can hand in a value, the one that is taken by default first. A way that needs what
    /// the provider was not given is passed over.
    pub hand_in: &'static [AgentHandIn],
    /// In its own schema mode, a value that is missing or that the output rule refuses is handed back to the same
    /// child. By a capture server that holds for every agent.
    pub corrects_in_schema_mode: bool,
    /// It tells what it used, in tokens.
    pub usage: bool,
    /// It tells what that cost.
    pub cost: bool,
    /// It can be asked to stop so that it still tells what it used and ends its own tools.
    pub gentle_cancel: bool,
    /// The number of its turns can be limited.
    pub turn_limit: bool,
    /// The money it may use can be limited.
    pub budget_limit: bool,
    /// Tools can be allowed one by one.
    pub allowed_tools: bool,
    /// The longest prompt it takes, in characters.
    pub max_prompt_characters: Option<usize>,
    /// The variables that may hold credentials for its vendor. They are let through to its children.
    pub credentials: &'static [&'static str],
    /// The file in the workspace by which people instruct it.
    pub instructions: &'static str,
    /// What of the user's and the machine's own settings does not reach its children.
    pub left_out: &'static [&'static str],
    /// What each of [`Permissions::ALL`] means to it, in the same order.
    pub permissions: [&'static str; 3],
}

impl Features {
    /// Returns what `permissions` mean to the agent, in words for people.
    #[must_use]
    pub fn permissions_in_words(&self, permissions: Permissions) -> &'static str {
        match permissions {
            Permissions::ReadOnly => self.permissions[0],
            Permissions::Workspace => self.permissions[1],
            Permissions::Unrestricted => self.permissions[2],
        }
    }

    /// Says whether `version` lies between the oldest and the newest that were tested.
    #[must_use]
    pub fn is_tested(&self, version: Version) -> bool {
        (self.tested.0..=self.tested.1).contains(&version)
    }
}
