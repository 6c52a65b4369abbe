use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{
    Activity, ActivitySender, ActivityStream, AgentId, Diagnostic, Error, ErrorKind, OutputRuleCatalog,
    Result, StartSubagent, StopReason, SubagentResult, SubagentRun,
};
use serde_json::Value;
use tokio::sync::{Notify, OnceCell};
use tokio::time::{Instant, sleep, sleep_until};

use super::MockChild;
use super::mock_child::{Ending, Trigger};
use super::mock_handle::Shared;

/// One scripted child.
#[derive(Debug)]
pub(crate) struct ChildState {
    pub(crate) number: u64,
    id: AgentId,
    script: MockChild,
    request: StartSubagent,
    rules: OutputRuleCatalog,
    ended: OnceLock<Result<SubagentResult>>,
    changed: Notify,
    activity: Mutex<Option<ActivitySender>>,
    activities: Mutex<Vec<Activity>>,
}

impl ChildState {
    pub(crate) fn new(
        number: u64,
        id: String,
        mut script: MockChild,
        request: StartSubagent,
        rules: OutputRuleCatalog,
    ) -> Self {
        let activities = std::mem::take(&mut script.activities);
        Self {
            number,
            id: AgentId::new(id),
            script,
            request,
            rules,
            ended: OnceLock::new(),
            changed: Notify::new(),
            activity: Mutex::new(None),
            activities: Mutex::new(activities),
        }
    }

    /// Ends the child as scripted, or as aborted when its cancellation came first.
    pub(crate) fn end(&self) {
        if self.heeds_cancellation() && self.request.cancellation.is_cancelled() {
            self.end_as_aborted();
        } else if self.ended.get().is_none() {
            self.end_with(self.scripted());
        }
    }

    /// Ends the child with `outcome`. The first end counts.
    pub(crate) fn end_with(&self, outcome: Result<SubagentResult>) {
        let outcome = outcome.map(|mut result| {
            result.usage = result.usage.or(self.script.usage);
            result.session_id = result.session_id.or_else(|| self.script.session_id.clone());
            result
        });
        if self.ended.set(outcome).is_ok() {
            // The stream ends with the child.
            self.activity.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn tell(&self, activity: Activity) {
        if let Some(sender) = &*self.activity.lock().unwrap_or_else(PoisonError::into_inner) {
            sender.send(activity);
        }
    }

    fn end_as_aborted(&self) {
        let diagnostic = Diagnostic::new("the scripted child was cancelled");
        self.end_with(Ok(SubagentResult::stopped(StopReason::ABORTED, diagnostic)));
    }

    fn heeds_cancellation(&self) -> bool {
        !self.script.ignores_cancellation
    }

    fn scripted(&self) -> Result<SubagentResult> {
        match &self.script.ending {
            Ending::Result(outcome) => outcome.clone(),
            Ending::Tries(values) => self.first_accepted(values).map(SubagentResult::handed_in),
        }
    }

    /// Returns the first value that the rule accepts, else the last one.
    fn first_accepted(&self, values: &[Value]) -> Result<Value> {
        let rule = self.request.output.as_ref().and_then(|output| output.rule());
        let mut last = Value::Null;
        for value in values {
            last = value.clone();
            let Some(rule) = rule else { break };
            let violations = self.rules.check(rule, value).map_err(|error| {
                Error::new(ErrorKind::RunLost, "the scripted child could not be judged").with_source(error)
            })?;
            if violations.is_empty() {
                break;
            }
        }
        Ok(last)
    }

    async fn outcome(&self) -> Result<SubagentResult> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before the look, so that an end in between is not missed.
            changed.as_mut().enable();
            if let Some(outcome) = self.ended.get() {
                return outcome.clone();
            }
            let cancellable = self.heeds_cancellation() || self.script.trigger == Trigger::Cancellation;
            tokio::select! {
                biased;
                () = changed => {}
                () = self.request.cancellation.cancelled(), if cancellable => self.end(),
            }
        }
    }
}

/// The run of a scripted child.
#[derive(Debug)]
pub(crate) struct MockRun {
    child: Arc<ChildState>,
    shared: Arc<Shared>,
    asked: OnceLock<()>,
    release_by: OnceLock<Instant>,
    released: OnceCell<Result<()>>,
}

impl MockRun {
    pub(crate) fn new(child: Arc<ChildState>, shared: Arc<Shared>) -> Self {
        shared.note_child(&child);
        Self { child, shared, asked: OnceLock::new(), release_by: OnceLock::new(), released: OnceCell::new() }
    }

    /// Sets the child going.
    pub(crate) fn begin(&self) {
        if let Some(hook) = &self.child.script.on_start {
            hook(&self.child.request);
        }
        match self.child.script.trigger {
            Trigger::Start => self.child.end(),
            Trigger::After(delay) => self.end_after(delay),
            Trigger::Asked | Trigger::Handle | Trigger::Cancellation => {}
        }
    }

    fn end_after(&self, delay: Duration) {
        // The task must not keep a child alive that nobody waits for any more.
        let child = Arc::downgrade(&self.child);
        tokio::spawn(async move {
            sleep(delay).await;
            if let Some(child) = child.upgrade() {
                child.end();
            }
        });
    }

    async fn release(&self) -> Result<()> {
        let script = &self.child.script.release;
        self.child.end_as_aborted();
        if let Some(delay) = script.delay {
            // A second call goes on where a dropped one stopped.
            sleep_until(*self.release_by.get_or_init(|| Instant::now() + delay)).await;
        }
        if script.held {
            let number = self.child.number;
            self.shared.wait_for(|state| state.released_disposes.contains(&number)).await;
        }
        self.shared.note_released(self.child.number);
        script.error.clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl SubagentRun for MockRun {
    fn id(&self) -> &AgentId {
        &self.child.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        if self.asked.set(()).is_ok() {
            self.shared.note_asked(self.child.number);
            if let Some(hook) = &self.child.script.on_asked {
                hook();
            }
            if self.child.script.trigger == Trigger::Asked {
                self.child.end();
            }
        }
        self.child.outcome().await
    }

    async fn dispose(&self) -> Result<()> {
        self.shared.note_dispose(self.child.number);
        self.released.get_or_init(|| self.release()).await.clone()
    }

    fn activity(&self) -> ActivityStream {
        let scripted =
            std::mem::take(&mut *self.child.activities.lock().unwrap_or_else(PoisonError::into_inner));
        let mut sender = self.child.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.child.ended.get().is_some();
        if ended && scripted.is_empty() {
            return ActivityStream::silent();
        }
        let capacity = scripted.len().max(64);
        let sending = sender.get_or_insert_with(|| ActivitySender::new(capacity));
        let stream = sending.subscribe();
        for activity in scripted {
            sending.send(activity);
        }
        if ended {
            sender.take();
        }
        stream
    }
}

impl Drop for MockRun {
    fn drop(&mut self) {
        // Dropping the run ends the child; that nobody released it is noted.
        self.child.end_as_aborted();
        self.shared.note_dropped(self.child.number);
    }
}
