//! The tool by which an agent hands in its value: a server that the agent starts, told by its environment what to
//! take and where to put it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use harness_subagent::{Origin, OutputContract};

use crate::call_files::CallFiles;

/// A command that an agent starts as an MCP server on standard input and output, which serves one tool: the one
/// by which the agent hands in its value.
///
/// The provider only passes the command on. The server learns from its environment what to do:
///
/// | variable | meaning |
/// |---|---|
/// | [`HARNESS_TOOL`](crate::TOOL) | the name of the tool to serve |
/// | [`HARNESS_VALUE_FILE`](crate::VALUE_FILE) | where the accepted value goes, in the format of [`value_file`](crate::value_file); it is never replaced once there |
/// | [`HARNESS_REFUSED_FILE`](crate::REFUSED_FILE) | where the last refused value goes, in the same format; it is replaced by rename |
/// | [`HARNESS_SCHEMA_FILE`](crate::SCHEMA_FILE) | a file with the JSON Schema of the value, which the server must check |
/// | [`HARNESS_RULE_FILE`](crate::RULE_FILE) | a file with the output rule, a serialized [`RuleRef`](harness_subagent::RuleRef); absent when the contract has none |
/// | [`HARNESS_CORRECTIONS`](crate::CORRECTIONS) | how often a refused value is handed back with its violations; after that the tool says that it is final |
/// | [`HARNESS_RUN`](crate::RUN), [`HARNESS_CALL`](crate::CALL), [`HARNESS_ATTEMPT`](crate::ATTEMPT) | the call, where there is one |
///
/// A refusal is a tool result marked as an error that lists the violations, so that the model corrects itself in the
/// same turn. The first accepted value counts, and the server tells the model that it is done. The provider delivers
/// the accepted value, or else the last one refused, and gives no verdict of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureServer {
    name: String,
    tool: String,
    program: OsString,
    arguments: Vec<OsString>,
}

impl CaptureServer {
    /// Describes a server named `name` that serves the tool `tool` and is started as `program`.
    ///
    /// Both names are letters, digits, `_` and `-`, at most 32 of them; anything else is refused when a child is
    /// started. The program is best given as an absolute path, as agents start it in a place of their own choice.
    #[must_use]
    pub fn new(name: impl Into<String>, tool: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self { name: name.into(), tool: tool.into(), program: program.into(), arguments: Vec::new() }
    }

    /// Sets the program's arguments, passed as they are.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the server's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tool's name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }
}

/// A capture server as one call has it: every part is text, because that is all that an agent's configuration
/// can hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Capture {
    /// The server's name.
    pub server: String,
    /// The tool's name.
    pub tool: String,
    /// The program by which the server is started.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The variables that the program must find in its environment.
    pub environment: Vec<(&'static str, String)>,
    /// Where the server leaves what it took.
    pub files: CaptureFiles,
}

/// Where a capture server leaves what it took.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureFiles {
    /// The file of the accepted value, absent until there is one.
    pub accepted: PathBuf,
    /// The file of the last refused value, absent until there is one.
    pub refused: PathBuf,
}

impl Capture {
    /// Prepares `server` for one call: writes what it needs, and names what it is told. `schema` is a file with the
    /// schema of `contract`.
    ///
    /// # Errors
    ///
    /// When a part of the command is no text or the names are none that every agent takes, and what the file system
    /// says.
    pub fn prepare(
        server: &CaptureServer,
        contract: &OutputContract,
        schema: &Path,
        corrections: u32,
        origin: Option<&Origin>,
        files: &CallFiles,
    ) -> io::Result<Self> {
        check_name("server", &server.name)?;
        check_name("tool", &server.tool)?;
        let accepted = files.value().to_owned();
        let refused = files.refused();
        let mut environment = vec![
            (crate::TOOL, server.tool.clone()),
            (crate::VALUE_FILE, text(accepted.as_os_str())?),
            (crate::REFUSED_FILE, text(refused.as_os_str())?),
            (crate::SCHEMA_FILE, text(schema.as_os_str())?),
            (crate::CORRECTIONS, corrections.to_string()),
        ];
        if let Some(rule) = contract.rule() {
            let path = files.write("rule.json", serde_json::to_string(rule)?.as_bytes())?;
            environment.push((crate::RULE_FILE, text(path.as_os_str())?));
        }
        if let Some(origin) = origin {
            environment.push((crate::RUN, origin.run.to_string()));
            environment.push((crate::CALL, origin.call.to_string()));
            environment.push((crate::ATTEMPT, origin.attempt.to_string()));
        }
        Ok(Self {
            server: server.name.clone(),
            tool: server.tool.clone(),
            program: text(&server.program)?,
            arguments: server.arguments.iter().map(|argument| text(argument)).collect::<io::Result<_>>()?,
            environment,
            files: CaptureFiles { accepted, refused },
        })
    }
}

/// Says whether agents take the name as it is; each makes a tool's name of it.
fn check_name(what: &str, name: &str) -> io::Result<()> {
    const LONGEST: usize = 32;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the capture {what}'s name {name:?} must be 1 to {LONGEST} letters, digits, `_` or `-`"),
    ))
}

fn text(text: &OsStr) -> io::Result<String> {
    text.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{text:?} is no UTF-8, and an agent's configuration holds nothing else"),
        )
    })
}
