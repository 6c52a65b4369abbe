//! What a run's history on the server says, event by event.

use std::collections::HashMap;

use harness_subagent::Diagnostic;
use harness_workflow::{CallEnd, CallOutcome, ErrorCode, RunError, RunResult, StartRun};
use serde_json::Value;
use temporalio_common::protos::proto_ts_to_system_time;
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use crate::child::micros;
use crate::wire::{
    self, Beat, CallReport, CallRequest, NOTES, Note, Notes, RunInput, RunOutput, StartedChild, Verdict,
};

/// One attempt at a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) call: u64,
    pub(crate) attempt: u32,
    pub(crate) label: String,
    pub(crate) phase: Option<String>,
    /// The body, or the run, has no use for it any more.
    pub(crate) unwanted: bool,
}

/// Something that a history tells of.
#[derive(Debug)]
pub(crate) enum Happening {
    Note(Note),
    /// An attempt ended. The child is there if one was started, as far as the server knows.
    Ended {
        attempt: Attempt,
        child: Option<StartedChild>,
        end: CallEnd,
    },
    /// The run was asked to stop, at a moment by the server's clock, in microseconds since 1970.
    CancelRequested {
        at: u64,
    },
    /// The run goes on with a fresh history.
    Continued {
        execution: String,
    },
    Closed(RunResult),
}

/// What is known of a run from the events of its history so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// The last event of the present history.
    seen: i64,
    open: HashMap<i64, Attempt>,
    /// Attempts that a worker has certainly had.
    tried: u64,
    notes: u64,
    pub(crate) request: Option<StartRun>,
    pub(crate) agents_started: u64,
    pub(crate) checkpoint: Option<Value>,
    pub(crate) cancelled: bool,
}

