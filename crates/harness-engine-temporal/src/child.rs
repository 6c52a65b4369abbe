//! The activity that workers know: it runs one attempt at a call.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness_subagent::{
    Activity, Diagnostic, Origin, Parent, StartSubagent, StopReason, SubagentProvider, SubagentRegistry,
    SubagentResult, SubagentRun,
};
use harness_workflow::{
    AgentOutcome, CallEnd, CallOutcome, ErrorCode, NoValue, RunError, RunId, trace, value,
};
use serde_json::{Value, json};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::wire::{self, Answer, Beat, CallReport, CallRequest, MAX_BYTES, StartedChild, Verdict};
use crate::workspace::{CallEnding, Workplace, Workspaces};
use crate::{WorkerConfig, chain};

/// The activity type `harness-call`.
pub(crate) struct Calls(pub(crate) Arc<Children>);

/// What a worker has to carry out calls.
pub(crate) struct Children {
    registry: Arc<dyn SubagentRegistry>,
    workspaces: Arc<dyn Workspaces>,
    grace: Duration,
    beat: Duration,
    /// The worker is to end.
    shutdown: CancellationToken,
    pinned: Mutex<VecDeque<Pinned>>,
}

/// The provider of a run: whatever is registered under its name later, the run keeps it.
struct Pinned {
    run: RunId,
    provider: Arc<dyn SubagentProvider>,
}

/// How many runs keep their providers; the one that was asked for longest ago looks its provider up again.
const MAX_PINNED: usize = 1000;

/// How much of what a child did last is told with a heartbeat.
const MAX_TOLD: usize = 8;

/// Why a worker gives an attempt back unfinished. The run tries the call again.
#[derive(Debug, thiserror::Error)]
enum GivenBack {
    #[error("the worker shuts down")]
    Shutdown,
    #[error("the attempt was asked for by version {0} of the protocol")]
    Version(u32),
}

#[activities]
impl Calls {
    #[activity(name = wire::CALL)]
    pub(crate) async fn call(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: CallRequest,
    ) -> Result<CallReport, ActivityError> {
        if request.version != wire::VERSION {
            return Err(GivenBack::Version(request.version).into());
        }
        let span = trace::call_span(&request.run, request.call.number, request.attempt);
        Arc::clone(&self.0).see_through(ctx, request).instrument(span).await
    }
}

