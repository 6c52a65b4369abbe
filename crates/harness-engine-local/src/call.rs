use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use harness_subagent::{Origin, StartSubagent, StopReason, SubagentResult, SubagentRun};
use harness_workflow::{
    AgentOutcome, CallEnd, CallInfo, CallOutcome, ErrorCode, NoValue, NumberedCall, RunError,
    WorkflowEventKind, WorkflowHost, trace, value,
};
use serde_json::{Value, json};
use tokio::sync::{SemaphorePermit, TryAcquireError};
use tracing::{Instrument, Span};

use crate::chain;
use crate::child::Child;
use crate::journal::{Answer, Entry};
use crate::recorder::{Past, Recorder};
use crate::run::Run;

type Outcome = Result<AgentOutcome, RunError>;
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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

    // By hand, as the trait's macro would keep the whole request in the future of every call that waits for its child:
    // what is needed before the child's start is not part of this one.
    fn call<'life0, 'async_trait>(&'life0 self, call: NumberedCall) -> Boxed<'async_trait, Outcome>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.agents_started.fetch_max(call.number, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            return Box::pin(self.call_recorded(call, recorder));
        }
        match self.slots.try_acquire() {
            Ok(slot) => self.carry_out(call, 1, slot),
            Err(TryAcquireError::NoPermits) => Box::pin(async move {
                let slot = self.slot().await?;
                self.carry_out(call, 1, slot).await
            }),
            Err(TryAcquireError::Closed) => Box::pin(ready(Err(self.stopped()))),
        }
    }
}

/// A call whose child is about to start.
struct Begun<'a> {
    /// The slot goes over to the child with its admission.
    slot: SemaphorePermit<'a>,
    start: Boxed<'a, harness_subagent::Result<Box<dyn SubagentRun>>>,
    number: u64,
    attempt: u32,
    wants_value: bool,
    is_traced: bool,
    /// What events say of the call, of a run that is observed.
    described: Option<Box<(String, Option<String>)>>,
}

