//! A provider for each clause that keeps all of the contract but that clause.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use harness_subagent::{
    ActivitySender, ActivityStream, AgentId, Capabilities, Diagnostic, Error, ErrorKind, Result,
    StartSubagent, StopReason, SubagentProvider, SubagentResult, SubagentRun,
};
use harness_testkit::subagent::{ProviderFixture, ProviderTraits, StandardChild};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::mock_fixture::MockFixture;

macro_rules! faults {
    ($($name:ident),* $(,)?) => {
        /// What a broken provider does wrong.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum ProviderFault {
            $($name),*
        }

        impl ProviderFault {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    NameChanges,
    CapabilitiesChange,
    RefusesWhatItDeclares,
    ContextMisdeclared,
    SharesFailure,
    SharesCancellation,
    SharesCleanup,
    HidesSource,
    RefusalLeavesChild,
    FailureIsRefusal,
    StartsCancelledRequest,
    CancelledCompletes,
    DroppedStartLeavesChild,
    EmptyId,
    IdChanges,
    ForgetsResult,
    AnswersOneWaiter,
    DisposeChangesResult,
    WaitDrivesChild,
    LateCancellationCounts,
    LostIsFailure,
    DiagnosticOnSuccess,
    SilentFailure,
    UsageOfSuccessOnly,
    HidesSessionId,
    ChangesValue,
    JudgesByRule,
    DisposeDoesNotWait,
    KeepsEndedChild,
    SecondDisposeFails,
    SecondDisposeReturnsAtOnce,
    NoResultAfterDispose,
    ForgetsDroppedDispose,
    WaitsForStubbornChild,
    HidesFailedRelease,
    DisposeRepeatsFault,
    SilentActivity,
    EndlessActivity,
}

#[derive(Debug)]
pub(crate) struct BrokenFixture {
    inner: MockFixture,
    fault: ProviderFault,
    common: Arc<Common>,
}

/// What the broken runs of one provider have in common.
#[derive(Debug, Default)]
struct Common {
    starts: AtomicUsize,
    leaked: AtomicUsize,
    all: CancellationToken,
    failure: Mutex<Option<SubagentResult>>,
    senders: Mutex<Vec<ActivitySender>>,
}

impl BrokenFixture {
    pub(crate) async fn new(fault: ProviderFault) -> Self {
        Self { inner: MockFixture::new().await, fault, common: Arc::default() }
    }
}

impl ProviderFixture for BrokenFixture {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        Arc::new(BrokenProvider {
            inner: self.inner.provider(),
            fault: self.fault,
            common: Arc::clone(&self.common),
        })
    }

    fn traits(&self) -> ProviderTraits {
        self.inner.traits()
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        self.inner.request(child)
    }

    fn alive(&self) -> usize {
        self.inner.alive() + self.common.leaked.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct BrokenProvider {
    inner: Arc<dyn SubagentProvider>,
    fault: ProviderFault,
    common: Arc<Common>,
}

impl BrokenProvider {
    fn has_started(&self) -> bool {
        self.common.starts.load(Ordering::Relaxed) > 0
    }

    fn is(&self, fault: ProviderFault) -> bool {
        self.fault == fault
    }

    async fn start_inner(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let run = match self.inner.start(request).await {
            Ok(run) => run,
            Err(error) if self.is(ProviderFault::HidesSource) => {
                return Err(Error::new(error.kind(), error.to_string()));
            }
            Err(error) => {
                if self.is(ProviderFault::RefusalLeavesChild) && error.kind() == ErrorKind::Provider {
                    self.common.leaked.fetch_add(1, Ordering::Relaxed);
                }
                return Err(error);
            }
        };
        Ok(run)
    }
}

#[async_trait]
impl SubagentProvider for BrokenProvider {
    fn name(&self) -> &str {
        if self.is(ProviderFault::NameChanges) && self.has_started() { "other" } else { self.inner.name() }
    }

    fn capabilities(&self) -> Capabilities {
        if self.is(ProviderFault::CapabilitiesChange) && self.has_started() {
            return Capabilities::NONE;
        }
        self.inner.capabilities()
    }

    fn inherits_parent_context(&self) -> bool {
        self.is(ProviderFault::ContextMisdeclared) != self.inner.inherits_parent_context()
    }

    async fn start(&self, mut request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        self.common.starts.fetch_add(1, Ordering::Relaxed);
        if self.is(ProviderFault::RefusesWhatItDeclares) && request.max_depth.is_some() {
            return Err(Error::new(ErrorKind::Provider, "depths are beyond this provider"));
        }
        let cancellation = request.cancellation.clone();
        if self.is(ProviderFault::StartsCancelledRequest) && cancellation.is_cancelled() {
            request.cancellation = CancellationToken::new();
        }
        let ruled = request.output.as_ref().is_some_and(|output| output.rule().is_some());
        if self.is(ProviderFault::DroppedStartLeavesChild) {
            let leak = Leak { common: Arc::clone(&self.common), armed: true };
            tokio::task::yield_now().await;
            leak.disarm();
        }
        let inner = self.start_inner(request).await?;
        if self.is(ProviderFault::FailureIsRefusal) {
            let ended = poll_once(inner.result()).await;
            if let Some(Ok(result)) = ended
                && !result.stop_reason.is_completed()
            {
                inner.dispose().await?;
                return Err(Error::new(ErrorKind::Provider, "the child failed").with_source("it failed"));
            }
        }
        let id = if self.is(ProviderFault::EmptyId) { AgentId::new("") } else { inner.id().clone() };
        Ok(Box::new(BrokenRun {
            id,
            inner: Arc::from(inner),
            fault: self.fault,
            common: Arc::clone(&self.common),
            cancellation,
            ruled,
            other_id: AgentId::new("other"),
            asked: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            disposing: AtomicBool::new(false),
            disposed: AtomicBool::new(false),
        }))
    }
}

/// Counts a child as leaked when it is dropped armed.
struct Leak {
    common: Arc<Common>,
    armed: bool,
}

impl Leak {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        if self.armed {
            self.common.leaked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct BrokenRun {
    id: AgentId,
    other_id: AgentId,
    inner: Arc<dyn SubagentRun>,
    fault: ProviderFault,
    common: Arc<Common>,
    cancellation: CancellationToken,
    ruled: bool,
    asked: AtomicUsize,
    waiting: AtomicBool,
    stalled: AtomicBool,
    ended: AtomicBool,
    disposing: AtomicBool,
    disposed: AtomicBool,
}

fn stopped(reason: StopReason) -> SubagentResult {
    SubagentResult::stopped(reason, Diagnostic::new("as the broken provider has it"))
}

async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Sets a flag to a value when it is dropped.
struct OnDrop<'a>(&'a AtomicBool, bool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Relaxed);
    }
}

impl BrokenRun {
    fn is(&self, fault: ProviderFault) -> bool {
        self.fault == fault
    }

    /// Waits for the result, with what goes wrong while waiting.
    async fn wait(&self) -> Result<SubagentResult> {
        if self.is(ProviderFault::NoResultAfterDispose)
            && self.disposed.load(Ordering::Relaxed)
            && !self.ended.load(Ordering::Relaxed)
        {
            std::future::pending::<()>().await;
        }
        if self.is(ProviderFault::WaitDrivesChild) {
            if self.stalled.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let dropped = OnDrop(&self.stalled, true);
            let result = self.inner.result().await;
            std::mem::forget(dropped);
            return result;
        }
        if self.is(ProviderFault::AnswersOneWaiter) {
            if self.waiting.swap(true, Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::RunLost, "somebody else waits already"));
            }
            let _done = OnDrop(&self.waiting, false);
            return self.inner.result().await;
        }
        if self.is(ProviderFault::SharesCancellation) || self.is(ProviderFault::SharesCleanup) {
            let shared = self.common.all.is_cancelled() && poll_once(self.inner.result()).await.is_none();
            if shared {
                return Ok(stopped(StopReason::ABORTED));
            }
            let result = self.inner.result().await;
            if self.is(ProviderFault::SharesCancellation) && self.cancellation.is_cancelled() {
                self.common.all.cancel();
            }
            return result;
        }
        self.inner.result().await
    }

    /// Changes a result that is there.
    fn spoil(&self, mut result: SubagentResult, asked: usize) -> SubagentResult {
        let completed = result.stop_reason.is_completed();
        match self.fault {
            ProviderFault::CancelledCompletes
                if result.stop_reason == StopReason::ABORTED && !self.disposed.load(Ordering::Relaxed) =>
            {
                result = SubagentResult::completed("cancelled, and done all the same");
            }
            ProviderFault::ForgetsResult if asked > 2 => result.output.push_str(" again"),
            ProviderFault::DisposeChangesResult if completed && self.disposed.load(Ordering::Relaxed) => {
                result = stopped(StopReason::ABORTED);
            }
            ProviderFault::LateCancellationCounts if completed && self.cancellation.is_cancelled() => {
                result = stopped(StopReason::ABORTED);
            }
            ProviderFault::DiagnosticOnSuccess if completed => {
                result.diagnostic = Some(Diagnostic::new("all is well"));
            }
            ProviderFault::SilentFailure if !completed => result.diagnostic = None,
            ProviderFault::UsageOfSuccessOnly if !completed => result.usage = None,
            ProviderFault::HidesSessionId => result.session_id = None,
            ProviderFault::ChangesValue if result.structured.is_some() && !self.ruled => {
                result.structured = Some(json!({ "answer": "tidied up" }));
            }
            ProviderFault::JudgesByRule if self.ruled => result = stopped(StopReason::ERROR),
            ProviderFault::SharesFailure => {
                let mut failure = self.common.failure.lock().expect("nobody panics with the failure");
                match &*failure {
                    Some(failure) => result = failure.clone(),
                    None if !completed => *failure = Some(result.clone()),
                    None => {}
                }
            }
            _ => {}
        }
        result
    }
}

