//! What an agent can do with the server by which it hands in its report.

use std::fs;
use std::path::PathBuf;

use harness_subagent::{OutputContract, OutputRuleCatalog, RuleRef};
use ralph_mcp::{Capture, CaptureFiles, UnusableContract};
use ralph_report::schema;
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, ProtocolVersion};
use rmcp::service::RunningService;
use rmcp::{ClientLifecycleMode, RoleClient, ServiceError, ServiceExt, serve_client_with_lifecycle};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TOOL: &str = "submit_report";

fn complete() -> Value {
    json!({ "status": "complete", "summary": "Done.", "evidence": ["make: ok"], "nextSteps": [], "blocker": "" })
}

/// It breaks a rule that the schema does not know.
fn without_next_steps() -> Value {
    json!({ "status": "continue", "summary": "Went on.", "evidence": [], "nextSteps": [], "blocker": "" })
}

fn contract() -> OutputContract {
    let rule = RuleRef::new(ralph_tool::REPORT_RULE).with_parameters(json!({ "maxHandoffChars": 16384 }));
    OutputContract::new(schema::child_schema()).unwrap().with_rule(rule)
}

struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> CaptureFiles {
        CaptureFiles::new(self.path("value"), self.path("refused"))
    }

    fn capture(&self, contract: OutputContract) -> Capture {
        Capture::new(TOOL, contract, &ralph_tool::rules(), self.files()).unwrap()
    }

    fn value(&self) -> Option<Value> {
        fs::read(self.path("value")).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    fn refused(&self) -> Option<Value> {
        fs::read(self.path("refused")).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    async fn agent(&self) -> Agent {
        Agent::of(self.capture(contract())).await
    }
}

struct Agent {
    client: RunningService<RoleClient, ()>,
    server: JoinHandle<()>,
}

impl Agent {
    async fn of(capture: Capture) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let server = tokio::spawn(async move {
            capture.serve(read, write, CancellationToken::new()).await.unwrap();
        });
        Self { client: ().serve(theirs).await.unwrap(), server }
    }

    async fn hand_in(&self, report: Value) -> Answer {
        let Value::Object(report) = report else { panic!("arguments are an object") };
        let params = CallToolRequestParams::new(TOOL).with_arguments(report);
        Answer(self.client.call_tool(params).await.unwrap())
    }

    async fn leave(self) {
        self.client.cancel().await.unwrap();
        self.server.await.unwrap();
    }
}

#[derive(Debug)]
struct Answer(CallToolResult);

impl Answer {
    fn text(&self) -> &str {
        &self.0.content[0].as_text().unwrap().text
    }

    #[track_caller]
    fn done(&self) {
        assert_eq!(self.0.is_error, Some(false), "{self:?}");
        assert!(self.text().contains("You are done"), "{self:?}");
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        assert_eq!(self.0.is_error, Some(true), "{self:?}");
        for part in parts {
            assert!(self.text().contains(part), "no {part:?} in {}", self.text());
        }
    }
}

#[tokio::test]
async fn the_tool_has_the_schema_of_the_report() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    let tools = agent.client.list_all_tools().await.unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0].name, TOOL);
    assert_eq!(Value::Object((*tools[0].input_schema).clone()), schema::child_schema());
    agent.leave().await;
}

#[tokio::test]
async fn an_accepted_report_is_kept_and_never_replaced() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    agent.hand_in(complete()).await.done();
    assert_eq!(stage.value(), Some(complete()));
    agent.hand_in(complete()).await.done();
    let mut other = complete();
    other["summary"] = json!("Done twice.");
    agent.hand_in(other).await.refused(&["this one was not taken", "You are done"]);
    agent.hand_in(without_next_steps()).await.refused(&["this one was not taken"]);
    assert_eq!(stage.value(), Some(complete()));
    assert_eq!(stage.refused(), None);
    agent.leave().await;
}

#[tokio::test]
async fn a_server_that_is_started_again_knows_what_was_accepted() {
    let stage = Stage::new();
    let first = stage.agent().await;
    first.hand_in(complete()).await.done();
    first.leave().await;
    let second = stage.agent().await;
    second.hand_in(complete()).await.done();
    second.hand_in(without_next_steps()).await.refused(&["this one was not taken"]);
    assert_eq!(stage.value(), Some(complete()));
    second.leave().await;
}

#[tokio::test]
async fn a_refused_report_comes_back_with_its_violations_and_can_be_corrected() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    agent.hand_in(without_next_steps()).await.refused(&["- /nextSteps: ", "one more correction"]);
    assert_eq!(stage.value(), None);
    assert_eq!(stage.refused(), Some(without_next_steps()));
    agent.hand_in(complete()).await.done();
    assert_eq!(stage.value(), Some(complete()));
    agent.leave().await;
}

#[tokio::test]
async fn the_refusal_after_the_last_correction_is_final() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    agent.hand_in(without_next_steps()).await.refused(&["one more correction"]);
    agent.hand_in(json!({})).await.refused(&["the last correction", "status"]);
    agent.hand_in(without_next_steps()).await.refused(&["This is final", "- /nextSteps: "]);
    agent.hand_in(complete()).await.refused(&["was not looked at"]);
    assert_eq!(stage.value(), None);
    assert_eq!(stage.refused(), Some(without_next_steps()), "the last one that was judged");
    agent.leave().await;
}

#[tokio::test]
async fn without_corrections_the_first_refusal_is_final() {
    let stage = Stage::new();
    let agent = Agent::of(stage.capture(contract()).with_corrections(0)).await;
    agent.hand_in(without_next_steps()).await.refused(&["This is final"]);
    agent.leave().await;
}

