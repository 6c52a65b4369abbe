use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use harness_workflow::{
    Error, ErrorCode, ErrorKind, Result, RunError, RunId, RunResult, RunStopReason, WorkflowEvent,
    WorkflowEventKind, WorkflowMeta, WorkflowRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::EngineFault;
use super::events::Teller;

/// A run with one fault.
#[derive(Debug)]
pub(crate) struct BrokenRun {
    inner: Arc<dyn WorkflowRun>,
    fault: EngineFault,
    teller: Arc<Teller>,
    all_runs: CancellationToken,
    id: RunId,
    meta: Arc<WorkflowMeta>,
    waits: AtomicU64,
    disposed: AtomicBool,
    last_reason: Mutex<Option<String>>,
    was_cancelled: AtomicBool,
}

impl BrokenRun {
    pub(crate) fn new(
        inner: Arc<dyn WorkflowRun>,
        fault: EngineFault,
        teller: Arc<Teller>,
        all_runs: CancellationToken,
    ) -> Self {
        let id = match fault {
            EngineFault::RepeatsRunId => "the-same".into(),
            _ => inner.id().clone(),
        };
        let mut meta = Arc::clone(inner.meta());
        if fault == EngineFault::ChangesMeta {
            Arc::make_mut(&mut meta).description.push('!');
        }
        Self {
            inner,
            fault,
            teller,
            all_runs,
            id,
            meta,
            waits: AtomicU64::new(0),
            disposed: AtomicBool::new(false),
            last_reason: Mutex::default(),
            was_cancelled: AtomicBool::new(false),
        }
    }

    /// Cancels the run a little later than its token.
    pub(crate) fn follow(self: Arc<Self>, cancellation: CancellationToken) {
        tokio::spawn(async move {
            cancellation.cancelled().await;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            self.inner.cancel("a little late");
        });
    }

    fn changed(&self, result: RunResult) -> RunResult {
        let keep = |changed: RunResult| {
            changed
                .with_agents_started(result.agents_started())
                .with_attempts(result.attempts())
                .with_checkpoint(result.checkpoint().cloned())
        };
        let error = result.error().cloned();
        let code = error.as_ref().map(|error| error.code().as_str().to_owned()).unwrap_or_default();
        match self.fault {
            EngineFault::DropsDetails if result.stop_reason() == RunStopReason::Error => {
                let error = error.expect("a failed run has an error");
                keep(RunResult::failed(RunError::new(error.code().clone(), error.message())))
            }
            EngineFault::HidesPanic if code == "panic" => keep(RunResult::completed(Value::Null)),
            EngineFault::DropsDeepValue if code == "result-unserializable" => {
                keep(RunResult::completed(Value::Null))
            }
            EngineFault::ChangesResult => {
                let waits = self.waits.fetch_add(1, Ordering::Relaxed);
                result.with_attempts(waits)
            }
            EngineFault::LosesCheckpoint if code == "cancelled" => result.with_checkpoint(None),
            EngineFault::LateCancelCounts | EngineFault::ObserverCancelCounts
                if self.was_cancelled.load(Ordering::Relaxed) =>
            {
                keep(RunResult::cancelled(RunError::cancelled("too late")))
            }
            EngineFault::LastReasonCounts if code == "cancelled" => {
                let reason = self.last_reason.lock().unwrap().clone().unwrap_or_default();
                keep(RunResult::cancelled(RunError::cancelled(&reason)))
            }
            EngineFault::ValueBeatsCancel if code == "cancelled" => keep(RunResult::completed(json!([]))),
            EngineFault::CountsChildren => {
                let started = self.teller.started(self.inner.id());
                result.with_agents_started(started)
            }
            _ => result,
        }
    }
}

#[async_trait]
impl WorkflowRun for BrokenRun {
    fn id(&self) -> &RunId {
        &self.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.meta
    }

    async fn result(&self) -> RunResult {
        if self.fault == EngineFault::SlowResult {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let guard = (self.fault == EngineFault::DroppedWaitCancels).then(|| CancelOnDrop(&*self.inner));
        let result = self.inner.result().await;
        std::mem::forget(guard);
        self.changed(result)
    }

    fn cancel(&self, reason: &str) {
        *self.last_reason.lock().unwrap() = Some(reason.to_owned());
        self.was_cancelled.store(true, Ordering::Relaxed);
        match self.fault {
            // Without a cancel the body runs as long as it likes.
            EngineFault::WaitsForStubbornBody => {}
            EngineFault::CancelsAllRuns => self.all_runs.cancel(),
            EngineFault::TellsOfLateCancel => {
                let message = "cancelled too late".into();
                let kind = WorkflowEventKind::Log { message };
                self.teller.tell(&WorkflowEvent::new(self.inner.id().clone(), 99, kind));
                self.inner.cancel(reason);
            }
            _ => self.inner.cancel(reason),
        }
    }

    async fn dispose(&self) -> Result<()> {
        let repeated = self.disposed.swap(true, Ordering::Relaxed);
        match self.fault {
            EngineFault::DisposesOfNothing => Ok(()),
            EngineFault::SecondDisposeReturns if repeated => Ok(()),
            EngineFault::DisposesInBackground => {
                let inner = Arc::clone(&self.inner);
                tokio::spawn(async move { inner.dispose().await });
                Ok(())
            }
            EngineFault::WaitsOutTheGrace => {
                tokio::time::sleep(Duration::from_secs(10)).await;
                self.inner.dispose().await
            }
            EngineFault::DroppedDisposeStops => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.inner.dispose().await
            }
            EngineFault::DisposeRepeatsError => {
                self.inner.dispose().await?;
                match self.inner.result().await.error() {
                    Some(error) if *error.code() != ErrorCode::CANCELLED => {
                        Err(Error::new(ErrorKind::Release, error.message()))
                    }
                    _ => Ok(()),
                }
            }
            _ => self.inner.dispose().await,
        }
    }
}

impl Drop for BrokenRun {
    fn drop(&mut self) {
        if self.fault == EngineFault::LeaksDroppedRun {
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

struct CancelOnDrop<'a>(&'a dyn WorkflowRun);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel("a wait was dropped");
    }
}

/// Lets a fault hold on to the run that its caller has.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) Arc<BrokenRun>);

#[async_trait]
impl WorkflowRun for Shared {
    fn id(&self) -> &RunId {
        self.0.id()
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        self.0.meta()
    }

    async fn result(&self) -> RunResult {
        self.0.result().await
    }

    fn cancel(&self, reason: &str) {
        self.0.cancel(reason);
    }

    async fn dispose(&self) -> Result<()> {
        self.0.dispose().await
    }
}
