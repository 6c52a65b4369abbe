//! How a child hands in a value: by calling a tool whose parameters are the contract's schema.
//!
//! - Every call is checked against the schema and against the contract's rule. What is wrong goes back as an
//!   error result, so that the model can call again in the same turn. It is never asked for a further turn.
//! - A good value is only *staged*. It is committed when the outcome of that very execution has settled as a
//!   success, since a hook may still block it.
//! - From then on every other call of the child is denied, and the turn ends without asking the model again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use harness_subagent::{Error, ErrorKind, OutputContract, OutputRuleCatalog, Result};
use serde_json::{Value, json};

use super::harness::{Agent, Hook, Tool, ToolCall, ToolOutcome};

pub(crate) const TOOL: &str = "structured_output";

/// One child's tool for handing in, and the guard over its other calls.
#[derive(Debug)]
pub(crate) struct Capture {
    contract: OutputContract,
    rules: OutputRuleCatalog,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    staged: Option<(u64, Value)>,
    captured: Option<Value>,
    broke_rule: Option<Value>,
    broke_schema: Option<Value>,
}

/// What there is to deliver when the turn is over.
#[derive(Debug, PartialEq)]
pub(crate) enum HandedIn {
    /// The first value that was accepted.
    Accepted(Value),
    /// The last value that the schema admits and the rule refused. Whether that matters is the caller's
    /// business, so it is delivered like an accepted one.
    BrokeRule(Value),
    /// The last value that the schema refused.
    BrokeSchema(Value),
    Nothing,
}

impl Capture {
    /// Prepares the tool.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`], when the rule cannot be used here.
    pub(crate) fn new(contract: OutputContract, rules: OutputRuleCatalog) -> Result<Arc<Self>> {
        if let Some(rule) = contract.rule().filter(|rule| rules.get(rule.name()).is_none()) {
            let why = format!("no rule is named {:?} in this provider's catalog; add it", rule.name());
            return Err(Error::new(ErrorKind::Provider, "the rule cannot be used in-turn").with_source(why));
        }
        Ok(Arc::new(Self { contract, rules, state: Mutex::default() }))
    }

    /// Gives the tool, the guard and the instruction to a child that does not run yet.
    pub(crate) fn install(self: &Arc<Self>, child: &mut Agent) {
        child.tools.push(Arc::clone(self) as Arc<dyn Tool>);
        child.hooks.push(Arc::clone(self) as Arc<dyn Hook>);
        child.system.push_str(
            "\n\nWhen you are done, call the tool `structured_output` once with your result. Only that call \
             counts: what you write elsewhere is not read as the result.",
        );
    }

    /// Takes out what the child has handed in.
    pub(crate) fn take(&self) -> HandedIn {
        let mut state = self.state();
        if let Some(value) = state.captured.take() {
            return HandedIn::Accepted(value);
        }
        if let Some(value) = state.broke_rule.take() {
            return HandedIn::BrokeRule(value);
        }
        state.broke_schema.take().map_or(HandedIn::Nothing, HandedIn::BrokeSchema)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Tool for Capture {
    fn name(&self) -> &str {
        TOOL
    }

    fn parameters(&self) -> Value {
        self.contract.schema().as_ref().clone()
    }

    async fn call(&self, execution: u64, arguments: &Value) -> ToolOutcome {
        let errors = self.contract.judge().violations(arguments);
        let errors: Vec<String> = errors.iter().take(20).map(ToString::to_string).collect();
        if !errors.is_empty() {
            self.state().broke_schema = Some(arguments.clone());
            return ToolOutcome::error(format!("the value does not fit; call again.\n{}", errors.join("\n")));
        }
        let violations = match self.contract.rule().map(|rule| self.rules.check(rule, arguments)) {
            Some(Err(unknown)) => return ToolOutcome::error(unknown.to_string()),
            Some(Ok(violations)) => violations,
            None => Vec::new(),
        };
        if !violations.is_empty() {
            self.state().broke_rule = Some(arguments.clone());
            let lines: Vec<String> = violations
                .iter()
                .map(|violation| format!("{}: {}", violation.pointer, violation.message))
                .collect();
            return ToolOutcome::error(format!("the value breaks a rule; call again.\n{}", lines.join("\n")));
        }
        self.state().staged = Some((execution, arguments.clone()));
        ToolOutcome { concludes: true, ..ToolOutcome::success(json!({ "recorded": true }).to_string()) }
    }
}

impl Hook for Capture {
    fn deny(&self, _call: &ToolCall) -> Option<String> {
        let state = self.state();
        (state.captured.is_some() || state.staged.is_some())
            .then(|| "the result is recorded and the turn is over".to_owned())
    }

    fn settled(&self, execution: u64, _call: &ToolCall, outcome: &ToolOutcome) {
        let mut state = self.state();
        // The execution decides, not the model's id of the call: that may come again.
        if let Some((_, value)) = state.staged.take_if(|(staged, _)| *staged == execution)
            && !outcome.is_error
        {
            state.captured = Some(value);
        }
    }
}