impl Children {
    pub(crate) fn new(
        registry: Arc<dyn SubagentRegistry>,
        config: &WorkerConfig,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            registry,
            workspaces: Arc::clone(&config.workspaces),
            grace: config.cancellation_grace,
            beat: config.heartbeat_interval,
            shutdown,
            pinned: Mutex::default(),
        }
    }

    /// Runs the attempt, tells that it lives, and ends it when it must end.
    async fn see_through(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: CallRequest,
    ) -> Result<CallReport, ActivityError> {
        let limit = Duration::from_millis(request.limit_ms);
        let course = Arc::new(Course::new(self.grace));
        let mut work: Pin<Box<dyn Future<Output = CallReport> + Send>> =
            Box::pin(Arc::clone(&self).carry_out(request, Arc::clone(&course)).instrument(Span::current()));
        let now = Instant::now();
        let deadline = now.checked_add(limit);
        let mut beats = interval_at(now + self.beat, self.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut given_up_at = None;
        let report = loop {
            let stopped = given_up_at.is_some();
            tokio::select! {
                biased;
                report = &mut work => break report,
                () = ctx.cancelled(), if !stopped => {
                    given_up_at = course.stop(Stop::Cancelled);
                }
                () = self.shutdown.cancelled(), if !stopped => {
                    given_up_at = course.stop(Stop::Shutdown);
                }
                () = until(deadline), if !stopped => {
                    given_up_at = course.stop(Stop::TimeIsUp { limit });
                }
                () = until(given_up_at), if stopped => {
                    tracing::warn!("the child outlives the grace and is given up");
                    // It goes on ending in the background.
                    tokio::spawn(work);
                    break course.given_up();
                }
                _ = beats.tick() => course.tell(&ctx).await,
                () = course.changed.notified() => course.tell(&ctx).await,
            }
        };
        if course.stopped() == Some(Stop::Shutdown) && matches!(report.verdict, Verdict::Cancelled) {
            return Err(GivenBack::Shutdown.into());
        }
        Ok(report)
    }

    /// Starts the child, waits for its end and disposes of it.
    async fn carry_out(self: Arc<Self>, request: CallRequest, course: Arc<Course>) -> CallReport {
        let provider = match self.provider(&request) {
            Ok(provider) => provider,
            Err(error) => return not_started(error),
        };
        let place = Workplace::new(&request);
        let folder = match self.workspaces.prepare(&place).await {
            Ok(folder) => folder,
            Err(_) if course.is_cancelled() => return course.given_up(),
            Err(error) => {
                let message = format!("the workspace could not be prepared: {}", chain(&error));
                return not_started(RunError::new(ErrorCode::AGENT_START, message));
            }
        };
        let wants_value = request.call.output.is_some();
        let child = child_request(&request, folder.clone(), course.child_stop.clone());
        let report = match self.registry.start_on(&provider, child).await {
            Ok(run) => self.await_child(run, wants_value, &course).await,
            Err(_) if course.is_cancelled() => course.given_up(),
            Err(error) => {
                let message = format!("the child could not be started: {}", chain(&error));
                let details = json!({ "kind": error.kind().as_str() });
                not_started(RunError::new(ErrorCode::AGENT_START, message).with_details(details))
            }
        };
        let ending = CallEnding::of(&report);
        match self.workspaces.publish(&place, &folder, ending).await {
            Ok(()) => report,
            Err(error) => {
                let message = format!("what the child did could not be published: {}", chain(&error));
                tracing::warn!("{message}");
                match report.verdict {
                    Verdict::Cancelled => report,
                    Verdict::Answered(_) => CallReport {
                        verdict: Verdict::Answered(Answer::Error(RunError::new(
                            ErrorCode::AGENT_RESULT,
                            message,
                        ))),
                        ..report
                    },
                }
            }
        }
    }

    async fn await_child(&self, run: Box<dyn SubagentRun>, wants_value: bool, course: &Course) -> CallReport {
        Span::current().record("child", run.id().as_str());
        course.started(StartedChild { id: run.id().clone(), at: micros(SystemTime::now()) });
        let result = tokio::select! {
            biased;
            result = watch(&*run, course) => Some(result),
            () = course.half_of_the_grace() => None,
        };
        let judged = result.map(|result| judge(result, wants_value, course));
        if let Some((verdict, end)) = &judged {
            course.ended(verdict.clone(), end.clone());
        }
        if let Err(error) = run.dispose().await {
            tracing::warn!(child = %run.id(), %error, "a child could not be released");
        }
        let (verdict, end) = judged.unwrap_or_else(|| {
            // After the disposal a result is there at once or never.
            let result = futures::FutureExt::now_or_never(run.result());
            let mut end = CallEnd::new(CallOutcome::Cancelled);
            if let Some(Ok(result)) = result {
                tell_end(&mut end, &result);
            }
            course.cut_short(end)
        });
        CallReport { verdict, child: course.child(), end: Some(end) }
    }

    /// Finds the provider of a run, and keeps it for the run.
    fn provider(&self, request: &CallRequest) -> Result<Arc<dyn SubagentProvider>, RunError> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pinned.iter().position(|known| known.run == request.run);
        let provider = match known.and_then(|index| pinned.remove(index)) {
            Some(known) => known.provider,
            None => self.registry.provider(&request.provider).ok_or_else(|| {
                let known: Vec<String> =
                    self.registry.providers().into_iter().map(|info| info.name).collect();
                RunError::new(
                    ErrorCode::AGENT_START,
                    format!(
                        "no provider of this worker is named {:?}; it has: {}",
                        request.provider,
                        known.join(", ")
                    ),
                )
            })?,
        };
        pinned.push_back(Pinned { run: request.run.clone(), provider: Arc::clone(&provider) });
        if pinned.len() > MAX_PINNED {
            pinned.pop_front();
        }
        Ok(provider)
    }
}

/// Why a child must end before it has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Cancelled,
    Shutdown,
    TimeIsUp { limit: Duration },
}

/// What the attempt and whoever watches over it share.
struct Course {
    grace: Duration,
    /// Ends the child gently.
    child_stop: CancellationToken,
    /// Tells that there is something to tell of.
    changed: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stopped: Option<Stop>,
    beat: Beat,
    told: u64,
    /// How the child ended, once that is known.
    ended: Option<(Verdict, CallEnd)>,
}

