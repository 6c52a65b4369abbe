//! How this binary plays the agents that say what they do and are told nothing more.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use super::fake::{Server, babble, say, stubborn};

/// Says what was recorded, and calls the capture server where the recorded agent did.
pub(super) fn replay(kind: &str, lines: &str, place: &Path) {
    hear_all();
    let mut server = None;
    let mut call = |value: &Value| {
        server.get_or_insert_with(|| server_of(kind, place)).call(value);
    };
    for line in lines.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            say(line);
            continue;
        };
        match kind {
            "gemini" if event["tool_name"] == "mcp_ralph_submit_report" => call(&event["parameters"]),
            "opencode" if event["part"]["tool"] == "ralph_submit_report" => {
                call(&event["part"]["state"]["input"]);
            }
            "qwen-code" => {
                for block in event["message"]["content"].as_array().into_iter().flatten() {
                    if block["name"] == "mcp__ralph__submit_report" {
                        call(&block["input"]);
                    }
                }
            }
            _ => {}
        }
        say(line);
    }
}

/// Starts the capture server as the agent was told to.
fn server_of(kind: &str, place: &Path) -> Server {
    let variable = |name: &str| std::env::var(name).unwrap();
    match kind {
        "gemini" => {
            let file = Path::new(&variable("GEMINI_CLI_HOME")).join(".gemini/settings.json");
            let settings = fs::read(file).unwrap();
            let settings: Value = serde_json::from_slice(&settings).unwrap();
            Server::start(&settings["mcpServers"]["ralph"])
        }
        "opencode" => {
            let config: Value = serde_json::from_str(&variable("OPENCODE_CONFIG_CONTENT")).unwrap();
            let server = &config["mcp"]["ralph"];
            let command = server["command"].as_array().unwrap();
            Server::start(
                &json!({ "command": command[0], "args": command[1..], "env": server["environment"] }),
            )
        }
        _ => Server::of_claude(place),
    }
}

/// Does what the first line of the prompt says.
pub(super) fn perform(kind: &str, place: &Path) -> ! {
    let prompt = hear_all();
    let speaker = Speaker { kind };
    speaker.begin();
    let mut lines = prompt.lines();
    match lines.next().unwrap() {
        "completes" => {
            speaker.text("all done");
            speaker.end();
        }
        "hands-in" => {
            let value: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            if prompt.contains("`structured_output`") {
                speaker.end_with(&value);
            } else {
                server_of(kind, place).call(&value);
                speaker.end();
            }
        }
        "fails" => {
            speaker.fail();
            std::process::exit(1);
        }
        "hangs" => babble(|| speaker.text("still here")),
        "stubborn" => stubborn(|| speaker.text("still here")),
        other => unreachable!("nobody asks for {other}"),
    }
    std::process::exit(0);
}

/// Says the same in each agent's own way.
struct Speaker<'a> {
    kind: &'a str,
}

impl Speaker<'_> {
    fn begin(&self) {
        match self.kind {
            "gemini" => tell(json!({ "type": "init", "session_id": "s" })),
            "opencode" => tell(json!({ "type": "step_start", "sessionID": "s", "part": {} })),
            _ => tell(json!({ "type": "system", "subtype": "init", "session_id": "s" })),
        }
    }

    fn text(&self, text: &str) {
        match self.kind {
            "gemini" => tell(json!({ "type": "message", "role": "assistant", "content": text })),
            "opencode" => tell(json!({ "type": "text", "sessionID": "s", "part": { "text": text } })),
            _ => {
                let usage = json!({ "input_tokens": 3, "output_tokens": 2 });
                let content = json!([{ "type": "text", "text": text }]);
                tell(json!({ "type": "assistant", "message": { "content": content, "usage": usage } }));
            }
        }
    }

    fn end(&self) {
        match self.kind {
            "gemini" => {
                let stats = json!({ "input_tokens": 3, "output_tokens": 2 });
                tell(json!({ "type": "result", "status": "success", "stats": stats }));
            }
            "opencode" => {
                let part = json!({ "reason": "stop", "tokens": { "input": 3, "output": 2 }, "cost": 0.5 });
                tell(json!({ "type": "step_finish", "sessionID": "s", "part": part }));
            }
            _ => {
                let usage = json!({ "input_tokens": 3, "output_tokens": 2 });
                tell(json!({ "type": "result", "subtype": "success", "is_error": false, "usage": usage }));
            }
        }
    }

    fn end_with(&self, value: &Value) {
        let usage = json!({ "input_tokens": 3, "output_tokens": 2 });
        tell(json!({
            "type": "result", "subtype": "success", "is_error": false, "usage": usage, "structured_result": value,
        }));
    }

    fn fail(&self) {
        match self.kind {
            "gemini" => {
                let message = r#"[API Error: {"error":{"code":400,"message":"no"}}]"#;
                let stats = json!({ "input_tokens": 3, "output_tokens": 2 });
                tell(
                    json!({ "type": "result", "status": "error", "error": { "message": message }, "stats": stats }),
                );
            }
            "opencode" => {
                let part =
                    json!({ "reason": "tool-calls", "tokens": { "input": 3, "output": 2 }, "cost": 0.5 });
                tell(json!({ "type": "step_finish", "sessionID": "s", "part": part }));
                let error = json!({ "name": "APIError", "data": { "message": "no", "statusCode": 400 } });
                tell(json!({ "type": "error", "sessionID": "s", "error": error }));
            }
            _ => {
                let content = json!([{ "type": "text", "text": "[API Error: 400 no]" }]);
                let usage = json!({ "input_tokens": 0, "output_tokens": 0 });
                tell(json!({ "type": "assistant", "message": { "content": content, "usage": usage } }));
                tell(json!({ "type": "result", "subtype": "success", "is_error": false, "usage": usage }));
            }
        }
    }
}

fn tell(event: Value) {
    say(&event.to_string());
}

fn hear_all() -> String {
    let mut prompt = String::new();
    std::io::stdin().lock().read_to_string(&mut prompt).unwrap();
    prompt
}
