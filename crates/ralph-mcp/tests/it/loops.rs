//! What a client can do with the server of the tool, whoever runs the loops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use harness_registry_local::LocalRegistry;
use harness_subagent::{AgentId, Capabilities, Parent, ProviderInfo, SubagentRegistry};
use harness_testkit::subagent::MockProvider;
use harness_testkit::workflow::{StubEngine, StubEngineHandle};
use harness_workflow::{
    CallInfo, RunId, RunResult, WorkflowEngine, WorkflowEvent, WorkflowEventKind, WorkflowMeta,
};
use ralph_mcp::{LoopError, LoopHost, LoopServer, Refusal, RunFacts, RunWatch, Standing};
use ralph_tool::{CallContext, Envelope, RalphConfig, RalphTool, workflows};
use rmcp::model::ProtocolVersion;
use rmcp::{ClientLifecycleMode, serve_client_with_lifecycle};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A host whose runs end when the test says so.
#[derive(Debug)]
struct ScriptedHost {
    tool: RalphTool,
    begun: mpsc::UnboundedSender<(RunId, RunWatch)>,
    known: Mutex<BTreeMap<RunId, RunFacts>>,
    interrupted: AtomicBool,
    end: CancellationToken,
}

struct Scene {
    host: Arc<ScriptedHost>,
    engine: StubEngineHandle,
    begun: mpsc::UnboundedReceiver<(RunId, RunWatch)>,
}

impl Scene {
    fn new() -> Self {
        let registry = Arc::new(LocalRegistry::new());
        let (provider, _) = MockProvider::with_info(ProviderInfo::new("spawn", Capabilities::ALL));
        registry.register(provider).unwrap();
        let (engine, handle) = StubEngine::settable(workflows());
        let engine: Arc<dyn WorkflowEngine> = Arc::new(engine);
        let config = RalphConfig::default().with_max_rounds(7).unwrap();
        let tool = RalphTool::new(config, engine, registry).unwrap();
        let (send, begun) = mpsc::unbounded_channel();
        let host = ScriptedHost {
            tool,
            begun: send,
            known: Mutex::default(),
            interrupted: AtomicBool::new(false),
            end: CancellationToken::new(),
        };
        Self { host: Arc::new(host), engine: handle, begun }
    }

    fn serve(&self, stop: CancellationToken) -> (DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let server = LoopServer::new(Arc::clone(&self.host) as _);
        let served = tokio::spawn(async move { server.serve(read, write, stop).await.unwrap() });
        (theirs, served)
    }

    async fn client(&self) -> Client {
        let (stream, served) = self.serve(CancellationToken::new());
        let (read, write) = tokio::io::split(stream);
        let mut client = Client { lines: BufReader::new(read).lines(), write, served, last_id: 0 };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
        });
        client.send("initialize", &hello).await;
        client.next().await;
        client
    }

    async fn begun(&mut self) -> (RunId, RunWatch) {
        self.begun.recv().await.unwrap()
    }

    fn settle_complete(&self) {
        let report = json!({
            "status": "complete", "summary": "Done.", "evidence": ["ok"], "nextSteps": [], "blocker": "",
        });
        let value = json!({ "status": "complete", "roundsStarted": 2, "report": report });
        self.engine.settle(RunResult::completed(value).with_agents_started(2).with_attempts(2));
    }
}

#[async_trait]
impl LoopHost for ScriptedHost {
    fn tool(&self) -> &RalphTool {
        &self.tool
    }

