//! Workflows, and an engine over a scripted provider, for the other modules.

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use harness_engine_local::{LocalConfig, LocalEngine};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, SubagentRegistry};
use harness_testkit::subagent::{MockProvider, MockProviderHandle};
use harness_workflow::{
    AgentCall, AgentOutcome, InvariantObserver, RunResult, StartRun, Workflow, WorkflowCatalog,
    WorkflowContext, WorkflowEngine, WorkflowError, WorkflowEvent, WorkflowMeta, WorkflowObserver,
    WorkflowRef, WorkflowRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

type BodyFuture = Pin<Box<dyn Future<Output = Result<Value, WorkflowError>> + Send>>;

/// A workflow made of a closure.
pub(crate) struct Body {
    meta: WorkflowMeta,
    run: Box<dyn Fn(WorkflowContext) -> BodyFuture + Send + Sync>,
}

impl Body {
    pub(crate) fn new<F>(run: impl Fn(WorkflowContext) -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = Result<Value, WorkflowError>> + Send + 'static,
    {
        Arc::new(Self {
            meta: WorkflowMeta::new("test", 1, "A body under test."),
            run: Box::new(move |context| Box::pin(run(context))),
        })
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

#[async_trait]
impl Workflow for Body {
    fn meta(&self) -> &WorkflowMeta {
        &self.meta
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        (self.run)(context).await
    }
}

/// Asks one child after the other, as many as the arguments say, and returns what they yield.
pub(crate) async fn ask_in_turn(context: WorkflowContext) -> Result<Value, WorkflowError> {
    let count = context.args().as_u64().unwrap_or(1);
    let mut yielded = Vec::new();
    for number in 1..=count {
        let outcome = context.agent(AgentCall::new(format!("question {number}"))).await?;
        yielded.push(plain(outcome));
        context.checkpoint(json!(number))?;
    }
    Ok(json!(yielded))
}

pub(crate) fn plain(outcome: AgentOutcome) -> Value {
    match outcome {
        AgentOutcome::Value(value) => value,
        AgentOutcome::NoValue(why) => json!({ "none": why.stop_reason }),
    }
}

/// An engine with one workflow, over a scripted provider, and everything that watches it.
pub(crate) struct Bench {
    pub(crate) engine: LocalEngine,
    pub(crate) registry: Arc<LocalRegistry>,
    pub(crate) provider: MockProviderHandle,
    pub(crate) invariants: Arc<InvariantObserver>,
    pub(crate) events: Arc<Events>,
}

impl Bench {
    pub(crate) fn new(body: Arc<Body>) -> Self {
        Self::with_config(body, config())
    }

    pub(crate) fn with_config(body: Arc<Body>, config: LocalConfig) -> Self {
        let (provider, handle) = MockProvider::new(Capabilities::ALL);
        let registry = Arc::new(LocalRegistry::default());
        let config = config.with_provider(harness_subagent::SubagentProvider::name(&*provider));
        registry.register(provider).unwrap();
        let catalog = WorkflowCatalog::new().with(body).unwrap();
        Self::over(LocalEngine::new(Arc::clone(&registry) as _, catalog, config), registry, handle)
    }

    pub(crate) fn over(
        engine: LocalEngine,
        registry: Arc<LocalRegistry>,
        provider: MockProviderHandle,
    ) -> Self {
        let invariants = Arc::new(InvariantObserver::new("harness-engine-local"));
        engine.observe(Arc::clone(&invariants) as _);
        let events = Arc::new(Events::default());
        engine.observe(Arc::clone(&events) as _);
        Self { engine, registry, provider, invariants, events }
    }

    pub(crate) async fn start(&self, request: StartRun) -> Box<dyn WorkflowRun> {
        self.engine.start(request, CancellationToken::new()).await.unwrap()
    }

    /// Starts a run, waits for its result and disposes of it.
    pub(crate) async fn run(&self, request: StartRun) -> RunResult {
        let run = self.start(request).await;
        let result = run.result().await;
        run.dispose().await.unwrap();
        self.assert_clean();
        result
    }

    /// Asserts that no child is left and that every event was in order.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.provider.assert_nothing_left();
        assert_eq!(self.invariants.violations(), []);
        assert_eq!(self.invariants.open_runs(), []);
    }
}

pub(crate) fn config() -> LocalConfig {
    LocalConfig::default()
        .with_max_concurrent_agents(NonZeroUsize::new(2))
        .with_max_agents(NonZeroU64::new(100).unwrap())
}

pub(crate) fn request() -> StartRun {
    StartRun::new(WorkflowRef::new("test", 1), Parent::new("parent", "/tmp"))
}

pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Keeps every event.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<WorkflowEvent>>);

impl Events {
    pub(crate) fn all(&self) -> Vec<WorkflowEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Names every event, calls with their number and end.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all().iter().map(|event| name(&serde_json::to_value(event).unwrap())).collect()
    }
}

fn name(event: &Value) -> String {
    let name = event["event"].as_str().unwrap();
    match (&event["call"]["call"], &event["end"]["outcome"]) {
        (Value::Null, _) => name.to_owned(),
        (call, Value::String(outcome)) => format!("{name} {call} {outcome}"),
        (call, _) => format!("{name} {call}"),
    }
}

impl WorkflowObserver for Events {
    fn observe(&self, event: &WorkflowEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}
