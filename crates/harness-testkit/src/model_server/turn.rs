use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

/// What the model does with one request of a conversation.
///
/// A turn is played once, unless it is [repeated](Self::times); the next request of the conversation gets the next
/// turn.
#[derive(Clone, Debug)]
pub struct Turn {
    pub(super) act: Act,
    /// What is said before anything else; half of it where an answer breaks off.
    pub(super) said: Option<String>,
    /// An error, a hang or a break comes after half of an answer.
    pub(super) mid_stream: bool,
    pub(super) cut: Option<Cut>,
    pub(super) usage: TurnUsage,
    pub(super) delay: Duration,
    pub(super) pause: Duration,
    /// How often it is played; `None` for ever.
    pub(super) times: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Call { calls: Vec<ToolCall>, pick: Pick },
    HandIn { value: Value, as_text: bool },
    Refuse(Refusal),
    Hang { limit: Option<Duration> },
    Disconnect,
}

/// An HTTP error.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// In place of what the dialect calls an error of this status.
    pub(super) kind: Option<String>,
    pub(super) retry_after: Option<u64>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Which of the calls of a turn are made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    All,
    /// The first whose tool is offered, else the first.
    FirstOffered,
}

/// Why the model stopped before it was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cut {
    Truncated,
    Refused,
}

/// A call that the model wants to be made.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The tool. It is the offered one of that name; without one, the offered one whose name ends in `_` and this
    /// name, as agents name the tools of their MCP servers; without that, just this.
    pub name: String,
    /// Its arguments; a text for a tool that takes a free text.
    pub input: Value,
}

impl ToolCall {
    /// A call of `name` with `input`.
    #[must_use]
    pub fn new(name: impl Into<String>, input: Value) -> Self {
        Self { name: name.into(), input }
    }
}

/// The numbers of tokens that an answer tells; a hundred in and twenty out unless a turn says otherwise.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TurnUsage {
    /// The tokens of the request, cached ones included where the dialect counts them so.
    pub input: u64,
    /// The tokens of the answer.
    pub output: u64,
    /// The tokens of the request that came from a cache.
    pub cached: u64,
}

impl TurnUsage {
    /// These numbers of tokens, none of them cached.
    #[must_use]
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, cached: 0 }
    }

    /// Says how many tokens of the request came from a cache.
    #[must_use]
    pub fn with_cached(mut self, cached: u64) -> Self {
        self.cached = cached;
        self
    }
}

impl Default for TurnUsage {
    fn default() -> Self {
        Self::new(100, 20)
    }
}

impl Turn {
    fn new(act: Act) -> Self {
        Self {
            act,
            said: None,
            mid_stream: false,
            cut: None,
            usage: TurnUsage::default(),
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            times: Some(1),
        }
    }

    /// The model says `text`.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::calls([]).saying(text)
    }

    /// The model wants the tool `name` to be called with `input`.
    #[must_use]
    pub fn call(name: impl Into<String>, input: Value) -> Self {
        Self::calls([ToolCall::new(name, input)])
    }

    /// The model wants all of these calls to be made.
    #[must_use]
    pub fn calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(Act::Call { calls: calls.into_iter().collect(), pick: Pick::All })
    }

    /// The model wants the first of these calls whose tool the agent offers; the first one if it offers none.
    ///
    /// Agents name the same tool differently; this lets one script serve several.
    #[must_use]
    pub fn first_offered(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(Act::Call { calls: calls.into_iter().collect(), pick: Pick::FirstOffered })
    }

    /// The model hands in `value`.
    ///
    /// It calls the first tool of [`Script::with_capture_tool`](super::Script::with_capture_tool), or one that
    /// agents have for it (`StructuredOutput`, `structured_output`), if it is offered; else it says the value as JSON.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::new(Act::HandIn { value, as_text: false })
    }

    /// The model says `value` as JSON, whatever tools it is offered.
    #[must_use]
    pub fn value_as_text(value: Value) -> Self {
        Self::new(Act::HandIn { value, as_text: true })
    }

    /// The server answers with this HTTP status and an error in the shape of the dialect.
    ///
    /// [In the middle of a stream](Self::mid_stream) it is an event of the stream; an answer in one piece has no
    /// middle, so it is the whole answer there.
    ///
    /// # Panics
    ///
    /// If `status` is no status of HTTP: 100 to 999.
    #[must_use]
    pub fn error(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("the status of an error is one that HTTP has");
        let message = "scripted error".to_owned();
        Self::new(Act::Refuse(Refusal {
            status,
            message,
            kind: None,
            retry_after: None,
            headers: Vec::new(),
        }))
    }

    /// The server says nothing until the client leaves or the server stops.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(Act::Hang { limit: None })
    }

    /// The server says nothing for `limit`, then answers with some text.
    #[must_use]
    pub fn hang_for(limit: Duration) -> Self {
        Self::new(Act::Hang { limit: Some(limit) })
    }

    /// The server closes the connection instead of answering.
    #[must_use]
    pub fn disconnect() -> Self {
        Self::new(Act::Disconnect)
    }

    /// Lets an error, a hang or a break come after half of an answer instead of in place of one.
    #[must_use]
    pub fn mid_stream(mut self) -> Self {
        self.mid_stream = true;
        self
    }

    /// Says `text` before the calls or the value of this turn. A turn that breaks off in the middle of an answer
    /// breaks off in the middle of this.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.said = Some(text.into());
        self
    }

    /// Says what went wrong.
    ///
    /// # Panics
    ///
    /// If the turn is no [error](Self::error).
    #[must_use]
    pub fn with_message(mut self, words: impl Into<String>) -> Self {
        self.refusal().message = words.into();
        self
    }

    /// Calls the error something else than its status says, as vendors do for special ones.
    ///
    /// # Panics
    ///
    /// If the turn is no [error](Self::error).
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<String>) -> Self {
        self.refusal().kind = Some(kind.into());
        self
    }

    /// Tells the client in how many seconds to come back.
    ///
    /// # Panics
    ///
    /// If the turn is no [error](Self::error).
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        self.refusal().retry_after = Some(seconds);
        self
    }

    /// Adds a header to an error.
    ///
    /// # Panics
    ///
    /// If the turn is no [error](Self::error), or the header none that HTTP allows.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("the name of a header is one that HTTP allows");
        let value = HeaderValue::try_from(value).expect("the value of a header is one that HTTP allows");
        self.refusal().headers.push((name, value));
        self
    }

    fn refusal(&mut self) -> &mut Refusal {
        match &mut self.act {
            Act::Refuse(refusal) => refusal,
            other => panic!("only an error has a message, a time to come back and headers, not {other:?}"),
        }
    }

    /// Lets the model run out of tokens at the end of the answer.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.cut = Some(Cut::Truncated);
        self
    }

    /// Lets the model stop because it refuses to go on.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.cut = Some(Cut::Refused);
        self
    }

    /// Sets the numbers of usage that the answer tells.
    #[must_use]
    pub fn with_usage(mut self, usage: TurnUsage) -> Self {
        self.usage = usage;
        self
    }

    /// Waits so long before anything is answered.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits so long between two events of a stream.
    #[must_use]
    pub fn with_pauses(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Plays this turn so often before the next one; a turn that is to be played no times is left out.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Plays this turn from now on.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.times = None;
        self
    }

    /// True if the model said something that the agent can build on.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self.act, Act::Call { .. } | Act::HandIn { .. })
    }
}
