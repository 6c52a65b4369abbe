//! What the server knows of runs and of workers, for those who look at it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use harness_subagent::AgentId;
use harness_workflow::{
    AgentOutcome, CallEnd, Error, ErrorKind, Result, RunError, RunId, RunResult, StartRun,
};
use serde_json::Value;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::tonic::IntoRequest;
use temporalio_client::{
    UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionInfo, WorkflowFetchHistoryOptions,
    WorkflowHandle, WorkflowListOptions,
};
use temporalio_common::protos::proto_ts_to_system_time;
use temporalio_common::protos::temporal::api::enums::v1::TaskQueueType;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflow::v1::PendingActivityInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeTaskQueueRequest;

use crate::TemporalEngine;
use crate::child::micros;
use crate::engine::failed;
use crate::fold::{Fold, Happening};
use crate::wire::{self, Beat, CallReport, CallRequest, RunInput, Verdict};

/// What the histories of a run tell, up to now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunRecord {
    /// What was asked for.
    pub request: StartRun,
    /// The task queue of the run's children.
    pub child_queue: String,
    /// How long one attempt at a call may take.
    pub call_limit: Duration,
    /// When the run was started, in milliseconds since 1970, by the server's clock.
    pub started_ms: u64,
    /// When something happened last that is in a history, in milliseconds since 1970, by the server's clock.
    pub updated_ms: u64,
    /// The value that the body left last.
    pub checkpoint: Option<Value>,
    /// Why it was cancelled.
    pub cancel_reason: Option<String>,
    /// The calls for a child, by number.
    pub calls: BTreeMap<u64, CallRecord>,
    /// How it ended, once it has.
    pub result: Option<RunResult>,
}

/// One call for a child.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallRecord {
    /// The call's name for people.
    pub label: String,
    /// The tries that a worker has had or will have, in their order.
    pub attempts: Vec<AttemptRecord>,
    /// What the body got from a worker.
    pub answer: Option<std::result::Result<AgentOutcome, RunError>>,
}

/// One try at a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Its number, from 1.
    pub attempt: u32,
    /// Its fencing token.
    pub fence: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub asked_ms: u64,
    /// When a worker took it, in milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// When the server heard of its end, or gave its worker up, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// The worker that took it, as it [calls itself](crate::Endpoint::identity).
    pub worker: Option<String>,
    /// The child, once the server has heard of it.
    pub child: Option<AgentId>,
    /// How the child ended.
    pub end: Option<CallEnd>,
}

impl AttemptRecord {
    fn new(request: &CallRequest, asked_ms: u64) -> Self {
        Self {
            attempt: request.attempt,
            fence: request.fence,
            asked_ms,
            started_ms: None,
            ended_ms: None,
            worker: None,
            child: None,
            end: None,
        }
    }
}

/// What a worker takes from a task queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "there are bodies and children, and nothing else")]
pub enum Work {
    /// Bodies of workflows.
    Bodies,
    /// Children.
    Children,
}

/// A worker that has asked the server for work.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SeenWorker {
    /// Its name.
    pub identity: String,
    /// How long ago it asked last. A worker that waits asks again within about a minute; the server forgets one that
    /// has not asked for some minutes.
    pub asked_ago: Duration,
}

impl TemporalEngine {
    /// Reads what is known of a run that somebody started, on whatever machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the server knows no such run, or no longer, and when it is none of this
    /// engine; [`ErrorKind::Engine`] when the server cannot be asked.
    pub async fn read(&self, run: &RunId) -> Result<RunRecord> {
        let description =
            self.handle_of(run, None).describe(WorkflowDescribeOptions::default()).await.map_err(
                |error| match error {
                    WorkflowInteractionError::NotFound(_) => Error::new(
                        ErrorKind::InvalidArgument,
                        format!("the server knows no run {run}, or no longer"),
                    ),
                    error => failed("the run cannot be looked up", error),
                },
            )?;
        if description.workflow_type() != wire::RUN {
            return Err(foreign(run));
        }
        let last = description.run_id().to_owned();
        let pending = description.into_raw().pending_activities;
        let mut reading = Reading::default();
        let mut next = Some(last);
        while let Some(execution) = next {
            next = self.read_history(run, execution, &mut reading).await?;
        }
        for activity in pending {
            reading.take_pending(activity);
        }
        reading.into_record().ok_or_else(|| foreign(run))
    }

