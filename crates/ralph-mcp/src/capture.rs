mod desk;
mod judge;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use harness_subagent::{OutputContract, OutputRuleCatalog};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::connection::{self, ServeError};
use desk::{Desk, Said};
use judge::Judge;

/// The server by which one agent hands in its report: one tool, whose arguments are the report.
///
/// # What it does with a report
///
/// - It takes the first one that the contract's schema and rule accept, and writes it to the [value
///   file](CaptureFiles::value): into a file beside it first, which is then moved there unless something stands there
///   already. From then on it takes nothing, and tells every caller that it is done. A value file that stands there at
///   the start counts as such a report.
/// - It answers a refusal as a tool error with the violations, a bounded number of times
///   ([`with_corrections`](Self::with_corrections)). The refusal after those is final, and nothing is looked at any
///   more. The last report that was refused stands in the [file for it](CaptureFiles::refused).
/// - It repairs nothing. The report is written as JSON as it was read, a key that was given twice in one object aside:
///   of such a key the protocol's reader keeps the last value.
///
/// It gives no verdict to anybody but the agent: whoever reads the files judges again.
///
/// # Limits
///
/// A message may have 16 MiB; a longer one is skipped unanswered, and so is one that is no JSON. Within that, a report
/// may be as large as [`with_max_bytes`](Self::with_max_bytes) and [`with_max_values`](Self::with_max_values) say.
#[derive(Debug)]
pub struct Capture {
    tool: Tool,
    desk: Arc<Mutex<Desk>>,
}

/// Where reports go. Each attempt of a round has its own files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureFiles {
    /// The report that was accepted. Never replaced.
    pub value: PathBuf,
    /// The report that was refused last.
    pub refused: PathBuf,
}

impl CaptureFiles {
    /// Names the two files. Their directories must exist, and the files need not.
    #[must_use]
    pub fn new(value: impl Into<PathBuf>, refused: impl Into<PathBuf>) -> Self {
        Self { value: value.into(), refused: refused.into() }
    }
}

/// Why no report can be judged by a contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableContract {
    /// This process has no rule of that name.
    #[error("the rule of the report cannot be enforced")]
    Rule(#[source] harness_subagent::Error),
}

impl Capture {
    /// Makes a server whose only tool is called `tool`, for reports that `contract` describes.
    ///
    /// # Errors
    ///
    /// [`UnusableContract`], when the contract's rule is not in `rules`.
    pub fn new(
        tool: impl Into<String>,
        contract: OutputContract,
        rules: &OutputRuleCatalog,
        files: CaptureFiles,
    ) -> Result<Self, UnusableContract> {
        let name: String = tool.into();
        let schema = contract.schema().as_object().cloned().unwrap_or_default();
        // What a report can break is only in here, so a client need not ask before it lets the agent call.
        let annotations = ToolAnnotations::new().destructive(false).idempotent(true).open_world(false);
        let tool = Tool::new(name.clone(), DESCRIPTION, schema).with_annotations(annotations);
        let judge = Judge::new(contract, rules.clone())?;
        Ok(Self { tool, desk: Arc::new(Mutex::new(Desk::new(name, judge, files))) })
    }

    /// Sets how many refusals are answered with a request to correct the report. 2 by default.
    #[must_use]
    pub fn with_corrections(self, corrections: u32) -> Self {
        self.desk().corrections = corrections;
        self
    }

    /// Sets how many bytes of JSON a report may have. 1 MiB by default.
    #[must_use]
    pub fn with_max_bytes(self, bytes: u64) -> Self {
        self.desk().judge.max_bytes = bytes;
        self
    }

    /// Sets how many values a report may hold, those within others counted too. 10,000 by default.
    #[must_use]
    pub fn with_max_values(self, values: usize) -> Self {
        self.desk().judge.max_values = values;
        self
    }

    /// Serves the agent that writes to `read` and reads from `write`, until it closes its end or `stop` is cancelled.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connection is closed, and a report that was accepted stands.
    ///
    /// # Errors
    ///
    /// [`ServeError`]. Whatever it is, reports that were taken before stand.
    pub async fn serve<R, W>(self, read: R, write: W, stop: CancellationToken) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        connection::serve(self, read, write, stop).await
    }

    /// Serves the agent at this process's standard input and output. Nothing else may be written to the latter.
    ///
    /// A read of standard input that is under way can outlast this call, and holds up a runtime that is dropped: shut
    /// it down in the background.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime that has its I/O enabled.
    pub async fn serve_stdio(self, stop: CancellationToken) -> Result<(), ServeError> {
        let (read, write) = rmcp::transport::stdio_pipes();
        self.serve(read, write, stop).await
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const DESCRIPTION: &str = "Hands in your report, which is all that is passed on of what you say. Call it once, when \
                           you have done your work, with the whole report as the arguments. A report that breaks a \
                           rule is refused with the reasons: correct it and call again. When one is accepted you are \
                           done, and should end.";

impl ServerHandler for Capture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ralph-capture", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![self.tool.clone()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == self.tool.name).then(|| self.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != self.tool.name {
            let message = format!("there is no such tool here; the only one is `{}`", self.tool.name);
            return Err(ErrorData::invalid_params(message, None));
        }
        let desk = Arc::clone(&self.desk);
        // It writes files.
        let said = tokio::task::spawn_blocking(move || {
            desk.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .hand_in(&Value::Object(request.arguments.unwrap_or_default()))
        });
        let said = said.await.map_err(|_| ErrorData::internal_error("the report was not looked at", None))?;
        let content = |text| vec![ContentBlock::text(text)];
        Ok(CallToolResponse::from(match said {
            Said::Done(text) => CallToolResult::success(content(text)),
            Said::Refused(text) => CallToolResult::error(content(text)),
        }))
    }
}
