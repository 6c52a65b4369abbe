use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_subagent::{Activity, OutputRuleCatalog, Result, StartSubagent, SubagentResult};
use tokio::sync::Notify;

use super::MockChild;
use super::mock_run::ChildState;

/// What a [`MockProvider`](super::MockProvider) was asked, and the hand that steers its children.
///
/// Starts are numbered from 1, in the order in which the provider was called; a child has the number of its
/// start. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct MockProviderHandle {
    shared: Arc<Shared>,
}

impl MockProviderHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Adds `children` to the script.
    pub fn script(&self, children: impl IntoIterator<Item = MockChild>) {
        self.shared.state().script.extend(children);
    }

    /// Sets what every child does for which the script has nothing: at first, it completes and says `done`.
    pub fn set_default(&self, child: MockChild) {
        self.set_default_with(move |_| child.clone());
    }

    /// Lets `choose` decide, for each request for which the script has nothing.
    pub fn set_default_with(&self, choose: impl Fn(&StartSubagent) -> MockChild + Send + Sync + 'static) {
        self.shared.state().default = Choice(Arc::new(choose));
    }

    /// Gives the provider the rules that its children correct themselves by; see [`MockChild::tries`].
    pub fn set_rules(&self, rules: OutputRuleCatalog) {
        self.shared.state().rules = rules;
    }

    /// Returns how often the provider was asked to start a child.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.shared.state().requests.len() as u64
    }

    /// Returns the requests in the order of the starts.
    #[must_use]
    pub fn requests(&self) -> Vec<StartSubagent> {
        self.shared.state().requests.clone()
    }

    /// Returns the request of start `number`.
    ///
    /// # Panics
    ///
    /// When there was no such start.
    #[must_use]
    #[track_caller]
    pub fn request(&self, number: u64) -> StartSubagent {
        let state = self.shared.state();
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        match index.and_then(|index| state.requests.get(index)) {
            Some(request) => request.clone(),
            None => panic!("no start has the number {number}; there were {}", state.requests.len()),
        }
    }

    /// Returns the numbers of the children that were asked to stop by their cancellation token.
    #[must_use]
    pub fn cancelled(&self) -> Vec<u64> {
        let requests = self.requests();
        (1..)
            .zip(&requests)
            .filter(|(_, request)| request.cancellation.is_cancelled())
            .map(|(n, _)| n)
            .collect()
    }

    /// Returns the numbers of the children whose release was asked for, each call once, in the order of the
    /// calls.
    #[must_use]
    pub fn disposes(&self) -> Vec<u64> {
        self.shared.state().disposes.clone()
    }

    /// Returns the numbers of the children that are there: handed over, and neither released nor dropped.
    #[must_use]
    pub fn live(&self) -> Vec<u64> {
        self.shared.state().children.keys().copied().collect()
    }

    /// Returns the numbers of the children whose run was dropped before its release had ended.
    #[must_use]
    pub fn abandoned(&self) -> Vec<u64> {
        self.shared.state().abandoned.clone()
    }

    /// Returns the greatest number of children that were there at once.
    #[must_use]
    pub fn most_live(&self) -> usize {
        self.shared.state().most_live
    }

    /// Asserts that every child that was handed over has been released.
    ///
    /// # Panics
    ///
    /// When a child is live or was abandoned.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let (live, abandoned) = (self.live(), self.abandoned());
        assert!(live.is_empty(), "children {live:?} were not disposed of");
        assert!(abandoned.is_empty(), "the runs of children {abandoned:?} were dropped undisposed");
    }

    /// Lets the held start `number` go on. It may come before the start.
    pub fn release_start(&self, number: u64) {
        self.shared.change(|state| state.released_starts.insert(number));
    }

    /// Lets the held release of child `number` go on. It may come before the release.
    pub fn release_dispose(&self, number: u64) {
        self.shared.change(|state| state.released_disposes.insert(number));
    }

    /// Ends child `number` as its script says. A child that has ended stays as it is.
    ///
    /// # Panics
    ///
    /// When there never was such a child.
    #[track_caller]
    pub fn finish(&self, number: u64) {
        self.with_child(number, ChildState::end);
    }

    /// Ends child `number` with `result`, in spite of its script. A child that has ended stays as it is.
    ///
    /// # Panics
    ///
    /// When there never was such a child.
    #[track_caller]
    pub fn finish_with(&self, number: u64, result: Result<SubagentResult>) {
        self.with_child(number, |child| child.end_with(result));
    }

    /// Tells the watchers of child `number` of `activity`. Once the child has ended there are none.
    ///
    /// # Panics
    ///
    /// When there never was such a child.
    #[track_caller]
    pub fn send_activity(&self, number: u64, activity: Activity) {
        self.with_child(number, |child| child.tell(activity));
    }

    /// Waits until the provider has been asked to start `count` children in all.
    pub async fn wait_for_starts(&self, count: u64) {
        self.shared.wait_for(|state| state.requests.len() as u64 >= count).await;
    }

    /// Waits until child `number` has been handed over, or was at some time.
    pub async fn wait_for_child(&self, number: u64) {
        self.shared.wait_for(|state| state.handed_over.contains(&number)).await;
    }

    /// Waits until the result of child `number` has been asked for.
    pub async fn wait_until_asked(&self, number: u64) {
        self.shared.wait_for(|state| state.asked.contains(&number)).await;
    }

    /// Waits until the release of a child has been asked for `count` times in all.
    pub async fn wait_for_disposes(&self, count: usize) {
        self.shared.wait_for(|state| state.disposes.len() >= count).await;
    }

    /// Waits until no child is there.
    pub async fn wait_until_none_live(&self) {
        self.shared.wait_for(|state| state.children.is_empty()).await;
    }

    /// Does something to child `number`, unless it is gone already.
    #[track_caller]
    fn with_child(&self, number: u64, act: impl FnOnce(&ChildState)) {
        let state = self.shared.state();
        let there = state.handed_over.contains(&number);
        let child = state.children.get(&number).cloned();
        drop(state);
        assert!(there, "no child has the number {number}; wait for its start first");
        if let Some(child) = child {
            act(&child);
        }
    }
}

