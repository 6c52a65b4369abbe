use std::error::Error as StdError;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use harness_subagent::{Origin, StartSubagent, StopReason, SubagentResult};
use harness_workflow::{
    AgentOutcome, CallEnd, CallInfo, CallOutcome, ErrorCode, NoValue, NumberedCall, RunError,
    WorkflowEventKind, WorkflowHost, value,
};
use serde_json::{Value, json};

use crate::child::Child;
use crate::run::Run;

#[async_trait]
impl WorkflowHost for Run {
    fn cancel_reason(&self) -> Option<String> {
        self.stop_reason()
    }

    fn phase(&self, title: &str) {
        self.narrate(|| WorkflowEventKind::Phase { title: title.to_owned() });
    }

    fn log(&self, message: &str) {
        self.narrate(|| WorkflowEventKind::Log { message: message.to_owned() });
    }

    fn checkpoint(&self, value: Value) -> Result<(), RunError> {
        self.keep_checkpoint(value);
        Ok(())
    }

    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError> {
        self.agents_started.fetch_max(call.number, Ordering::Relaxed);
        // The slot goes over to the child with its admission.
        let slot = self.slots.acquire().await.map_err(|_| self.stopped())?;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let wants_value = call.output.is_some();
        let described = self.is_observed().then(|| (call.number, call.label.clone(), call.phase.clone()));
        let request = self.child_request(call, 1);
        let started = self.shared.registry.start_on(Arc::clone(&self.provider), request).await;
        let run = started.map_err(|error| self.start_failed(&error))?;
        let info = described.map(|(number, label, phase)| {
            Box::new(CallInfo::new(number, 1, label, run.id().clone()).with_phase(phase))
        });
        let open = OpenChild { run: self, child: Some(Arc::new(Child::new(run, info))) };
        slot.forget();
        if let Err(error) = self.admit(open.child()) {
            open.dispose().await;
            return Err(error);
        }
        let result = self.wait_for(open.child()).await;
        let (outcome, end) = self.judge(result, wants_value);
        self.report_end(open.child(), || end);
        open.dispose().await;
        outcome
    }
}

impl Run {
    /// The error of a call that the run's end has caught up with.
    fn stopped(&self) -> RunError {
        RunError::cancelled(self.stop_reason().as_deref().unwrap_or("the run has ended"))
    }

    fn child_request(&self, call: NumberedCall, attempt: u32) -> StartSubagent {
        let mut request = StartSubagent::new(call.prompt, self.parent.clone());
        request.cancellation = self.children_stop.clone();
        request.label = Some(call.label);
        request.origin = Some(Origin::new(self.id().as_str(), call.number, attempt));
        request.output = call.output;
        request.tools = call.tools;
        request.model = call.model;
        request
    }

    fn start_failed(&self, error: &harness_subagent::Error) -> RunError {
        if self.is_over() {
            return self.stopped();
        }
        RunError::new(ErrorCode::AGENT_START, format!("the child could not be started: {}", chain(error)))
            .with_details(json!({ "kind": error.kind().as_str() }))
    }

    /// Waits for the child's result and passes on what it does, where somebody listens.
    async fn wait_for(&self, child: &Child) -> harness_subagent::Result<SubagentResult> {
        let Some(info) = &child.info else { return child.run.result().await };
        let mut activity = child.run.activity();
        let mut result = child.run.result();
        loop {
            if activity.is_silent() {
                return result.await;
            }
            tokio::select! {
                biased;
                result = &mut result => return result,
                Some(activity) = activity.next() => {
                    self.emit(|| WorkflowEventKind::AgentActivity { call: CallInfo::clone(info), activity });
                }
                else => return result.await,
            }
        }
    }

    /// Makes of a child's result what the body gets, and what is told of the end.
    fn judge(
        &self,
        result: harness_subagent::Result<SubagentResult>,
        wants_value: bool,
    ) -> (Result<AgentOutcome, RunError>, CallEnd) {
        let result = match result {
            Ok(result) => result,
            Err(_) if self.is_over() => {
                return (Err(self.stopped()), CallEnd::new(CallOutcome::Cancelled));
            }
            Err(error) => {
                let message = format!("the child was lost: {}", chain(&error));
                let error = RunError::new(ErrorCode::AGENT_RESULT, message)
                    .with_details(json!({ "kind": error.kind().as_str() }));
                return (Err(error), CallEnd::new(CallOutcome::Failed));
            }
        };
        let SubagentResult { stop_reason, output, structured, diagnostic, usage, session_id, .. } = result;
        let mut end = CallEnd::new(CallOutcome::Failed);
        end.usage = usage;
        end.session_id = session_id;
        end.diagnostic.clone_from(&diagnostic);
        end.stop_reason = Some(stop_reason.clone());
        let completed = stop_reason.is_completed();
        let yielded = match structured {
            Some(value) if completed && wants_value => Some(value),
            _ if completed && !wants_value => Some(Value::String(output)),
            _ => None,
        };
        let outcome = match yielded {
            Some(value) => match value::check(&value) {
                Ok(()) => {
                    end.outcome = CallOutcome::Completed;
                    Ok(AgentOutcome::Value(value))
                }
                Err(error) => {
                    Err(RunError::new(ErrorCode::AGENT_RESULT, format!("the child's value: {error}")))
                }
            },
            None if !completed && self.is_over() => {
                end.outcome = CallOutcome::Cancelled;
                Err(self.stopped())
            }
            None => {
                let reason = if completed { StopReason::NO_VALUE } else { stop_reason };
                Ok(AgentOutcome::NoValue(NoValue::new(reason, diagnostic)))
            }
        };
        (outcome, end)
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        // Writing to a text cannot fail.
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    text
}

/// A child that a call waits for. When the call is dropped, the run ends the child.
struct OpenChild<'a> {
    run: &'a Run,
    child: Option<Arc<Child>>,
}

impl OpenChild<'_> {
    fn child(&self) -> &Arc<Child> {
        self.child.as_ref().expect("the child is there until the end of its call")
    }

    async fn dispose(mut self) {
        self.child().dispose(self.run).await;
        self.child = None;
    }
}

impl Drop for OpenChild<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.run.abandon(child);
        }
    }
}
