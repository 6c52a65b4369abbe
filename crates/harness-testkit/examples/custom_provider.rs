//! A provider whose children are plain functions, each on a thread of its own, and what it takes to hold it to the
//! contract.
//!
//! `cargo run --example custom_provider` prints a line for each clause and fails when one is broken.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use harness_subagent::{
    AgentId, Capabilities, Diagnostic, Error, ErrorKind, Parent, Result, StartSubagent, StopReason,
    SubagentProvider, SubagentResult, SubagentRun,
};
use harness_testkit::conformance::Clock;
use harness_testkit::subagent::{PROVIDER_SUITE, ProviderFixture, ProviderTraits, StandardChild};
use serde_json::Value;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// A function that answers as a child does. It must look at [`Call::is_stopped`] now and then.
type Function = Arc<dyn Fn(&Call) -> std::result::Result<Value, Failure> + Send + Sync>;

/// What a function is called with.
struct Call {
    argument: Value,
    stop: CancellationToken,
}

impl Call {
    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// Why a function has no answer.
#[derive(Debug)]
enum Failure {
    Stopped,
    Other(String),
}

/// Runs children that are functions, so many at a time.
///
/// A prompt is the name of a function and a JSON argument.
struct FunctionPool {
    functions: BTreeMap<&'static str, Function>,
    seats: Arc<Semaphore>,
    started: AtomicU64,
}

impl FunctionPool {
    /// How long a function may go on once it was told to stop.
    const GRACE: Duration = Duration::from_secs(5);
    const SEATS: usize = 4;

    fn new(functions: impl IntoIterator<Item = (&'static str, Function)>) -> Self {
        Self {
            functions: functions.into_iter().collect(),
            seats: Arc::new(Semaphore::new(Self::SEATS)),
            started: AtomicU64::new(0),
        }
    }

    /// Returns how many functions run.
    fn running(&self) -> usize {
        Self::SEATS - self.seats.available_permits()
    }

    fn find(&self, prompt: &str) -> std::result::Result<(Function, Value), BadPrompt> {
        let (name, argument) = prompt.split_once(' ').unwrap_or((prompt, "null"));
        let function = self.functions.get(name).cloned();
        let argument = serde_json::from_str(argument).ok();
        function.zip(argument).ok_or_else(|| BadPrompt(prompt.to_owned()))
    }
}

impl fmt::Debug for FunctionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionPool").field("functions", &self.functions.keys()).finish_non_exhaustive()
    }
}

/// The pool's own error.
#[derive(Debug)]
struct BadPrompt(String);

impl fmt::Display for BadPrompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not the name of a function and a JSON argument", self.0)
    }
}

impl std::error::Error for BadPrompt {}

#[async_trait]
impl SubagentProvider for FunctionPool {
    fn name(&self) -> &str {
        "functions"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_output_contract(true)
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        let (function, argument) = self.find(&request.prompt).map_err(|error| {
            Error::new(ErrorKind::Provider, "the prompt calls no function; name one that the pool has")
                .with_source(error)
        })?;
        // The only wait: whoever drops it, or cancels, has not started anything yet.
        let seat = tokio::select! {
            biased;
            () = request.cancellation.cancelled() => {
                return Err(Error::new(ErrorKind::Cancelled, "the request was cancelled before there was a seat"));
            }
            seat = Arc::clone(&self.seats).acquire_owned() => seat.expect("the semaphore is never closed"),
        };
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = request.cancellation.child_token();
        let call = Call { argument, stop: stop.clone() };
        let (ended, end) = watch::channel(None);
        let wants_value = request.output.is_some();
        std::thread::Builder::new()
            .name(format!("function-{number}"))
            .spawn(move || {
                let answer = catch_unwind(AssertUnwindSafe(|| function(&call)));
                ended.send_replace(Some(result_of(answer, wants_value, seat)));
            })
            .map_err(|error| Error::new(ErrorKind::Provider, "no thread for the child").with_source(error))?;
        let id = AgentId::new(format!("{}/function-{number}", request.parent.id));
        Ok(Box::new(FunctionRun { id, stop, end, released: OnceCell::new() }))
    }
}

/// Makes a result of what a function returned, and gives its seat back.
fn result_of(
    answer: std::thread::Result<std::result::Result<Value, Failure>>,
    wants_value: bool,
    seat: OwnedSemaphorePermit,
) -> SubagentResult {
    drop(seat);
    match answer {
        Ok(Ok(value)) if wants_value => SubagentResult::handed_in(value),
        Ok(Ok(value)) => SubagentResult::completed(value.to_string()),
        Ok(Err(Failure::Stopped)) => {
            SubagentResult::stopped(StopReason::ABORTED, Diagnostic::new("the function was told to stop"))
        }
        Ok(Err(Failure::Other(message))) => {
            SubagentResult::stopped(StopReason::ERROR, Diagnostic::new(message))
        }
        Err(_) => SubagentResult::stopped(StopReason::CRASHED, Diagnostic::new("the function panicked")),
    }
}

#[derive(Debug)]
struct FunctionRun {
    id: AgentId,
    stop: CancellationToken,
    end: watch::Receiver<Option<SubagentResult>>,
    released: OnceCell<Result<()>>,
}

#[async_trait]
impl SubagentRun for FunctionRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        let lost = || Error::new(ErrorKind::RunLost, "the function's thread is gone without an answer");
        let mut end = self.end.clone();
        let result = end.wait_for(Option::is_some).await.map_err(|error| lost().with_source(error))?;
        result.clone().ok_or_else(lost)
    }

    async fn dispose(&self) -> Result<()> {
        let release = || async {
            self.stop.cancel();
            // A thread that is gone without an answer is gone as well.
            let gone = tokio::time::timeout(FunctionPool::GRACE, self.result()).await;
            gone.map(drop).map_err(|error| {
                Error::new(ErrorKind::Release, "the function does not stop; let it look at its call")
                    .with_source(error)
            })
        };
        self.released.get_or_init(release).await.clone()
    }
}

impl Drop for FunctionRun {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A pool with the functions that the suite needs children of.
struct PoolFixture {
    pool: Arc<FunctionPool>,
}

async fn new_fixture() -> PoolFixture {
    let echo: Function = Arc::new(|call| Ok(call.argument.clone()));
    let fail: Function = Arc::new(|_| Err(Failure::Other("this function always fails".to_owned())));
    let work: Function = Arc::new(|call| {
        while !call.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Failure::Stopped)
    });
    PoolFixture { pool: Arc::new(FunctionPool::new([("echo", echo), ("fail", fail), ("work", work)])) }
}

impl ProviderFixture for PoolFixture {
    fn provider(&self) -> Arc<dyn SubagentProvider> {
        self.pool.clone()
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits::default().with_refusable_start(true)
    }

    fn request(&self, child: &StandardChild) -> StartSubagent {
        let prompt = match child {
            StandardChild::Completes => "echo \"done\"".to_owned(),
            StandardChild::HandsIn(value) => format!("echo {value}"),
            StandardChild::Fails => "fail".to_owned(),
            StandardChild::Hangs => "work".to_owned(),
            StandardChild::Unstartable => "no-such-function".to_owned(),
            other => unreachable!("the traits rule out {other:?}"),
        };
        StartSubagent::new(prompt, Parent::new("example", "workspace"))
    }

    fn alive(&self) -> usize {
        self.pool.running()
    }
}

// A crate of its own has this line in its tests.
#[cfg(test)]
harness_testkit::subagent_provider_conformance!(new_fixture);

fn main() -> ExitCode {
    if PROVIDER_SUITE.run(Clock::Real, new_fixture) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
