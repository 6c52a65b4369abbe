//! What is played.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness_testkit::model_server::{Conversation, ModelServer, Script, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clients::{Agent, inspect_call, inspector};
use crate::conformance;
use crate::processes;
use crate::scene::{COMPLETE, CONTINUE, Scene};

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) play: fn(&Scene) -> Result<()>,
}

macro_rules! cases {
    ($($name:literal, $about:literal, $play:expr;)*) => {
        pub(crate) const CASES: &[Case] = &[$(Case { name: $name, about: $about, play: $play }),*];
    };
}

cases! {
    "inspector/tools", "the MCP Inspector finds six tools and no error in their schemas", inspector_tools;
    "inspector/legacy", "a call of a session that began with `initialize`", |scene| inspector_call(scene, "legacy");
    "inspector/modern", "a call without `initialize`, which becomes a task", |scene| inspector_call(scene, "modern");
    "inspector/refusal", "a refused call is a tool error with its code", inspector_refusal;
    "claude-code/call", "the model calls ralph, and the result comes back to it", |scene| call(scene, Agent::ClaudeCode);
    "claude-code/cancel", "interrupted in mid-round, nothing is left alive", |scene| cancel(scene, Agent::ClaudeCode);
    "claude-code/long", "a loop longer than a call may be is finished by its id", |scene| long(scene, Agent::ClaudeCode);
    "claude-code/killed", "the server killed in mid-run, the run resumed by its id alone", |scene| killed(scene, Agent::ClaudeCode);
    "codex/call", "the model calls ralph, and the result comes back to it", |scene| call(scene, Agent::Codex);
    "codex/cancel", "interrupted in mid-round, nothing is left alive", |scene| cancel(scene, Agent::Codex);
    "codex/long", "a loop longer than a call may be is finished by its id", |scene| long(scene, Agent::Codex);
    "codex/killed", "the server killed in mid-run, the run resumed by its id alone", |scene| killed(scene, Agent::Codex);
    "conformance", "the protocol's own suite, as far as it can drive a server like this", conformance::play;
}

/// Done in the second round. What it says aside is nobody's business.
fn two_rounds() -> String {
    format!(
        "echo 'Chatter of a child.'; echo \"$HARNESS_CALL\" >> rounds\n\
         if [ \"$HARNESS_CALL\" = 1 ]; then printf '%s' '{CONTINUE}'; else printf '%s' '{COMPLETE}'; fi > \"$HARNESS_VALUE_FILE\""
    )
}

/// Works until it is ended, with a straggler in another session.
const HANGING: &str = "setsid sleep 600 & echo $$ > agent; exec sleep 600";

fn model(turns: impl IntoIterator<Item = Turn>) -> Result<ModelServer> {
    Ok(ModelServer::start(Script::in_order([Conversation::new(turns)]))?)
}

fn objective() -> Value {
    json!({ "objective": "Make the tests pass." })
}

/// What the model was told last, that is with all that was said before.
fn told_last(model: &ModelServer) -> Result<String> {
    let exchanges = model.conversation(1);
    let question = exchanges.last().and_then(|exchange| exchange.question());
    Ok(question.context("the model was asked nothing")?.text())
}

fn inspector_tools(scene: &Scene) -> Result<()> {
    let server = scene.server(&two_rounds())?;
    let listed = inspector(scene, &server, &["--method", "tools/list", "--strict"])?;
    let tools = listed["tools"].as_array().context("a list of tools")?;
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let expected = ["ralph", "ralph_start", "ralph_status", "ralph_wait", "ralph_result", "ralph_cancel"];
    ensure!(names == expected, "the tools are {names:?}");
    let strict = std::fs::read_to_string(scene.path("client.err"))?;
    ensure!(strict.contains("0 errors"), "the Inspector's own check of the schemas: {strict}");
    Ok(())
}

fn inspector_call(scene: &Scene, era: &str) -> Result<()> {
    let server = scene.server(&two_rounds())?;
    let result = inspect_call(scene, &server, era, "ralph", &objective())?;
    let envelope = &result["structuredContent"];
    ensure!(
        envelope["result"]["report"] == serde_json::from_str::<Value>(COMPLETE)?,
        "the result is {result}"
    );
    ensure!(envelope["agentsStarted"] == 2, "the result is {result}");
    ensure!(scene.text("rounds") == "1\n2\n", "two children have run");
    Ok(())
}

fn inspector_refusal(scene: &Scene) -> Result<()> {
    let server = scene.server(&two_rounds())?;
    let result =
        inspect_call(scene, &server, "legacy", "ralph", &json!({ "objective": "x", "maxRounds": 6 }))?;
    ensure!(result["isError"] == true, "the result is {result}");
    ensure!(result["structuredContent"]["code"] == "max-rounds-over-ceiling", "the result is {result}");
    ensure!(scene.runs()?.is_empty(), "nothing was started");
    Ok(())
}

