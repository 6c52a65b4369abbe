use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use harness_engine_local::RunHistory;
use harness_engine_local::RunState;
use harness_process::Limits;
use harness_provider_acp::DetectedAgent;
use harness_provider_cli::{AgentKind, Detected};
use serde_json::json;

use crate::acp_agent::AcpAgent;
use crate::agent::{Agent, Way};
use crate::arguments::{ConfigArguments, EngineKind};
use crate::exit::{Exit, Failure};
use crate::known_agent::KnownAgent;
use crate::settings::Settings;
use crate::shown::{self, BAD, BOLD, GOOD, WARN};
use crate::state::State;
use crate::{output, run, temporal, typed};

/// One thing that was looked at.
struct Finding {
    what: String,
    verdict: Verdict,
    detail: String,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Verdict {
    Good,
    /// A run works without it.
    Lacking,
    /// No run works like this.
    Bad,
}

impl Finding {
    fn new(what: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { what: what.into(), verdict, detail: detail.into() }
    }
}

/// `ralph-loop doctor`.
pub(crate) fn doctor(arguments: &ConfigArguments) -> Result<Exit, Failure> {
    let workspace = run::workspace(&arguments.workspace.workspace)?;
    let findings = findings(&workspace);
    let is_well = findings.iter().all(|finding| finding.verdict != Verdict::Bad);
    if arguments.display.json {
        for finding in &findings {
            let verdict = match finding.verdict {
                Verdict::Good => "good",
                Verdict::Lacking => "lacking",
                Verdict::Bad => "bad",
            };
            output::json(&json!({ "what": finding.what, "verdict": verdict, "detail": finding.detail }))?;
        }
    } else {
        let mut page = String::new();
        for Finding { what, verdict, detail } in &findings {
            let (style, word) = match verdict {
                Verdict::Good => (GOOD, "ok"),
                Verdict::Lacking => (WARN, "note"),
                Verdict::Bad => (BAD, "BAD"),
            };
            let text = shown::wrapped(detail, &format!("{word:<5} {what:<18} "), &" ".repeat(25));
            let text = text.replacen(word, &format!("{style}{word}{style:#}"), 1);
            let text = text.replacen(what.as_str(), &format!("{BOLD}{what}{BOLD:#}"), 1);
            writeln!(page, "{text}").expect("a text takes all that is written to it");
        }
        output::print(&page)?;
    }
    Ok(if is_well { Exit::Complete } else { Exit::Environment })
}

fn findings(workspace: &Path) -> Vec<Finding> {
    let mut findings = vec![
        Finding::new(
            "program",
            Verdict::Good,
            format!("ralph-loop {}, typed as `{}`", env!("CARGO_PKG_VERSION"), typed::command("").trim()),
        ),
        Finding::new("workspace", Verdict::Good, shown::path(workspace)),
        git(workspace),
        state(),
    ];
    findings.extend(kernel());
    match Settings::read(workspace) {
        Err(failure) => findings.push(Finding::new("settings", Verdict::Bad, format!("{:#}", failure.error))),
        Ok(settings) => {
            let files = settings.files.iter().filter(|(_, is_there)| *is_there);
            let files: Vec<_> = files.map(|(path, _)| shown::path(path)).collect();
            let detail =
                if files.is_empty() { "no file; the defaults count".to_owned() } else { files.join(", ") };
            findings.push(Finding::new("settings", Verdict::Good, detail));
            findings.extend(temporal_server(&settings));
            findings.extend(agents(&settings));
        }
    }
    findings
}

/// The server of runs, where they are on one.
fn temporal_server(settings: &Settings) -> Option<Finding> {
    if settings.engine.value != EngineKind::Temporal {
        return None;
    }
    Some(match temporal::look(settings) {
        Err(failure) => Finding::new("engine", Verdict::Bad, format!("{:#}", failure.error)),
        Ok((true, told)) => Finding::new("engine", Verdict::Good, told),
        Ok((false, told)) => Finding::new("engine", Verdict::Lacking, told),
    })
}

fn agents(settings: &Settings) -> Vec<Finding> {
    let mut findings: Vec<_> = settings.agents.keys().map(|name| declared(name, settings)).collect();
    let undeclared = AgentKind::ALL.iter().filter(|kind| !settings.agents.contains_key(kind.as_str()));
    for kind in undeclared {
        let agent = Agent::known(*kind, settings);
        // Nobody has asked for it, so nothing is wrong when it is not there.
        findings.push(match agent.find() {
            Ok(_) => found(&agent, Verdict::Lacking),
            Err(failure) => Finding::new(what(&agent), Verdict::Lacking, failure.error.to_string()),
        });
    }
    if let Err(failure) = Agent::named(settings.agent.value.as_deref(), settings) {
        let verdict = if settings.agent.value.is_some() { Verdict::Bad } else { Verdict::Lacking };
        findings.push(Finding::new("default agent", verdict, format!("{:#}", failure.error)));
    }
    findings
}

fn what(agent: &Agent) -> String {
    format!("agent {}", agent.name)
}

fn declared(name: &str, settings: &Settings) -> Finding {
    let agent = match Agent::named(Some(name), settings) {
        Ok(agent) => agent,
        Err(failure) => {
            return Finding::new(format!("agent {name}"), Verdict::Bad, format!("{:#}", failure.error));
        }
    };
    found(&agent, Verdict::Bad)
}

/// Looks for the agent's program, and asks one that is known for what it knows of itself. `missing` is what a missing
/// or broken one means.
fn found(agent: &Agent, missing: Verdict) -> Finding {
    let program = match agent.find() {
        Ok(program) => program,
        Err(failure) => return Finding::new(what(agent), missing, format!("{:#}", failure.error)),
    };
    let passed = if agent.pass_env.is_empty() {
        "the basic variables only".to_owned()
    } else {
        format!("the basic variables and {}", agent.pass_env.join(", "))
    };
    let may = agent.permissions_in_words();
    match &agent.way {
        Way::Command(_) => Finding::new(
            what(agent),
            Verdict::Good,
            format!(
                "would run {} as {}, with {passed}; it may {may}",
                agent.command_line(),
                shown::path(&program)
            ),
        ),
        Way::Acp(acp) => match detect_acp(agent, acp) {
            Err(error) => Finding::new(what(agent), missing, format!("{error:#}")),
            Ok(detected) => {
                let called = detected.agent.unwrap_or_else(|| "an agent without a name".to_owned());
                let version = detected.version.map_or_else(String::new, |version| format!(" {version}"));
                let (verdict, called) = match detected.trouble {
                    None => (Verdict::Good, format!("{called}{version} by the Agent Client Protocol")),
                    Some(trouble) => (missing, format!("it cannot be used: {trouble}")),
                };
                let command = agent.command_line();
                let detail = format!("{called}; would run {command}, with {passed}; it may {may}");
                Finding::new(what(agent), verdict, detail)
            }
        },
        Way::Known(known) => match detect(agent, known) {
            Err(error) => Finding::new(what(agent), missing, format!("{error:#}")),
            Ok(detected) => {
                let (verdict, version) = version(known, &detected, missing);
                let program = shown::path(detected.program.as_deref().unwrap_or(&program));
                let detail = format!(
                    "{version}, {program}; {}; would get {passed} and its vendor's credentials; it may {may}",
                    detected.login
                );
                Finding::new(what(agent), verdict, detail)
            }
        },
    }
}

/// Judges the version of a known agent, and tells it.
fn version(known: &KnownAgent, detected: &Detected, missing: Verdict) -> (Verdict, String) {
    let features = known.kind.features();
    let (oldest, newest) = features.tested;
    let tested = if oldest == newest { oldest.to_string() } else { format!("{oldest} to {newest}") };
    let title = features.title;
    match (detected.version, &detected.trouble) {
        (Some(version), _) if detected.tested => (Verdict::Good, format!("{title} {version}")),
        (Some(version), _) => {
            (Verdict::Lacking, format!("{title} {version}, which was not tested ({tested} was)"))
        }
        (None, Some(trouble)) => (missing, format!("{title} of an unknown version: {trouble}")),
        (None, None) => (missing, format!("{title} of an unknown version")),
    }
}

fn detect(agent: &Agent, known: &KnownAgent) -> anyhow::Result<Detected> {
    let state = State::open().map_err(|failure| failure.error)?;
    let provider = known
        .provider(&agent.name, &state, agent.environment(), Limits::default())?
        .with_program(&agent.program);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(provider.detect()))
}

