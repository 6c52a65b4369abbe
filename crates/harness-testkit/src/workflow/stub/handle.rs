use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use harness_workflow::{Error, NumberedCall, RunError, RunResult, StartRun};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Shared, StubChild};

pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

/// What the runs of an engine do, and what they have seen.
#[derive(Default)]
pub(super) struct Script {
    pub(super) record: Record,
    pub(super) children: VecDeque<StubChild>,
    pub(super) outcome: watch::Sender<Option<RunResult>>,
    pub(super) start_error: Option<Error>,
    pub(super) dispose_error: Option<Error>,
    pub(super) ignores_cancel: bool,
    pub(super) loses_runs: bool,
    pub(super) start_gate: Gate,
    pub(super) dispose_gate: Gate,
    pub(super) on_start: Option<Hook>,
    pub(super) on_cancel: Option<Hook>,
    pub(super) on_dispose: Option<Hook>,
}

/// What an engine has seen, over all its runs.
#[derive(Default)]
pub(super) struct Record {
    pub(super) starts: Vec<(StartRun, CancellationToken)>,
    pub(super) phases: Vec<String>,
    pub(super) logs: Vec<String>,
    pub(super) checkpoints: Vec<Value>,
    pub(super) calls: Vec<NumberedCall>,
    pub(super) body_ends: Vec<Result<Value, RunError>>,
    pub(super) cancels: Vec<String>,
    pub(super) disposals: usize,
    pub(super) abandoned: usize,
}

/// Open unless it is held.
pub(super) type Gate = watch::Sender<bool>;

/// Waits until the gate is not held.
pub(super) async fn pass(mut gate: watch::Receiver<bool>) {
    // An error means that the engine and its handles are gone: nobody is left to open the gate.
    let _ = gate.wait_for(|held| !held).await;
}

/// Scripts a [`StubEngine`](super::StubEngine) and tells what it has seen. Clones steer the same engine.
///
/// What is set holds for every run from the moment it is set, those that were started before included.
/// Everything recorded counts over all runs, in the order in which it happened.
#[derive(Clone)]
pub struct StubEngineHandle {
    shared: Arc<Shared>,
}

impl StubEngineHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Sets the result with which runs end once they are awaited, on an engine that runs no bodies.
    ///
    /// A run that is awaited already ends now. The counts and the checkpoint are those of `result`.
    pub fn settle(&self, result: RunResult) {
        self.shared.script().outcome.send_replace(Some(result));
    }

    /// Adds what the next call for a child gets. A call without a script ends its run with an error.
    pub fn push_child(&self, child: StubChild) {
        self.shared.script().children.push_back(child);
    }

    /// Adds what the next calls get, in their order.
    pub fn push_children(&self, children: impl IntoIterator<Item = StubChild>) {
        let children: Vec<StubChild> = children.into_iter().collect();
        self.shared.script().children.extend(children);
    }

    /// Lets every start fail, after it has been recorded.
    pub fn fail_starts(&self, error: Error) {
        self.shared.script().start_error = Some(error);
    }

    /// Lets every disposal fail, after it has done its work.
    pub fn fail_disposals(&self, error: Error) {
        self.shared.script().dispose_error = Some(error);
    }

    /// Lets a cancellation be recorded and have no effect. A disposal still ends its run.
    pub fn ignore_cancels(&self) {
        self.shared.script().ignores_cancel = true;
    }

    /// Lets every run be lost as soon as it is awaited: the body never begins, and the error is
    /// [`ErrorCode::ENGINE_LOST`](harness_workflow::ErrorCode::ENGINE_LOST). A run that was cancelled before is
    /// cancelled.
    pub fn lose_runs(&self) {
        self.shared.script().loses_runs = true;
    }

    /// Holds every start back, after it has been recorded, until they are [released](Self::release_starts).
    pub fn hold_starts(&self) {
        self.shared.script().start_gate.send_replace(true);
    }

    /// Lets the starts that are held go on, and later ones pass.
    pub fn release_starts(&self) {
        self.shared.script().start_gate.send_replace(false);
    }

    /// Holds every disposal back, after it has ended its run, until they are [released](Self::release_disposals).
    pub fn hold_disposals(&self) {
        self.shared.script().dispose_gate.send_replace(true);
    }

    /// Lets the disposals that are held go on, and later ones pass.
    pub fn release_disposals(&self) {
        self.shared.script().dispose_gate.send_replace(false);
    }

    /// Runs `hook` inside every start, after it has been recorded and before anything is checked.
    ///
    /// This hook and the others may call everything, this handle, the engine and its runs included.
    pub fn on_start(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.script().on_start = Some(Arc::new(hook));
    }

    /// Runs `hook` inside every cancel, after it has been recorded and before it has an effect.
    pub fn on_cancel(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.script().on_cancel = Some(Arc::new(hook));
    }

    /// Runs `hook` inside every disposal, after it has been recorded and before it has an effect.
    pub fn on_dispose(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.script().on_dispose = Some(Arc::new(hook));
    }

    /// Returns the requests of all starts, refused ones included.
    #[must_use]
    pub fn starts(&self) -> Vec<StartRun> {
        self.shared.script().record.starts.iter().map(|(request, _)| request.clone()).collect()
    }

    /// Returns the tokens that came with the starts, one for each of [`starts`](Self::starts).
    #[must_use]
    pub fn start_cancellations(&self) -> Vec<CancellationToken> {
        self.shared.script().record.starts.iter().map(|(_, token)| token.clone()).collect()
    }

    /// Returns the titles of the phases that bodies announced.
    #[must_use]
    pub fn phases(&self) -> Vec<String> {
        self.shared.script().record.phases.clone()
    }

    /// Returns what bodies said.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        self.shared.script().record.logs.clone()
    }

    /// Returns the checkpoints that bodies left.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<Value> {
        self.shared.script().record.checkpoints.clone()
    }

    /// Returns the calls for a child, as the engine got them.
    #[must_use]
    pub fn calls(&self) -> Vec<NumberedCall> {
        self.shared.script().record.calls.clone()
    }

    /// Returns what the bodies that came to their end returned, whatever became of their runs. One that panicked
    /// is here as its error.
    #[must_use]
    pub fn body_ends(&self) -> Vec<Result<Value, RunError>> {
        self.shared.script().record.body_ends.clone()
    }

    /// Returns the reasons of all cancels, repeated and ignored ones included.
    #[must_use]
    pub fn cancels(&self) -> Vec<String> {
        self.shared.script().record.cancels.clone()
    }

    /// Returns how many times a run was asked to dispose, repeats included.
    #[must_use]
    pub fn disposals(&self) -> usize {
        self.shared.script().record.disposals
    }

    /// Returns how many runs were dropped before anybody asked them to dispose.
    #[must_use]
    pub fn abandoned(&self) -> usize {
        self.shared.script().record.abandoned
    }
}

impl fmt::Debug for StubEngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubEngineHandle").finish_non_exhaustive()
    }
}
