//! What a broken registry hands over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use harness_subagent::{
    ActivityStream, AgentId, ChildEnding, Parent, Result, StartedChild, StopReason, SubagentEvent,
    SubagentResult, SubagentRun,
};

use super::{Common, Fault, lock};

#[derive(Debug)]
pub(super) struct BrokenRun {
    pub(super) local: Option<Box<dyn SubagentRun>>,
    pub(super) raw: Arc<dyn SubagentRun>,
    pub(super) id: AgentId,
    pub(super) limited: bool,
    pub(super) contract: bool,
    pub(super) common: Arc<Common>,
    pub(super) disposes: AtomicUsize,
    pub(super) ended: AtomicBool,
}

impl BrokenRun {
    fn is(&self, fault: Fault) -> bool {
        self.common.fault == fault
    }

    fn local(&self) -> &dyn SubagentRun {
        self.local.as_deref().expect("the run is taken out only when it is dropped")
    }
}

#[async_trait]
impl SubagentRun for BrokenRun {
    fn id(&self) -> &AgentId {
        let id = self.local().id();
        if self.is(Fault::OwnId) && id.as_str().starts_with("named/") { &self.id } else { id }
    }

    async fn result(&self) -> Result<SubagentResult> {
        if self.is(Fault::ResultKeepsPlace) && self.limited {
            return self.raw.result().await;
        }
        let mut result = self.local().result().await?;
        self.ended.store(true, Ordering::Relaxed);
        match self.common.fault {
            Fault::JudgesFailures
                if self.contract
                    && !result.stop_reason.is_completed()
                    && result.stop_reason != StopReason::NO_VALUE =>
            {
                result.stop_reason = StopReason::SCHEMA_REFUSED;
            }
            Fault::ToleratesNoValue if result.stop_reason == StopReason::NO_VALUE => {
                return self.raw.result().await;
            }
            Fault::DropsRefusedValue if result.stop_reason == StopReason::SCHEMA_REFUSED => {
                result.structured = None;
            }
            _ => {}
        }
        Ok(result)
    }

    async fn dispose(&self) -> Result<()> {
        let number = self.disposes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is(Fault::DisposeKeepsPlace) && self.limited {
            return self.raw.dispose().await;
        }
        if self.is(Fault::EndsTwice) && number == 2 {
            let child = StartedChild::new(1, self.id.clone(), "mock", Parent::new("root", "workspace"));
            for observer in lock(&self.common.observers).iter() {
                observer.observe(&SubagentEvent::Ended { child: &child, ending: ChildEnding::Disposed });
            }
        }
        match self.local().dispose().await {
            Err(_) if self.is(Fault::HidesReleaseFailure) => Ok(()),
            answer => answer,
        }
    }

    fn activity(&self) -> ActivityStream {
        if self.is(Fault::HidesActivity) { ActivityStream::silent() } else { self.local().activity() }
    }
}

impl Drop for BrokenRun {
    fn drop(&mut self) {
        self.common.live.fetch_sub(1, Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed) || self.disposes.load(Ordering::Relaxed) > 0;
        if self.is(Fault::DropKeepsPlace) && !ended {
            std::mem::forget(self.local.take());
        }
    }
}
