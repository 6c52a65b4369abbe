//! An agent that speaks the protocol and follows a script. It is this binary, started anew.

use std::fs::File;
use std::io::{BufRead, StdinLock, Write};
use std::process::Command;
use std::time::Duration;

use harness_subagent::OutputViolation;
use harness_testkit::subagent::CaptureStandIn;
use serde_json::{Value, json};

/// The variable that says what the agent does.
pub(crate) const SCRIPT: &str = "HARNESS_TEST_SCRIPT";
/// The variable that names the file in which the agent writes down what it hears.
pub(crate) const HEARD: &str = "HARNESS_TEST_HEARD";

const ALL_OPTIONS: [&str; 4] = ["allow_always", "allow_once", "reject_always", "reject_once"];
const ORPHANS: &str = "setsid sleep 600 & (setsid sleep 600 &) & sleep 600 &";

pub(crate) fn arguments() -> [&'static str; 5] {
    ["--exact", "agent::act", "--ignored", "--nocapture", "--test-threads=1"]
}

#[test]
#[ignore = "is a child of other tests"]
fn act() {
    // Whoever runs all ignored tests runs this one too, with nothing to do.
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let heard = File::options().create(true).append(true).open(std::env::var(HEARD).unwrap()).unwrap();
    let mut agent = Agent { input: std::io::stdin().lock(), heard, server: Value::Null };
    // The test harness has begun a line.
    println!();
    agent.play(&script);
    // Most agents exit at the end of their input.
    while agent.hear().is_some() {}
    // Without the summary of the test harness, and whatever the script left open.
    std::process::exit(0);
}

struct Agent {
    input: StdinLock<'static>,
    heard: File,
    /// The capture server as it was announced.
    server: Value,
}

/// A prompt that waits for its answer.
struct Prompt {
    id: Value,
    text: String,
}

impl Prompt {
    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

impl Agent {
    /// What comes before there is a session.
    fn play(&mut self, script: &str) {
        match script {
            "exits at once" => std::process::exit(3),
            "exits at once and well" => std::process::exit(0),
            "says nothing" => {}
            "speaks version 2" => {
                let (id, _) = self.expect("initialize");
                reply(&id, json!({ "protocolVersion": 2 }));
            }
            "greets with nonsense" => {
                let (id, _) = self.expect("initialize");
                reply(&id, json!({ "protocolVersion": "one" }));
            }
            "wants to be logged in" => {
                self.greet();
                let (id, _) = self.expect("session/new");
                refuse(&id, json!({ "code": -32000, "message": "Authentication required" }));
            }
            "opens a session without an id" => {
                self.greet();
                let (id, _) = self.expect("session/new");
                reply(&id, json!({}));
            }
            "refuses its mode" => {
                self.greet();
                self.open();
                let (id, _) = self.expect("session/set_mode");
                refuse(&id, json!({ "code": -32602, "message": "Invalid params" }));
            }
            _ => {
                self.greet();
                self.open();
                let Some(prompt) = self.next_prompt() else { return };
                self.work(script, &prompt);
            }
        }
    }

