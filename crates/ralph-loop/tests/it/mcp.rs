//! The `ralph` tool for MCP clients, as they start it.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::{COMPLETE, CONTINUE, Process, Stage, hand_in, json as read, three_rounds, wait_until};

/// Goes on until it is ended, and has a straggler in another session.
const HANGING: &str =
    "cat > /dev/null; setsid sleep 600 & echo $! > straggler; echo $$ > agent; exec sleep 600";

/// Hangs in the second round of its first life, and is done in its second.
fn hangs_once() -> String {
    format!(
        "cat > /dev/null; echo \"$HARNESS_CALL\" >> rounds\n\
         if [ \"$HARNESS_CALL\" = 1 ]; then printf '%s' '{CONTINUE}' > \"$HARNESS_VALUE_FILE\"; exit; fi\n\
         if [ -e hung ]; then printf '%s' '{COMPLETE}' > \"$HARNESS_VALUE_FILE\"; exit; fi\n\
         touch hung; setsid sleep 600 & echo $! > straggler; echo $$ > agent; exec sleep 600"
    )
}

fn server(stage: &Stage, agent: &str) -> Command {
    stage.command(&["mcp", "--max-rounds", "5", "--", agent])
}

fn serve(stage: &Stage, script: &str) -> Client {
    let agent = stage.script("agent.sh", script);
    Client::of(server(stage, &agent))
}

fn objective() -> Value {
    json!({ "objective": "Make the tests pass." })
}

fn hanging(stage: &Stage) -> [Process; 2] {
    [stage.wait_for_pid("agent"), stage.wait_for_pid("straggler")]
}

#[track_caller]
fn all_gone(processes: &[Process]) {
    for process in processes {
        assert!(!process.is_alive(), "{process:?}");
    }
}

fn run_of(result: &Value) -> String {
    result["structuredContent"]["runId"].as_str().unwrap_or_else(|| panic!("no run in {result}")).to_owned()
}

#[track_caller]
fn refused(result: &Value, code: &str) {
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(result["structuredContent"]["code"], code, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().starts_with("Error: "), "{result}");
}

#[track_caller]
fn stands(result: &Value, state: &str) {
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(result["structuredContent"]["state"], state, "{result}");
}

/// Waits with the tool until the run has ended.
#[track_caller]
fn ended(client: &mut Client, run: &str) -> Value {
    wait_until("the end of the run", || {
        let result = client.call("ralph_wait", &json!({ "runId": run, "seconds": 5 }));
        (result["structuredContent"]["state"] != "running").then_some(result)
    })
}

#[test]
fn a_call_returns_the_envelope_and_a_bounded_text() {
    let stage = Stage::new();
    let mut client = serve(&stage, &three_rounds());
    let result = client.call("ralph", &objective());
    assert_eq!(result["isError"], false, "{result}");
    let envelope = &result["structuredContent"];
    assert_eq!(envelope["agentsStarted"], 3);
    assert_eq!(envelope["result"]["report"], read(COMPLETE));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("Ralph ended after 3 rounds: a worker reported the objective complete."),
        "{text}"
    );
    assert!(client.notifications.is_empty(), "nobody asked for progress");
    let run = run_of(&result);
    client.end().with_status(0);
    assert_eq!(stage.runs(), [run]);
}

#[test]
fn the_definition_is_the_tools_own() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &hand_in(COMPLETE));
    let mut client = Client::of(server(&stage, &agent));
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ralph", "ralph_start", "ralph_status", "ralph_wait", "ralph_result", "ralph_cancel"]);
    assert!(
        tools[0]["inputSchema"]["properties"]["maxRounds"]["description"]
            .as_str()
            .unwrap()
            .contains("1 to 5")
    );
    let envelope = &tools[0]["outputSchema"]["anyOf"][0];
    assert_eq!(envelope["required"], json!(["runId", "agentsStarted", "result"]));
    client.end().with_status(0);
}

