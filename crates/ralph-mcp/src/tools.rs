//! What clients are told of the tools.

use std::sync::Arc;

use ralph_tool::RalphTool;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

pub(crate) const START: &str = "ralph_start";
pub(crate) const STATUS: &str = "ralph_status";
pub(crate) const WAIT: &str = "ralph_wait";
pub(crate) const RESULT: &str = "ralph_result";
pub(crate) const CANCEL: &str = "ralph_cancel";

/// How long `ralph_wait` waits when it is not told: less than any client is known to allow a call.
pub(crate) const DEFAULT_WAIT_SECONDS: u64 = 20;
/// The longest that `ralph_wait` waits.
pub(crate) const MAX_WAIT_SECONDS: u64 = 600;

/// What follows the tool's own guidance in the server's instructions.
const HANDLES: &str = "\
# Loops that take long

`ralph` returns when the loop has ended, which can take hours, and many clients cut a call after a minute or so, which \
cancels the loop. Where that may happen, call `ralph_start` instead: it returns the run's id at once. Then call \
`ralph_wait` with that id again and again until the state is `ended`, and `ralph_result` for what came of it. \
`ralph_status` looks without waiting, and lists the runs here when it is given no id; `ralph_cancel` ends a run. A run \
that shows as `interrupted` does not go on by itself: tell the human, and call `ralph_start` with its id if they want \
it to go on.";

pub(crate) fn instructions(tool: &RalphTool) -> String {
    format!("{}\n\n{HANDLES}", tool.prompt_section().text())
}

/// The tools, `ralph` first.
pub(crate) fn all(tool: &RalphTool) -> Vec<Tool> {
    let definition = tool.definition();
    let input = object(definition.input_schema());
    let result = either(definition.output_schema());
    let status = either(&status_schema());
    let works = || ToolAnnotations::new().destructive(true).open_world(true);
    let looks = || ToolAnnotations::new().read_only(true).open_world(false);
    let run = json!({ "type": "string", "description": "The run's id, as `ralph_start` returned it." });
    let run_or_latest = json!({
        "type": "string",
        "description": "The run's id, as `ralph_start` returned it. Leave it out for the latest run here.",
    });
    let of_run = object(&json!({ "type": "object", "properties": { "runId": run }, "required": ["runId"] }));

    let mut start = definition.input_schema().clone();
    start["properties"]["runId"] = json!({
        "type": "string",
        "description": "The id of an interrupted run that is to go on. Give nothing else with it.",
    });
    if let Some(keys) = start.as_object_mut() {
        keys.remove("required");
    }
    let description = definition.description();
    vec![
        Tool::new(
            definition.name().to_owned(),
            format!(
                "{description} The call blocks until then, hours perhaps. If your client cuts long calls, use \
                 `{START}` instead."
            ),
            input,
        )
        .with_raw_output_schema(Arc::clone(&result))
        .with_annotations(works()),
        Tool::new(
            START,
            format!(
                "Starts what `ralph` does and returns the run's id at once, for loops that take longer than a call \
                 may. Follow it with `{WAIT}`, then `{RESULT}`. With `runId` in place of an objective, an \
                 interrupted run goes on."
            ),
            object(&start),
        )
        .with_raw_output_schema(Arc::clone(&status))
        .with_annotations(works()),
        Tool::new(
            STATUS,
            "Tells at once where a run stands: running, interrupted or ended, and in which round. Without `runId`, \
             lists the latest runs here.",
            object(&json!({ "type": "object", "properties": { "runId": run } })),
        )
        .with_annotations(looks()),
        Tool::new(
            WAIT,
            format!(
                "Waits until a run ends, for `seconds` at most, and tells where it stands. While the state is \
                 `running`, call it again; when it is `ended`, call `{RESULT}`."
            ),
            object(&json!({
                "type": "object",
                "properties": {
                    "runId": run_or_latest,
                    "seconds": {
                        "type": "integer",
                        "description": format!(
                            "The longest to wait, from 1 to {MAX_WAIT_SECONDS}; less than your client allows a call. \
                             Leave it out for {DEFAULT_WAIT_SECONDS}."
                        ),
                    },
                },
            })),
        )
        .with_raw_output_schema(Arc::clone(&status))
        .with_annotations(looks()),
        Tool::new(
            RESULT,
            "Returns what came of a run that has ended, as `ralph` would have returned it. May be asked again.",
            object(&json!({ "type": "object", "properties": { "runId": run_or_latest } })),
        )
        .with_raw_output_schema(result)
        .with_annotations(looks()),
        Tool::new(
            CANCEL,
            "Cancels a run and returns when nothing of it is left. What it has done to the workspace stays.",
            of_run,
        )
        .with_raw_output_schema(status)
        .with_annotations(ToolAnnotations::new().destructive(true).idempotent(true).open_world(false)),
    ]
}

/// A result is what the tool returns, or an error: clients check either against the schema.
fn either(success: &Value) -> Arc<JsonObject> {
    let error = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "details": { "type": "object" },
        },
        "required": ["code", "message"],
    });
    object(&json!({ "type": "object", "anyOf": [success, error] }))
}

fn status_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "runId": { "type": "string" },
            "state": { "type": "string", "enum": ["running", "interrupted", "ended"] },
            "outcome": { "type": "string" },
            "round": { "type": "integer" },
            "maxRounds": { "type": "integer" },
            "lastReport": {
                "type": "object",
                "properties": { "round": { "type": "integer" }, "status": { "type": "string" } },
            },
            "startedAt": { "type": "string" },
            "updatedAt": { "type": "string" },
        },
        "required": ["runId", "state", "round"],
    })
}

fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}
