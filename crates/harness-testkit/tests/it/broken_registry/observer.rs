//! What a broken registry tells its observers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use harness_subagent::{ChildEnding, StartedChild, StopReason, SubagentEvent, SubagentObserver};

use super::{Common, Fault, lock};

#[derive(Debug)]
pub(super) struct BrokenObserver {
    pub(super) inner: Arc<dyn SubagentObserver>,
    pub(super) number: usize,
    pub(super) common: Arc<Common>,
    pub(super) late: Mutex<Option<StartedChild>>,
}

impl BrokenObserver {
    fn tell(&self, event: &SubagentEvent<'_>) {
        self.common.telling.store(true, Ordering::Relaxed);
        let told = catch_unwind(AssertUnwindSafe(|| self.inner.observe(event)));
        self.common.telling.store(false, Ordering::Relaxed);
        if told.is_err() {
            self.common.panicked.store(true, Ordering::Relaxed);
        }
    }
}

impl SubagentObserver for BrokenObserver {
    fn observe(&self, event: &SubagentEvent<'_>) {
        match (self.common.fault, event) {
            (Fault::MisnamesProviders, SubagentEvent::ProviderRemoved { .. }) => {
                self.tell(&SubagentEvent::ProviderRemoved { provider: "" });
            }
            (
                Fault::NeglectsSecondObserver,
                SubagentEvent::Started { child } | SubagentEvent::Ended { child, .. },
            ) if self.number == 2 && child.sequence > 1 => {}
            (Fault::TellsStartLate, SubagentEvent::Started { child }) => {
                *lock(&self.late) = Some((*child).clone());
            }
            (Fault::TellsStartLate, SubagentEvent::Ended { .. }) => {
                if let Some(child) = lock(&self.late).take() {
                    self.tell(&SubagentEvent::Started { child: &child });
                }
                self.tell(event);
            }
            (Fault::HidesOrigin, SubagentEvent::Started { child }) => {
                self.tell(&SubagentEvent::Started { child: &(*child).clone().with_origin(None) });
            }
            (Fault::RepeatsNumbers, SubagentEvent::Started { child }) => {
                let child =
                    StartedChild::new(1, child.id.clone(), child.provider.clone(), child.parent.clone())
                        .with_origin(child.origin.clone())
                        .with_label(child.label.clone());
                self.tell(&SubagentEvent::Started { child: &child });
            }
            (
                Fault::TellsProvidersReason,
                SubagentEvent::Ended { child, ending: ChildEnding::Result { stop_reason, output } },
            ) if **stop_reason == StopReason::SCHEMA_REFUSED => {
                let ending = ChildEnding::Result { stop_reason: &StopReason::COMPLETED, output: *output };
                self.tell(&SubagentEvent::Ended { child, ending });
            }
            _ => self.tell(event),
        }
    }
}
