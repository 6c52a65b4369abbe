use ralph_report::{Limits, text};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use crate::number::{MAX_SAFE_INTEGER, positive_safe_integer};
use crate::shown;

/// What a deployment decides about the `ralph` tool.
///
/// Every value has been checked: there is no other way to get one. Values are taken as they are or refused, never
/// adjusted.
///
/// Written out, and read back, it has the keys `subagentProvider`, `maxRounds`, `maxHandoffChars` and
/// `maxResultChars`. A key that is absent or `null` has its default; other keys are left to whoever they are for.
///
/// ```
/// use ralph_tool::RalphConfig;
/// use serde_json::json;
///
/// let config = RalphConfig::from_value(&json!({ "subagentProvider": "claude-code", "maxRounds": 20 }))?;
/// assert_eq!(config.max_rounds(), 20);
/// assert_eq!(config.max_handoff_chars(), 16_384);
///
/// let refused = RalphConfig::from_value(&json!({ "maxRounds": 0 })).unwrap_err();
/// assert_eq!(refused.code(), "max-rounds-invalid");
/// # Ok::<(), ralph_tool::InvalidConfig>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RalphConfig {
    subagent_provider: String,
    max_rounds: u64,
    max_handoff_chars: u64,
    max_result_chars: u64,
}

impl Default for RalphConfig {
    fn default() -> Self {
        Self {
            subagent_provider: "spawn".to_owned(),
            max_rounds: 256,
            max_handoff_chars: 16_384,
            max_result_chars: 16_384,
        }
    }
}

impl RalphConfig {
    /// Reads a configuration from a JSON value.
    ///
    /// # Errors
    ///
    /// The first of these that applies: it is no object; the provider is refused; then each of the numbers, in the
    /// order in which [`InvalidConfig`] lists them.
    pub fn from_value(value: &Value) -> Result<Self, InvalidConfig> {
        let Value::Object(keys) = value else {
            return Err(InvalidConfig::NotAnObject { given: shown::value(value) });
        };
        let mut config = Self::default();
        if let Some(provider) = given(keys, "subagentProvider") {
            let name = provider.as_str();
            let refuse = || InvalidConfig::ProviderNotNormalized { given: shown::value(provider) };
            config = config.with_subagent_provider(name.ok_or_else(refuse)?)?;
        }
        if let Some(number) = given(keys, "maxRounds") {
            let refuse = || InvalidConfig::MaxRoundsInvalid { given: shown::value(number) };
            config.max_rounds = positive_safe_integer(number).ok_or_else(refuse)?;
        }
        if let Some(number) = given(keys, "maxHandoffChars") {
            let refuse = || InvalidConfig::MaxHandoffCharsInvalid { given: shown::value(number) };
            config.max_handoff_chars = positive_safe_integer(number).ok_or_else(refuse)?;
        }
        if let Some(number) = given(keys, "maxResultChars") {
            let refuse = || InvalidConfig::MaxResultCharsInvalid { given: shown::value(number) };
            config.max_result_chars = positive_safe_integer(number).ok_or_else(refuse)?;
        }
        Ok(config)
    }

    /// Reads a configuration from a JSON text.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::Unparsable`] for what is no JSON, then as [`from_value`](Self::from_value).
    pub fn from_json(text: &str) -> Result<Self, InvalidConfig> {
        Self::from_value(&serde_json::from_str(text).map_err(InvalidConfig::Unparsable)?)
    }

    /// Sets the name of the provider that runs every worker.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::ProviderNotNormalized`] when it is empty or has a blank at an edge.
    pub fn with_subagent_provider(mut self, name: impl Into<String>) -> Result<Self, InvalidConfig> {
        let name = name.into();
        if !text::is_normalized(&name) {
            return Err(InvalidConfig::ProviderNotNormalized { given: shown::value(&name.into()) });
        }
        self.subagent_provider = name;
        Ok(self)
    }

