use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use harness_workflow::{AgentOutcome, ErrorCode, NumberedCall, RunError, WorkflowHost};
use serde_json::Value;

use crate::wire::{Answer, MAX_BYTES, Note, Notes, size};

/// The body's side of a run: a table that the body's calls are put into and answered from.
///
/// The body is polled by hand. Nobody is woken: whoever answers a call polls the body next.
#[derive(Debug, Default)]
pub(crate) struct Table {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the body may not go on.
    stopped: Option<String>,
    /// Calls that nobody has looked at yet, in the order of their numbers.
    asked: Vec<NumberedCall>,
    /// Calls that the body has dropped unanswered.
    dropped: Vec<u64>,
    answers: HashMap<u64, Answer>,
    agents_started: u64,
    checkpoint: Option<Value>,
    /// How many notes the body has made.
    heard: u64,
    /// How many of them were made before the run went on with a fresh history.
    told: u64,
    notes: Vec<Note>,
}

impl Table {
    /// Makes a table for a body whose first `told` notes are known already.
    pub(crate) fn new(told: u64) -> Arc<Self> {
        let table = Self::default();
        table.state().told = told;
        Arc::new(table)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every method of the context fail from now on. The first reason counts.
    pub(crate) fn stop(&self, reason: &str) {
        self.state().stopped.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn answer(&self, call: u64, answer: Answer) {
        self.state().answers.insert(call, answer);
    }

    pub(crate) fn take_asked(&self) -> Vec<NumberedCall> {
        std::mem::take(&mut self.state().asked)
    }

    pub(crate) fn take_dropped(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().dropped)
    }

    /// Takes the notes that have not been told yet.
    pub(crate) fn take_notes(&self) -> Notes {
        let mut state = self.state();
        let notes = std::mem::take(&mut state.notes);
        Notes { first: state.heard + 1 - notes.len() as u64, notes }
    }

    pub(crate) fn heard(&self) -> u64 {
        self.state().heard
    }

    pub(crate) fn agents_started(&self) -> u64 {
        self.state().agents_started
    }

    pub(crate) fn checkpoint_value(&self) -> Option<Value> {
        self.state().checkpoint.clone()
    }

    fn note(state: &mut State, note: Note) {
        state.heard += 1;
        if state.heard > state.told {
            state.notes.push(note);
        }
    }
}

#[async_trait]
impl WorkflowHost for Table {
    fn cancel_reason(&self) -> Option<String> {
        self.state().stopped.clone()
    }

    fn phase(&self, title: &str) {
        Self::note(&mut self.state(), Note::Phase(title.to_owned()));
    }

    fn log(&self, message: &str) {
        Self::note(&mut self.state(), Note::Log(message.to_owned()));
    }

    fn checkpoint(&self, value: Value) -> Result<(), RunError> {
        let bytes = size(&value);
        if bytes > MAX_BYTES {
            return Err(RunError::new(
                ErrorCode::JOURNAL,
                format!("a checkpoint of {bytes} bytes cannot be kept; at most {MAX_BYTES} can"),
            ));
        }
        let mut state = self.state();
        Self::note(&mut state, Note::Checkpoint(value.clone()));
        state.checkpoint = Some(value);
        Ok(())
    }

    async fn call(&self, call: NumberedCall) -> Result<AgentOutcome, RunError> {
        let mut asked = Asked::new(self, call);
        poll_fn(|_| match self.state().answers.remove(&asked.number) {
            Some(answer) => {
                asked.answered = true;
                Poll::Ready(answer.into())
            }
            None => Poll::Pending,
        })
        .await
    }
}

/// A call that the body waits for. A body that waits no longer drops it.
struct Asked<'a> {
    table: &'a Table,
    number: u64,
    answered: bool,
}

impl<'a> Asked<'a> {
    fn new(table: &'a Table, call: NumberedCall) -> Self {
        let mut state = table.state();
        state.agents_started = state.agents_started.max(call.number);
        let number = call.number;
        state.asked.push(call);
        drop(state);
        Self { table, number, answered: false }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut state = self.table.state();
            state.answers.remove(&self.number);
            state.dropped.push(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use harness_workflow::{AgentCall, ContextLimits, WorkflowContext};
    use serde_json::json;

    use super::*;

    fn context(table: &Arc<Table>) -> WorkflowContext {
        WorkflowContext::new(Arc::clone(table) as _, Value::Null, ContextLimits::new(10, 10))
    }

    #[test]
    fn a_call_is_answered_without_anybody_being_woken() {
        let table = Table::new(0);
        let context = context(&table);
        let mut call = pin!(context.agent(AgentCall::new("work")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        assert_eq!(table.take_asked().len(), 1);
        table.answer(1, Answer::Outcome(AgentOutcome::Value(json!("done"))));
        let Poll::Ready(Ok(AgentOutcome::Value(value))) = call.as_mut().poll(&mut cx) else { panic!() };
        assert_eq!(value, json!("done"));
        assert_eq!(table.take_dropped(), [0_u64; 0]);
    }

    #[test]
    fn a_dropped_call_is_known_as_dropped_once() {
        let table = Table::new(0);
        let context = context(&table);
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut call = Box::pin(context.agent(AgentCall::new("work")));
            assert!(call.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(table.take_dropped(), [1]);
        assert_eq!(table.take_dropped(), [0_u64; 0]);
    }

    #[test]
    fn notes_that_were_told_before_are_not_told_again() {
        let table = Table::new(2);
        let context = context(&table);
        context.phase("one").unwrap();
        context.checkpoint(json!(2)).unwrap();
        context.log("three").unwrap();
        let notes = table.take_notes();
        assert_eq!((notes.first, notes.notes), (3, vec![Note::Log("three".into())]));
        assert_eq!(table.checkpoint_value(), Some(json!(2)));
        context.log("four").unwrap();
        assert_eq!(table.take_notes().first, 4);
    }

    #[test]
    fn a_checkpoint_that_no_server_takes_is_refused() {
        let table = Table::new(0);
        let error = context(&table).checkpoint(json!("x".repeat(MAX_BYTES))).unwrap_err();
        assert_eq!(*error.code(), ErrorCode::JOURNAL);
        assert_eq!(table.checkpoint_value(), None);
    }
}
