use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_workflow::{RunId, WorkflowEvent, WorkflowEventKind, WorkflowObserver};
use ralph_report::Status;
use ralph_tool::{Envelope, Progress};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::host::{LoopError, LoopHost, Refusal, RunWatch};

/// The runs of this server that have not ended.
#[derive(Debug)]
pub(crate) struct LiveRuns {
    host: Arc<dyn LoopHost>,
    runs: Arc<Mutex<HashMap<RunId, Arc<LiveRun>>>>,
    /// Cancelled when no new run may be started.
    closing: CancellationToken,
    foreground: TaskTracker,
    background: TaskTracker,
}

/// Whether a run ends with the connection of who asked for it, or is left to be taken up again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ground {
    Foreground,
    Background,
}

/// What a run is begun with.
#[derive(Clone, Debug)]
pub(crate) enum Begin {
    /// The arguments of a call.
    New(serde_json::Value),
    /// An interrupted run goes on.
    Resume,
}

/// How a run ended. Whoever waits for it shares it.
pub(crate) type Outcome = Arc<Result<Envelope, LoopError>>;

/// A run that goes on in this server.
#[derive(Debug)]
pub(crate) struct LiveRun {
    cancellation: CancellationToken,
    /// The most rounds, once the run has said so.
    max_rounds: Option<u64>,
    seen: watch::Receiver<Seen>,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// How far a run has been seen to come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    /// The run exists.
    pub(crate) started: bool,
    /// The round that is under way, 0 before the first.
    pub(crate) round: u64,
    /// The last round that left a report, and the report's status.
    pub(crate) reported: Option<(u64, Status)>,
}

/// The most runs at once. More than one works in a workspace only where the host allows it.
const MOST: usize = 16;

impl LiveRuns {
    pub(crate) fn new(host: Arc<dyn LoopHost>, closing: CancellationToken) -> Self {
        let (foreground, background) = (TaskTracker::new(), TaskTracker::new());
        Self { host, runs: Arc::default(), closing, foreground, background }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Arc<LiveRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, run: &RunId) -> Option<Arc<LiveRun>> {
        self.runs().get(run).cloned()
    }

    /// Begins a run in a task of its own. One that is live already is returned as it is.
    ///
    /// `max_rounds` is for those who are told how far it has come.
    pub(crate) fn begin(
        &self,
        id: &RunId,
        begin: Begin,
        max_rounds: Option<u64>,
        ground: Ground,
    ) -> Result<Arc<LiveRun>, Refusal> {
        let mut runs = self.runs();
        if let Some(known) = runs.get(id) {
            return Ok(Arc::clone(known));
        }
        if self.closing.is_cancelled() {
            return Err(Refusal::new("closing", "the server is about to end; start it again first"));
        }
        if runs.len() >= MOST {
            let message =
                format!("{MOST} runs are under way here, and no more are started; wait for one to end");
            return Err(Refusal::new("too-many-runs", message));
        }
        let cancellation = match ground {
            Ground::Foreground => self.closing.child_token(),
            Ground::Background => CancellationToken::new(),
        };
        let (seen, seen_by_others) = watch::channel(Seen::default());
        let (ended, outcome) = watch::channel(None);
        let live = LiveRun { cancellation, max_rounds, seen: seen_by_others, outcome };
        let live = Arc::new(live);
        runs.insert(id.clone(), Arc::clone(&live));
        drop(runs);

        let host = Arc::clone(&self.host);
        let watch = RunWatch::new(live.cancellation.clone(), Arc::new(Lookout { seen }));
        let forget = Forget { runs: Arc::clone(&self.runs), id: id.clone() };
        let id = id.clone();
        let task = async move {
            let outcome = match begin {
                Begin::New(args) => host.run(&id, &args, watch).await,
                Begin::Resume => host.resume(&id, watch).await,
            };
            // Whoever asks from now on is answered from what the host remembers.
            drop(forget);
            ended.send_replace(Some(Arc::new(outcome)));
        };
        match ground {
            Ground::Foreground => self.foreground.spawn(task),
            Ground::Background => self.background.spawn(task),
        };
        Ok(live)
    }

    /// Ends all that is left: what is in the foreground is cancelled, the rest is left to be taken up again.
    pub(crate) async fn end(&self) {
        self.closing.cancel();
        self.foreground.close();
        self.foreground.wait().await;
        self.host.interrupt().await;
        self.background.close();
        self.background.wait().await;
    }
}

/// Takes a run out of the live ones, also when its task panics.
struct Forget {
    runs: Arc<Mutex<HashMap<RunId, Arc<LiveRun>>>>,
    id: RunId,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl LiveRun {
    /// Cancels the run. Its end is to be waited for.
    pub(crate) fn cancel(&self) {
        self.cancellation.cancel();
    }

    pub(crate) fn max_rounds(&self) -> Option<u64> {
        self.max_rounds
    }

    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.clone()
    }

    /// Waits for the run's end. Nothing, if the host broke.
    pub(crate) async fn ended(&self) -> Option<Outcome> {
        let mut outcome = self.outcome.clone();
        outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }

    /// Waits until the run exists. Returns the outcome of one that ended before it was seen to.
    pub(crate) async fn started(&self) -> Option<Outcome> {
        let mut seen = self.seen.clone();
        tokio::select! {
            biased;
            Ok(_) = seen.wait_for(|seen| seen.started) => None,
            outcome = self.ended() => outcome,
        }
    }
}

/// Takes down how far a run has come.
#[derive(Debug)]
struct Lookout {
    seen: watch::Sender<Seen>,
}

impl WorkflowObserver for Lookout {
    fn observe(&self, event: &WorkflowEvent) {
        self.seen.send_if_modified(|seen| {
            let before = *seen;
            match &event.kind {
                WorkflowEventKind::Started { .. } => seen.started = true,
                WorkflowEventKind::AgentStarted { call } => seen.round = seen.round.max(call.call),
                WorkflowEventKind::Checkpoint { value } => {
                    if let Some(progress) = Progress::from_checkpoint(value)
                        && let Some(report) = progress.report()
                    {
                        seen.reported = Some((progress.round(), report.status()));
                    }
                }
                _ => {}
            }
            *seen != before
        });
    }
}