    fn work(&mut self, script: &str, prompt: &Prompt) {
        match script {
            "by its prompt" => self.work_by_prompt(prompt),

            // Values.
            "hands in" => {
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
            }
            "hands in and fails" => {
                self.hand_in(&json!({ "n": 1 }));
                refuse(&prompt.id, json!({ "code": -32603, "message": "Internal error" }));
            }
            "hands in and never settles" => {
                self.hand_in(&json!({ "n": 1 }));
                self.expect("session/cancel");
                let usage = json!({ "totalTokens": 12, "inputTokens": 10, "outputTokens": 2 });
                reply(&prompt.id, json!({ "stopReason": "cancelled", "usage": usage }));
            }
            "hands in and falls over" => {
                self.hand_in(&json!({ "n": 1 }));
                std::process::abort();
            }
            "hands in what is refused" => {
                self.hand_in(&json!({ "refuse": 1 }));
                self.hand_in(&json!({ "refuse": 2 }));
                end(prompt);
            }
            "forgets to hand in" => {
                end(prompt);
                while let Some(prompt) = self.next_prompt() {
                    end(&prompt);
                }
            }
            "hands in when it is reminded" => {
                end(prompt);
                let prompt = self.next_prompt().unwrap();
                self.hand_in(&json!({ "n": 2 }));
                end(&prompt);
            }

            // Ends.
            "stops" => reply(&prompt.id, json!({ "stopReason": prompt.first_line() })),
            "answers with nonsense" => reply(&prompt.id, json!({ "stop": 1 })),
            "is refused by its vendor" => {
                let data: Value = serde_json::from_str(prompt.first_line()).unwrap();
                refuse(&prompt.id, json!({ "code": -32603, "message": "Internal error", "data": data }));
            }
            "falls over" => std::process::abort(),
            "exits in the middle" => std::process::exit(7),
            "closes its output" => {
                let null = File::options().write(true).open("/dev/null").unwrap();
                rustix::stdio::dup2_stdout(&null).unwrap();
                rustix::stdio::dup2_stderr(&null).unwrap();
            }
            "tells its tokens" => {
                let usage = json!({
                    "totalTokens": 360, "inputTokens": 290, "outputTokens": 60, "cachedReadTokens": 10,
                });
                reply(&prompt.id, json!({ "stopReason": "max_tokens", "usage": usage }));
            }
            "tells its tokens and its cost" => {
                for amount in [0.001, 0.0025] {
                    let cost = json!({ "amount": amount, "currency": "USD" });
                    update(json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost }));
                }
                let usage = json!({ "totalTokens": 350, "inputTokens": 290, "outputTokens": 60 });
                reply(&prompt.id, json!({ "stopReason": "max_tokens", "usage": usage }));
            }
            "answers twice" => {
                self.hand_in(&json!({ "n": 1 }));
                // An answer to what was answered before, and to what nobody asked.
                reply(&json!(0), json!({ "protocolVersion": 1 }));
                reply(&json!(99), json!({ "stopReason": "refusal" }));
                reply(&prompt.id, json!({ "stopReason": "end_turn" }));
                reply(&prompt.id, json!({ "stopReason": "cancelled" }));
                refuse(&prompt.id, json!({ "code": -32603, "message": "too late" }));
            }
            "stays when it is done" => {
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
                ignore_everything();
            }
            "leaves orphans" => {
                assert!(Command::new("sh").args(["-c", ORPHANS]).status().unwrap().success());
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
            }

            // Lines.
            "talks" => {
                chunk("one ");
                chunk("two");
                tell("reading");
                chunk("three");
                update(json!({ "sessionUpdate": "from_the_future", "what": [1, 2] }));
                say(&json!({ "jsonrpc": "2.0", "method": "_vendor/thing", "params": { "x": 1 } }));
                end(prompt);
            }
            "prints garbage" => {
                println!("npm warn deprecated\n\n{{\n[1,2]\n{{\"jsonrpc\":\"2.0\"}}\nnull");
                std::io::stdout().write_all(b"\xff\xfe not text\n").unwrap();
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
            }
            "prints a giant line" => {
                tell(&"x".repeat(20_000_000));
                // One that is long, and not too long.
                chunk(&"y".repeat(8_000_000));
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
            }
            "never reads" => {
                tell("working");
                loop {
                    ask("fs/read_text_file", json!("many"), json!({ "path": "x".repeat(1000) }));
                }
            }

