use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{
    ActivityStream, AgentId, Diagnostic, Error, ErrorKind, ProviderInfo, Result, StartSubagent, StopReason,
    SubagentObserver, SubagentProvider, SubagentRegistry, SubagentResult, SubagentRun,
};
use harness_workflow::{CallEnd, CallInfo, CallOutcome, WorkflowEvent, WorkflowEventKind};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::EngineFault;
use super::events::Teller;

/// The registry as an engine with a fault in its dealings with children uses it.
#[derive(Debug)]
pub(crate) struct BrokenRegistry {
    inner: Arc<dyn SubagentRegistry>,
    fault: EngineFault,
    teller: Arc<Teller>,
}

impl BrokenRegistry {
    pub(crate) fn new(inner: Arc<dyn SubagentRegistry>, fault: EngineFault, teller: Arc<Teller>) -> Self {
        Self { inner, fault, teller }
    }

    fn tell_of_failed_start(&self, request: &StartSubagent, error: &Error) {
        let origin = request.origin.clone().expect("a child of a run has an origin");
        let call = CallInfo::new(origin.call, 1, error.to_string(), "nobody".into());
        let end = CallEnd::new(CallOutcome::Failed);
        let kinds = [
            WorkflowEventKind::AgentStarted { call: call.clone() },
            WorkflowEventKind::AgentEnded { call, end },
        ];
        for kind in kinds {
            self.teller.tell(&WorkflowEvent::new(origin.run.as_ref().into(), 99, kind));
        }
    }
}

#[async_trait]
impl SubagentRegistry for BrokenRegistry {
    fn register(&self, provider: Arc<dyn SubagentProvider>) -> Result<()> {
        self.inner.register(provider)
    }

    fn unregister(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.inner.unregister(name)
    }

    fn provider(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        self.inner.provider(name)
    }

    fn providers(&self) -> Vec<ProviderInfo> {
        self.inner.providers()
    }

    fn observe(&self, observer: Arc<dyn SubagentObserver>) {
        self.inner.observe(observer);
    }

    async fn start_on(
        &self,
        provider: &Arc<dyn SubagentProvider>,
        mut request: StartSubagent,
    ) -> Result<Box<dyn SubagentRun>> {
        let mut provider = Arc::clone(provider);
        match self.fault {
            EngineFault::LooksProviderUpAnew => {
                provider = self.inner.provider(provider.name()).unwrap_or(provider);
            }
            EngineFault::HidesCancelFromChildren => request.cancellation = CancellationToken::new(),
            EngineFault::ForgetsOrigin => request.origin = None,
            EngineFault::DelaysFirstCall if request.prompt == "call 1" => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            EngineFault::DetachesStarts => {
                request.cancellation = CancellationToken::new();
                let (registry, detached) = (Arc::clone(&self.inner), request.clone());
                // The task goes on when this future is dropped, and holds on to what it leaves.
                let start = tokio::spawn(async move {
                    let run: Arc<dyn SubagentRun> = registry.start_on(&provider, detached).await?.into();
                    std::mem::forget(Arc::clone(&run));
                    Ok(run)
                });
                let inner = start.await.expect("the start does not panic")?;
                return Ok(Box::new(BrokenChild { inner, fault: self.fault }));
            }
            _ => {}
        }
        let started = self.inner.start_on(&provider, request.clone()).await;
        let run = match started {
            Ok(run) => run,
            Err(error) => {
                if self.fault == EngineFault::TellsOfFailedStart {
                    self.tell_of_failed_start(&request, &error);
                }
                if self.fault != EngineFault::RetriesFailedStart {
                    return Err(error);
                }
                self.inner.start_on(&provider, request).await?
            }
        };
        Ok(Box::new(BrokenChild { inner: run.into(), fault: self.fault }))
    }
}

/// A child as an engine with a fault deals with it.
#[derive(Debug)]
struct BrokenChild {
    inner: Arc<dyn SubagentRun>,
    fault: EngineFault,
}

#[async_trait]
impl SubagentRun for BrokenChild {
    fn id(&self) -> &AgentId {
        self.inner.id()
    }

    async fn result(&self) -> Result<SubagentResult> {
        let result = self.inner.result().await;
        match (self.fault, result) {
            (EngineFault::FailedReleaseMasks, result) => {
                self.inner.dispose().await?;
                result
            }
            (EngineFault::DropsText, Ok(result)) => Ok(result.with_output("")),
            (EngineFault::ChangesValue, Ok(result)) if result.structured.is_some() => {
                Ok(result.with_structured(json!({ "answer": "another" })))
            }
            (EngineFault::FailureIsFatal, Ok(result)) if !result.stop_reason.is_completed() => {
                Err(Error::new(ErrorKind::RunLost, result.stop_reason.to_string()))
            }
            (EngineFault::TakesFailedValue, Ok(mut result)) if result.structured.is_some() => {
                result.stop_reason = StopReason::COMPLETED;
                Ok(result)
            }
            (EngineFault::LostChildIsFailure, Err(error)) => {
                Ok(SubagentResult::stopped(StopReason::ERROR, Diagnostic::new(error.to_string())))
            }
            (_, result) => result,
        }
    }

    async fn dispose(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        match self.fault {
            EngineFault::ReleasesInBackground => {
                tokio::spawn(async move { inner.dispose().await });
                Ok(())
            }
            EngineFault::LeavesChildrenBehind => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    inner.dispose().await
                });
                Ok(())
            }
            EngineFault::KeepsDroppedCalls => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                inner.dispose().await
            }
            EngineFault::WaitsForStubbornChild => {
                // The child holds on to itself as long as it runs.
                let holder = Arc::clone(&inner);
                tokio::spawn(async move { holder.result().await });
                inner.result().await?;
                inner.dispose().await
            }
            _ => inner.dispose().await,
        }
    }

    fn activity(&self) -> ActivityStream {
        self.inner.activity()
    }
}
