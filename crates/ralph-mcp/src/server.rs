use std::sync::{Arc, OnceLock};
use std::time::Duration;

use harness_workflow::{RunError, RunId, WorkflowMeta, WorkflowRun};
use ralph_tool::Envelope;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CreateTaskResult, DetailedTask, ErrorData, GetTaskParams, GetTaskResult, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ServerCapabilities,
    ServerConfig, Task, TaskPayload, TaskStatus, Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{self, ServeError};
use crate::ending::Ending;
use crate::host::{LoopError, LoopHost, Refusal, RunFacts, Standing};
use crate::live::{Begin, Ground, LiveRun, LiveRuns, Seen};
use crate::status::{self, RunStatus};
use crate::tools::{self, CANCEL, DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS, RESULT, START, STATUS, WAIT};

/// The `ralph` tool for MCP clients, and the tools by which a client follows a loop that takes longer than a call may.
///
/// # What a client gets
///
/// - `ralph` runs a loop and returns when it has ended: the canonical envelope as structured content, the bounded
///   rendering as text. What the client cancels is cancelled, and so is what it leaves behind when it closes the
///   connection.
/// - A client that declares the Tasks extension, with the revision 2026-07-28 of the protocol or a later one, gets a task
///   for a call of `ralph` instead. The task's id is the run's.
/// - Every other client has `ralph_start`, `ralph_status`, `ralph_wait`, `ralph_result` and `ralph_cancel`.
/// - An error is a tool error: `{ "code", "message", "details" }` as structured content, and the rendering as text.
/// - With a progress token, one notification for each round that begins: its number, the cap, and the status of the
///   report before it. Nothing that an agent says reaches the client but the final result.
///
/// Everything about a run is answered by the [`LoopHost`], so a server that is started again knows the runs of the one
/// before. A run that was under way then shows as interrupted, and nothing goes on by itself.
#[derive(Debug)]
pub struct LoopServer {
    host: Arc<dyn LoopHost>,
}

impl LoopServer {
    /// Makes a server for the loops that `host` runs.
    #[must_use]
    pub fn new(host: Arc<dyn LoopHost>) -> Self {
        Self { host }
    }

    /// Serves the client that writes to `read` and reads from `write`, until it closes its end or `stop` is cancelled.
    ///
    /// When this returns, nothing is left alive of any run that the client asked for: calls that were waited for are
    /// cancelled, and other runs are [interrupted](LoopHost::interrupt).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connection is closed, and the runs go on in their tasks until their host or their
    /// runtime ends them.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
    pub async fn serve<R, W>(self, read: R, write: W, stop: CancellationToken) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let closing = stop.child_token();
        let runs = Arc::new(LiveRuns::new(Arc::clone(&self.host), closing.clone()));
        let handler = Handler { host: self.host, tools: OnceLock::new(), runs };
        let runs = Arc::clone(&handler.runs);
        // Calls are cancelled when the client goes away, not when their answers can no longer be written.
        let served = connection::serve(handler, Ending::new(read, closing), write, stop).await;
        runs.end().await;
        served
    }

    /// Serves the client at this process's standard input and output. Nothing else may be written to the latter.
    ///
    /// A read of standard input that is under way can outlast this call, and holds up a runtime that is dropped: shut
    /// it down in the background.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime that has its I/O enabled.
    pub async fn serve_stdio(self, stop: CancellationToken) -> Result<(), ServeError> {
        let (read, write) = rmcp::transport::stdio_pipes();
        self.serve(read, write, stop).await
    }
}

#[derive(Debug)]
struct Handler {
    host: Arc<dyn LoopHost>,
    /// Made when the first client asks for them: a server is ready before.
    tools: OnceLock<Vec<Tool>>,
    runs: Arc<LiveRuns>,
}

/// How often the host is asked for a run that another process runs.
const LOOK: Duration = Duration::from_millis(500);
/// How often a client of the Tasks extension should ask.
const POLL_MS: u64 = 5_000;
/// How many runs are listed.
const MOST_LISTED: usize = 10;

