//! What the server costs: `ralph-loop mcp` beside the smallest server that the same SDK can make, over the same pipes
//! and with the same client.
//!
//! Ours and the anchor take turns, and a row's ratio is the median of the sweeps' own ratios. The anchor has one tool,
//! which refuses its call as ours refuses an empty objective. The last line of the output is a JSON array of rows.
//! Without `--bench`, as under `cargo test`, one short sweep shows that it runs.

#![cfg(unix)]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument by which this program is the anchor.
const MINIMAL: &str = "minimal";
/// The revision that both are spoken to in.
const REVISION: &str = "2025-11-25";

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some(MINIMAL) { minimal() } else { measure() }
}

fn measure() -> Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (sweeps, starts, calls) = if is_bench { (9, 20, 2000) } else { (1, 1, 3) };
    let home = tempfile::tempdir()?;
    let ours = build(is_bench)?;
    let ours = || {
        let mut command = Command::new(&ours);
        command.args(["mcp", "--workspace"]).arg(home.path()).args(["--", "true"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("XDG_STATE_HOME", home.path());
        command
    };
    let anchor_path = std::env::current_exe()?;
    let anchor = || {
        let mut command = Command::new(&anchor_path);
        command.arg(MINIMAL).env_clear();
        command
    };
    let (mut our_starts, mut anchor_starts) = (Vec::new(), Vec::new());
    let (mut our_calls, mut anchor_calls) = (Vec::new(), Vec::new());
    for _ in 0..sweeps {
        our_starts.push(fastest(starts, || ready(ours()))?);
        anchor_starts.push(fastest(starts, || ready(anchor()))?);
        our_calls.push(each_call(ours(), calls)?);
        anchor_calls.push(each_call(anchor(), calls)?);
    }
    let rows = [
        row(
            &format!("ralph-mcp: from its start to the answer to initialize ({REVISION}), in us"),
            &our_starts,
            &anchor_starts,
            1.5,
        ),
        row(
            &format!("ralph-mcp: a warm call that starts no child ({REVISION}), in us"),
            &our_calls,
            &anchor_calls,
            1.3,
        ),
    ];
    for row in &rows {
        println!("{row}");
    }
    println!("{}", Value::from(rows.to_vec()));
    Ok(())
}

/// Builds the program that serves, as this one was built, and returns where it is.
fn build(is_bench: bool) -> Result<PathBuf> {
    let profile = if is_bench { "bench" } else { "dev" };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "ralph-loop", "--bin", "ralph-loop"])
        .args(["--profile", profile, "--message-format", "json"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stderr(Stdio::inherit())
        .output()?;
    let messages = String::from_utf8(output.stdout)?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program =
        built.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?))).next_back();
    program.ok_or_else(|| "ralph-loop cannot be built".into())
}

/// The time from the start of a server to its first answer.
fn ready(command: Command) -> Result<Duration> {
    let started = Instant::now();
    let client = Client::start(command)?;
    let took = started.elapsed();
    client.end()?;
    Ok(took)
}

/// Seconds for one of so many calls, after some that warm the server up.
fn each_call(command: Command, calls: u32) -> Result<f64> {
    let mut client = Client::start(command)?;
    for _ in 0..calls / 10 {
        client.refused_call()?;
    }
    let started = Instant::now();
    for _ in 0..calls {
        client.refused_call()?;
    }
    let took = started.elapsed().as_secs_f64() / f64::from(calls);
    client.end()?;
    Ok(took)
}

struct Client {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    line: String,
}

impl Client {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let requests = child.stdin.take().ok_or("a pipe")?;
        let answers = BufReader::new(child.stdout.take().ok_or("a pipe")?);
        let mut client = Self { child, requests, answers, line: String::new() };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" },
        } });
        client.ask(&format!("{hello}\n"))?;
        if !client.line.contains(REVISION) {
            return Err(format!("another revision: {}", client.line).into());
        }
        Ok(client)
    }

    fn ask(&mut self, request: &str) -> Result<()> {
        self.requests.write_all(request.as_bytes())?;
        self.line.clear();
        if self.answers.read_line(&mut self.line)? == 0 {
            return Err("the server is gone".into());
        }
        Ok(())
    }

    fn refused_call(&mut self) -> Result<()> {
        const CALL: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"ralph\",\"arguments\":{\"objective\":\"\"}}}\n";
        self.ask(CALL)?;
        if self.line.contains("\"isError\":true") { Ok(()) } else { Err(self.line.clone().into()) }
    }

    fn end(mut self) -> Result<()> {
        drop(self.requests);
        self.child.wait()?;
        Ok(())
    }
}

/// The anchor: what anybody pays who serves one tool with this SDK.
fn minimal() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (read, write) = rmcp::transport::stdio_pipes();
        Minimal.serve((read, write)).await?.waiting().await?;
        Ok(())
    })
}

struct Minimal;

impl ServerHandler for Minimal {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "object" }).as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("ralph", "Refuses.", Arc::new(schema))]))
    }

    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::error(vec![ContentBlock::text("Error: refused.")]).into())
    }
}

fn fastest(repeats: u32, mut work: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..repeats {
        best = best.min(work()?);
    }
    Ok(best.as_secs_f64())
}

fn row(what: &str, ours: &[f64], anchor: &[f64], target: f64) -> Value {
    let ratios: Vec<f64> = ours.iter().zip(anchor).map(|(ours, anchor)| ours / anchor).collect();
    let ratio = median(&ratios);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    json!({
        "what": what,
        "ours": rounded(median(ours) * 1e6),
        "anchor": rounded(median(anchor) * 1e6),
        "ratio": rounded(ratio),
        "spread": [rounded(least), rounded(most)],
        "target": target,
        "met": ratio <= target,
    })
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