impl Run {
    async fn slot(&self) -> Result<SemaphorePermit<'_>, RunError> {
        self.slots.acquire().await.map_err(|_| self.stopped())
    }

    /// Answers a call from the journal, or carries it out and records its answer.
    async fn call_recorded(&self, call: NumberedCall, recorder: &Recorder) -> Outcome {
        let attempt = match recorder.look_up(&call)? {
            Past::Answered(answer) => return answer,
            Past::Due(attempt) => attempt,
        };
        let slot = self.slot().await?;
        recorder.record_synced(attempt_begins(&call, attempt, recorder)).await?;
        self.carry_out(call, attempt, slot).await
    }

    /// Starts the child of a call, waits for its end and disposes of it.
    fn carry_out<'a>(
        &'a self,
        call: NumberedCall,
        attempt: u32,
        slot: SemaphorePermit<'a>,
    ) -> Boxed<'a, Outcome> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let number = call.number;
        let span = trace::call_span(self.id(), number, attempt);
        let is_traced = !span.is_disabled();
        let wants_value = call.output.is_some();
        let described = self.is_observed().then(|| Box::new((call.label.clone(), call.phase.clone())));
        let request = self.child_request(call, attempt);
        let start = self.shared.registry.start_on(&self.provider, request);
        let begun = Begun { slot, start, number, attempt, wants_value, is_traced, described };
        if is_traced {
            Box::pin(self.see_through(begun).instrument(span))
        } else {
            Box::pin(self.see_through(begun))
        }
    }

    async fn see_through(&self, begun: Begun<'_>) -> Outcome {
        let Begun { slot, start, number, attempt, wants_value, is_traced, described } = begun;
        let run = match start.await {
            Ok(run) => run,
            Err(error) => {
                let outcome = Err(self.start_failed(&error));
                return Box::pin(self.recorded(number, attempt, outcome, None, None)).await;
            }
        };
        if is_traced {
            Span::current().record("child", run.id().as_str());
        }
        self.note(|| Entry::AgentSpawned { call: number, attempt, child: run.id().clone() });
        let info = described.map(|described| {
            let (label, phase) = *described;
            Box::new(CallInfo::new(number, attempt, label, run.id().clone()).with_phase(phase))
        });
        let open = OpenChild::new(self, Child::new(run, info, number, attempt));
        slot.forget();
        // One that comes too late is released in the background, and the run's end waits for that.
        self.admit(&open.child)?;
        let result = match &open.child.info {
            None => open.child.run.result().await,
            Some(info) => Box::pin(self.watch(&open.child, info)).await,
        };
        let (mut outcome, end) = self.judge(result, wants_value);
        if self.recorder.is_some() {
            let child = Some(&*open.child);
            outcome = Box::pin(self.recorded(number, attempt, outcome, end.clone(), child)).await;
        }
        self.report_end(&open.child, end);
        open.dispose().await;
        outcome
    }

    /// Records the answer to a call before anybody gets it. What a cancelled call gets is no answer.
    async fn recorded(
        &self,
        call: u64,
        attempt: u32,
        outcome: Outcome,
        end: Option<Box<CallEnd>>,
        child: Option<&Child>,
    ) -> Outcome {
        let Some(recorder) = &self.recorder else { return outcome };
        if outcome.as_ref().is_err_and(|error| *error.code() == ErrorCode::CANCELLED) {
            return outcome;
        }
        if child.is_some_and(|child| !child.claim_record()) {
            // It was ended for the run's sake meanwhile.
            return Err(self.stopped());
        }
        let answer = Answer::from(&outcome);
        recorder.record(Entry::AgentEnded { call, attempt, answer, end: end.map(|end| *end) }).await?;
        outcome
    }

    /// The error of a call that the run's end has caught up with.
    fn stopped(&self) -> RunError {
        RunError::cancelled(self.stop_reason().as_deref().unwrap_or("the run has ended"))
    }

    fn child_request(&self, call: NumberedCall, attempt: u32) -> StartSubagent {
        let mut request =
            StartSubagent::stopped_by(self.children_stop.clone(), call.prompt, Arc::clone(&self.parent));
        request.label = Some(call.label);
        request.origin = Some(Origin::new(self.id().clone(), call.number, attempt));
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

    /// Waits for the child's result and passes on what it does.
    async fn watch(&self, child: &Child, info: &CallInfo) -> harness_subagent::Result<SubagentResult> {
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
                    self.emit(|| WorkflowEventKind::AgentActivity { call: info.clone(), activity });
                }
                else => return result.await,
            }
        }
    }

    /// Makes of a child's result what the body gets, and what is told of the end where somebody wants to know.
    fn judge(
        &self,
        result: harness_subagent::Result<SubagentResult>,
        wants_value: bool,
    ) -> (Outcome, Option<Box<CallEnd>>) {
        let is_told = self.is_observed() || self.recorder.is_some();
        let told = |outcome| is_told.then(|| Box::new(CallEnd::new(outcome)));
        let result = match result {
            Ok(result) => result,
            Err(_) if self.is_over() => return (Err(self.stopped()), told(CallOutcome::Cancelled)),
            Err(error) => {
                let message = format!("the child was lost: {}", chain(&error));
                let error = RunError::new(ErrorCode::AGENT_RESULT, message)
                    .with_details(json!({ "kind": error.kind().as_str() }));
                return (Err(error), told(CallOutcome::Failed));
            }
        };
        let SubagentResult { stop_reason, output, structured, diagnostic, usage, session_id, .. } = result;
        let mut end = told(CallOutcome::Failed);
        if let Some(end) = &mut end {
            end.usage = usage;
            end.session_id = session_id;
            end.diagnostic.clone_from(&diagnostic);
            end.stop_reason = Some(stop_reason.clone());
        }
        let completed = stop_reason.is_completed();
        let yielded = match structured {
            Some(value) if completed && wants_value => Some(value),
            _ if completed && !wants_value => Some(Value::String(output)),
            _ => None,
        };
        let (outcome, call_outcome) = match yielded {
            Some(value) => match value::check(&value) {
                Ok(()) => (Ok(AgentOutcome::Value(value)), CallOutcome::Completed),
                Err(error) => {
                    let message = format!("the child's value: {error}");
                    (Err(RunError::new(ErrorCode::AGENT_RESULT, message)), CallOutcome::Failed)
                }
            },
            None if !completed && self.is_over() => (Err(self.stopped()), CallOutcome::Cancelled),
            None => {
                let reason = if completed { StopReason::NO_VALUE } else { stop_reason };
                (Ok(AgentOutcome::NoValue(NoValue::new(reason, diagnostic))), CallOutcome::Failed)
            }
        };
        if let Some(end) = &mut end {
            end.outcome = call_outcome;
        }
        (outcome, end)
    }
}

fn attempt_begins(call: &NumberedCall, attempt: u32, recorder: &Recorder) -> Entry {
    Entry::AgentStarted {
        call: call.number,
        attempt,
        label: call.label.clone(),
        phase: call.phase.clone(),
        fingerprint: recorder.fingerprint(call),
    }
}

/// A child that a call waits for. When the call is dropped, the run ends the child.
struct OpenChild<'a> {
    run: &'a Run,
    child: Arc<Child>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    /// The call waits for the child's end.
    Awaited,
    /// The call disposes of the child.
    BeingDisposed,
    /// The child is somebody else's, or gone.
    Left,
}

impl<'a> OpenChild<'a> {
    fn new(run: &'a Run, child: Child) -> Self {
        Self { run, child: Arc::new(child), state: State::Awaited }
    }

    async fn dispose(mut self) {
        if self.child.claim_disposal() {
            self.state = State::BeingDisposed;
            self.run.release(&self.child).await;
            self.state = State::Left;
        } else {
            self.state = State::Left;
            Box::pin(self.run.until_gone(&self.child)).await;
        }
    }
}

impl Drop for OpenChild<'_> {
    fn drop(&mut self) {
        let is_mine = match self.state {
            State::Awaited => self.child.claim_disposal(),
            State::BeingDisposed => true,
            State::Left => false,
        };
        if is_mine {
            self.run.release_in_background(Arc::clone(&self.child));
        }
    }
}
