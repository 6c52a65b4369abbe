//! A tool with doubles around it, and reports to play with.

use std::sync::Arc;

use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, ProviderInfo, SubagentRegistry};
use harness_testkit::subagent::{MockProvider, MockProviderHandle};
use harness_testkit::workflow::{StubChild, StubEngine, StubEngineHandle};
use harness_workflow::RunResult;
use ralph_report::{Limits, RoundReport};
use ralph_tool::{CallContext, Envelope, RalphConfig, RalphError, RalphTool, workflows};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A tool on the scripted engine.
pub(crate) struct Stage {
    pub(crate) tool: Arc<RalphTool>,
    pub(crate) engine: StubEngineHandle,
    pub(crate) registry: Arc<LocalRegistry>,
}

impl Stage {
    /// Runs end with what the engine's handle settles.
    pub(crate) fn settable(config: Value) -> Self {
        Self::new(config, StubEngine::settable(workflows()))
    }

    /// Runs end as one that returned `value`, after `agents` workers.
    pub(crate) fn returning(config: Value, value: Value, agents: u64) -> Self {
        let stage = Self::settable(config);
        stage.engine.settle(RunResult::completed(value).with_agents_started(agents).with_attempts(agents));
        stage
    }

    /// The loop runs, with these workers.
    pub(crate) fn running(config: Value, children: impl IntoIterator<Item = StubChild>) -> Self {
        let stage = Self::new(config, StubEngine::running(workflows()));
        stage.engine.push_children(children);
        stage
    }

    fn new(config: Value, (engine, handle): (StubEngine, StubEngineHandle)) -> Self {
        let config = RalphConfig::from_value(&config).unwrap();
        let (registry, _provider) = registry_with(fresh(config.subagent_provider()));
        let tool = RalphTool::new(config, Arc::new(engine), Arc::clone(&registry) as _).unwrap();
        Self { tool: Arc::new(tool), engine: handle, registry }
    }

    /// Makes a call that nobody cancels.
    pub(crate) async fn call(&self, args: Value) -> Result<Envelope, RalphError> {
        self.tool.call(&args, context()).await
    }

    /// Makes a call with nothing but an objective, and returns what the model is shown, too.
    pub(crate) async fn shown(&self) -> (Result<Envelope, RalphError>, String) {
        let outcome = self.call(json!({ "objective": "Port it" })).await;
        let text = self.tool.render(&outcome);
        (outcome, text)
    }
}

/// A provider that Ralph can use.
pub(crate) fn fresh(name: &str) -> ProviderInfo {
    ProviderInfo::new(name, Capabilities::ALL)
}

pub(crate) fn registry_with(info: ProviderInfo) -> (Arc<LocalRegistry>, MockProviderHandle) {
    let registry = Arc::new(LocalRegistry::new());
    let (provider, handle) = MockProvider::with_info(info);
    registry.register(provider).unwrap();
    (registry, handle)
}

pub(crate) fn parent() -> Parent {
    Parent::new("caller", "the-workspace")
}

pub(crate) fn context() -> CallContext {
    CallContext::new(parent())
}

pub(crate) fn cancelled_by(token: &CancellationToken) -> CallContext {
    context().with_cancellation(token.clone())
}

pub(crate) fn continuing(summary: &str) -> Value {
    json!({ "status": "continue", "summary": summary, "evidence": [], "nextSteps": ["go on"], "blocker": "" })
}

pub(crate) fn complete(summary: &str) -> Value {
    json!({ "status": "complete", "summary": summary, "evidence": ["it runs"], "nextSteps": [], "blocker": "" })
}

pub(crate) fn blocked(blocker: &str) -> Value {
    json!({ "status": "blocked", "summary": "stuck", "evidence": [], "nextSteps": [], "blocker": blocker })
}

pub(crate) fn report(value: &Value) -> RoundReport {
    RoundReport::from_value(value, &Limits::default()).unwrap()
}

/// Polls the future once, which must not be enough.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) {
    tokio::select! {
        biased;
        _ = future => panic!("the future is ready"),
        () = std::future::ready(()) => {}
    }
}
