//! What every agent's module brings: how its child is started, and how what it says is understood.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use harness_process::{Environment, Gentle};
use harness_subagent::{Diagnostic, StopReason, Usage};
use serde_json::Value;

use crate::agent_provider::Options;
use crate::call_files::CallFiles;
use crate::capture::Capture;
use crate::detect::Login;
use crate::value_file::ValueFile;
use crate::{AgentKind, Features, Version, claude_code, codex, gemini, opencode, qwen_code};

/// One kind of agent. It holds nothing; everything about one child is in what it is given and what it makes.
pub(crate) trait Agent: Debug + Send + Sync + 'static {
    fn features(&self) -> &'static Features;

    /// Returns the program to run in place of the one at `found`: a native one past a shim, where there is one.
    fn native(&self, found: PathBuf) -> PathBuf {
        found
    }

    /// Says how a value is handed in, as the end of a sentence to the model that begins with "hand in your result".
    fn how_to_hand_in(&self, way: &Way) -> String;

    /// Says how a child is started.
    fn launch(&self, assignment: &Assignment<'_>) -> io::Result<Launch>;

    /// Returns what understands one child.
    fn conversation(&self, way: Option<&Way>) -> Box<dyn Conversation>;

    /// Finds the version in what the program says when it is asked for it.
    fn version(&self, said: &str) -> Option<Version>;

    /// Says what is known, without asking anybody, about whether the vendor will accept a child.
    fn login(&self, environment: &Environment) -> Login;
}

impl AgentKind {
    pub(crate) fn agent(self) -> &'static dyn Agent {
        match self {
            Self::ClaudeCode => &claude_code::ClaudeCode,
            Self::Codex => &codex::Codex,
            Self::Gemini => &gemini::Gemini,
            Self::Opencode => &opencode::Opencode,
            Self::QwenCode => &qwen_code::QwenCode,
        }
    }
}

/// What one child is asked to do, and what there is for it.
#[derive(Debug)]
pub(crate) struct Assignment<'a> {
    pub(crate) options: &'a Options,
    /// The whole prompt, how to hand in the value included.
    pub(crate) prompt: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) way: Option<&'a Way>,
    pub(crate) workspace: &'a Path,
    /// A directory that only this child has, for the agent's own state. It is removed afterwards.
    pub(crate) home: &'a Path,
    pub(crate) files: &'a CallFiles,
    pub(crate) environment: Environment,
}

/// The way in which one child hands in its value.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Schema {
        /// The schema as compact JSON.
        schema: String,
        /// A file that holds it.
        file: PathBuf,
    },
    Capture(Capture),
}

/// How a child is started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) words: Words,
    pub(crate) gentle: Gentle,
}

/// What a child gets on standard input.
#[derive(Debug)]
pub(crate) enum Words {
    /// This, and then the end.
    Once(Vec<u8>),
    /// This, and perhaps more later.
    First(Vec<u8>),
}

/// Understands what one child says.
pub(crate) trait Conversation: Debug + Send {
    /// Takes in one event. What is unknown in it is passed over.
    fn hear(&mut self, event: &Value, told: &mut Told);

    /// Returns what reads the records that an ended child has left in its private directory, where it leaves any. It
    /// is given the child's session, and may block.
    fn look_back(&self) -> Option<fn(&Path, Option<&str>) -> Records> {
        None
    }

    /// Judges the end of a child that exited with `code` and did not tell that its turn was completed, where that says
    /// more than the child did.
    fn over(&mut self, _code: i32) -> Option<Outcome> {
        None
    }

    /// Returns what to write so that the child goes on and is told `text`, where it can be spoken to.
    fn say(&self, _text: &str) -> Option<Vec<u8>> {
        None
    }
}

/// What a child has told of itself so far.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What it is doing now. Taken away when it has been passed on.
    pub(crate) activity: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) session_id: Option<String>,
    /// What it said last.
    pub(crate) said: String,
    /// What it handed in within the events, in the turn that is over, or was refused in it.
    pub(crate) value: Option<ValueFile>,
    /// How its turn ended. Taken away when it has been acted on.
    pub(crate) turn: Option<Outcome>,
    /// What it was not permitted to do.
    pub(crate) denied: Vec<String>,
}

/// What the records of an ended child say, where they say more than it told.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) usage: Option<Usage>,
    /// Why its last turn failed.
    pub(crate) failure: Option<Outcome>,
}

/// How a turn of a child ended, as the child's events have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Completed,
    Failed(StopReason, Diagnostic),
}

impl Outcome {
    /// A failure of which the agent says `message`.
    pub(crate) fn failed(reason: StopReason, message: &str) -> Self {
        Self::Failed(reason, Diagnostic::new(or_nothing(message)))
    }

    /// Judges an answer of the vendor's by its HTTP status.
    pub(crate) fn of_status(status: u64, message: &str, reset_at: Option<&str>) -> Self {
        let reason = match status {
            401 | 403 => StopReason::AUTHENTICATION,
            429 => StopReason::RATE_LIMITED,
            503 | 529 => StopReason::OVERLOADED,
            _ => StopReason::API_ERROR,
        };
        let diagnostic = Diagnostic::new(or_nothing(message)).with_detail("status", status.to_string());
        Self::Failed(reason, diagnostic).with_reset(reset_at)
    }

    /// Adds when to come back, where that is known.
    pub(crate) fn with_reset(self, reset_at: Option<&str>) -> Self {
        match (self, reset_at) {
            (Self::Failed(reason, diagnostic), Some(reset_at)) => {
                Self::Failed(reason, diagnostic.with_detail("reset-at", reset_at))
            }
            (outcome, _) => outcome,
        }
    }
}

fn or_nothing(message: &str) -> &str {
    if message.is_empty() { "the agent says that it failed, and not why" } else { message }
}

/// A moment in seconds since 1970, as diagnostics tell it.
pub(crate) fn timestamp(seconds: i64) -> Option<String> {
    Some(jiff::Timestamp::from_second(seconds).ok()?.to_string())
}
