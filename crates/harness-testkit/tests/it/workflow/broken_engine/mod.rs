//! Doubles that keep the contract of an engine save for one clause: an engine that keeps it, wrapped.

mod children;
mod events;
mod fault;
mod run;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use harness_testkit::workflow::{EngineFixture, ScriptedBody};
use harness_workflow::{
    EngineCapabilities, Error, ErrorKind, Result, RunId, StartRun, WorkflowEngine, WorkflowEvent,
    WorkflowEventKind, WorkflowMeta, WorkflowObserver, WorkflowRef, WorkflowRun, value,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::children::BrokenRegistry;
use self::events::Teller;
pub(crate) use self::fault::EngineFault;
use self::run::BrokenRun;
use super::custom_engine::TaskEngine;

/// An engine with one fault.
#[derive(Debug)]
pub(crate) struct BrokenEngine {
    fault: EngineFault,
    inner: TaskEngine,
    settings: EngineFixture,
    teller: Arc<Teller>,
    asked: AtomicU64,
    all_runs: CancellationToken,
    known: Mutex<Vec<RunId>>,
}

impl BrokenEngine {
    pub(crate) fn new(mut fixture: EngineFixture, fault: EngineFault) -> Self {
        let settings = fixture.clone();
        let teller = Arc::new(Teller::new(fault));
        fixture.registry = Arc::new(BrokenRegistry::new(fixture.registry, fault, Arc::clone(&teller)));
        match fault {
            EngineFault::MendsDefaultProvider => fixture.default_provider = "mock".into(),
            EngineFault::QueuesNothing | EngineFault::ManySlots | EngineFault::DelaysFirstCall => {
                fixture.max_concurrent = 100;
            }
            EngineFault::OneSlot => fixture.max_concurrent = 1,
            EngineFault::EndlessGrace => fixture.grace = std::time::Duration::from_secs(3600),
            EngineFault::CeilingLeaks => fixture.max_agents += 1,
            EngineFault::OneItemMore => fixture.max_items_per_call += 1,
            _ => {}
        }
        let inner = TaskEngine::new(fixture);
        inner.observe(Arc::clone(&teller) as _);
        Self {
            fault,
            inner,
            settings,
            teller,
            asked: AtomicU64::new(0),
            all_runs: CancellationToken::new(),
            known: Mutex::default(),
        }
    }

    fn has(&self, fault: EngineFault) -> bool {
        self.fault == fault
    }

    fn refuse_early(&self, request: &StartRun) -> Result<()> {
        let provider = request.provider.as_deref().unwrap_or(&self.settings.default_provider);
        let found = self.settings.registry.provider(provider);
        if self.has(EngineFault::ChecksProviderFirst) && found.is_none() {
            return Err(Error::new(ErrorKind::Provider, "asked too early"));
        }
        let unable = found.is_some_and(|found| !found.capabilities().output_contract);
        if self.has(EngineFault::AsksCapabilitiesAtStart) && unable {
            return Err(Error::new(ErrorKind::Provider, "asked too early"));
        }
        Ok(())
    }

    fn change(&self, request: &mut StartRun) {
        match self.fault {
            EngineFault::TakesAnyVersion => request.workflow = ScriptedBody::workflow_ref(),
            EngineFault::DropsDeepArguments if value::check(&request.args).is_err() => {
                request.args = json!([]);
            }
            EngineFault::TrimsProviderName => {
                let trimmed = |name: String| name.trim_matches(['\u{feff}', ' ', '\t']).to_owned();
                request.provider = request.provider.take().map(trimmed).filter(|name| !name.is_empty());
            }
            EngineFault::FallsBackToDefault => {
                let there = |name: &String| self.settings.registry.provider(name).is_some();
                request.provider = request.provider.take().filter(there);
            }
            EngineFault::ForgetsProvider => request.provider = None,
            EngineFault::ClampsMaxAgents => {
                request.max_agents = request.max_agents.map(|asked| asked.clamp(1, self.settings.max_agents));
            }
            EngineFault::ForgetsMaxAgents => request.max_agents = None,
            EngineFault::ForgetsRunId => request.run_id = None,
            EngineFault::StartsKnownRunAnew => {
                let mut known = self.known.lock().unwrap();
                if request.run_id.as_ref().is_some_and(|id| known.contains(id)) {
                    request.run_id = None;
                }
                known.extend(request.run_id.clone());
            }
            EngineFault::RoundsNumbers => round(&mut request.args),
            _ => {}
        }
    }
}

/// Makes floating point of every integer, as some languages do.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(entries) => entries.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[async_trait]
impl WorkflowEngine for BrokenEngine {
    fn workflow(&self, workflow: &WorkflowRef) -> Option<Arc<WorkflowMeta>> {
        if self.has(EngineFault::KnowsEveryVersion) {
            return self.inner.workflow(&WorkflowRef::new(&workflow.name, 1));
        }
        self.inner.workflow(workflow)
    }

    fn max_agents(&self) -> u64 {
        match self.fault {
            EngineFault::CeilingShrinks => {
                self.inner.max_agents() - self.asked.fetch_add(1, Ordering::Relaxed)
            }
            EngineFault::CeilingLeaks => self.inner.max_agents() - 1,
            _ => self.inner.max_agents(),
        }
    }

    fn capabilities(&self) -> EngineCapabilities {
        let capabilities = self.inner.capabilities();
        match self.fault {
            EngineFault::CapabilitiesChange => {
                capabilities.with_durable(self.asked.fetch_add(1, Ordering::Relaxed) > 0)
            }
            EngineFault::MisdeclaresSchema => {
                capabilities.with_enforces_schema(!capabilities.enforces_schema)
            }
            _ => capabilities,
        }
    }

    fn observe(&self, observer: Arc<dyn WorkflowObserver>) {
        self.teller.add(observer);
    }

    async fn start(
        &self,
        mut request: StartRun,
        cancellation: CancellationToken,
    ) -> Result<Box<dyn WorkflowRun>> {
        self.refuse_early(&request)?;
        self.change(&mut request);
        let token = match self.fault {
            EngineFault::BeginsCancelledRun | EngineFault::ForgetsToken => CancellationToken::new(),
            EngineFault::DropCancelsRuns | EngineFault::CancelsAllRuns => self.all_runs.clone(),
            _ => cancellation.clone(),
        };
        if self.has(EngineFault::LeaksDroppedStart) {
            std::mem::forget(self.inner.start(request.clone(), token.clone()).await?);
            tokio::task::yield_now().await;
        }
        let workflow = request.workflow.clone();
        let run = match self.inner.start(request, token).await {
            Ok(run) => run,
            Err(error) => {
                if self.has(EngineFault::TellsOfRefusedStart) {
                    let meta = self.inner.workflow(&workflow).unwrap_or_else(|| {
                        Arc::new(WorkflowMeta::new("unknown", 1, "A workflow that nobody knows."))
                    });
                    let kind = WorkflowEventKind::Started { meta };
                    self.teller.tell(&WorkflowEvent::new("refused".into(), 1, kind));
                }
                return Err(error);
            }
        };
        let run =
            Arc::new(BrokenRun::new(run.into(), self.fault, Arc::clone(&self.teller), self.all_runs.clone()));
        if self.has(EngineFault::BeginsCancelledRun) {
            run.clone().follow(cancellation);
        }
        Ok(Box::new(run::Shared(run)))
    }
}

impl Drop for BrokenEngine {
    fn drop(&mut self) {
        if self.has(EngineFault::DropCancelsRuns) {
            self.all_runs.cancel();
        }
    }
}