impl Handler {
    fn name(&self) -> &str {
        self.host.tool().definition().name()
    }

    fn tools(&self) -> &[Tool] {
        self.tools.get_or_init(|| tools::all(self.host.tool()))
    }

    /// The rounds that a call may have, as far as its arguments can be used.
    fn cap(&self, args: &Value) -> Option<u64> {
        self.host.tool().config().resolve_max_rounds(args.get("maxRounds")).ok()
    }

    /// Refuses arguments that the tool would refuse before there is a run, so that none is prepared for them.
    fn refusal(&self, args: &Value) -> Option<CallToolResult> {
        let error = self.host.tool().check(args).err()?;
        Some(self.outcome(&Err(LoopError::from(error))))
    }

    /// Runs a loop for a client that waits for it.
    async fn in_the_foreground(&self, args: Value, context: &RequestContext<RoleServer>) -> CallToolResult {
        if let Some(refusal) = self.refusal(&args) {
            return refusal;
        }
        let cap = self.cap(&args);
        match self.runs.begin(&new_run(), Begin::New(args), cap, Ground::Foreground) {
            Ok(live) => {
                let outcome = follow(&live, context, None, Leave::Cancels).await;
                match outcome {
                    Some(outcome) => self.outcome(&outcome),
                    None => refused(&broken()),
                }
            }
            Err(refusal) => refused(&refusal),
        }
    }

    /// Starts a run, or takes one up again, and returns its id once it is known to exist.
    async fn start(&self, args: Value) -> Result<Started, CallToolResult> {
        let (run, begin, cap) = match args.get("runId") {
            None | Some(Value::Null) => {
                if let Some(refusal) = self.refusal(&args) {
                    return Err(refusal);
                }
                let cap = self.cap(&args);
                (new_run(), Begin::New(args), cap)
            }
            Some(_) if args.get("objective").is_some_and(|objective| !objective.is_null()) => {
                let message = "give an objective for a new run or the id of an interrupted one, not both";
                return Err(refused(&Refusal::new("invalid-arguments", message)));
            }
            Some(_) => {
                let (run, facts) = self.known(&args).await.map_err(|refusal| refused(&refusal))?;
                match facts.standing {
                    Standing::Interrupted => {
                        let cap = facts.args["maxRounds"].as_u64();
                        (run, Begin::Resume, cap)
                    }
                    Standing::Running => return Ok(Started { run, facts }),
                    Standing::Ended(_) => {
                        let message = format!(
                            "run {run} has ended and is not run again; `{RESULT}` returns its result"
                        );
                        return Err(refused(&Refusal::of(&run, "run-ended", message)));
                    }
                }
            }
        };
        let live =
            self.runs.begin(&run, begin, cap, Ground::Background).map_err(|refusal| refused(&refusal))?;
        if let Some(outcome) = live.started().await
            && let Err(error) = &*outcome
        {
            let is_known = matches!(error, LoopError::Tool(error) if error.run().is_some());
            if !is_known {
                return Err(self.outcome(&outcome));
            }
        }
        let facts = self.facts(&run).await.map_err(|refusal| refused(&refusal))?;
        Ok(Started { run, facts })
    }

    async fn status(&self, args: &Value) -> Result<CallToolResult, Refusal> {
        if args.get("runId").is_none_or(Value::is_null) {
            let runs = self.host.latest(MOST_LISTED).await?;
            let runs: Vec<_> = runs.iter().map(|(run, facts)| RunStatus::of(run, facts)).collect();
            let told: Vec<_> = runs.iter().map(RunStatus::told).collect();
            let told =
                if told.is_empty() { "There are no runs here yet.".to_owned() } else { told.join("\n") };
            return Ok(done(&json!({ "runs": runs }), told));
        }
        let (run, facts) = self.known(args).await?;
        Ok(stands(&run, &facts))
    }