fn detect_acp(agent: &Agent, acp: &AcpAgent) -> anyhow::Result<DetectedAgent> {
    let state = State::open().map_err(|failure| failure.error)?;
    let provider =
        acp.provider(&agent.name, &agent.program, &state, agent.environment(), Limits::default())?;
    let provider = provider.with_arguments(&agent.arguments);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(provider.detect()))
}

fn git(workspace: &Path) -> Finding {
    let inside = Command::new("git")
        .args(["rev-parse", "--is-inside-work-tree"])
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match inside {
        Ok(output) if output.status.success() => {
            Finding::new("git", Verdict::Good, "the workspace is a repository")
        }
        Ok(_) => Finding::new(
            "git",
            Verdict::Lacking,
            "the workspace is no repository; what agents change cannot be undone",
        ),
        Err(_) => {
            Finding::new("git", Verdict::Lacking, "git is not installed; what agents change cannot be undone")
        }
    }
}

fn state() -> Finding {
    let opened = State::open().and_then(|state| {
        let runs = RunHistory::read_all(&**state.journals())?;
        Ok((state, runs))
    });
    match opened {
        Err(failure) => Finding::new("state directory", Verdict::Bad, format!("{:#}", failure.error)),
        Ok((state, runs)) => {
            let is_interrupted = |history: &RunHistory| history.state == RunState::Interrupted;
            let interrupted =
                runs.iter().filter(|listed| listed.history.as_ref().is_ok_and(is_interrupted)).count();
            let unreadable = runs.iter().filter(|listed| listed.history.is_err()).count();
            let count = if runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", runs.len()) };
            let mut detail = format!("{}, {count}", shown::path(state.root()));
            if interrupted > 0 {
                detail.push_str(&format!(", {interrupted} of them interrupted"));
            }
            if unreadable > 0 {
                detail.push_str(&format!(", {unreadable} of them unreadable"));
            }
            let verdict = if interrupted + unreadable > 0 { Verdict::Lacking } else { Verdict::Good };
            Finding::new("state directory", verdict, detail)
        }
    }
}