    /// Reads one history of a run, and returns the name of the one to read next.
    async fn read_history(
        &self,
        run: &RunId,
        execution: String,
        reading: &mut Reading,
    ) -> Result<Option<String>> {
        let options = WorkflowFetchHistoryOptions::builder().skip_archival(true).build();
        let mut events = self.handle_of(run, Some(execution.clone())).fetch_history(options);
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| failed("the history cannot be read", error))?;
            // The run may have gone on with a fresh history several times. It is read from the first one.
            if let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) = &event.attributes
                && !reading.has_begun()
                && !started.first_execution_run_id.is_empty()
                && started.first_execution_run_id != execution
            {
                reading.skip_to_the_first = true;
                return Ok(Some(started.first_execution_run_id.clone()));
            }
            if let Some(next) = reading.take(event) {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Lists the runs of this engine's kind that the namespace has, at most `most`: those whose ids begin with
    /// `beginning`, the latest first. A run that was started a moment ago may be missing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when no id can begin so; [`ErrorKind::Engine`] when the server cannot be asked.
    pub async fn list(&self, beginning: &str, most: usize) -> Result<Vec<RunId>> {
        let mut query = format!("WorkflowType = '{}' AND ExecutionStatus != 'ContinuedAsNew'", wire::RUN);
        if !beginning.is_empty() {
            if beginning.contains(['\'', '"', '\\']) || beginning.chars().any(char::is_control) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("no run can be looked for whose id begins with {beginning:?}"),
                ));
            }
            query.push_str(&format!(" AND WorkflowId STARTS_WITH '{beginning}'"));
        }
        let options = WorkflowListOptions::builder().limit(most).build();
        let mut found = self.client.list_workflows(query, options);
        let mut runs = Vec::new();
        while let Some(execution) = found.next().await {
            let execution = execution.map_err(|error| failed("the runs cannot be listed", error))?;
            runs.push(RunId::from(execution.id().to_owned()));
        }
        Ok(runs)
    }

    /// Returns the workers that the server has seen at a task queue in the last minutes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Engine`] when the server cannot be asked.
    pub async fn workers(&self, queue: &str, work: Work) -> Result<Vec<SeenWorker>> {
        let kind = match work {
            Work::Bodies => TaskQueueType::Workflow,
            Work::Children => TaskQueueType::Activity,
        };
        let request = DescribeTaskQueueRequest {
            namespace: self.client.options().namespace.clone(),
            task_queue: Some(TaskQueue { name: queue.to_owned(), ..TaskQueue::default() }),
            task_queue_type: kind.into(),
            ..DescribeTaskQueueRequest::default()
        };
        let mut service = self.client.connection().workflow_service();
        let answer = service
            .describe_task_queue(request.into_request())
            .await
            .map_err(|status| failed("the workers of a queue cannot be looked up", status))?;
        let now = SystemTime::now();
        let pollers = answer.into_inner().pollers.into_iter();
        Ok(pollers
            .map(|poller| {
                let asked = poller.last_access_time.as_ref().and_then(proto_ts_to_system_time);
                // By two clocks: a worker that asked in our future has asked just now.
                let asked_ago = asked.and_then(|asked| now.duration_since(asked).ok()).unwrap_or_default();
                SeenWorker { identity: poller.identity, asked_ago }
            })
            .collect())
    }

    fn handle_of(
        &self,
        run: &RunId,
        execution: Option<String>,
    ) -> WorkflowHandle<temporalio_client::Client, UntypedWorkflow> {
        let info = WorkflowExecutionInfo::builder()
            .namespace(self.client.options().namespace.clone())
            .workflow_id(run.as_str())
            .maybe_run_id(execution)
            .build();
        WorkflowHandle::new(self.client.clone(), info)
    }
}

fn foreign(run: &RunId) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{run} is on the server, and is no run of this engine"))
}

/// A record that grows event by event.
#[derive(Default)]
struct Reading {
    fold: Fold,
    input: Option<RunInput>,
    started_ms: u64,
    updated_ms: u64,
    cancel_reason: Option<String>,
    calls: BTreeMap<u64, CallRecord>,
    /// Which attempt the scheduled events of the present history belong to.
    scheduled: HashMap<i64, (u64, u32)>,
    result: Option<RunResult>,
    /// The first history was asked for, whatever it says of itself.
    skip_to_the_first: bool,
}

impl Reading {
    fn has_begun(&self) -> bool {
        self.input.is_some() || self.skip_to_the_first
    }

    /// Takes one event in, and returns the name of the next history once this one is at its end.
    fn take(&mut self, event: HistoryEvent) -> Option<String> {
        let at = event.event_time.as_ref().and_then(proto_ts_to_system_time).map_or(0, millis);
        self.updated_ms = self.updated_ms.max(at);
        if let Some(attributes) = &event.attributes {
            self.take_attributes(event.event_id, at, attributes);
        }
        let mut next = None;
        for happening in self.fold.take(event) {
            match happening {
                Happening::Ended { attempt, child, end } => {
                    if let Some(known) = self.attempt((attempt.call, attempt.attempt)) {
                        known.child = child.map(|child| child.id);
                        known.end = Some(end);
                    }
                }
                Happening::Continued { execution } => {
                    self.scheduled.clear();
                    next = Some(execution);
                }
                Happening::Closed(result) => self.result = Some(result),
                Happening::Note(_) | Happening::CancelRequested { .. } => {}
            }
        }
        next
    }

