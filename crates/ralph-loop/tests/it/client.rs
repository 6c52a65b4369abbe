//! An MCP client that speaks to our program over its standard input and output, line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::stage::{Said, json as read};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    child: Child,
    requests: Option<ChildStdin>,
    messages: Receiver<Value>,
    last_id: u64,
    /// What came that was no answer.
    pub(crate) notifications: Vec<Value>,
    /// What goes along with every request, for revisions without a handshake.
    meta: Option<Value>,
}

impl Client {
    /// Starts the server and greets it as the revision 2025-06-18 wants it.
    pub(crate) fn of(command: Command) -> Self {
        Self::greeting(command, json!({}))
    }

    /// The same for a client that declares tasks under a revision that has none.
    pub(crate) fn declaring_tasks_early(command: Command) -> Self {
        Self::greeting(command, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
    }

    fn greeting(command: Command, capabilities: Value) -> Self {
        let mut client = Self::silent(command, None);
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = client.ask("initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18", "{answer}");
        client.notify("notifications/initialized", &json!({}));
        client
    }

    /// Starts the server for a client of the revision 2026-07-28, which does not greet, and knows tasks.
    pub(crate) fn with_tasks(command: Command) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        Self::silent(command, Some(meta))
    }

    fn silent(mut command: Command, meta: Option<Value>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (send, messages) = channel();
        thread::spawn(move || {
            for line in answers.lines() {
                let Ok(line) = line else { break };
                // Everything that comes from the server is the protocol, or this fails.
                let message = read(&line);
                assert_eq!(message["jsonrpc"], "2.0", "{message}");
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        Self { child, requests, messages, last_id: 0, notifications: Vec::new(), meta }
    }

    pub(crate) fn write(&mut self, line: &str) {
        let requests = self.requests.as_mut().unwrap();
        requests.write_all(line.as_bytes()).unwrap();
        requests.write_all(b"\n").unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let mut params = params.clone();
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.write(&request.to_string());
        self.last_id
    }

    /// The next answer, to whichever request.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("the server answers");
            if message.get("method").is_none() {
                return message;
            }
            self.notifications.push(message);
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let mut answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].take()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the server, whose input stays open. What it said is standard error and what was left.
    pub(crate) fn wait(mut self) -> Said {
        let requests = self.requests.take();
        let output = self.child.wait_with_output().unwrap();
        drop(requests);
        let mut said = Said::of(output);
        for message in &self.messages {
            said.out.push_str(&message.to_string());
        }
        said
    }

    /// Goes away, and waits for the end of the server.
    pub(crate) fn end(mut self) -> Said {
        drop(self.requests.take());
        self.wait()
    }
}
