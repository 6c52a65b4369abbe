use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use harness_provider_cli::{CORRECTIONS, REFUSED_FILE, RULE_FILE, SCHEMA_FILE, TOOL, VALUE_FILE, value_file};
use harness_subagent::{OutputContract, RuleRef};
use ralph_mcp::{Capture, CaptureFiles};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Failure};

/// `ralph-loop capture`: serves the tool by which an agent hands in its report, as its environment says.
pub(crate) fn capture() -> Result<Exit, Failure> {
    let capture = from_environment(&|name| std::env::var_os(name)).map_err(Failure::environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::environment)?;
    let served = runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let told = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            told.cancel();
        });
        capture.serve_stdio(stop).await.context("the agent cannot be served")
    });
    // A read of standard input may be under way that nothing can end.
    runtime.shutdown_background();
    served.map_err(Failure::environment)?;
    Ok(Exit::Complete)
}

fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Capture> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let path = |name: &str| {
        let path = given(name).map(PathBuf::from).with_context(|| format!("{name} is not set; {WHO}"))?;
        if path.is_absolute() { Ok(path) } else { bail!("{name} is no absolute path: {}", path.display()) }
    };
    let text = |name: &str| match given(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => bail!("{name} does not hold UTF-8"),
    };
    let files = CaptureFiles::new(path(VALUE_FILE)?, path(REFUSED_FILE)?);
    let schema: serde_json::Value = read_json(&path(SCHEMA_FILE)?)?;
    let mut contract =
        OutputContract::new(schema).with_context(|| format!("{SCHEMA_FILE} cannot be used"))?;
    if given(RULE_FILE).is_some() {
        contract = contract.with_rule(read_json::<RuleRef>(&path(RULE_FILE)?)?);
    }
    let tool = text(TOOL)?.with_context(|| format!("{TOOL} is not set; {WHO}"))?;
    if !is_tool_name(&tool) {
        bail!("{TOOL} must be 1 to 64 letters, digits, `_` or `-`: {tool:?}");
    }
    let mut capture = Capture::new(tool, contract, &ralph_tool::rules(), files)?
        .with_max_bytes(value_file::DEFAULT_MAX_BYTES)
        .with_max_values(value_file::MAX_VALUES);
    if let Some(number) = text(CORRECTIONS)? {
        let corrections =
            number.parse().with_context(|| format!("{CORRECTIONS} is no whole number: {number:?}"))?;
        capture = capture.with_corrections(corrections);
    }
    Ok(capture)
}

const WHO: &str = "this command is for the agents of a loop, which are told how to start it";

/// What every vendor takes for a name.
fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    const MAX_BYTES: u64 = 1024 * 1024;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{} is longer than {MAX_BYTES} bytes", path.display());
    }
    serde_json::from_slice(&bytes).with_context(|| format!("{} is not as it should be", path.display()))
}