    async fn run(&self, run: &RunId, args: &Value, watch: RunWatch) -> Result<Envelope, LoopError> {
        let context = CallContext::new(Parent::new("host", "the-workspace"))
            .with_run_id(run.clone())
            .with_cancellation(watch.cancellation.clone());
        let facts = RunFacts::new(args.clone(), Standing::Running);
        self.known.lock().unwrap().insert(run.clone(), facts);
        let meta = Arc::new(WorkflowMeta::new("ralph-loop", 1, "A loop."));
        tell(run, &watch, 1, WorkflowEventKind::Started { meta });
        self.begun.send((run.clone(), watch)).unwrap();
        let outcome = tokio::select! {
            outcome = self.tool.call(args, context) => outcome.map_err(LoopError::from),
            () = self.end.cancelled() => Err(Refusal::new("test", "interrupted").into()),
        };
        self.known.lock().unwrap().insert(run.clone(), RunFacts::new(args.clone(), Standing::Interrupted));
        outcome
    }

    async fn resume(&self, run: &RunId, watch: RunWatch) -> Result<Envelope, LoopError> {
        self.run(run, &json!({ "objective": "again" }), watch).await
    }

    async fn look(&self, run: &RunId) -> Result<Option<RunFacts>, Refusal> {
        Ok(self.known.lock().unwrap().get(run).cloned())
    }

    async fn latest(&self, most: usize) -> Result<Vec<(RunId, RunFacts)>, Refusal> {
        let known = self.known.lock().unwrap();
        Ok(known.iter().take(most).map(|(run, facts)| (run.clone(), facts.clone())).collect())
    }

    async fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        self.end.cancel();
    }
}

fn tell(run: &RunId, watch: &RunWatch, sequence: u64, kind: WorkflowEventKind) {
    watch.observer.observe(&WorkflowEvent::new(run.clone(), sequence, kind));
}

/// A round begins, after one that left a report unless it is the first.
fn begin_round(run: &RunId, watch: &RunWatch, round: u64) {
    if round > 1 {
        let report = json!({
            "status": "continue", "summary": "Private.", "evidence": [], "nextSteps": ["x"], "blocker": "",
        });
        let value = json!({ "round": round - 1, "report": report });
        tell(run, watch, round * 2, WorkflowEventKind::Checkpoint { value });
    }
    let call = CallInfo::new(round, 1, format!("Ralph round {round}"), AgentId::from("child".to_owned()));
    tell(run, watch, round * 2 + 1, WorkflowEventKind::AgentStarted { call });
}

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    served: JoinHandle<()>,
    last_id: u64,
}

impl Client {
    async fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.write.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        self.last_id
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments })).await;
        self.next().await["result"].take()
    }

    async fn leave(self) {
        drop((self.lines, self.write));
        self.served.await.unwrap();
    }
}