#[tokio::test]
async fn without_a_rule_the_schema_alone_decides() {
    let stage = Stage::new();
    let schema = OutputContract::new(schema::child_schema()).unwrap();
    let agent = Agent::of(stage.capture(schema)).await;
    agent
        .hand_in(json!({ "status": "continue", "evidence": "none" }))
        .await
        .refused(&["- /evidence: ", "summary"]);
    agent.hand_in(without_next_steps()).await.done();
    assert_eq!(stage.value(), Some(without_next_steps()));
    agent.leave().await;
}

#[tokio::test]
async fn no_arguments_are_an_empty_report() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    let answer = agent.client.call_tool(CallToolRequestParams::new(TOOL)).await.unwrap();
    Answer(answer).refused(&["status"]);
    assert_eq!(stage.refused(), Some(json!({})));
    agent.leave().await;
}

#[tokio::test]
async fn another_tool_does_not_exist() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    let error = agent.client.call_tool(CallToolRequestParams::new("submit")).await.unwrap_err();
    let ServiceError::McpError(error) = error else { panic!("{error}") };
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert!(error.message.contains(TOOL), "{error:?}");
    agent.hand_in(complete()).await.done();
    agent.leave().await;
}

#[tokio::test]
async fn a_report_without_measure_is_refused_with_the_measure() {
    let stage = Stage::new();
    let schema = json!({ "type": "object", "properties": { "list": { "type": "array", "items": { "type": "string" } } } });
    let contract = OutputContract::new(schema).unwrap();
    let capture = stage.capture(contract).with_max_bytes(1000).with_max_values(20).with_corrections(9);
    let agent = Agent::of(capture).await;
    agent.hand_in(json!({ "list": ["x".repeat(1 << 20)] })).await.refused(&["1000 are allowed"]);
    agent.hand_in(json!({ "list": vec!["x"; 19] })).await.refused(&["more than 20 values"]);
    agent.hand_in(json!({ "list": vec!["x"; 18] })).await.done();
    agent.leave().await;
}

#[tokio::test]
async fn reports_that_come_at_once_are_judged_one_after_the_other() {
    let stage = Stage::new();
    let agent = stage.agent().await;
    let reports: Vec<Value> = (0..16)
        .map(|number| {
            let mut report = complete();
            report["summary"] = json!(format!("Done by {number}."));
            report
        })
        .collect();
    let calls: Vec<_> = reports.into_iter().map(|report| agent.hand_in(report)).collect();
    let mut accepted = 0;
    for call in futures_of(calls).await {
        accepted += usize::from(call.0.is_error == Some(false));
    }
    assert_eq!(accepted, 1);
    assert!(stage.value().is_some());
    agent.leave().await;
}

/// Polls all of `futures` and returns what came of them.
async fn futures_of<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut waiting {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if waiting.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting.into_iter().map(|(_, output)| output.unwrap()).collect()
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_not_the_agents_fault() {
    let stage = Stage::new();
    let files = CaptureFiles::new(stage.path("missing/value"), stage.path("missing/refused"));
    let capture = Capture::new(TOOL, contract(), &ralph_tool::rules(), files).unwrap();
    let agent = Agent::of(capture).await;
    for _ in 0..5 {
        agent.hand_in(complete()).await.refused(&["could not be kept"]);
        agent.hand_in(without_next_steps()).await.refused(&["could not be kept"]);
    }
    // It counts as no refusal.
    fs::create_dir(stage.path("missing")).unwrap();
    agent.hand_in(complete()).await.done();
    assert!(stage.path("missing/value").exists());
    agent.leave().await;
}

#[tokio::test]
async fn every_revision_of_the_protocol_is_served() {
    for version in ProtocolVersion::KNOWN_VERSIONS {
        let stage = Stage::new();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let server = tokio::spawn(stage.capture(contract()).serve(read, write, CancellationToken::new()));
        let lifecycle = if version.has_initialize() {
            ClientLifecycleMode::Auto {
                preferred_versions: vec![version.clone()],
                legacy_version: Some(version.clone()),
            }
        } else {
            ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] }
        };
        let client = serve_client_with_lifecycle((), theirs, lifecycle).await.unwrap();
        let Value::Object(report) = complete() else { panic!("a report is an object") };
        let params = CallToolRequestParams::new(TOOL).with_arguments(report);
        Answer(client.call_tool(params).await.unwrap()).done();
        assert_eq!(stage.value(), Some(complete()), "{version}");
        client.cancel().await.unwrap();
        server.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_stopped_server_ends_while_the_agent_still_listens() {
    let stage = Stage::new();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(ours);
    let stop = CancellationToken::new();
    let server = tokio::spawn(stage.capture(contract()).serve(read, write, stop.clone()));
    let client = ().serve(theirs).await.unwrap();
    stop.cancel();
    server.await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_no_error() {
    let stage = Stage::new();
    let (ours, theirs) = tokio::io::duplex(64);
    drop(theirs);
    let (read, write) = tokio::io::split(ours);
    stage.capture(contract()).serve(read, write, CancellationToken::new()).await.unwrap();
}

#[test]
fn a_rule_that_this_process_lacks_is_refused_at_once() {
    let stage = Stage::new();
    let made = Capture::new(TOOL, contract(), &OutputRuleCatalog::new(), stage.files());
    let UnusableContract::Rule(error) = made.unwrap_err() else { panic!("another error") };
    assert!(error.to_string().contains(ralph_tool::REPORT_RULE), "{error}");
}