            // Requests.
            "asks for everything" => {
                for (id, method) in [
                    (json!(0), "fs/read_text_file"),
                    (json!("a-string"), "fs/write_text_file"),
                    (json!(7), "terminal/create"),
                    (json!(""), "_vendor/surprise"),
                ] {
                    ask(method, id, json!({ "sessionId": "session-1" }));
                    self.hear().unwrap();
                }
                end(prompt);
            }
            "asks for permission" => {
                self.ask_permission(json!("p-0"), json!({ "toolCallId": "t", "title": "rm" }), &ALL_OPTIONS);
                self.ask_permission(json!(0), json!({ "toolCallId": "t", "title": "rm" }), &["later"]);
                end(prompt);
            }
            "asks for permission to hand in" => {
                let call = json!({ "toolCallId": "t", "title": "x", "name": "mcp__kit__hand_in" });
                self.ask_permission(json!(0), call, &ALL_OPTIONS);
                self.hand_in(&json!({ "n": 1 }));
                end(prompt);
            }
            "asks for permission with a whole file" => {
                let call = json!({ "toolCallId": "t", "rawInput": { "content": "z".repeat(4_000_000) } });
                self.ask_permission(json!(0), call, &ALL_OPTIONS);
                ask("session/request_permission", json!(1), json!({ "options": "none" }));
                self.hear().unwrap();
                end(prompt);
            }
            "stops when it is refused" => {
                self.ask_permission(json!(0), json!({ "toolCallId": "t", "title": "rm" }), &ALL_OPTIONS);
                reply(&prompt.id, json!({ "stopReason": "cancelled" }));
            }

