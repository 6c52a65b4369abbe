use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use harness_subagent::{Origin, StartSubagent, StopReason, SubagentResult};
use harness_workflow::{
    AgentOutcome, CallEnd, CallInfo, CallOutcome, ErrorCode, NoValue, NumberedCall, RunError,
    WorkflowEventKind, WorkflowHost, trace, value,
};
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;
use tracing::{Instrument, Span};

use crate::chain;
use crate::child::Child;
use crate::journal::{Answer, CallFingerprint, Entry};
use crate::recorder::Past;
use crate::run::Run;

#[async_trait]
impl WorkflowHost for Run {
    fn cancel_reason(&self) -> Option<String> {
        self.stop_reason()
    }

    fn phase(&self, title: &str) {
        self.narrate(
            || WorkflowEventKind::Phase { title: title.to_owned() },
            || Entry::Phase { title: title.to_owned() },
        );
    }

    fn log(&self, message: &str) {
        self.narrate(
            || WorkflowEventKind::Log { message: message.to_owned() },
            || Entry::Log { message: message.to_owned() },
        );
    }

    fn checkpoint(&self, value: Value) -> Result<(), RunError> {
        self.keep_checkpoint(value)
    }

    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError> {
        self.agents_started.fetch_max(call.number, Ordering::Relaxed);
        let mut attempt = 1;
        if let Some(recorder) = &self.recorder {
            match recorder.look_up(&call)? {
                Past::Answered(answer) => return answer,
                Past::Due(number) => attempt = number,
            }
        }
        // The slot goes over to the child with its admission.
        let slot = self.slots.acquire().await.map_err(|_| self.stopped())?;
        if let Some(recorder) = &self.recorder {
            Box::pin(recorder.record_synced(attempt_begins(&call, attempt))).await?;
        }
        let number = call.number;
        let span = trace::call_span(self.id(), number, attempt);
        if span.is_disabled() {
            self.carry_out(call, attempt, slot).await
        } else {
            Box::pin(self.carry_out(call, attempt, slot).instrument(span)).await
        }
    }
}

fn attempt_begins(call: &NumberedCall, attempt: u32) -> Entry {
    Entry::AgentStarted {
        call: call.number,
        attempt,
        label: call.label.clone(),
        phase: call.phase.clone(),
        fingerprint: CallFingerprint::of(call),
    }
}

impl Run {
    /// Starts the child of a call, waits for its end and disposes of it.
    async fn carry_out(
        &self,
        call: NumberedCall,
        attempt: u32,
        slot: SemaphorePermit<'_>,
    ) -> Result<AgentOutcome, RunError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let number = call.number;
        let wants_value = call.output.is_some();
        let described = self.is_observed().then(|| (call.label.clone(), call.phase.clone()));
        let request = self.child_request(call, attempt);
        let run = match self.shared.registry.start_on(Arc::clone(&self.provider), request).await {
            Ok(run) => run,
            Err(error) => {
                let outcome = Err(self.start_failed(&error));
                return self.answer(number, attempt, outcome, None).await;
            }
        };
        Span::current().record("child", run.id().as_str());
        self.note(|| Entry::AgentSpawned { call: number, attempt, child: run.id().clone() });
        let info = described.map(|(label, phase)| {
            Box::new(CallInfo::new(number, attempt, label, run.id().clone()).with_phase(phase))
        });
        let open = OpenChild { run: self, child: Some(Arc::new(Child::new(run, info))) };
        slot.forget();
        if let Err(error) = self.admit(open.child()) {
            open.dispose().await;
            return Err(error);
        }
        let result = self.wait_for(open.child()).await;
        let (outcome, end) = self.judge(result, wants_value);
        let outcome = self.answer(number, attempt, outcome, Some(&end)).await;
        self.report_end(open.child(), || end);
        open.dispose().await;
        outcome
    }

    /// Records the answer to a call before anybody gets it. What a cancelled call gets is no answer.
    async fn answer(
        &self,
        call: u64,
        attempt: u32,
        outcome: Result<AgentOutcome, RunError>,
        end: Option<&CallEnd>,
    ) -> Result<AgentOutcome, RunError> {
        let Some(recorder) = &self.recorder else { return outcome };
        if outcome.as_ref().is_err_and(|error| *error.code() == ErrorCode::CANCELLED) {
            return outcome;
        }
        let entry = Entry::AgentEnded { call, attempt, answer: Answer::from(&outcome), end: end.cloned() };
        Box::pin(recorder.record(entry)).await?;
        outcome
    }

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