    async fn wait(
        &self,
        args: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Refusal> {
        let seconds = match args.get("seconds") {
            None | Some(Value::Null) => DEFAULT_WAIT_SECONDS,
            Some(given) => given
                .as_u64()
                .filter(|seconds| (1..=MAX_WAIT_SECONDS).contains(seconds))
                .ok_or_else(|| {
                    let message = format!("`seconds` must be a whole number from 1 to {MAX_WAIT_SECONDS}");
                    Refusal::new("invalid-arguments", message)
                })?,
        };
        let until = Instant::now() + Duration::from_secs(seconds);
        let (run, mut facts) = self.known_or_latest(args).await?;
        if let Some(live) = self.runs.get(&run) {
            follow(&live, context, Some(until), Leave::Leaves).await;
            facts = self.facts(&run).await?;
        }
        // Another process may run it.
        while matches!(facts.standing, Standing::Running) && Instant::now() < until {
            let next = (Instant::now() + LOOK).min(until);
            if context.ct.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
                break;
            }
            facts = self.facts(&run).await?;
        }
        Ok(stands(&run, &facts))
    }

    async fn result(&self, args: &Value) -> Result<CallToolResult, Refusal> {
        let (run, facts) = self.known_or_latest(args).await?;
        match facts.standing {
            Standing::Ended(_) => Ok(self.ended(&run, facts).await),
            Standing::Running => {
                let message = format!("run {run} has not ended; wait for it with `{WAIT}`");
                Err(Refusal::of(&run, "not-ended", message))
            }
            Standing::Interrupted => Err(interrupted(&run)),
        }
    }

    async fn cancel(&self, args: &Value) -> Result<CallToolResult, Refusal> {
        let (run, facts) = self.known(args).await?;
        match (self.runs.get(&run), &facts.standing) {
            (Some(live), _) => {
                live.cancel();
                live.ended().await;
                Ok(stands(&run, &self.facts(&run).await?))
            }
            (None, Standing::Running) => Err(elsewhere(&run)),
            (None, _) => Ok(stands(&run, &facts)),
        }
    }

    /// Finds the run that a call names, or the latest one for a call that names none.
    async fn known_or_latest(&self, args: &Value) -> Result<(RunId, RunFacts), Refusal> {
        if args.get("runId").is_some_and(|run| !run.is_null()) {
            return self.known(args).await;
        }
        let latest = self.host.latest(1).await?.into_iter().next();
        latest.ok_or_else(|| Refusal::new("unknown-run", "there are no runs here yet"))
    }

    /// Finds the run that a call names.
    async fn known(&self, args: &Value) -> Result<(RunId, RunFacts), Refusal> {
        let Some(run) = args.get("runId").and_then(Value::as_str) else {
            return Err(Refusal::new("invalid-arguments", "`runId` must be the id of a run, as a text"));
        };
        let run = RunId::from(run.to_owned());
        let facts = self.facts(&run).await?;
        Ok((run, facts))
    }

    async fn facts(&self, run: &RunId) -> Result<RunFacts, Refusal> {
        // An id that comes from outside is compared, never searched for, and never so long.
        let facts = if run.as_str().len() > 200 { None } else { self.host.look(run).await? };
        facts.ok_or_else(|| {
            let shown: String = run.as_str().chars().take(80).collect();
            Refusal::new(
                "unknown-run",
                format!("no run here has the id {shown:?}; `{STATUS}` without an id lists them"),
            )
        })
    }

    /// Answers a call of a tool.
    async fn called(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        let answered = match &*request.name {
            name if name == self.name() => {
                if takes_tasks(&context) {
                    let args = without_run_id(args);
                    return Ok(match self.start(args).await {
                        Ok(Started { run, facts }) => {
                            let task = Self::task(&run, &facts, TaskStatus::Working);
                            CallToolResponse::Task(CreateTaskResult::new(task))
                        }
                        Err(refused) => refused.into(),
                    });
                }
                Ok(self.in_the_foreground(args, &context).await)
            }
            START => Ok(match self.start(args).await {
                Ok(Started { run, facts }) => stands(&run, &facts),
                Err(refused) => refused,
            }),
            STATUS => self.status(&args).await,
            WAIT => self.wait(&args, &context).await,
            RESULT => self.result(&args).await,
            CANCEL => self.cancel(&args).await,
            _ => return Err(ErrorData::invalid_params("there is no such tool here", None)),
        };
        Ok(answered.unwrap_or_else(|refusal| refused(&refusal)).into())
    }

