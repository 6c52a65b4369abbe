//! What a vector of kind `loop` sets up, and how what came of it is written down.

use std::sync::Arc;

use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, ProviderInfo, SubagentRegistry};
use harness_testkit::subagent::{MockProvider, MockProviderHandle};
use harness_workflow::{StartRun, WorkflowEngine};
use ralph_report::{Limits, RoundReport, text};
use ralph_tool::{CallContext, Envelope, InvalidConfig, RalphConfig, RalphError, RalphTool};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::prompts::PromptParts;

/// The input of a vector.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Scene {
    pub(super) config: Value,
    pub(super) arguments: Value,
    pub(super) children: Vec<Child>,
    #[serde(default = "yes")]
    pub(super) has_calling_agent: bool,
    #[serde(default)]
    pub(super) provider: ProviderFacts,
    #[serde(default)]
    pub(super) abort_before: bool,
    #[serde(default)]
    pub(super) engine: Faults,
}

/// What some consecutive children do.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Child {
    pub(super) kind: ChildKind,
    #[serde(default)]
    value: Value,
    value_json: Option<String>,
    #[serde(default)]
    pub(super) abort_first: bool,
    #[serde(default = "once")]
    times: usize,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChildKind {
    Value,
    Failure,
    Fatal,
    Abort,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProviderFacts {
    registered: bool,
    output_schema: bool,
    inherits_parent_context: bool,
}

impl Default for ProviderFacts {
    fn default() -> Self {
        Self { registered: true, output_schema: true, inherits_parent_context: false }
    }
}

#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Faults {
    pub(super) start_throws: bool,
    pub(super) result_rejects: bool,
    pub(super) dispose_rejects: bool,
    pub(super) cancel_ignored: bool,
}

fn yes() -> bool {
    true
}

fn once() -> usize {
    1
}

impl Child {
    pub(super) fn value(&self) -> Value {
        match &self.value_json {
            Some(text) => serde_json::from_str(text).expect("a child's value can be held"),
            None => self.value.clone(),
        }
    }
}

impl Scene {
    pub(super) fn read(input: &str) -> Self {
        serde_json::from_str(input).expect("the input of a loop vector")
    }

    /// Returns the children one by one.
    pub(super) fn children(&self) -> impl Iterator<Item = &Child> {
        self.children.iter().flat_map(|child| std::iter::repeat_n(child, child.times))
    }

    pub(super) fn configure(&self) -> Result<RalphConfig, InvalidConfig> {
        RalphConfig::from_value(&self.config)
    }

    /// Makes a registry with the configured provider, as far as there is to be one.
    pub(super) fn registry(&self, config: &RalphConfig) -> (Arc<LocalRegistry>, MockProviderHandle) {
        let ProviderFacts { registered, output_schema, inherits_parent_context } = self.provider;
        let capabilities = Capabilities::ALL.with_output_contract(output_schema);
        let info = ProviderInfo::new(config.subagent_provider(), capabilities)
            .with_inherited_context(inherits_parent_context);
        let (provider, handle) = MockProvider::with_info(info);
        let registry = Arc::new(LocalRegistry::new());
        if registered {
            registry.register(provider).expect("the registry is empty");
        }
        (registry, handle)
    }

    pub(super) fn context(&self, cancellation: CancellationToken) -> CallContext {
        if self.abort_before {
            cancellation.cancel();
        }
        let mut context = CallContext::default().with_cancellation(cancellation);
        context.parent = self.has_calling_agent.then(|| Parent::new("caller", "workspace"));
        context
    }

    /// Makes the call.
    pub(super) async fn call(
        &self,
        config: RalphConfig,
        engine: Arc<dyn WorkflowEngine>,
        registry: Arc<LocalRegistry>,
        context: CallContext,
    ) -> Called {
        let max_chars = config.max_result_chars();
        let tool = RalphTool::new(config, engine, registry).expect("the engine has the workflow");
        let outcome = tool.call(&self.arguments, context).await;
        let shown = tool.render(&outcome);
        assert!(text::utf16_len(&shown) as u64 <= max_chars, "what is shown is bounded: {shown}");
        Called(outcome)
    }
}

/// What a call came to.
pub(super) struct Called(pub(super) Result<Envelope, RalphError>);

impl Called {
    /// Writes the outcome down as vectors do.
    pub(super) fn written(&self) -> Value {
        let (mut written, disposal_error) = match &self.0 {
            Ok(envelope) => {
                let result = envelope.result();
                let written = json!({
                    "outcome": "resolves",
                    "agentsStarted": envelope.agents_started(),
                    "status": result.status(),
                    "roundsStarted": result.rounds_started(),
                    "report": result.report(),
                });
                (written, envelope.disposal_error())
            }
            Err(error) => {
                let mut written = json!({ "outcome": "throws", "category": error.code() });
                if error.code() == "workflow-failed" {
                    written["cause"] = match error.cause() {
                        Some("agent-start" | "agent-result") => json!("child-fatal"),
                        cause => json!(cause),
                    };
                }
                if let RalphError::RoundFailed { round, .. } = error {
                    written["roundsStarted"] = json!(round);
                    written["lastReport"] = json!(error.last_report());
                }
                (written, error.disposal_error())
            }
        };
        if disposal_error.is_some() {
            written["disposalError"] = json!(true);
        }
        written
    }

    /// Returns the length of the last good report, of a call whose run came to no result.
    pub(super) fn last_report_length(&self) -> Option<u64> {
        let error = self.0.as_ref().err()?;
        error.run()?;
        Some(error.last_report().map_or(0, |report| report.serialized_len() as u64))
    }
}

/// Writes down what the engine was asked to start.
pub(super) fn start_written(starts: &[StartRun]) -> Value {
    assert!(starts.len() <= 1, "a call starts one run at most");
    let Some(request) = starts.first() else { return Value::Null };
    let objective = request.args["objective"].as_str().expect("the objective is a text");
    json!({
        "subagentProvider": request.provider,
        "maxTotalAgents": request.max_agents,
        "maxRounds": request.args["maxRounds"],
        "maxHandoffChars": request.args["maxHandoffChars"],
        "objectiveLength": text::utf16_len(objective),
    })
}

/// Writes down what a child was asked for.
pub(super) fn call_written(label: &str, phase: Option<&str>, prompt: &str) -> Value {
    let parts = PromptParts::read(prompt);
    let limits = Limits::default().with_max_report_chars(usize::MAX);
    let prior = parts.report.map(|report| {
        RoundReport::from_value(&report, &limits)
            .expect("only accepted reports are passed on")
            .serialized_len()
    });
    json!({
        "label": label,
        "phase": phase,
        "roundNumber": parts.round,
        "maxRounds": parts.max_rounds,
        "hasPrior": prior.is_some(),
        "priorSerializedLength": prior.unwrap_or_default(),
    })
}

/// Writes down the value that the loop returned.
pub(super) fn terminal_written(value: Option<&Value>) -> Value {
    let Some(value) = value else { return Value::Null };
    let report =
        value.get("report").or(value.get("lastReport")).expect("a terminal value has a report or none");
    json!({
        "status": value["status"], "roundsStarted": value["roundsStarted"], "hasReport": !report.is_null(),
    })
}