    fn take_attributes(&mut self, event: i64, at: u64, attributes: &Attributes) {
        match attributes {
            Attributes::WorkflowExecutionStartedEventAttributes(started) if self.input.is_none() => {
                self.input = wire::read_first(started.input.as_ref());
                self.started_ms = at;
                self.cancel_reason = self.input.as_ref().and_then(|input| input.cancelled.clone());
            }
            Attributes::ActivityTaskScheduledEventAttributes(scheduled) => {
                let Some(request) = wire::read_first::<CallRequest>(scheduled.input.as_ref()) else { return };
                self.scheduled.insert(event, (request.call.number, request.attempt));
                let call = self.calls.entry(request.call.number).or_default();
                call.label.clone_from(&request.call.label);
                call.attempts.push(AttemptRecord::new(&request, at));
            }
            Attributes::ActivityTaskStartedEventAttributes(started) => {
                if let Some(attempt) = self.scheduled_attempt(started.scheduled_event_id) {
                    attempt.started_ms = Some(at);
                    attempt.worker = Some(started.identity.clone());
                }
            }
            Attributes::ActivityTaskCompletedEventAttributes(completed) => {
                let Some(attempt) = self.scheduled_attempt(completed.scheduled_event_id) else { return };
                attempt.ended_ms = Some(at);
                let key = self.scheduled[&completed.scheduled_event_id];
                let report = wire::read_first::<CallReport>(completed.result.as_ref());
                if let (Some(CallReport { verdict: Verdict::Answered(answer), .. }), Some(call)) =
                    (report, self.calls.get_mut(&key.0))
                {
                    call.answer = Some(answer.into());
                }
            }
            Attributes::ActivityTaskFailedEventAttributes(failed) => {
                if let Some(attempt) = self.scheduled_attempt(failed.scheduled_event_id) {
                    attempt.ended_ms = Some(at);
                }
            }
            Attributes::ActivityTaskTimedOutEventAttributes(timed_out) => {
                if let Some(attempt) = self.scheduled_attempt(timed_out.scheduled_event_id) {
                    attempt.ended_ms = Some(at);
                }
            }
            Attributes::ActivityTaskCanceledEventAttributes(cancelled) => {
                // No worker has ever had it.
                if let Some((call, number)) = self.scheduled.get(&cancelled.scheduled_event_id)
                    && let Some(call) = self.calls.get_mut(call)
                {
                    call.attempts.retain(|attempt| attempt.attempt != *number);
                }
            }
            Attributes::WorkflowExecutionCancelRequestedEventAttributes(asked) => {
                self.cancel_reason.get_or_insert_with(|| asked.cause.clone());
            }
            _ => {}
        }
    }

    /// Takes in what the server tells of an attempt that is under way, which is in no history yet.
    fn take_pending(&mut self, activity: PendingActivityInfo) {
        let Some(key) = wire::read_activity_id(&activity.activity_id) else { return };
        let Some(attempt) = self.attempt(key).filter(|attempt| attempt.ended_ms.is_none()) else { return };
        attempt.started_ms =
            activity.last_started_time.as_ref().and_then(proto_ts_to_system_time).map(millis);
        attempt.worker = Some(activity.last_worker_identity).filter(|worker| !worker.is_empty());
        let beat = wire::read_first::<Beat>(activity.heartbeat_details.as_ref());
        attempt.child = beat.and_then(|beat| beat.child).map(|child| child.id);
    }

    fn scheduled_attempt(&mut self, event: i64) -> Option<&mut AttemptRecord> {
        let key = *self.scheduled.get(&event)?;
        self.attempt(key)
    }

    fn attempt(&mut self, (call, number): (u64, u32)) -> Option<&mut AttemptRecord> {
        let attempts = &mut self.calls.get_mut(&call)?.attempts;
        attempts.iter_mut().find(|attempt| attempt.attempt == number)
    }

    fn into_record(self) -> Option<RunRecord> {
        let input = self.input?;
        Some(RunRecord {
            child_queue: input.queue,
            call_limit: input.limits.call_limit(),
            request: input.request,
            started_ms: self.started_ms,
            updated_ms: self.updated_ms,
            checkpoint: self.fold.checkpoint,
            cancel_reason: self.cancel_reason,
            calls: self.calls,
            result: self.result,
        })
    }
}

fn millis(time: SystemTime) -> u64 {
    micros(time) / 1000
}