#[tokio::test]
async fn each_round_is_told_once_with_the_cap_and_the_last_status_and_nothing_else() {
    let mut scene = Scene::new();
    let mut client = scene.client().await;
    let params =
        json!({ "name": "ralph", "arguments": { "objective": "x" }, "_meta": { "progressToken": 9 } });
    client.send("tools/call", &params).await;
    let (run, watch) = scene.begun().await;
    for (round, message) in [(1, "round 1 of 7"), (2, "round 2 of 7 (round 1: continue)")] {
        begin_round(&run, &watch, round);
        let told = client.next().await;
        assert_eq!(told["method"], "notifications/progress");
        let expected =
            json!({ "progressToken": 9, "progress": round as f64, "total": 7.0, "message": message });
        assert_eq!(told["params"], expected);
    }
    scene.settle_complete();
    let answer = client.next().await;
    assert_eq!(answer["result"]["structuredContent"]["result"]["status"], "complete", "{answer}");
    client.leave().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_what_it_waits_for_and_interrupts_the_rest() {
    let mut scene = Scene::new();
    let mut client = scene.client().await;
    let started = client.call("ralph_start", &json!({ "objective": "in the background" })).await;
    assert_eq!(started["structuredContent"]["state"], "running", "{started}");
    let (_, background) = scene.begun().await;
    client.send("tools/call", &json!({ "name": "ralph", "arguments": { "objective": "x" } })).await;
    let (_, foreground) = scene.begun().await;
    let host = Arc::clone(&scene.host);
    let left = tokio::spawn(client.leave());
    foreground.cancellation.cancelled().await;
    assert!(!background.cancellation.is_cancelled());
    left.await.unwrap();
    assert!(host.interrupted.load(Ordering::SeqCst));
    assert!(!background.cancellation.is_cancelled());
}

#[tokio::test]
async fn a_server_that_is_stopped_ends_as_if_its_client_went_away() {
    let mut scene = Scene::new();
    let stop = CancellationToken::new();
    let (stream, served) = scene.serve(stop.clone());
    let client = serve_client_with_lifecycle((), stream, ClientLifecycleMode::Initialize).await.unwrap();
    let peer = client.peer().clone();
    let call = tokio::spawn(async move {
        let arguments = json!({ "objective": "x" }).as_object().cloned().unwrap();
        peer.call_tool_once(rmcp::model::CallToolRequestParams::new("ralph").with_arguments(arguments)).await
    });
    let (_, watch) = scene.begun().await;
    stop.cancel();
    watch.cancellation.cancelled().await;
    scene.engine.settle(RunResult::cancelled(harness_workflow::RunError::cancelled("stopped")));
    served.await.unwrap();
    assert!(scene.host.interrupted.load(Ordering::SeqCst));
    drop(client);
    // Answered or not: it does not hang.
    let _ = call.await.unwrap();
}

#[tokio::test]
async fn the_runs_at_once_are_bounded() {
    let mut scene = Scene::new();
    let mut client = scene.client().await;
    for _ in 0..16 {
        let started = client.call("ralph_start", &json!({ "objective": "x" })).await;
        assert_eq!(started["isError"], false, "{started}");
        scene.begun().await;
    }
    let refused = client.call("ralph_start", &json!({ "objective": "x" })).await;
    assert_eq!(refused["structuredContent"]["code"], "too-many-runs", "{refused}");
    client.leave().await;
}

#[tokio::test]
async fn an_interrupted_run_goes_on_under_its_id() {
    let mut scene = Scene::new();
    let run = RunId::from("a-run".to_owned());
    let facts = RunFacts::new(json!({ "maxRounds": 3 }), Standing::Interrupted);
    scene.host.known.lock().unwrap().insert(run.clone(), facts);
    let mut client = scene.client().await;
    let status = client.call("ralph_status", &json!({ "runId": "a-run" })).await;
    assert_eq!(status["structuredContent"]["state"], "interrupted", "{status}");
    let started = client.call("ralph_start", &json!({ "runId": "a-run" })).await;
    assert_eq!(started["structuredContent"]["runId"], "a-run", "{started}");
    assert_eq!(scene.begun().await.0, run);
    client.leave().await;
}

#[tokio::test]
async fn every_revision_of_the_protocol_is_served() {
    for version in ProtocolVersion::KNOWN_VERSIONS {
        let scene = Scene::new();
        scene.settle_complete();
        let (stream, served) = scene.serve(CancellationToken::new());
        let lifecycle = if version.has_initialize() {
            ClientLifecycleMode::Auto {
                preferred_versions: vec![version.clone()],
                legacy_version: Some(version.clone()),
            }
        } else {
            ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] }
        };
        let client = serve_client_with_lifecycle((), stream, lifecycle).await.unwrap();
        let instructions = client.peer_info().and_then(|info| info.instructions.clone()).unwrap();
        assert!(instructions.contains("ONLY when the direct human explicitly asks"), "{version}");
        assert_eq!(client.list_all_tools().await.unwrap()[0].name, "ralph");
        let arguments = json!({ "objective": "x" }).as_object().cloned().unwrap();
        let params = rmcp::model::CallToolRequestParams::new("ralph").with_arguments(arguments);
        let result = client.call_tool(params).await.unwrap();
        assert_eq!(result.structured_content.unwrap()["agentsStarted"], 2, "{version}");
        client.cancel().await.unwrap();
        served.await.unwrap();
    }
}