#[cfg(target_os = "linux")]
fn kernel() -> Vec<Finding> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let Ok(release) = release else {
        return vec![Finding::new(
            "kernel",
            Verdict::Bad,
            "/proc is not there; without it what agents leave running cannot be found",
        )];
    };
    let release = release.trim();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let kernel = if version >= (5, 3) {
        Finding::new(
            "kernel",
            Verdict::Good,
            format!("Linux {release}: exits are noticed by process descriptors"),
        )
    } else {
        Finding::new(
            "kernel",
            Verdict::Lacking,
            format!("Linux {release} is older than 5.3; ends of agents are told by signals"),
        )
    };
    let adopting = match harness_process::become_subreaper() {
        Ok(()) => Finding::new(
            "orphans",
            Verdict::Good,
            "what an agent leaves behind is adopted, and ended with its round",
        ),
        Err(error) => Finding::new(
            "orphans",
            Verdict::Lacking,
            format!("cannot be adopted ({error}); they are found by their mark only"),
        ),
    };
    vec![kernel, adopting]
}

#[cfg(not(target_os = "linux"))]
fn kernel() -> Vec<Finding> {
    vec![Finding::new(
        "system",
        Verdict::Lacking,
        "only on Linux is everything found that an agent leaves running; here it is what stays in its process group",
    )]
}