#[test]
fn refusals_are_tool_errors_with_a_stable_code() {
    let stage = Stage::new();
    let mut client = serve(&stage, &hand_in(COMPLETE));
    refused(&client.call("ralph", &json!({})), "invalid-arguments");
    refused(&client.call("ralph", &json!({ "objective": " " })), "objective-empty");
    refused(&client.call("ralph", &json!({ "objective": "x", "maxRounds": 6 })), "max-rounds-over-ceiling");
    refused(&client.call("ralph_start", &json!({ "objective": "x", "maxRounds": 0 })), "max-rounds-invalid");
    refused(&client.call("ralph_start", &json!({ "objective": "x", "runId": "y" })), "invalid-arguments");
    for tool in ["ralph_status", "ralph_wait", "ralph_result", "ralph_cancel", "ralph_start"] {
        refused(&client.call(tool, &json!({ "runId": "../../etc" })), "unknown-run");
        refused(&client.call(tool, &json!({ "runId": 7 })), "invalid-arguments");
    }
    refused(&client.call("ralph_wait", &json!({})), "unknown-run");
    refused(&client.call("ralph_cancel", &json!({})), "invalid-arguments");
    let answer = client.ask("tools/call", &json!({ "name": "bash", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // Nothing was started, and nothing is left of what was not.
    client.end().with_status(0);
    assert!(stage.runs().is_empty());
    assert_eq!(std::fs::read_dir(stage.state().join("launches")).unwrap().count(), 0);
}

#[test]
fn a_failed_loop_is_a_tool_error_with_the_last_good_report() {
    let stage = Stage::new();
    let script = format!(
        "cat > /dev/null; if [ \"$HARNESS_CALL\" = 1 ]; then printf '%s' '{CONTINUE}' > \"$HARNESS_VALUE_FILE\"; else exit 3; fi"
    );
    let mut client = serve(&stage, &script);
    let result = client.call("ralph", &objective());
    refused(&result, "round-failed");
    assert_eq!(result["structuredContent"]["details"]["lastReport"], read(CONTINUE));
    // The same can be asked for again, by the id.
    let run = result["structuredContent"]["details"]["runId"].clone();
    assert_eq!(client.call("ralph_result", &json!({ "runId": run })), result);
    client.end().with_status(0);
}

#[test]
fn each_round_that_begins_is_told_to_a_client_that_asks() {
    let stage = Stage::new();
    let mut client = serve(&stage, &three_rounds());
    let params = json!({ "name": "ralph", "arguments": objective(), "_meta": { "progressToken": "token" } });
    let answer = client.ask("tools/call", &params);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let told: Vec<_> = client.notifications.iter().map(|told| told["params"].clone()).collect();
    let last = told.last().unwrap();
    // Rounds that are over before they can be told of are left out.
    assert_eq!(last["progressToken"], "token", "{told:?}");
    assert!(
        told.iter().all(|told| told["total"] == 5.0 && told["message"].as_str().unwrap().contains(" of 5"))
    );
    let rounds: Vec<_> = told.iter().map(|told| told["progress"].as_f64().unwrap()).collect();
    assert!(rounds.is_sorted_by(|one, two| one < two), "{told:?}");
    assert!(!format!("{told:?}").contains("Went on"), "an agent's words: {told:?}");
    client.end().with_status(0);
}

#[test]
fn a_cancelled_call_leaves_nothing_alive() {
    let stage = Stage::new();
    let mut client = serve(&stage, HANGING);
    let id = client.send("tools/call", &json!({ "name": "ralph", "arguments": objective() }));
    let left = hanging(&stage);
    client.notify("notifications/cancelled", &json!({ "requestId": id, "reason": "enough" }));
    wait_until("the end in the journal", || (stage.only_run()["outcome"] == "cancelled").then_some(()));
    all_gone(&left);
    // The server goes on, and the workspace is free.
    refused(&client.call("ralph", &json!({ "objective": "" })), "objective-empty");
    let said = client.end().with_status(0);
    assert_eq!(said.out, "", "a cancelled request is not answered");
}

#[test]
fn a_client_that_goes_away_cancels_the_call_it_waits_for() {
    let stage = Stage::new();
    let mut client = serve(&stage, HANGING);
    client.send("tools/call", &json!({ "name": "ralph", "arguments": objective() }));
    let left = hanging(&stage);
    client.end().with_status(0);
    all_gone(&left);
    assert_eq!(stage.only_run()["outcome"], "cancelled");
}

#[test]
fn a_loop_can_be_followed_by_its_id() {
    let stage = Stage::new();
    let mut client = serve(&stage, &three_rounds());
    let started = client.call("ralph_start", &objective());
    assert_eq!(started["isError"], false, "{started}");
    let run = run_of(&started);
    let last = ended(&mut client, &run);
    stands(&last, "ended");
    assert_eq!(last["structuredContent"]["outcome"], "complete", "{last}");
    assert_eq!(last["structuredContent"]["round"], 3, "{last}");
    let result = client.call("ralph_result", &json!({ "runId": run }));
    assert_eq!(result["structuredContent"]["result"]["report"], read(COMPLETE), "{result}");
    assert_eq!(client.call("ralph_result", &json!({})), result, "the latest run, without an id");
    refused(&client.call("ralph_start", &json!({ "runId": run })), "run-ended");
    let listed = client.call("ralph_status", &json!({}));
    assert_eq!(listed["structuredContent"]["runs"][0]["runId"], run.as_str(), "{listed}");
    client.end().with_status(0);
}

#[test]
fn a_started_loop_is_waited_for_in_bounds_and_cancelled_by_its_id() {
    let stage = Stage::new();
    let mut client = serve(&stage, HANGING);
    let run = run_of(&client.call("ralph_start", &objective()));
    let left = hanging(&stage);
    stands(&client.call("ralph_wait", &json!({ "runId": run, "seconds": 1 })), "running");
    refused(&client.call("ralph_wait", &json!({ "runId": run, "seconds": 0 })), "invalid-arguments");
    refused(&client.call("ralph_result", &json!({ "runId": run })), "not-ended");
    stands(&client.call("ralph_start", &json!({ "runId": run })), "running");
    refused(&client.call("ralph", &objective()), "workspace-busy");
    let cancelled = client.call("ralph_cancel", &json!({ "runId": run }));
    stands(&cancelled, "ended");
    assert_eq!(cancelled["structuredContent"]["outcome"], "cancelled");
    all_gone(&left);
    refused(&client.call("ralph_result", &json!({ "runId": run })), "cancelled");
    stands(&client.call("ralph_cancel", &json!({ "runId": run })), "ended");
    client.end().with_status(0);
}

#[test]
fn what_a_killed_server_ran_is_interrupted_and_resumed_by_its_id_alone() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &hangs_once());
    let mut client = Client::of(server(&stage, &agent));
    let run = run_of(&client.call("ralph_start", &objective()));
    let left = hanging(&stage);
    client.signal(Signal::KILL);
    client.wait().with_status(-9);

    let mut client = Client::of(server(&stage, &agent));
    for process in &left {
        process.wait_for_end();
    }
    let status = client.call("ralph_status", &json!({ "runId": run }));
    stands(&status, "interrupted");
    assert_eq!(status["structuredContent"]["lastReport"], json!({ "round": 1, "status": "continue" }));
    refused(&client.call("ralph_result", &json!({ "runId": run })), "interrupted");
    stands(&client.call("ralph_wait", &json!({ "runId": run, "seconds": 1 })), "interrupted");
    assert_eq!(stage.text("rounds"), "1\n2\n", "nothing goes on by itself");
    let resumed = client.call("ralph_start", &json!({ "runId": run }));
    assert_eq!(run_of(&resumed), run);
    stands(&ended(&mut client, &run), "ended");
    let result = client.call("ralph_result", &json!({ "runId": run }));
    assert_eq!(result["structuredContent"]["result"]["status"], "complete", "{result}");
    assert_eq!(stage.text("rounds"), "1\n2\n2\n", "a round that had ended is not done again");
    client.end().with_status(0);
}

#[test]
fn a_server_that_ends_interrupts_what_nobody_waits_for() {
    for way in [None, Some(Signal::TERM)] {
        let stage = Stage::new();
        let agent = stage.script("agent.sh", &hangs_once());
        let mut client = Client::of(server(&stage, &agent));
        let run = run_of(&client.call("ralph_start", &objective()));
        let left = hanging(&stage);
        match way {
            None => client.end(),
            Some(signal) => {
                client.signal(signal);
                client.wait()
            }
        }
        .with_status(0);
        for process in &left {
            process.wait_for_end();
        }
        let mut client = Client::of(server(&stage, &agent));
        stands(&client.call("ralph_status", &json!({ "runId": run })), "interrupted");
        run_of(&client.call("ralph_start", &json!({ "runId": run })));
        stands(&ended(&mut client, &run), "ended");
        assert_eq!(client.call("ralph_result", &json!({ "runId": run }))["isError"], false);
        client.end().with_status(0);
    }
}

#[test]
fn a_client_that_knows_tasks_gets_one_whose_id_is_the_runs() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &hangs_once());
    let mut client = Client::with_tasks(server(&stage, &agent));
    let created = client.ask("tools/call", &json!({ "name": "ralph", "arguments": objective() }));
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    assert_eq!(created["result"]["status"], "working", "{created}");
    let task = created["result"]["taskId"].as_str().unwrap().to_owned();
    let left = hanging(&stage);
    let got = client.ask("tasks/get", &json!({ "taskId": task }));
    assert_eq!(got["result"]["status"], "working", "{got}");
    assert_eq!(got["result"]["statusMessage"], "running: round 2 of 5 (round 1: continue)", "{got}");
    client.signal(Signal::KILL);
    client.wait().with_status(-9);

    let mut client = Client::with_tasks(server(&stage, &agent));
    for process in &left {
        process.wait_for_end();
    }
    let got = client.ask("tasks/get", &json!({ "taskId": task }));
    assert_eq!(got["result"]["status"], "completed", "{got}");
    assert_eq!(got["result"]["result"]["structuredContent"]["code"], "interrupted", "{got}");
    client.call("ralph_start", &json!({ "runId": task }));
    let got = wait_until("the end of the task", || {
        let got = client.ask("tasks/get", &json!({ "taskId": task }));
        (got["result"]["status"] != "working").then_some(got)
    });
    assert_eq!(got["result"]["result"]["structuredContent"]["result"]["status"], "complete", "{got}");
    let unknown = client.ask("tasks/get", &json!({ "taskId": "none" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    client.end().with_status(0);
}

#[test]
fn a_client_of_an_older_revision_gets_results_whatever_it_declares() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &hand_in(COMPLETE));
    let mut client = Client::declaring_tasks_early(server(&stage, &agent));
    let result = client.call("ralph", &objective());
    assert_eq!(result["structuredContent"]["result"]["status"], "complete", "{result}");
    client.end().with_status(0);
}

