//! Real agents, run by the built `ralph-loop` against a scripted model: `cargo xtask e2e agents`.
//!
//! Arguments choose agents (`codex`), cases (`cancelled`) or one of both (`codex/cancelled`), with each agent's default
//! way to hand in a report; without any, every agent is run through the cases that matter most, and some through all.
//! `--all` takes every case and the other ways too, and names those that do not apply to an agent. One line is printed
//! for each case, and the numbers at the end; a case that fails prints what helps to find out why.
//!
//! `--record` runs no case: it has the fixtures of `harness-provider-cli` recorded again.

mod agents;
mod cases;
mod namespace;
mod processes;
mod scene;

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::agents::{AGENTS, Agent, Way};
use crate::cases::{CASES, Case};

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was chosen and returns how many cases failed.
fn run(mut words: Vec<String>) -> Result<usize> {
    let all = take(&mut words, "--all");
    let record = take(&mut words, "--record");
    let chosen = if record { Vec::new() } else { choose(&words, all)? };
    // From here on nothing that an agent might try reaches anybody. There is one thread yet.
    if let Err(error) = namespace::enter() {
        println!("skipped  a network of the loopback interface alone: {error:#}");
    }
    if record {
        return record_fixtures(&words);
    }
    let begun = Instant::now();
    let mut failed = 0;
    for (agent, way, case) in &chosen {
        let started = Instant::now();
        let result = play(agent, *way, case);
        let line = format!("{}/{} ({way}): {}{}", agent.name, case.name, case.about, case.of(agent));
        let took = seconds(started.elapsed());
        match result {
            Ok(()) => println!("ok      {took}  {line}"),
            Err(why) => {
                failed += 1;
                println!("FAILED  {took}  {line}\n{}", indented(&why));
            }
        }
    }
    if all {
        name_what_does_not_apply(&words);
    }
    let passed = chosen.len() - failed;
    println!("{passed} passed, {failed} failed in {}", seconds(begun.elapsed()).trim_start());
    Ok(failed)
}

/// Has the fixtures of the provider recorded again: those of the agents that are named, or `AGENT/FIXTURE`, or all.
fn record_fixtures(words: &[String]) -> Result<usize> {
    let cargo = std::env::var_os("CARGO").context("this is to be started by cargo")?;
    let arguments =
        ["test", "--offline", "--quiet", "--package", "harness-provider-cli", "--test", "record", "--"];
    let status = Command::new(cargo).args(arguments).args(words).stdin(Stdio::null()).status()?;
    Ok(usize::from(!status.success()))
}

/// Returns what is to be run: the agents and cases that are named, or all.
fn choose(words: &[String], all: bool) -> Result<Vec<(&'static Agent, Way, &'static Case)>> {
    for word in words {
        let (agent, case) = parts(word);
        let known = agent.is_none_or(|name| AGENTS.iter().any(|agent| agent.name == name))
            && case.is_none_or(|name| CASES.iter().any(|case| case.name == name));
        if !known {
            let agents: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
            let cases: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            bail!(
                "nothing is called `{word}`; the agents are {}; the cases are {}",
                agents.join(", "),
                cases.join(", ")
            );
        }
    }
    let by_default = |agent: &Agent, case: &Case| {
        all || !words.is_empty() || agent.all_by_default || case.is_for_every_agent
    };
    let mut chosen = Vec::new();
    for agent in AGENTS {
        let ways = if all { agent.ways } else { &agent.ways[..1] };
        for way in ways {
            let cases = CASES.iter().filter(|case| is_named(words, agent, case) && by_default(agent, case));
            chosen.extend(cases.map(|case| (agent, *way, case)));
        }
    }
    Ok(chosen)
}

/// True if the words choose the case of the agent, or nothing at all.
fn is_named(words: &[String], agent: &Agent, case: &Case) -> bool {
    words.is_empty()
        || words.iter().map(|word| parts(word)).any(|(named_agent, named_case)| {
            named_agent.is_none_or(|name| name == agent.name)
                && named_case.is_none_or(|name| name == case.name)
        })
}

/// Prints a line for each way of an agent that has none of the cases that were chosen, with the reason.
fn name_what_does_not_apply(words: &[String]) {
    for agent in AGENTS {
        for (way, why) in agent.not_applicable {
            let cases: Vec<&str> =
                CASES.iter().filter(|case| is_named(words, agent, case)).map(|case| case.name).collect();
            if !cases.is_empty() {
                println!("n/a               {} ({way}), {}: {why}", agent.name, cases.join(", "));
            }
        }
    }
}

/// Takes `AGENT/CASE` apart; a word alone is the one or the other.
fn parts(word: &str) -> (Option<&str>, Option<&str>) {
    match word.split_once('/') {
        Some((agent, case)) => (Some(agent), Some(case)),
        None if AGENTS.iter().any(|agent| agent.name == word) => (Some(word), None),
        None => (None, Some(word)),
    }
}

fn take(words: &mut Vec<String>, flag: &str) -> bool {
    let before = words.len();
    words.retain(|word| word != flag);
    words.len() < before
}

/// Plays one case; the error is all that there is to say about a failure.
fn play(agent: &'static Agent, way: Way, case: &Case) -> Result<(), String> {
    let scene = (case.scene)(agent, way).map_err(|error| format!("{error:#}"))?;
    match (case.play)(&scene).and_then(|()| scene.nothing_is_left()) {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error:#}\n{}", scene.autopsy())),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("        {line}\n")).collect()
}

fn seconds(time: Duration) -> String {
    format!("{:5.1} s", time.as_secs_f64())
}