    /// Sets the most rounds that one call may ask for, which is also what a call gets that asks for nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::MaxRoundsInvalid`] for 0 and for more than 2^53 - 1.
    pub fn with_max_rounds(mut self, rounds: u64) -> Result<Self, InvalidConfig> {
        let refuse = |given| InvalidConfig::MaxRoundsInvalid { given };
        self.max_rounds = in_range(rounds).map_err(refuse)?;
        Ok(self)
    }

    /// Sets the most UTF-16 code units of a report's compact JSON.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::MaxHandoffCharsInvalid`] for 0 and for more than 2^53 - 1.
    pub fn with_max_handoff_chars(mut self, units: u64) -> Result<Self, InvalidConfig> {
        let refuse = |given| InvalidConfig::MaxHandoffCharsInvalid { given };
        self.max_handoff_chars = in_range(units).map_err(refuse)?;
        Ok(self)
    }

    /// Sets the most UTF-16 code units of what the calling model is shown.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::MaxResultCharsInvalid`] for 0 and for more than 2^53 - 1.
    pub fn with_max_result_chars(mut self, units: u64) -> Result<Self, InvalidConfig> {
        let refuse = |given| InvalidConfig::MaxResultCharsInvalid { given };
        self.max_result_chars = in_range(units).map_err(refuse)?;
        Ok(self)
    }

    /// Returns the name of the provider that runs every worker. `spawn` by default.
    #[must_use]
    pub fn subagent_provider(&self) -> &str {
        &self.subagent_provider
    }

    /// Returns the most rounds of one call. 256 by default.
    #[must_use]
    pub fn max_rounds(&self) -> u64 {
        self.max_rounds
    }

    /// Returns the most UTF-16 code units of a report's compact JSON. 16384 by default.
    #[must_use]
    pub fn max_handoff_chars(&self) -> u64 {
        self.max_handoff_chars
    }

    /// Returns the most UTF-16 code units of what the calling model is shown. 16384 by default.
    #[must_use]
    pub fn max_result_chars(&self) -> u64 {
        self.max_result_chars
    }

    /// Returns what is accepted and cannot work, on an engine that allows `ceiling` workers in a run.
    ///
    /// [`RalphTool::new`](crate::RalphTool::new) logs each of them.
    #[must_use]
    pub fn warnings(&self, ceiling: u64) -> Vec<ConfigWarning> {
        let mut warnings = Vec::new();
        if self.max_handoff_chars < SMALLEST_REPORT {
            warnings.push(ConfigWarning::HandoffTooSmall { max_handoff_chars: self.max_handoff_chars });
        }
        if self.max_rounds > ceiling {
            warnings.push(ConfigWarning::RoundsAboveCeiling { max_rounds: self.max_rounds, ceiling });
        }
        warnings
    }

    /// Finds the rounds of one call: those it asks for, or [`max_rounds`](Self::max_rounds) when it asks for nothing
    /// (`null` or no value).
    ///
    /// # Errors
    ///
    /// [`InvalidMaxRounds::NotPositive`] before [`InvalidMaxRounds::OverCeiling`].
    pub fn resolve_max_rounds(&self, requested: Option<&Value>) -> Result<u64, InvalidMaxRounds> {
        let Some(value) = requested.filter(|value| !value.is_null()) else {
            return Ok(self.max_rounds);
        };
        let refuse = || InvalidMaxRounds::NotPositive { given: shown::value(value) };
        let asked = positive_safe_integer(value).ok_or_else(refuse)?;
        if asked > self.max_rounds {
            return Err(InvalidMaxRounds::OverCeiling { asked, ceiling: self.max_rounds });
        }
        Ok(asked)
    }
}

/// The limits on a report of which only the contract's own is set.
pub(crate) fn report_limits(max_handoff_chars: u64) -> Limits {
    Limits::default().with_max_report_chars(usize::try_from(max_handoff_chars).unwrap_or(usize::MAX))
}

/// What the shortest report that any rule admits measures: a blocked one whose texts have one character.
const SMALLEST_REPORT: u64 = 77;