impl Course {
    fn new(grace: Duration) -> Self {
        Self { grace, child_stop: CancellationToken::new(), changed: Notify::new(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the child to end, and returns when it is given up.
    fn stop(&self, why: Stop) -> Option<Instant> {
        self.state().stopped = Some(why);
        self.child_stop.cancel();
        // Without a grace it is given up at once.
        Some(Instant::now() + self.grace)
    }

    fn stopped(&self) -> Option<Stop> {
        self.state().stopped
    }

    /// Says whether the run wants the child ended, or the worker wants to end.
    fn is_cancelled(&self) -> bool {
        matches!(self.stopped(), Some(Stop::Cancelled | Stop::Shutdown))
    }

    /// Waits until the child has had its half of the grace.
    async fn half_of_the_grace(&self) {
        self.child_stop.cancelled().await;
        tokio::time::sleep(self.grace / 2).await;
    }

    fn started(&self, child: StartedChild) {
        self.state().beat.child = Some(child);
        self.changed.notify_one();
    }

    fn child(&self) -> Option<StartedChild> {
        self.state().beat.child.clone()
    }

    fn did(&self, activity: Activity) {
        let mut state = self.state();
        state.told += 1;
        let number = state.told;
        let told = &mut state.beat.activity;
        if told.len() == MAX_TOLD {
            told.remove(0);
        }
        told.push((number, activity));
        drop(state);
        self.changed.notify_one();
    }

    fn ended(&self, verdict: Verdict, end: CallEnd) {
        self.state().ended = Some((verdict, end));
    }

    /// What is said of a child that was ended before it had ended by itself.
    fn cut_short(&self, mut end: CallEnd) -> (Verdict, CallEnd) {
        let Some(Stop::TimeIsUp { limit }) = self.stopped() else { return (Verdict::Cancelled, end) };
        let diagnostic = Diagnostic::new(format!("the call has not ended within its limit of {limit:?}"));
        end.outcome = CallOutcome::Failed;
        end.stop_reason = Some(StopReason::TIMED_OUT);
        end.diagnostic = Some(diagnostic.clone());
        let why = NoValue::new(StopReason::TIMED_OUT, Some(diagnostic));
        (Verdict::Answered(Answer::Outcome(AgentOutcome::NoValue(why))), end)
    }

    /// What is said of an attempt that nobody waits for any longer.
    fn given_up(&self) -> CallReport {
        let (ended, child) = {
            let state = self.state();
            (state.ended.clone(), state.beat.child.clone())
        };
        let (verdict, end) = ended.unwrap_or_else(|| self.cut_short(CallEnd::new(CallOutcome::Cancelled)));
        CallReport { verdict, end: child.is_some().then_some(end), child }
    }

    /// Tells the server that the attempt lives.
    async fn tell(&self, ctx: &ActivityContext) {
        let beat = self.state().beat.clone();
        if let Err(error) = ctx.record_heartbeat(beat).await {
            tracing::warn!(%error, "a heartbeat could not be written");
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// Returns a moment in microseconds since 1970.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn not_started(error: RunError) -> CallReport {
    CallReport { verdict: Verdict::Answered(Answer::Error(error)), child: None, end: None }
}

fn child_request(request: &CallRequest, folder: String, stop: CancellationToken) -> StartSubagent {
    let CallRequest { run, call, attempt, parent, .. } = request.clone();
    let parent = Parent::new(parent.id, folder).with_depth(parent.depth);
    let mut child = StartSubagent::stopped_by(stop, call.prompt, parent);
    child.label = Some(call.label);
    child.origin = Some(Origin::new(run.as_str(), call.number, attempt));
    child.output = call.output;
    child.tools = call.tools;
    child.model = call.model;
    child
}

/// Waits for the child's result and keeps what it does.
async fn watch(run: &dyn SubagentRun, course: &Course) -> harness_subagent::Result<SubagentResult> {
    let mut activity = run.activity();
    let mut result = run.result();
    loop {
        if activity.is_silent() {
            return result.await;
        }
        tokio::select! {
            biased;
            result = &mut result => return result,
            Some(activity) = activity.next() => course.did(activity),
            else => return result.await,
        }
    }
}

fn tell_end(end: &mut CallEnd, result: &SubagentResult) {
    end.stop_reason = Some(result.stop_reason.clone());
    end.diagnostic.clone_from(&result.diagnostic);
    end.usage = result.usage;
    end.session_id.clone_from(&result.session_id);
}

/// Makes of a child's result what the body gets, and what is told of the end.
fn judge(
    result: harness_subagent::Result<SubagentResult>,
    wants_value: bool,
    course: &Course,
) -> (Verdict, CallEnd) {
    let mut end = CallEnd::new(CallOutcome::Failed);
    let result = match result {
        Ok(result) => result,
        Err(_) if course.stopped().is_some() => {
            end.outcome = CallOutcome::Cancelled;
            return course.cut_short(end);
        }
        Err(error) => {
            let message = format!("the child was lost: {}", chain(&error));
            let error = RunError::new(ErrorCode::AGENT_RESULT, message)
                .with_details(json!({ "kind": error.kind().as_str() }));
            return (Verdict::Answered(Answer::Error(error)), end);
        }
    };
    tell_end(&mut end, &result);
    let SubagentResult { stop_reason, output, structured, diagnostic, .. } = result;
    let completed = stop_reason.is_completed();
    let yielded = match structured {
        Some(value) if completed && wants_value => Some(value),
        _ if completed && !wants_value => Some(Value::String(output)),
        _ => None,
    };
    let answer = match yielded {
        Some(value) => match checked(&value) {
            Ok(()) => {
                end.outcome = CallOutcome::Completed;
                Answer::Outcome(AgentOutcome::Value(value))
            }
            Err(message) => Answer::Error(RunError::new(ErrorCode::AGENT_RESULT, message)),
        },
        None if !completed && course.stopped().is_some() => {
            end.outcome = CallOutcome::Cancelled;
            return course.cut_short(end);
        }
        None => {
            let reason = if completed { StopReason::NO_VALUE } else { stop_reason };
            Answer::Outcome(AgentOutcome::NoValue(NoValue::new(reason, diagnostic)))
        }
    };
    (Verdict::Answered(answer), end)
}

fn checked(value: &Value) -> Result<(), String> {
    value::check(value).map_err(|error| format!("the child's value: {error}"))?;
    let bytes = wire::size(value);
    if bytes > MAX_BYTES {
        return Err(format!("the child's value of {bytes} bytes cannot be sent; at most {MAX_BYTES} can"));
    }
    Ok(())
}