/// What the provider, its runs and its handle have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    script: VecDeque<MockChild>,
    default: Choice,
    pub(crate) rules: OutputRuleCatalog,
    requests: Vec<StartSubagent>,
    handed_over: BTreeSet<u64>,
    asked: BTreeSet<u64>,
    disposes: Vec<u64>,
    abandoned: Vec<u64>,
    children: BTreeMap<u64, Arc<ChildState>>,
    most_live: usize,
    pub(crate) released_starts: BTreeSet<u64>,
    pub(crate) released_disposes: BTreeSet<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes whoever waits for a change.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Takes note of a request and returns the number of the start and the script of its child.
    pub(crate) fn begin(&self, request: &StartSubagent) -> (u64, MockChild) {
        let mut state = self.state();
        state.requests.push(request.clone());
        let number = state.requests.len() as u64;
        let scripted = state.script.pop_front();
        let default = state.default.clone();
        drop(state);
        self.changed.notify_waiters();
        let child = scripted.unwrap_or_else(|| default.0(request));
        (number, child)
    }

    pub(crate) fn note_child(&self, child: &Arc<ChildState>) {
        self.change(|state| {
            state.children.insert(child.number, Arc::clone(child));
            state.handed_over.insert(child.number);
            state.most_live = state.most_live.max(state.children.len());
        });
    }

    pub(crate) fn note_asked(&self, number: u64) {
        self.change(|state| state.asked.insert(number));
    }

    pub(crate) fn note_dispose(&self, number: u64) {
        self.change(|state| state.disposes.push(number));
    }

    pub(crate) fn note_released(&self, number: u64) {
        self.change(|state| state.children.remove(&number));
    }

    pub(crate) fn note_dropped(&self, number: u64) {
        self.change(|state| {
            if state.children.remove(&number).is_some() {
                state.abandoned.push(number);
            }
        });
    }

    /// Waits until `done` holds.
    pub(crate) async fn wait_for(&self, done: impl Fn(&State) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            if done(&self.state()) {
                return;
            }
            changed.await;
        }
    }
}

/// Decides what a child does for which the script has nothing.
#[derive(Clone)]
struct Choice(Arc<dyn Fn(&StartSubagent) -> MockChild + Send + Sync>);

impl Default for Choice {
    fn default() -> Self {
        Self(Arc::new(|_| MockChild::default()))
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice")
    }
}