fn given<'a>(keys: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    keys.get(key).filter(|value| !value.is_null())
}

fn in_range(number: u64) -> Result<u64, String> {
    if (1..=MAX_SAFE_INTEGER).contains(&number) { Ok(number) } else { Err(number.to_string()) }
}

impl<'de> Deserialize<'de> for RalphConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// The text is no JSON.
    #[error("configuration is not a JSON document")]
    Unparsable(#[source] serde_json::Error),
    /// It is no object.
    #[error("configuration must be an object; got {given}")]
    #[non_exhaustive]
    NotAnObject {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
    /// The provider's name is no text, is empty, or has a blank at an edge.
    #[error("subagentProvider must be a name without blanks at its edges; got {given}")]
    #[non_exhaustive]
    ProviderNotNormalized {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
    /// The round cap is no positive safe integer.
    #[error("maxRounds must be an integer from 1 to 2^53 - 1; got {given}")]
    #[non_exhaustive]
    MaxRoundsInvalid {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
    /// The limit on a report is no positive safe integer.
    #[error("maxHandoffChars must be an integer from 1 to 2^53 - 1; got {given}")]
    #[non_exhaustive]
    MaxHandoffCharsInvalid {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
    /// The limit on a result is no positive safe integer.
    #[error("maxResultChars must be an integer from 1 to 2^53 - 1; got {given}")]
    #[non_exhaustive]
    MaxResultCharsInvalid {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
}

impl InvalidConfig {
    /// Returns the stable name of what is wrong.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unparsable(_) => "config-unparsable",
            Self::NotAnObject { .. } => "config-not-an-object",
            Self::ProviderNotNormalized { .. } => "provider-not-normalized",
            Self::MaxRoundsInvalid { .. } => "max-rounds-invalid",
            Self::MaxHandoffCharsInvalid { .. } => "max-handoff-chars-invalid",
            Self::MaxResultCharsInvalid { .. } => "max-result-chars-invalid",
        }
    }
}

/// Why a call cannot have the rounds that it asks for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMaxRounds {
    /// It is no positive safe integer.
    #[error("maxRounds must be an integer from 1 to 2^53 - 1, or null; got {given}")]
    #[non_exhaustive]
    NotPositive {
        /// What was given, as JSON, cut where it is long.
        given: String,
    },
    /// It is more than the deployment allows.
    #[error("maxRounds {asked} is above this deployment's limit of {ceiling}; ask for {ceiling} or fewer")]
    #[non_exhaustive]
    OverCeiling {
        /// The rounds asked for.
        asked: u64,
        /// The most there can be.
        ceiling: u64,
    },
}

impl InvalidMaxRounds {
    /// Returns the stable name of what is wrong.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotPositive { .. } => "max-rounds-invalid",
            Self::OverCeiling { .. } => "max-rounds-over-ceiling",
        }
    }
}

/// Something in a configuration that is accepted and cannot work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigWarning {
    /// No report fits, so every run fails in its first round.
    #[error(
        "maxHandoffChars {max_handoff_chars} is below the shortest report there is, {SMALLEST_REPORT}: \
         every run will fail; raise it"
    )]
    #[non_exhaustive]
    HandoffTooSmall {
        /// The limit.
        max_handoff_chars: u64,
    },
    /// A call that leaves the rounds open is refused by the engine.
    #[error(
        "maxRounds {max_rounds} is above the engine's ceiling of {ceiling}: \
         calls that ask for no number will fail; lower it, or raise the ceiling"
    )]
    #[non_exhaustive]
    RoundsAboveCeiling {
        /// The configured rounds.
        max_rounds: u64,
        /// The most that the engine allows.
        ceiling: u64,
    },
}

impl ConfigWarning {
    /// Returns the stable name of the warning.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::HandoffTooSmall { .. } => "handoff-too-small",
            Self::RoundsAboveCeiling { .. } => "rounds-above-ceiling",
        }
    }
}