    /// Answers where a run stands that a client knows as a task.
    async fn looked_at(&self, run: RunId) -> Result<GetTaskResult, ErrorData> {
        let facts = self.facts(&run).await.map_err(|refusal| no_task(&refusal))?;
        let status = RunStatus::of(&run, &facts);
        let task = Self::task(&run, &facts, TaskStatus::Working);
        let payload = match (&facts.standing, status.outcome.as_deref()) {
            (Standing::Running, _) => TaskPayload::Working,
            (Standing::Ended(_), Some("cancelled")) => TaskPayload::Cancelled,
            // A task cannot be interrupted. To its client the call has failed, with how the run can go on.
            (Standing::Interrupted, _) => {
                TaskPayload::Completed { result: as_object(&refused(&interrupted(&run)))? }
            }
            (Standing::Ended(_), _) => {
                TaskPayload::Completed { result: as_object(&self.ended(&run, facts).await)? }
            }
        };
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    /// Returns what `ralph` would have returned of a run that has ended.
    async fn ended(&self, run: &RunId, facts: RunFacts) -> CallToolResult {
        let Standing::Ended(result) = facts.standing else { return refused(&interrupted(run)) };
        let meta = WorkflowMeta::new(ralph_tool::WORKFLOW_NAME, ralph_tool::WORKFLOW_VERSION, "");
        let ended = EndedRun { id: run.clone(), meta: Arc::new(meta), result: *result };
        let outcome = self.host.tool().follow(Box::new(ended), &facts.args, CancellationToken::new()).await;
        self.outcome(&outcome.map_err(LoopError::from))
    }

    fn outcome(&self, outcome: &Result<Envelope, LoopError>) -> CallToolResult {
        let max_chars = self.host.tool().config().max_result_chars();
        match outcome {
            Ok(envelope) => done(envelope, ralph_tool::render::result(envelope.result(), max_chars)),
            Err(LoopError::Tool(error)) => {
                let text = ralph_tool::render::error(error, max_chars);
                failed(&RunError::from(error), text)
            }
            Err(LoopError::Refused(refusal)) => refused(refusal),
        }
    }

    fn task(run: &RunId, facts: &RunFacts, state: TaskStatus) -> Task {
        let status = RunStatus::of(run, facts);
        Task::new(run.as_str(), state, status.started_at.clone(), status.updated_at.clone())
            .with_status_message(format!("{}: {}", status.state, status.position()))
            .with_poll_interval_ms(POLL_MS)
    }
}

/// What `ralph_start` has started.
struct Started {
    run: RunId,
    facts: RunFacts,
}

/// What becomes of a run when whoever follows it cancels the request.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Leave {
    Cancels,
    Leaves,
}

/// Follows a run to its end, or until a time is up or, for one that is not to be cancelled, the request is. Tells of
/// each round that begins when the client has asked for it.
async fn follow(
    live: &LiveRun,
    context: &RequestContext<RoleServer>,
    until: Option<Instant>,
    leave: Leave,
) -> Option<crate::live::Outcome> {
    let token = context.meta.get_progress_token();
    let mut seen = live.seen();
    let told = async {
        let Some(token) = token else { return std::future::pending().await };
        let mut last = 0;
        loop {
            let now: Seen = *seen.borrow_and_update();
            if now.round > last {
                last = now.round;
                let reported = now.reported.map(|(round, status)| (round, status.as_str()));
                let mut progress = ProgressNotificationParam::new(token.clone(), last as f64)
                    .with_message(status::position(last, live.max_rounds(), reported));
                if let Some(cap) = live.max_rounds() {
                    progress = progress.with_total(cap as f64);
                }
                // The run goes on if nobody listens.
                let _ = context.peer.notify_progress(progress).await;
            }
            if seen.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    let time_is_up = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let mut told = std::pin::pin!(told);
    let mut time_is_up = std::pin::pin!(time_is_up);
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            biased;
            outcome = live.ended() => return outcome,
            () = context.ct.cancelled(), if !is_cancelled => {
                if leave == Leave::Leaves {
                    return None;
                }
                // The answer is nobody's any more. The run is waited for, so that the call is over when it is.
                is_cancelled = true;
                live.cancel();
            }
            () = &mut time_is_up => return None,
            () = &mut told => {}
        }
    }
}

