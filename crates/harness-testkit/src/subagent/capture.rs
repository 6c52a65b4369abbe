use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use harness_subagent::OutputViolation;
use serde_json::{Value, json};

/// Stands in for a capture server: the program that an agent starts so as to hand in its value by a tool.
///
/// It speaks as much of the Model Context Protocol as a client needs to list and call one tool, over lines. It is told
/// what to do by the variables that a provider sets for a capture server: `HARNESS_TOOL`, `HARNESS_VALUE_FILE`,
/// `HARNESS_REFUSED_FILE` and `HARNESS_CORRECTIONS`. It knows neither schemas nor rules; the test says what is wrong
/// with a value.
///
/// A program of the test's own calls this as all it does:
///
/// ```no_run
/// use harness_subagent::OutputViolation;
/// use harness_testkit::subagent::CaptureStandIn;
///
/// # fn main() -> std::io::Result<()> {
/// let stand_in = CaptureStandIn::from_variables(|name| std::env::var(name).ok())?;
/// stand_in.serve(std::io::stdin().lock(), std::io::stdout().lock(), |value| match value["answer"].as_str() {
///     Some(_) => vec![],
///     None => vec![OutputViolation::new("/answer", "type", "must be a text")],
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct CaptureStandIn {
    tool: String,
    accepted: PathBuf,
    refused: PathBuf,
    corrections: u32,
}

impl CaptureStandIn {
    /// Makes a server of the variables that `variable` looks up.
    ///
    /// # Errors
    ///
    /// When one that must be there is missing, or says nothing sensible.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let get = |name: &str| {
            let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not set"));
            variable(name).ok_or_else(missing)
        };
        Ok(Self {
            tool: get("HARNESS_TOOL")?,
            accepted: get("HARNESS_VALUE_FILE")?.into(),
            refused: get("HARNESS_REFUSED_FILE")?.into(),
            corrections: get("HARNESS_CORRECTIONS")?
                .parse()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        })
    }

    /// Serves until the client closes its end.
    ///
    /// # Errors
    ///
    /// What reading, writing or a file fails with.
    pub fn serve(
        mut self,
        input: impl BufRead,
        mut output: impl Write,
        judge: impl Fn(&Value) -> Vec<OutputViolation>,
    ) -> io::Result<()> {
        for line in input.lines() {
            let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
            // A notification has no id and gets no answer.
            let Some(id) = request.get("id") else { continue };
            let answer = match request["method"].as_str() {
                Some("initialize") => Ok(json!({
                    "protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "stand-in", "version": "0" },
                })),
                Some("ping") => Ok(json!({})),
                Some("tools/list") => Ok(json!({ "tools": [{
                    "name": self.tool,
                    "description": "Hands in the result.",
                    "inputSchema": { "type": "object" },
                }] })),
                Some("tools/call") => Ok(self.take(&request["params"]["arguments"], &judge)?),
                _ => Err(json!({ "code": -32601, "message": "no such method" })),
            };
            let message = match answer {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            };
            writeln!(output, "{message}")?;
            output.flush()?;
        }
        Ok(())
    }

    fn take(&mut self, value: &Value, judge: &impl Fn(&Value) -> Vec<OutputViolation>) -> io::Result<Value> {
        if self.accepted.exists() {
            return Ok(answer(false, "There is a result already; you are done."));
        }
        let violations = judge(value);
        if violations.is_empty() {
            replace(&self.accepted, value)?;
            return Ok(answer(false, "Accepted; you are done."));
        }
        replace(&self.refused, value)?;
        let list: Vec<_> = violations
            .iter()
            .map(|violation| format!("{}: {}", violation.pointer, violation.message))
            .collect();
        let list = list.join("\n");
        if self.corrections == 0 {
            return Ok(answer(true, &format!("Refused for good:\n{list}")));
        }
        self.corrections -= 1;
        Ok(answer(true, &format!("Refused:\n{list}\nCorrect it and hand it in again.")))
    }
}

fn answer(is_error: bool, text: &str) -> Value {
    json!({ "isError": is_error, "content": [{ "type": "text", "text": text }] })
}

/// Writes `value` beside `path` and moves it there, so that nobody sees half of it.
fn replace(path: &std::path::Path, value: &Value) -> io::Result<()> {
    let beside = path.with_extension("part");
    std::fs::write(&beside, value.to_string())?;
    std::fs::rename(beside, path)
}
