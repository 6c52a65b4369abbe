use std::thread;
use std::time::Duration;

use futures::TryStreamExt;
use harness_workflow::{Result, RunId, WorkflowCatalog};
use temporalio_client::{
    UntypedWorkflow, WorkflowExecutionInfo, WorkflowFetchHistoryOptions, WorkflowHandle, WorkflowHistory,
};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};
use temporalio_sdk::workflow_replayer::{
    WorkflowReplayError, WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions,
};
use tokio::sync::oneshot;

use crate::body::RunWorkflow;
use crate::engine::failed;
use crate::{TemporalEngine, chain};

/// How long a replay may take. It waits for nothing but the body.
const LIMIT: Duration = Duration::from_secs(60);

impl TemporalEngine {
    /// Reads the histories of a run, for [`replay`]: one, or several where it went on with a fresh one, the first one
    /// first.
    ///
    /// They are JSON, with all that was asked and answered in it, in a form that this crate's version of the Temporal
    /// library reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Engine`](harness_workflow::ErrorKind::Engine) when the server cannot be asked, or knows no such run.
    pub async fn histories(&self, run: &RunId) -> Result<Vec<Vec<u8>>> {
        let mut histories = Vec::new();
        let mut next = self.events(run, None).await?.first().and_then(|event| match &event.attributes {
            Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => {
                Some(started.first_execution_run_id.clone())
            }
            _ => None,
        });
        while let Some(execution) = next {
            let events = self.events(run, Some(execution)).await?;
            next = events.last().and_then(|event| match &event.attributes {
                Some(Attributes::WorkflowExecutionContinuedAsNewEventAttributes(continued)) => {
                    Some(continued.new_execution_run_id.clone())
                }
                _ => None,
            });
            let history = serde_json::to_vec(&History { events });
            histories.push(history.map_err(|error| failed("the history cannot be written", error))?);
        }
        Ok(histories)
    }

    async fn events(&self, run: &RunId, execution: Option<String>) -> Result<Vec<HistoryEvent>> {
        let info = WorkflowExecutionInfo::builder()
            .namespace(self.client.options().namespace.clone())
            .workflow_id(run.as_str())
            .maybe_run_id(execution)
            .build();
        let handle: WorkflowHandle<_, UntypedWorkflow> = WorkflowHandle::new(self.client.clone(), info);
        let events = handle.fetch_history(WorkflowFetchHistoryOptions::default());
        events.try_collect().await.map_err(|error| failed("the history cannot be read", error))
    }
}

/// Why a history cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It is no history.
    #[error("this is not a history: {reason}")]
    #[non_exhaustive]
    History {
        /// Why.
        reason: String,
    },
    /// The body does something else than it did.
    #[error("the body does not do what the history says: {reason}")]
    #[non_exhaustive]
    Changed {
        /// Where they part.
        reason: String,
    },
    /// A worker would give the run back: the catalog lacks its workflow, or the run is of another version of the
    /// protocol.
    #[error("a worker with this catalog would give the run back: {reason}")]
    #[non_exhaustive]
    GivenBack {
        /// Why.
        reason: String,
    },
    /// The machine or the library refuses, or the body does not return within a minute.
    #[error("the history cannot be replayed: {reason}")]
    #[non_exhaustive]
    Broken {
        /// Why.
        reason: String,
    },
}

/// Runs the body of a recorded history again, answered from the history, and compares what it does.
///
/// For whoever changes a body while runs of it are under way: a worker with that catalog that took such a run over would
/// do the same, and would give it back if this fails. [`TemporalEngine::histories`] has the histories of a run, each of
/// which is replayed by itself. A history need not have come to its end. No server is asked, and no child is started.
///
/// What is compared are the calls, each with its label, its prompt and all else that it asks for, their order, and when
/// the body spoke and ended; not what it said, and not its value.
///
/// # Cancel safety
///
/// If the future is dropped, the replay goes on in the background to its end.
///
/// # Errors
///
/// [`ReplayError`].
pub async fn replay(catalog: WorkflowCatalog, history: &[u8]) -> std::result::Result<(), ReplayError> {
    let history = read(history).map_err(|reason| ReplayError::History { reason })?;
    let (end, ended) = oneshot::channel();
    let body = move || {
        // Whoever waited may be gone.
        let _ = end.send(run(catalog, history));
    };
    // A body holds up the thread that polls it, and the library's futures stay on one thread.
    thread::Builder::new()
        .name("harness-replay".to_owned())
        .spawn(body)
        .map_err(|error| ReplayError::Broken { reason: error.to_string() })?;
    ended.await.unwrap_or_else(|_| Err(ReplayError::Broken { reason: "its thread has panicked".to_owned() }))
}

/// Reads a history whose beginning is one, which the library takes for granted.
fn read(history: &[u8]) -> std::result::Result<WorkflowHistory, String> {
    let history: History = serde_json::from_slice(history).map_err(|error| error.to_string())?;
    let begins = history.events.first().is_some_and(|first| match &first.attributes {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => {
            !started.original_execution_run_id.is_empty()
        }
        _ => false,
    });
    let in_order = history.events.iter().zip(1..).all(|(event, number)| event.event_id == number);
    match (begins, in_order) {
        (true, true) => Ok(history.into()),
        (false, _) => Err("it does not begin with the start of a run".to_owned()),
        (true, false) => Err("its events are not numbered from 1 without gaps".to_owned()),
    }
}

fn run(catalog: WorkflowCatalog, history: WorkflowHistory) -> std::result::Result<(), ReplayError> {
    let broken = |error: &dyn std::error::Error| ReplayError::Broken { reason: chain(error) };
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| broken(&error))?;
    let options = WorkflowReplayerOptions::new()
        .register_workflow_with_factory(move || RunWorkflow::new(catalog.clone()))
        .map_err(|error| broken(&error))?
        .build();
    let replayer = WorkflowReplayer::new(options).map_err(|error| broken(&error))?;
    let outcome = tokio
        .block_on(async { tokio::time::timeout(LIMIT, replayer.replay_workflow(history)).await })
        .map_err(|_| ReplayError::Broken { reason: format!("it has no end within {LIMIT:?}") })?;
    outcome.map_err(|error| match error {
        WorkflowReplayError::Replay(failure) => match failure {
            WorkflowReplayFailure::InvalidHistory { message } => ReplayError::History { reason: message },
            WorkflowReplayFailure::Nondeterminism { message } => ReplayError::Changed { reason: message },
            WorkflowReplayFailure::WorkflowTaskFailure { message } => {
                ReplayError::GivenBack { reason: message }
            }
            other => broken(&other),
        },
        other => broken(&other),
    })
}