            // Cancellation.
            "answers its cancellation" => {
                tell("working");
                self.expect("session/cancel");
                let usage = json!({ "totalTokens": 12, "inputTokens": 10, "outputTokens": 2 });
                reply(&prompt.id, json!({ "stopReason": prompt.first_line(), "usage": usage }));
            }
            "answers its cancellation with an error" => {
                tell("working");
                self.expect("session/cancel");
                refuse(&prompt.id, json!({ "code": -32603, "message": "aborted" }));
            }
            "asks for permission when it is cancelled" => {
                tell("working");
                self.expect("session/cancel");
                self.ask_permission(json!(0), json!({ "toolCallId": "t", "title": "rm" }), &ALL_OPTIONS);
                end(prompt);
            }
            "does not know its cancellation" => tell("working"),
            "ignores everything" => ignore_everything(),
            "leaves orphans when it is cancelled" => {
                assert!(Command::new("sh").args(["-c", ORPHANS]).status().unwrap().success());
                ignore_everything();
            }
            other => unreachable!("there is no script {other}"),
        }
    }

    /// What the children of the conformance suite do.
    fn work_by_prompt(&mut self, prompt: &Prompt) {
        match prompt.first_line() {
            "completes" => {
                chunk("all done");
                end(prompt);
            }
            "hands-in" => {
                self.hand_in(&serde_json::from_str(prompt.text.lines().nth(1).unwrap()).unwrap());
                end(prompt);
            }
            "fails" => refuse(&prompt.id, json!({ "code": -32603, "message": "Internal error" })),
            "hangs" => {
                std::thread::spawn(|| {
                    loop {
                        tell("still here");
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
                self.expect("session/cancel");
                reply(&prompt.id, json!({ "stopReason": "cancelled" }));
            }
            "stubborn" => ignore_everything(),
            other => unreachable!("there is no such child: {other}"),
        }
    }

    fn greet(&mut self) {
        let (id, _) = self.expect("initialize");
        let result = json!({
            "protocolVersion": 1,
            "agentCapabilities": { "mcpCapabilities": {}, "later": { "a": 1 } },
            "authMethods": [{ "id": "key", "name": "Key" }],
            "agentInfo": { "name": "scripted-agent", "version": "1.2.3" },
        });
        reply(&id, result);
    }

    fn open(&mut self) {
        let (mut id, mut parameters) = self.expect_any(&["session/new", "authenticate"]);
        if parameters.get("methodId").is_some() {
            reply(&id, json!({}));
            (id, parameters) = self.expect("session/new");
        }
        self.server = parameters["mcpServers"][0].clone();
        let modes = json!([{ "id": "careful", "name": "Careful" }, { "id": "bold", "name": "Bold" }]);
        let option = json!({
            "id": "pace", "name": "Pace", "category": "mode", "type": "select", "currentValue": "reckless",
            "options": [{ "value": "reckless", "name": "Reckless" }],
        });
        let result = json!({
            "sessionId": "session-1",
            "modes": { "currentModeId": "careful", "availableModes": modes },
            "configOptions": [option, { "id": "broken" }],
        });
        reply(&id, result);
    }

    /// Waits for a prompt, and lets everything be set that is to be set before it.
    fn next_prompt(&mut self) -> Option<Prompt> {
        loop {
            let message = self.hear()?;
            let id = message["id"].clone();
            match message["method"].as_str()? {
                "session/set_mode" => reply(&id, Value::Null),
                "session/set_config_option" => reply(&id, json!({ "configOptions": [] })),
                "session/prompt" => {
                    let text = message["params"]["prompt"][0]["text"].as_str().unwrap().to_owned();
                    return Some(Prompt { id, text });
                }
                other => panic!("{other} before the prompt"),
            }
        }
    }

    /// Hands a value in as a capture server would that was started as announced.
    fn hand_in(&mut self, value: &Value) {
        let variables = self.server["env"].as_array().unwrap();
        let variable = |name: &str| {
            let found = variables.iter().find(|variable| variable["name"] == name)?;
            found["value"].as_str().map(str::to_owned)
        };
        let parameters = json!({ "name": variable("HARNESS_TOOL"), "arguments": value });
        let call = json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": parameters });
        let judge = |value: &Value| match value.get("refuse") {
            Some(_) => vec![OutputViolation::new("/refuse", "rule", "must not be there")],
            None => vec![],
        };
        let stand_in = CaptureStandIn::from_variables(variable).unwrap();
        stand_in.serve(format!("{call}\n").as_bytes(), std::io::sink(), judge).unwrap();
    }

    fn ask_permission(&mut self, id: Value, call: Value, kinds: &[&str]) {
        let option = |kind: &&str| json!({ "optionId": format!("id-{kind}"), "name": kind, "kind": kind });
        let options: Vec<Value> = kinds.iter().map(option).collect();
        let parameters = json!({ "sessionId": "session-1", "toolCall": call, "options": options });
        ask("session/request_permission", id, parameters);
        self.hear().unwrap();
    }

    fn expect(&mut self, method: &str) -> (Value, Value) {
        self.expect_any(&[method])
    }

    fn expect_any(&mut self, methods: &[&str]) -> (Value, Value) {
        let Some(message) = self.hear() else { std::process::exit(0) };
        let method = message["method"].as_str().unwrap_or_default();
        assert!(methods.contains(&method), "{message} in place of {methods:?}");
        (message["id"].clone(), message["params"].clone())
    }

    /// Waits for a message and writes it down. Nothing is the end of the input.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.input.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        self.heard.write_all(format!("{message}\n").as_bytes()).unwrap();
        Some(message)
    }
}

/// Stays whatever happens, until it is killed.
fn ignore_everything() {
    let stubborn = "trap '' INT TERM; echo; while :; do sleep 0.1; done";
    let mut shell = Command::new("sh").args(["-c", stubborn]).spawn().unwrap();
    tell("working");
    shell.wait().unwrap();
}

fn end(prompt: &Prompt) {
    reply(&prompt.id, json!({ "stopReason": "end_turn" }));
}

fn chunk(text: &str) {
    let content = json!({ "type": "text", "text": text });
    update(json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
}

fn tell(what: &str) {
    update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": what }));
}

fn update(update: Value) {
    let parameters = json!({ "sessionId": "session-1", "update": update });
    say(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": parameters }));
}

fn ask(method: &str, id: Value, parameters: Value) {
    say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters }));
}

fn reply(id: &Value, result: Value) {
    say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn refuse(id: &Value, error: Value) {
    say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
}

fn say(message: &Value) {
    // In one piece, whoever else writes at the same time. Nobody may be left to hear it.
    let _ = std::io::stdout().lock().write_all(format!("{message}\n").as_bytes());
}
