//! The same work as a workflow on the engine.

use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;
use harness_engine_local::{LocalConfig, LocalEngine};
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    AgentId, Capabilities, OutputContract, Parent, StartSubagent, SubagentProvider, SubagentRegistry,
    SubagentResult, SubagentRun,
};
use harness_workflow::{
    AgentCall, AgentOutcome, StartRun, Workflow, WorkflowCatalog, WorkflowContext, WorkflowEngine,
    WorkflowError, WorkflowMeta, WorkflowRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::work::{first_prompt, make_value, next_prompt, schema};

/// Makes as many calls as its arguments say, one after the other.
#[derive(Debug)]
struct Loop {
    meta: WorkflowMeta,
    contract: OutputContract,
}

#[async_trait]
impl Workflow for Loop {
    fn meta(&self) -> &WorkflowMeta {
        &self.meta
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        let calls = context.args().as_u64().unwrap_or_default();
        let mut prompt = first_prompt();
        let mut last = Value::Null;
        for _ in 0..calls {
            let call = AgentCall::new(prompt).with_label("call").with_output(self.contract.clone());
            let AgentOutcome::Value(value) = context.agent(call).await? else {
                return Ok(Value::Null);
            };
            prompt = next_prompt(&value);
            last = value;
        }
        Ok(last)
    }
}

/// Its children make their value when it is asked for: they cost nothing beyond that.
#[derive(Debug)]
struct Instant {
    gate: Option<Arc<Gate>>,
}

#[derive(Debug)]
struct InstantRun {
    id: AgentId,
    prompt: String,
    gate: Option<Arc<Gate>>,
}

#[async_trait]
impl SubagentProvider for Instant {
    fn name(&self) -> &str {
        "instant"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> harness_subagent::Result<Box<dyn SubagentRun>> {
        // Named after its run: no two children that are alive have the same name.
        let id = AgentId::new(request.origin.expect("the engine says whose call it is").run);
        Ok(Box::new(InstantRun { id, prompt: request.prompt, gate: self.gate.clone() }))
    }
}

#[async_trait]
impl SubagentRun for InstantRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> harness_subagent::Result<SubagentResult> {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        Ok(SubagentResult::handed_in(make_value(&self.prompt)))
    }

    async fn dispose(&self) -> harness_subagent::Result<()> {
        Ok(())
    }
}

pub(crate) fn engine(gate: Option<Arc<Gate>>) -> LocalEngine {
    let (registry, catalog, config) = parts(gate);
    LocalEngine::new(registry, catalog, config)
}

pub(crate) fn parts(gate: Option<Arc<Gate>>) -> (Arc<dyn SubagentRegistry>, WorkflowCatalog, LocalConfig) {
    let registry = LocalRegistry::default();
    registry.register(Arc::new(Instant { gate })).expect("the name is free");
    let meta = WorkflowMeta::new("loop", 1, "Makes calls, one after the other.");
    let contract = OutputContract::new(schema()).expect("the schema is within the subset");
    let catalog =
        WorkflowCatalog::new().with(Arc::new(Loop { meta, contract })).expect("the workflow is good");
    let config = LocalConfig::default().with_provider("instant").with_max_agents(NonZeroU64::MAX);
    (Arc::new(registry), catalog, config)
}

/// Carries out `runs` runs at once, with `calls` calls each.
pub(crate) async fn runs(runs: usize, calls: u64, gate: Option<Arc<Gate>>) {
    let engine = engine(gate.clone());
    let cancellation = CancellationToken::new();
    let mut all = Vec::with_capacity(runs);
    for _ in 0..runs {
        all.push(start(&engine, calls, &cancellation).await);
    }
    if let Some(gate) = &gate {
        gate.open_when_full().await;
    }
    // From the last one, so that whoever waits is not woken by each of them.
    for run in all.into_iter().rev() {
        finish(&*run).await;
    }
}

/// Carries out one run.
pub(crate) async fn run(engine: &LocalEngine, calls: u64) {
    finish(&*start(engine, calls, &CancellationToken::new()).await).await;
}

async fn start(engine: &LocalEngine, calls: u64, cancellation: &CancellationToken) -> Box<dyn WorkflowRun> {
    let workflow = harness_workflow::WorkflowRef::new("loop", 1);
    let request = StartRun::new(workflow, Parent::new("bench", "/tmp")).with_args(json!(calls));
    engine.start(request, cancellation.clone()).await.expect("the request is good")
}

async fn finish(run: &dyn WorkflowRun) {
    let result = run.result().await;
    assert!(result.value().is_some_and(Value::is_object), "{:?}", result.error());
    run.dispose().await.expect("nothing is left");
}
