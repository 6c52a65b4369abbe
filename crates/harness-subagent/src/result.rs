use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::text::bounded;

/// How one child ended.
///
/// A provider makes it, the registry checks its value against the output contract, the caller of the child
/// reads it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SubagentResult {
    /// Why the child stopped. Only [`StopReason::COMPLETED`] is success.
    pub stop_reason: StopReason,
    /// What the child said last, as text. Empty when it said nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// The value that the child handed in under an output contract. It counts only beside
    /// [`StopReason::COMPLETED`]; beside any other reason it is there to be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_value")]
    pub structured: Option<Value>,
    /// Why the child did not complete, for people. Absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Diagnostic>,
    /// What the child used, where the provider can tell; collected for failed and cancelled children too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The name under which the provider's own side knows the child's session, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// Keeps a handed-in `null` apart from no value at all.
fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl SubagentResult {
    /// A child that completed and said `output`.
    #[must_use]
    pub fn completed(output: impl Into<String>) -> Self {
        Self {
            stop_reason: StopReason::COMPLETED,
            output: output.into(),
            structured: None,
            diagnostic: None,
            usage: None,
            session_id: None,
        }
    }

    /// A child that completed and handed in `value`.
    #[must_use]
    pub fn handed_in(value: Value) -> Self {
        Self { structured: Some(value), ..Self::completed("") }
    }

    /// A child that did not complete.
    #[must_use]
    pub fn stopped(reason: StopReason, diagnostic: Diagnostic) -> Self {
        Self { stop_reason: reason, diagnostic: Some(diagnostic), ..Self::completed("") }
    }

    /// Sets what the child said last.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<String>) -> Self {
        self.output = output.into();
        self
    }

    /// Sets the value that the child handed in.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured = Some(value);
        self
    }

    /// Sets what the child used.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the provider's own session id.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
}

/// Why a child stopped: an open set of stable kebab-case names.
///
/// Whoever reads one must take a name that it does not know for a failure. A provider may use a name of its
/// own when none of the constants fits.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct StopReason(Cow<'static, str>);

macro_rules! stop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl StopReason {
            $($(#[$doc])* pub const $name: Self = Self(Cow::Borrowed($text));)*

            /// The reasons that this crate names.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

stop_reasons! {
    /// The child did what it was asked and came to its end. The only success.
    COMPLETED = "completed";
    /// The child was cancelled.
    ABORTED = "aborted";
    /// The child failed in a way that no other reason names.
    ERROR = "error";
    /// The model's answer was cut off at its token limit.
    MAX_TOKENS = "max-tokens";
    /// The model declined.
    REFUSAL = "refusal";
    /// The child came to its end without the value it was asked for.
    NO_VALUE = "no-value";
    /// What the child handed in is not one JSON document.
    UNREADABLE_VALUE = "unreadable-value";
    /// The schema of the output contract refuses what the child handed in.
    SCHEMA_REFUSED = "schema-refused";
    /// A time limit was hit. The diagnostic's detail `limit` names it.
    TIMED_OUT = "timed-out";
    /// The child's process was ended by a signal. The diagnostic's detail `signal` names it.
    CRASHED = "crashed";
    /// The agent used all the turns it may take.
    TURN_LIMIT = "turn-limit";
    /// The agent used all the money or tokens it may use.
    BUDGET_LIMIT = "budget-limit";
    /// The model's vendor asks to come back later. The diagnostic's detail `reset-at` says when, where known.
    RATE_LIMITED = "rate-limited";
    /// The model's vendor has no capacity now.
    OVERLOADED = "overloaded";
    /// The model's vendor does not accept the credentials.
    AUTHENTICATION = "authentication";
    /// The model's vendor answered with another error.
    API_ERROR = "api-error";
    /// A permission that the child needed was denied.
    PERMISSION_DENIED = "permission-denied";
}

impl StopReason {
    /// Makes a reason of a name that this crate does not know.
    #[must_use]
    pub fn other(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::KNOWN.iter().find(|known| known.0 == name).cloned().unwrap_or(Self(Cow::Owned(name)))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Says whether this is [`COMPLETED`](Self::COMPLETED).
    #[must_use]
    pub fn is_completed(&self) -> bool {
        *self == Self::COMPLETED
    }
}

impl fmt::Debug for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StopReason({:?})", self.as_str())
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for StopReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StopReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::other)
    }
}

/// Why a child did not complete, in words for people and a few details for programs.
///
/// The provider writes it and keeps secrets out. It is bounded: a longer message is cut between characters
/// and marked, whoever makes the diagnostic.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "WireDiagnostic")]
pub struct Diagnostic {
    message: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct WireDiagnostic {
    message: String,
    #[serde(default)]
    details: BTreeMap<String, String>,
}

impl From<WireDiagnostic> for Diagnostic {
    fn from(wire: WireDiagnostic) -> Self {
        wire.details
            .into_iter()
            .fold(Self::new(wire.message), |diagnostic, (name, value)| diagnostic.with_detail(name, value))
    }
}

impl Diagnostic {
    /// The longest message, in bytes of UTF-8, the marker of a cut one included.
    pub const MAX_MESSAGE_BYTES: usize = 4096;
    /// The most details. Further ones are left out.
    pub const MAX_DETAILS: usize = 16;
    /// The longest name or value of a detail, in bytes of UTF-8, the marker of a cut one included.
    pub const MAX_DETAIL_BYTES: usize = 256;

    const CUT: &'static str = " [cut]";

    /// Makes a diagnostic.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: bounded(message.into(), Self::MAX_MESSAGE_BYTES, Self::CUT),
            details: BTreeMap::new(),
        }
    }

    /// Adds a detail for programs, such as `limit` or `signal`.
    #[must_use]
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if self.details.len() < Self::MAX_DETAILS {
            let bound = |text| bounded(text, Self::MAX_DETAIL_BYTES, Self::CUT);
            self.details.insert(bound(name.into()), bound(value.into()));
        }
        self
    }

    /// Returns the words for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details by name.
    #[must_use]
    pub fn details(&self) -> &BTreeMap<String, String> {
        &self.details
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a child used. Counts are tokens as the model's vendor counts them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read, those served from a cache included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of the tokens read, those served from a cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// The cost in millionths of a US dollar, where the provider knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

impl Usage {
    /// Counts tokens read and written.
    #[must_use]
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cached_input_tokens: 0, cost_usd_micros: None }
    }

    /// Sets how many of the tokens read came from a cache.
    #[must_use]
    pub fn with_cached_input_tokens(mut self, tokens: u64) -> Self {
        self.cached_input_tokens = tokens;
        self
    }

    /// Sets the cost in millionths of a US dollar.
    #[must_use]
    pub fn with_cost_usd_micros(mut self, micros: u64) -> Self {
        self.cost_usd_micros = Some(micros);
        self
    }

    /// Adds up two usages. The sum's cost is that of the parts that know theirs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            cost_usd_micros: match (self.cost_usd_micros, other.cost_usd_micros) {
                (Some(one), Some(two)) => Some(one.saturating_add(two)),
                (one, two) => one.or(two),
            },
        }
    }
}
