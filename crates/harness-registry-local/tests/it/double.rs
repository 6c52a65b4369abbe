//! A provider that does as it is told, and an observer that takes notes.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use harness_subagent::{
    Activity, ActivitySender, ActivityStream, AgentId, Capabilities, ChildEnding, Diagnostic, Error,
    ErrorKind, OutputContract, Parent, Result, StartSubagent, StopReason, SubagentEvent, SubagentObserver,
    SubagentProvider, SubagentResult, SubagentRun,
};
use serde_json::json;
use tokio::sync::{Semaphore, watch};

/// A provider with a script: each start takes the next step, and makes a child of its own when none is left.
#[derive(Debug)]
pub(crate) struct Double {
    name: String,
    capabilities: Capabilities,
    inherits: bool,
    steps: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<StartSubagent>>,
}

#[derive(Debug)]
pub(crate) enum Step {
    Child(Arc<Child>),
    Fail(Error),
    /// Sets the flag when the start is dropped, and never comes to an end.
    Hang(Arc<AtomicBool>),
    /// Waits for a permit, then makes a child.
    Wait(Arc<Semaphore>, Arc<Child>),
    Panic,
}

impl Double {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Self::with_capabilities(name, Capabilities::ALL)
    }

    pub(crate) fn with_capabilities(name: &str, capabilities: Capabilities) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            capabilities,
            inherits: false,
            steps: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn inheriting(name: &str) -> Arc<Self> {
        let mut double = Self::new(name);
        Arc::get_mut(&mut double).unwrap().inherits = true;
        double
    }

    pub(crate) fn then(self: &Arc<Self>, step: Step) -> Arc<Self> {
        self.steps.lock().unwrap().push_back(step);
        Arc::clone(self)
    }

    pub(crate) fn then_child(self: &Arc<Self>, id: &str) -> Arc<Child> {
        let child = Child::new(id);
        self.then(Step::Child(Arc::clone(&child)));
        child
    }

    pub(crate) fn requests(&self) -> Vec<StartSubagent> {
        self.requests.lock().unwrap().clone()
    }
}

#[async_trait]
impl SubagentProvider for Double {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn inherits_parent_context(&self) -> bool {
        self.inherits
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request);
            requests.len()
        };
        let step = self.steps.lock().unwrap().pop_front();
        let child = match step {
            None => Child::new(&format!("{}-{number}", self.name)),
            Some(Step::Child(child)) => child,
            Some(Step::Fail(error)) => return Err(error),
            Some(Step::Hang(dropped)) => {
                let _flag = SetOnDrop(dropped);
                pending().await
            }
            Some(Step::Wait(permits, child)) => {
                permits.acquire().await.unwrap().forget();
                child
            }
            Some(Step::Panic) => panic!("the provider has a bug"),
        };
        Ok(Box::new(Run(child)))
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A child and the means to steer it.
#[derive(Debug)]
pub(crate) struct Child {
    id: AgentId,
    outcome: watch::Sender<Option<Result<SubagentResult>>>,
    pub(crate) activity: ActivitySender,
    pub(crate) dispose_permits: Semaphore,
    pub(crate) release_fails: AtomicBool,
    pub(crate) disposals: AtomicUsize,
    pub(crate) dropped: AtomicBool,
    pub(crate) on_drop: Mutex<Option<OnDrop>>,
}

pub(crate) struct OnDrop(pub(crate) Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for OnDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDrop")
    }
}

impl Child {
    pub(crate) fn new(id: &str) -> Arc<Self> {
        Arc::new(Self {
            id: id.into(),
            outcome: watch::Sender::new(None),
            activity: ActivitySender::new(4),
            dispose_permits: Semaphore::new(1_000),
            release_fails: AtomicBool::new(false),
            disposals: AtomicUsize::new(0),
            dropped: AtomicBool::new(false),
            on_drop: Mutex::default(),
        })
    }

    pub(crate) fn ends(&self, result: SubagentResult) {
        self.outcome.send_replace(Some(Ok(result)));
    }

    pub(crate) fn is_lost(&self) {
        self.outcome.send_replace(Some(Err(Error::new(ErrorKind::RunLost, "the child cannot be found"))));
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Run(Arc<Child>);

#[async_trait]
impl SubagentRun for Run {
    fn id(&self) -> &AgentId {
        &self.0.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        let mut outcome = self.0.outcome.subscribe();
        outcome.wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }

    async fn dispose(&self) -> Result<()> {
        self.0.disposals.fetch_add(1, Ordering::SeqCst);
        self.0.dispose_permits.acquire().await.unwrap().forget();
        self.0.outcome.send_if_modified(|outcome| {
            let open = outcome.is_none();
            if open {
                *outcome =
                    Some(Ok(SubagentResult::stopped(StopReason::ABORTED, Diagnostic::new("disposed of"))));
            }
            open
        });
        if self.0.release_fails.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Release, "a process is left"));
        }
        Ok(())
    }

    fn activity(&self) -> ActivityStream {
        let stream = self.0.activity.subscribe();
        self.0.activity.send(Activity::new("reading"));
        stream
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.dropped.store(true, Ordering::SeqCst);
        if let Some(OnDrop(act)) = self.0.on_drop.lock().unwrap().take() {
            act();
        }
    }
}

/// An observer that notes each event as a line.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl SubagentObserver for Notes {
    fn observe(&self, event: &SubagentEvent<'_>) {
        self.0.lock().unwrap().push(line(event));
    }
}

pub(crate) fn line(event: &SubagentEvent<'_>) -> String {
    match event {
        SubagentEvent::ProviderAdded { provider } => format!("added {provider}"),
        SubagentEvent::ProviderRemoved { provider } => format!("removed {provider}"),
        SubagentEvent::Started { child } => {
            format!("started {} {} on {}", child.sequence, child.id, child.provider)
        }
        SubagentEvent::Ended { child, ending } => {
            let how = match ending {
                ChildEnding::Result { stop_reason, output: Some(output) } => {
                    format!("{stop_reason}: {output}")
                }
                ChildEnding::Result { stop_reason, output: None } => stop_reason.to_string(),
                ChildEnding::Lost { error } => format!("lost, {error}"),
                ChildEnding::Disposed => "disposed".to_owned(),
                ChildEnding::Dropped => "dropped".to_owned(),
                other => format!("{other:?}"),
            };
            format!("ended {} {} {how}", child.sequence, child.id)
        }
        other => format!("{other:?}"),
    }
}

/// The human's own agent.
pub(crate) fn root() -> Parent {
    Parent::new("root", "/workspace")
}

pub(crate) fn request() -> StartSubagent {
    StartSubagent::new("do it", root())
}

pub(crate) fn contract() -> OutputContract {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" } },
        "required": ["n"],
        "additionalProperties": false,
    });
    OutputContract::new(schema).unwrap()
}

/// Polls `future` once and says what came of it.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