fn new_run() -> RunId {
    RunId::from(uuid::Uuid::new_v4().to_string())
}

fn interrupted(run: &RunId) -> Refusal {
    let message = format!(
        "run {run} was interrupted, and nobody works on it; `{START}` with its id takes it up again, if the human wants \
         that"
    );
    Refusal::of(run, "interrupted", message)
}

fn elsewhere(run: &RunId) -> Refusal {
    let message = format!(
        "run {run} is under way in another process, which alone can end it; `ralph-loop cancel {run}` in a terminal does"
    );
    Refusal::of(run, "runs-elsewhere", message)
}

fn broken() -> Refusal {
    Refusal::new("server-broken", "the server broke off while it ran the loop; look at its standard error")
}

/// A success, whole as structured content and as a bounded text.
fn done(value: &impl Serialize, text: String) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = serde_json::to_value(value).ok();
    result
}

fn stands(run: &RunId, facts: &RunFacts) -> CallToolResult {
    let status = RunStatus::of(run, facts);
    let told = status.told();
    done(&status, told)
}

fn refused(refusal: &Refusal) -> CallToolResult {
    failed(&RunError::from(refusal), format!("Error: {refusal}."))
}

fn failed(error: &RunError, text: String) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = serde_json::to_value(error).ok();
    result
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ralph-loop", env!("CARGO_PKG_VERSION")))
            .with_instructions(tools::instructions(self.host.tool()))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().iter().find(|tool| tool.name == name).cloned()
    }

    fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + Send + '_ {
        // The SDK has room for this future in several others, that of the first message among them.
        Box::pin(self.called(request, context))
    }

    fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<GetTaskResult, ErrorData>> + Send + '_ {
        // As above.
        Box::pin(self.looked_at(RunId::from(request.task_id)))
    }

    /// A loop never asks its client for anything, so there is nothing to take in.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = RunId::from(request.task_id);
        self.facts(&run).await.map(drop).map_err(|refusal| no_task(&refusal))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = RunId::from(request.task_id);
        let facts = self.facts(&run).await.map_err(|refusal| no_task(&refusal))?;
        match (self.runs.get(&run), facts.standing) {
            (Some(live), _) => live.cancel(),
            (None, Standing::Running) => return Err(no_task(&elsewhere(&run))),
            (None, _) => {}
        }
        Ok(())
    }
}

/// Says whether the client understands a task in place of a result.
///
/// Some declare the extension under older revisions as well, whose results have no type that tells the two apart, and
/// take a task for a broken result there.
fn takes_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// A call of `ralph` always starts a new run.
fn without_run_id(mut args: Value) -> Value {
    if let Some(keys) = args.as_object_mut() {
        keys.remove("runId");
    }
    args
}

fn no_task(refusal: &Refusal) -> ErrorData {
    ErrorData::invalid_params(refusal.to_string(), Some(json!({ "code": refusal.code() })))
}

fn as_object(result: &CallToolResult) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(ErrorData::internal_error("the result cannot be written", None)),
    }
}

/// A run whose end is known, for whoever judges ends.
#[derive(Debug)]
struct EndedRun {
    id: RunId,
    meta: Arc<WorkflowMeta>,
    result: harness_workflow::RunResult,
}

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl WorkflowRun for EndedRun {
    fn id(&self) -> &RunId {
        &self.id
    }

    fn meta(&self) -> &Arc<WorkflowMeta> {
        &self.meta
    }

    async fn result(&self) -> harness_workflow::RunResult {
        self.result.clone()
    }

    fn cancel(&self, _reason: &str) {}

    async fn dispose(&self) -> harness_workflow::Result<()> {
        Ok(())
    }
}
