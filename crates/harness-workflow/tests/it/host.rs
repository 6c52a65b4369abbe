use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use harness_workflow::{AgentOutcome, ContextLimits, NumberedCall, RunError, WorkflowContext, WorkflowHost};
use serde_json::{Value, json};

/// A host that a test writes the answers for, by the number of the call.
#[derive(Debug, Default)]
pub(crate) struct HandHost {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cancelled: Option<String>,
    answers: HashMap<u64, Result<AgentOutcome, RunError>>,
    calls: Vec<NumberedCall>,
    dropped: Vec<u64>,
    told: Vec<String>,
    refused_checkpoint: Option<RunError>,
}

impl HandHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes a context with a cap of three calls and three items.
    pub(crate) fn context(self: &Arc<Self>) -> WorkflowContext {
        WorkflowContext::new(Arc::clone(self) as _, json!({ "the": "args" }), ContextLimits::new(3, 3))
    }

    pub(crate) fn cancel(&self, reason: &str) {
        self.state.lock().unwrap().cancelled = Some(reason.into());
    }

    /// Answers a call, now or when it comes.
    pub(crate) fn answer(&self, call: u64, answer: Result<AgentOutcome, RunError>) {
        self.state.lock().unwrap().answers.insert(call, answer);
    }

    pub(crate) fn answer_value(&self, call: u64, value: Value) {
        self.answer(call, Ok(AgentOutcome::Value(value)));
    }

    pub(crate) fn refuse_checkpoints(&self, error: RunError) {
        self.state.lock().unwrap().refused_checkpoint = Some(error);
    }

    pub(crate) fn calls(&self) -> Vec<NumberedCall> {
        self.state.lock().unwrap().calls.clone()
    }

    /// Returns the numbers of the calls that were dropped before their answer.
    pub(crate) fn dropped(&self) -> Vec<u64> {
        self.state.lock().unwrap().dropped.clone()
    }

    /// Returns the phases, logs and checkpoints.
    pub(crate) fn told(&self) -> Vec<String> {
        self.state.lock().unwrap().told.clone()
    }

    fn tell(&self, what: String) {
        self.state.lock().unwrap().told.push(what);
    }
}

#[async_trait]
impl WorkflowHost for HandHost {
    fn cancel_reason(&self) -> Option<String> {
        self.state.lock().unwrap().cancelled.clone()
    }

    fn phase(&self, title: &str) {
        self.tell(format!("phase {title}"));
    }

    fn log(&self, message: &str) {
        self.tell(format!("log {message}"));
    }

    fn checkpoint(&self, value: Value) -> Result<(), RunError> {
        if let Some(error) = self.state.lock().unwrap().refused_checkpoint.clone() {
            return Err(error);
        }
        self.tell(format!("checkpoint {value}"));
        Ok(())
    }

    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError> {
        let number = call.number;
        self.state.lock().unwrap().calls.push(call);
        let mut open = Open { host: self, number, answered: false };
        // It wakes nobody: whoever drives the body polls it again.
        std::future::poll_fn(|_| match self.state.lock().unwrap().answers.remove(&number) {
            Some(answer) => {
                open.answered = true;
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        })
        .await
    }
}

struct Open<'a> {
    host: &'a HandHost,
    number: u64,
    answered: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.host.state.lock().unwrap().dropped.push(self.number);
        }
    }
}

/// Polls with a waker that wakes nobody.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns what a future yields that waits for nothing.
#[track_caller]
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something"),
    }
}