#[async_trait]
impl SubagentRun for BrokenRun {
    fn id(&self) -> &AgentId {
        let ended = self.ended.load(Ordering::Relaxed);
        if self.is(ProviderFault::IdChanges) && ended { &self.other_id } else { &self.id }
    }

    async fn result(&self) -> Result<SubagentResult> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let outcome = self.wait().await;
        self.ended.store(true, Ordering::Relaxed);
        match outcome {
            Ok(result) => Ok(self.spoil(result, asked)),
            Err(_) if self.is(ProviderFault::LostIsFailure) => Ok(stopped(StopReason::ERROR)),
            Err(error) => Err(error),
        }
    }

    async fn dispose(&self) -> Result<()> {
        let repeated = self.disposed.load(Ordering::Relaxed);
        let first = !self.disposing.swap(true, Ordering::Relaxed);
        let running = poll_once(self.inner.result()).await.is_none();
        match self.fault {
            ProviderFault::DisposeDoesNotWait if running && first => {
                let inner = Arc::clone(&self.inner);
                tokio::spawn(async move { inner.dispose().await });
                tokio::task::yield_now().await;
                self.disposed.store(true, Ordering::Relaxed);
                return Ok(());
            }
            ProviderFault::KeepsEndedChild if self.ended.load(Ordering::Relaxed) && !repeated => {
                self.common.leaked.fetch_add(1, Ordering::Relaxed);
            }
            ProviderFault::SecondDisposeFails if repeated => {
                return Err(Error::new(ErrorKind::Release, "released already"));
            }
            ProviderFault::SecondDisposeReturnsAtOnce
                if !first && !repeated && !self.stalled.load(Ordering::Relaxed) =>
            {
                return Ok(());
            }
            ProviderFault::ForgetsDroppedDispose if self.stalled.load(Ordering::Relaxed) => return Ok(()),
            ProviderFault::WaitsForStubbornChild => {
                self.cancellation.cancel();
                let _ = self.inner.result().await;
            }
            _ => {}
        }
        let dropped = OnDrop(&self.stalled, true);
        let answer = self.inner.dispose().await;
        std::mem::forget(dropped);
        self.disposed.store(true, Ordering::Relaxed);
        if self.is(ProviderFault::SharesCleanup) {
            self.common.all.cancel();
        }
        if self.is(ProviderFault::HidesFailedRelease) {
            return Ok(());
        }
        if self.is(ProviderFault::DisposeRepeatsFault) && self.ended.load(Ordering::Relaxed) {
            let failed = match self.inner.result().await {
                Ok(result) => !result.stop_reason.is_completed() && !self.cancellation.is_cancelled(),
                Err(_) => true,
            };
            if failed {
                return Err(Error::new(ErrorKind::Release, "the child had failed"));
            }
        }
        answer
    }

    fn activity(&self) -> ActivityStream {
        match self.fault {
            ProviderFault::SilentActivity => ActivityStream::silent(),
            ProviderFault::EndlessActivity => {
                let sender = ActivitySender::new(1);
                let stream = sender.subscribe();
                self.common.senders.lock().expect("nobody panics with the senders").push(sender);
                stream
            }
            _ => self.inner.activity(),
        }
    }
}
