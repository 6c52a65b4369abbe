//! Starting cargo, the same way for every command.

use std::{
    env,
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Returns a cargo command that runs in `root`, with nothing on its standard input.
///
/// `cargo run` leaves variables of the xtask package behind; build scripts that watch them would
/// run again under a cargo that was started by hand, so they are taken away.
pub(crate) fn cargo<S: AsRef<OsStr>>(root: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program());
    command.current_dir(root).args(args).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let own = name.to_string_lossy();
        if own.starts_with("CARGO_PKG_") || own.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns the cargo that started this program, or the one on the path.
pub(crate) fn program() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// True if `cargo NAME` exists on this machine.
pub(crate) fn has_subcommand(root: &Path, name: &str) -> bool {
    cargo(root, [name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Shows the command line, runs it and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = show(command);
    let status = command.status().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs the command and returns its standard output; what it says on standard error is shown.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("could not start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` wrote no UTF-8"))
}

/// Runs a program whose last line on standard output is data: every other line is passed through
/// as it comes, the last one is returned (`None` if there was none).
///
/// The caller judges the exit code together with the data: `success` tells.
pub(crate) fn last_line(command: &mut Command) -> Result<LastLine> {
    let line = show(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("could not start `{line}`"))?;
    let stdout = child.stdout.take().expect("standard output was asked for as a pipe");
    let mut last: Option<String> = None;
    for line in BufReader::new(stdout).lines() {
        if let Some(before) = last.replace(line.context("the program wrote no UTF-8")?) {
            println!("{before}");
        }
    }
    let status = child.wait().with_context(|| format!("lost `{line}`"))?;
    Ok(LastLine { text: last, success: status.success() })
}

/// What [`last_line`] saw.
#[derive(Debug)]
pub(crate) struct LastLine {
    /// The last line, which has not been shown.
    pub(crate) text: Option<String>,
    /// Whether the program ended with exit code 0.
    pub(crate) success: bool,
}

fn show(command: &Command) -> String {
    let line = line_of(command);
    eprintln!("$ {line}");
    line
}

fn line_of(command: &Command) -> String {
    let mut line = String::from("cargo");
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
