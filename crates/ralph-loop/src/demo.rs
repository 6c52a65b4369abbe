//! `ralph-loop demo`: the real loop on a scratch workspace, with an agent that follows a script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::agent::{Agent, CommandWay, Way};
use crate::arguments::DisplayArguments;
use crate::exit::{Exit, Failure};
use crate::launch::Launch;
use crate::output;
use crate::run::{Start, refuse_inside_an_agent};
use crate::settings::Settings;
use crate::shown::{self, BOLD};
use crate::state::State;

const OBJECTIVE: &str = "Make ./check.sh pass. It must keep checking what it checks now.";

const CHECK: &str = r#"#!/bin/sh
# Fails until the greeting is right and documented.
test "$(sh greet.sh World)" = "Hello, World!" || { echo "greet.sh does not greet: $(sh greet.sh World)"; exit 1; }
grep -q 'sh greet.sh NAME' README.md || { echo "README.md does not say how to greet"; exit 1; }
echo "all is well"
"#;

/// Makes the scratch workspace and runs the loop in it.
pub(crate) fn demo(display: DisplayArguments) -> Result<Exit, Failure> {
    refuse_inside_an_agent()?;
    let state = State::open()?;
    let workspace = workspace(&state).map_err(Failure::environment)?;
    let program =
        std::env::current_exe().context("cannot find this program").map_err(Failure::environment)?;
    if !display.json {
        let intro = "This is the real loop in a scratch workspace with a failing check: real processes, a real journal. Only \
                     the agent is no model: it follows a script.";
        output::print(&format!("{}\n\n", shown::wrapped(intro, "", "")))?;
        let objective = shown::wrapped(OBJECTIVE, "objective  ", "           ");
        output::print(&format!(
            "{}\n",
            objective.replacen("objective", &format!("{BOLD}objective{BOLD:#}"), 1)
        ))?;
    }
    let agent = Agent {
        name: "demo".to_owned(),
        program: program.to_string_lossy().into_owned(),
        arguments: vec!["demo-agent".to_owned()],
        pass_env: Vec::new(),
        way: Way::Command(CommandWay::default()),
    };
    let mut settings = Settings::default();
    settings.max_rounds.value = 5;
    settings.round_limit.value = Duration::from_secs(60);
    settings.idle_limit.value = Duration::from_secs(60);
    let launch = Launch::new(workspace, agent, &settings);
    let start = Start {
        objective: OBJECTIVE.to_owned(),
        handoff: None,
        until: None,
        shared_workspace: false,
        display,
    };
    start.carry_out(&state, &launch)
}

fn workspace(state: &State) -> Result<PathBuf> {
    let workspace = state.scratch().join(uuid::Uuid::new_v4().to_string());
    fs::create_dir_all(&workspace).with_context(|| format!("cannot make {}", workspace.display()))?;
    fs::write(workspace.join("check.sh"), CHECK)?;
    fs::write(workspace.join("greet.sh"), "echo \"Goodbye, $1.\"\n")?;
    fs::write(workspace.join("README.md"), "# A greeting\n")?;
    // A workspace is a repository as a rule. The demo goes on without where there is no git.
    let git = |arguments: &[&str]| {
        Command::new("git")
            .args(["-c", "user.name=demo", "-c", "user.email=demo@localhost"])
            .args(arguments)
            .current_dir(&workspace)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    };
    for arguments in [["init", "-q"].as_slice(), &["add", "-A"], &["commit", "-q", "-m", "a failing check"]] {
        if !git(arguments).is_ok_and(|status| status.success()) {
            break;
        }
    }
    Ok(workspace)
}

/// Does one worker's turn: looks at the workspace, does the next small thing, and hands in a report.
pub(crate) fn agent() -> Result<Exit, Failure> {
    let path = std::env::var_os(harness_provider_cli::VALUE_FILE)
        .context("this is the agent of `ralph-loop demo`; run that instead")
        .map_err(Failure::usage)?;
    // Everything there is to know shows in the workspace, so the prompt is read for the sake of whoever writes it.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).context("cannot read the prompt")?;
    let report = turn(Path::new("."))?;
    fs::write(path, report.to_string()).context("cannot hand in the report")?;
    Ok(Exit::Complete)
}

/// The script: what there is to do shows in the workspace alone.
fn turn(workspace: &Path) -> Result<Value> {
    let notes = workspace.join("NOTES.md");
    let failure = check(workspace)?;
    if !notes.exists() {
        let failure = failure.unwrap_or_default();
        println!("looking around: the check says {failure:?}");
        fs::write(&notes, format!("The check fails: {failure}\n"))?;
        return Ok(json!({
            "status": "continue",
            "summary": "Looked at the workspace and wrote down in NOTES.md why the check fails.",
            "evidence": [format!("sh check.sh: {failure}")],
            "nextSteps": ["Correct greet.sh", "Say in README.md how to greet"],
            "blocker": "",
        }));
    }
    if failure.as_deref().is_some_and(|failure| failure.starts_with("greet.sh")) {
        println!("correcting greet.sh");
        fs::write(workspace.join("greet.sh"), "echo \"Hello, $1!\"\n")?;
        let failure = check(workspace)?.unwrap_or_default();
        return Ok(json!({
            "status": "continue",
            "summary": "Corrected the greeting; the documentation is still missing.",
            "evidence": ["sh greet.sh World: Hello, World!", format!("sh check.sh: {failure}")],
            "nextSteps": ["Say in README.md how to greet"],
            "blocker": "",
        }));
    }
    println!("writing the documentation");
    fs::write(workspace.join("README.md"), "# A greeting\n\nRun `sh greet.sh NAME`.\n")?;
    match check(workspace)? {
        None => Ok(json!({
            "status": "complete",
            "summary": "The greeting is right and documented, and the check passes.",
            "evidence": ["sh check.sh: all is well"],
            "nextSteps": [],
            "blocker": "",
        })),
        Some(failure) => Ok(json!({
            "status": "blocked",
            "summary": "The check fails for a reason that the script does not know.",
            "evidence": [],
            "nextSteps": [],
            "blocker": failure,
        })),
    }
}

/// Runs the check and returns what it complains of.
fn check(workspace: &Path) -> Result<Option<String>> {
    let output =
        Command::new("sh").arg("check.sh").current_dir(workspace).output().context("cannot run sh")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((!output.status.success()).then_some(said))
}
