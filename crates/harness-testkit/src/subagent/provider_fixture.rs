use std::sync::Arc;
use std::time::Duration;

use harness_subagent::{ModelChoice, RuleRef, StartSubagent, SubagentProvider};
use serde_json::Value;

use crate::conformance::AsFixture;

/// How the provider's suite gets a provider and children that behave in known ways.
///
/// Each check gets a fresh fixture. Whatever makes a child behave is the fixture's business: a script, a fake
/// model behind a real agent, a prompt that a stand-in program understands.
pub trait ProviderFixture: Send + Sync {
    /// Returns the provider under test, the same each time.
    fn provider(&self) -> Arc<dyn SubagentProvider>;

    /// Returns what differs between providers that all keep the contract.
    fn traits(&self) -> ProviderTraits;

    /// Makes a request whose child behaves as `child` says. The suite adds contracts and other options to it.
    fn request(&self, child: &StandardChild) -> StartSubagent;

    /// Returns how many children of this fixture are there at this moment: the child itself, its process or task,
    /// or anything else of it that its disposal must take away.
    fn alive(&self) -> usize;

    /// Returns how long the suite waits for anything before it calls the clause broken.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

impl<T: ProviderFixture + 'static> AsFixture<dyn ProviderFixture> for T {
    fn as_fixture(&self) -> &(dyn ProviderFixture + 'static) {
        self
    }
}

/// A child that the suite needs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StandardChild {
    /// Completes and says something.
    Completes,
    /// Completes and hands in this value. Asked for only of a provider with the capability `output_contract`.
    HandsIn(Value),
    /// Fails in an ordinary way.
    Fails,
    /// Runs until it is cancelled or disposed of.
    Hangs,
    /// Runs until it is disposed of. Asked for only with
    /// [`can_ignore_cancellation`](ProviderTraits::can_ignore_cancellation).
    Stubborn,
    /// Cannot be started. Asked for only with [`can_refuse_start`](ProviderTraits::can_refuse_start).
    Unstartable,
    /// Is lost. Asked for only with [`can_lose`](ProviderTraits::can_lose).
    Lost,
    /// Completes, and cannot be released. Asked for only with
    /// [`can_fail_release`](ProviderTraits::can_fail_release).
    Unreleasable,
}

/// What differs between providers that all keep the contract. Where a trait has two answers, the suite checks the
/// one that is given.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProviderTraits {
    /// Children see what their parent has seen.
    pub inherits_parent_context: bool,
    /// The fixture can have a start fail.
    pub can_refuse_start: bool,
    /// The fixture can have a child lost.
    pub can_lose: bool,
    /// The fixture can have the release of a child fail.
    pub can_fail_release: bool,
    /// The fixture can have a child that ignores its cancellation.
    pub can_ignore_cancellation: bool,
    /// A running child's activity can be watched.
    pub tells_activity: bool,
    /// What a child used is told.
    pub tells_usage: bool,
    /// The provider's own session id is told.
    pub tells_session_id: bool,
    /// A rule in the provider's catalog that refuses every value. Without one the provider must not care for rules.
    pub refusing_rule: Option<RuleRef>,
    /// A persona that the provider knows. Needed with the capability `persona`.
    pub persona: Option<String>,
    /// A model that the provider knows. Needed with the capability `model_choice`.
    pub model: Option<ModelChoice>,
}

impl ProviderTraits {
    /// Says whether children see what their parent has seen.
    #[must_use]
    pub fn with_inherited_context(mut self, inherits: bool) -> Self {
        self.inherits_parent_context = inherits;
        self
    }

    /// Says whether the fixture can have a start fail.
    #[must_use]
    pub fn with_refusable_start(mut self, able: bool) -> Self {
        self.can_refuse_start = able;
        self
    }

    /// Says whether the fixture can have a child lost.
    #[must_use]
    pub fn with_losable_child(mut self, able: bool) -> Self {
        self.can_lose = able;
        self
    }

    /// Says whether the fixture can have the release of a child fail.
    #[must_use]
    pub fn with_failing_release(mut self, able: bool) -> Self {
        self.can_fail_release = able;
        self
    }

    /// Says whether the fixture can have a child that ignores its cancellation.
    #[must_use]
    pub fn with_stubborn_child(mut self, able: bool) -> Self {
        self.can_ignore_cancellation = able;
        self
    }

    /// Says whether a running child's activity can be watched.
    #[must_use]
    pub fn with_activity(mut self, told: bool) -> Self {
        self.tells_activity = told;
        self
    }

    /// Says whether what a child used is told.
    #[must_use]
    pub fn with_usage(mut self, told: bool) -> Self {
        self.tells_usage = told;
        self
    }

    /// Says whether the provider's own session id is told.
    #[must_use]
    pub fn with_session_id(mut self, told: bool) -> Self {
        self.tells_session_id = told;
        self
    }

    /// Names a rule in the provider's catalog that refuses every value.
    #[must_use]
    pub fn with_refusing_rule(mut self, rule: RuleRef) -> Self {
        self.refusing_rule = Some(rule);
        self
    }

    /// Names a persona that the provider knows.
    #[must_use]
    pub fn with_persona(mut self, persona: impl Into<String>) -> Self {
        self.persona = Some(persona.into());
        self
    }

    /// Names a model that the provider knows.
    #[must_use]
    pub fn with_model(mut self, model: ModelChoice) -> Self {
        self.model = Some(model);
        self
    }
}