impl Fold {
    /// Returns the attempts that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Attempt> {
        self.open.values()
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.tried + self.open.len() as u64
    }

    /// Takes one event in. One that was taken in before says nothing.
    pub(crate) fn take(&mut self, event: HistoryEvent) -> Vec<Happening> {
        if event.event_id <= self.seen {
            return Vec::new();
        }
        self.seen = event.event_id;
        let at = event.event_time.as_ref().and_then(proto_ts_to_system_time).map_or(0, micros);
        match event.attributes {
            Some(attributes) => self.take_attributes(event.event_id, at, attributes),
            None => Vec::new(),
        }
    }

    fn take_attributes(&mut self, id: i64, at: u64, attributes: Attributes) -> Vec<Happening> {
        match attributes {
            Attributes::WorkflowExecutionStartedEventAttributes(started) => {
                if let Some(input) = wire::read_first::<RunInput>(started.input.as_ref()) {
                    self.begin(input);
                }
                Vec::new()
            }
            Attributes::ActivityTaskScheduledEventAttributes(scheduled) => {
                if let Some(request) = wire::read_first::<CallRequest>(scheduled.input.as_ref()) {
                    self.scheduled(id, request);
                }
                Vec::new()
            }
            Attributes::ActivityTaskCancelRequestedEventAttributes(asked) => {
                if let Some(attempt) = self.open.get_mut(&asked.scheduled_event_id) {
                    attempt.unwanted = true;
                }
                Vec::new()
            }
            Attributes::ActivityTaskCompletedEventAttributes(completed) => {
                let report = wire::read_first::<CallReport>(completed.result.as_ref());
                self.completed(completed.scheduled_event_id, report)
            }
            Attributes::ActivityTaskFailedEventAttributes(failed) => {
                self.lost(failed.scheduled_event_id, failed.failure.as_ref())
            }
            Attributes::ActivityTaskTimedOutEventAttributes(timed_out) => {
                self.lost(timed_out.scheduled_event_id, timed_out.failure.as_ref())
            }
            Attributes::ActivityTaskCanceledEventAttributes(cancelled) => {
                // No worker has ever had it.
                self.open.remove(&cancelled.scheduled_event_id);
                Vec::new()
            }
            Attributes::WorkflowPropertiesModifiedEventAttributes(modified) => {
                let notes = modified.upserted_memo.as_ref().and_then(|memo| memo.fields.get(NOTES));
                notes.and_then(wire::read::<Notes>).map(|notes| self.take_notes(notes)).unwrap_or_default()
            }
            Attributes::WorkflowExecutionCancelRequestedEventAttributes(_) => {
                self.cancelled = true;
                vec![Happening::CancelRequested { at }]
            }
            Attributes::WorkflowExecutionContinuedAsNewEventAttributes(continued) => {
                self.seen = 0;
                self.open.clear();
                vec![Happening::Continued { execution: continued.new_execution_run_id }]
            }
            Attributes::WorkflowExecutionCompletedEventAttributes(completed) => {
                match wire::read_first::<RunOutput>(completed.result.as_ref()) {
                    Some(output) => {
                        let mut happenings = self.take_notes(output.notes);
                        happenings.push(Happening::Closed(output.result));
                        happenings
                    }
                    None => vec![self.ended_by_the_server("its result is not one of ours")],
                }
            }
            Attributes::WorkflowExecutionFailedEventAttributes(failed) => {
                let why = failed.failure.map(|failure| failure.message).unwrap_or_default();
                vec![self.ended_by_the_server(&format!("the server failed it: {why}"))]
            }
            Attributes::WorkflowExecutionTimedOutEventAttributes(_) => {
                vec![self.ended_by_the_server("it took longer than the server allows")]
            }
            Attributes::WorkflowExecutionTerminatedEventAttributes(terminated) => {
                vec![self.ended_by_the_server(&format!("it was terminated: {}", terminated.reason))]
            }
            Attributes::WorkflowExecutionCanceledEventAttributes(_) => {
                vec![self.ended_by_the_server("it was ended as cancelled, and not by us")]
            }
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, input: RunInput) {
        if let Some(carried) = &input.carried {
            // Those of the earlier histories, also for one who has not read them.
            self.tried = carried.attempts;
            self.notes = self.notes.max(carried.notes);
        }
        self.request = Some(input.request);
    }

    fn scheduled(&mut self, id: i64, request: CallRequest) {
        let call = request.call.number;
        self.agents_started = self.agents_started.max(call);
        let attempt = Attempt {
            call,
            attempt: request.attempt,
            label: request.call.label,
            phase: request.call.phase,
            unwanted: false,
        };
        self.open.insert(id, attempt);
    }

    fn completed(&mut self, scheduled: i64, report: Option<CallReport>) -> Vec<Happening> {
        let Some(attempt) = self.open.remove(&scheduled) else { return Vec::new() };
        self.tried += 1;
        let Some(report) = report else { return Vec::new() };
        let mut end = report.end.unwrap_or_else(|| CallEnd::new(CallOutcome::Failed));
        if attempt.unwanted || matches!(report.verdict, Verdict::Cancelled) {
            end.outcome = CallOutcome::Cancelled;
        }
        vec![Happening::Ended { attempt, child: report.child, end }]
    }

    /// An attempt whose worker was lost, or gave it back.
    fn lost(&mut self, scheduled: i64, failure: Option<&Failure>) -> Vec<Happening> {
        let Some(attempt) = self.open.remove(&scheduled) else { return Vec::new() };
        self.tried += 1;
        let outcome = if attempt.unwanted { CallOutcome::Cancelled } else { CallOutcome::Failed };
        let mut end = CallEnd::new(outcome);
        let message = failure.map(innermost).unwrap_or_default();
        end.diagnostic =
            Some(Diagnostic::new(format!("the worker was lost or gave the child up: {message}")));
        let child = failure.and_then(last_beat).and_then(|beat| beat.child);
        vec![Happening::Ended { attempt, child, end }]
    }

    fn take_notes(&mut self, notes: Notes) -> Vec<Happening> {
        let mut happenings = Vec::new();
        for (number, note) in (notes.first..).zip(notes.notes) {
            if number <= self.notes {
                continue;
            }
            self.notes = number;
            if let Note::Checkpoint(value) = &note {
                self.checkpoint = Some(value.clone());
            }
            happenings.push(Happening::Note(note));
        }
        happenings
    }

    fn ended_by_the_server(&self, why: &str) -> Happening {
        Happening::Closed(self.counted(RunResult::failed(RunError::new(ErrorCode::ENGINE_LOST, why))))
    }

    /// Gives a result the counts that are known here.
    pub(crate) fn counted(&self, result: RunResult) -> RunResult {
        result
            .with_agents_started(self.agents_started)
            .with_attempts(self.attempts())
            .with_checkpoint(self.checkpoint.clone())
    }
}

fn innermost(failure: &Failure) -> String {
    let mut failure = failure;
    while let Some(cause) = &failure.cause {
        failure = cause;
    }
    failure.message.clone()
}

/// Finds what the lost worker told last.
fn last_beat(failure: &Failure) -> Option<Beat> {
    let here = match &failure.failure_info {
        Some(FailureInfo::TimeoutFailureInfo(info)) => wire::read_first(info.last_heartbeat_details.as_ref()),
        _ => None,
    };
    here.or_else(|| failure.cause.as_deref().and_then(last_beat))
}