fn call(scene: &Scene, agent: Agent) -> Result<()> {
    let server = scene.server(&two_rounds())?;
    let model = model([Turn::call("ralph", objective()), Turn::text("The loop has ended.")])?;
    agent.start(scene, &model, &server, 120)?.end(scene)?;
    let told = told_last(&model)?;
    ensure!(told.contains("make: all 42 tests pass"), "the result does not come back to the model: {told}");
    for private in ["Private words", "Chatter of a child"] {
        ensure!(!told.contains(private), "what a child said reaches the conversation: {told}");
    }
    ensure!(scene.text("rounds") == "1\n2\n", "two children have run");
    Ok(())
}

fn cancel(scene: &Scene, agent: Agent) -> Result<()> {
    let server = scene.server(HANGING)?;
    let model = model([Turn::call("ralph", objective()), Turn::text("Never said.")])?;
    let mut client = agent.start(scene, &model, &server, 120)?;
    scene.wait("the child", || scene.text("agent").ends_with('\n').then_some(()))?;
    client.signal(Signal::INT)?;
    client.end(scene)?;
    scene.nothing_is_left()
}

fn long(scene: &Scene, agent: Agent) -> Result<()> {
    let server = scene.server(&format!("sleep 10; printf '%s' '{COMPLETE}' > \"$HARNESS_VALUE_FILE\""))?;
    let model = model([
        // The client gives up on this one.
        Turn::call("ralph", objective()),
        // A cancelled run is gone when the next may begin; until then the workspace is not free.
        Turn::call("ralph_wait", json!({ "seconds": 2 })).times(2),
        Turn::call("ralph_start", objective()),
        Turn::call("ralph_wait", json!({ "seconds": 2 })).times(8),
        Turn::call("ralph_result", json!({})),
        Turn::text("The loop has ended."),
    ])?;
    agent.start(scene, &model, &server, 4)?.end(scene)?;
    let told = told_last(&model)?;
    ensure!(told.contains("make: all 42 tests pass"), "the result does not come back to the model: {told}");
    let mut outcomes: Vec<_> = scene.runs()?.iter().map(|run| run["outcome"].to_string()).collect();
    outcomes.sort();
    ensure!(outcomes == [r#""cancelled""#, r#""complete""#], "the runs ended as {outcomes:?}");
    Ok(())
}

fn killed(scene: &Scene, agent: Agent) -> Result<()> {
    let server = scene.server(&format!(
        "echo \"$HARNESS_CALL\" >> rounds\n\
         if [ \"$HARNESS_CALL\" = 1 ]; then printf '%s' '{CONTINUE}' > \"$HARNESS_VALUE_FILE\"; exit; fi\n\
         if [ -e hung ]; then printf '%s' '{COMPLETE}' > \"$HARNESS_VALUE_FILE\"; exit; fi\n\
         touch hung; setsid sleep 600 & echo $$ > agent; exec sleep 600"
    ))?;
    let first = model([
        Turn::call("ralph_start", objective()),
        Turn::call("ralph_wait", json!({ "seconds": 60 })),
        Turn::text("The server is gone."),
    ])?;
    let mut client = agent.start(scene, &first, &server, 120)?;
    scene.wait("the child of the second round", || scene.text("agent").ends_with('\n').then_some(()))?;
    kill_server(scene.root())?;
    client.end(scene)?;

    // A server that is started again ends what the killed one has left, and tells what is known.
    let runs = scene.runs()?;
    ensure!(runs.len() == 1, "the runs are {runs:?}");
    let run = json!({ "runId": runs[0]["run"] });
    let status = inspect_call(scene, &server, "legacy", "ralph_status", &run)?;
    ensure!(status["structuredContent"]["state"] == "interrupted", "the run shows as {status}");
    ensure!(scene.text("rounds") == "1\n2\n", "it goes on by itself: {}", scene.text("rounds"));
    scene.nothing_is_left()?;

    let second = model([
        Turn::call("ralph_start", run.clone()),
        Turn::call("ralph_wait", json!({ "runId": run["runId"], "seconds": 60 })),
        Turn::call("ralph_result", run.clone()),
        Turn::text("The loop has ended."),
    ])?;
    agent.start(scene, &second, &server, 120)?.end(scene)?;
    let told = told_last(&second)?;
    ensure!(told.contains("make: all 42 tests pass"), "the result does not come back to the model: {told}");
    ensure!(
        scene.text("rounds") == "1\n2\n2\n",
        "a round that had ended is done again: {}",
        scene.text("rounds")
    );
    let result = inspect_call(scene, &server, "legacy", "ralph_result", &run)?;
    ensure!(result["structuredContent"]["runId"] == run["runId"], "the same id gives {result}");
    ensure!(result["structuredContent"]["result"]["status"] == "complete", "the same id gives {result}");
    Ok(())
}

/// Kills the server with what it has no time to clean up.
fn kill_server(root: &Path) -> Result<()> {
    let servers = processes::alive(root);
    let server = servers.iter().find(|process| process.command.contains("ralph-loop mcp"));
    let pid = server.and_then(|process| Pid::from_raw(process.pid)).context("no server is alive")?;
    Ok(kill_process(pid, Signal::KILL)?)
}