#[test]
fn a_cancelled_task_is_cancelled_and_leaves_nothing_alive() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", HANGING);
    let mut client = Client::with_tasks(server(&stage, &agent));
    let created = client.ask("tools/call", &json!({ "name": "ralph", "arguments": objective() }));
    let task = created["result"]["taskId"].clone();
    let left = hanging(&stage);
    client.ask("tasks/cancel", &json!({ "taskId": task }));
    wait_until("the cancelled task", || {
        let got = client.ask("tasks/get", &json!({ "taskId": task }));
        (got["result"]["status"] == "cancelled").then_some(())
    });
    all_gone(&left);
    client.end().with_status(0);
}

#[test]
fn runs_of_another_workspace_are_not_shown() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", &hand_in(COMPLETE));
    stage.say(&["run", "do it", "--", &agent]).with_status(0);
    let run = stage.runs().remove(0);
    let mut client = Client::of(server(&stage, &agent));
    stands(&client.call("ralph_status", &json!({ "runId": run })), "ended");
    client.end().with_status(0);
    let elsewhere = stage.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut command = server(&stage, &agent);
    command.current_dir(&elsewhere);
    let mut client = Client::of(command);
    refused(&client.call("ralph_status", &json!({ "runId": run })), "unknown-run");
    assert_eq!(client.call("ralph_status", &json!({}))["structuredContent"]["runs"], json!([]));
    client.end().with_status(0);
}

#[test]
fn what_keeps_the_server_from_starting_is_told_on_standard_error() {
    let stage = Stage::new();
    let said = stage.say(&["mcp"]).with_status(2).with_err("no agent was given");
    assert_eq!(said.out, "");
    let mut inside = stage.command(&["mcp", "--", "true"]);
    inside.env("HARNESS_DEPTH", "1");
    let said = crate::stage::Said::of(inside.output().unwrap()).with_status(2);
    said.with_err("a loop inside a loop is refused");
}
