//! Real MCP clients, which call the `ralph` tool of the built `ralph-loop mcp`: `cargo xtask e2e mcp`.
//!
//! Arguments choose cases, or all cases whose names begin so (`codex`); without any, all are run. One line is printed
//! for each case, and the numbers at the end; a case that fails prints what helps to find out why.

mod cases;
mod clients;
mod conformance;
mod http;
#[path = "../agents/namespace.rs"]
mod namespace;
#[path = "../agents/processes.rs"]
mod processes;
mod scene;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::cases::CASES;
use crate::scene::Scene;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was chosen and returns how many cases failed.
fn run(words: &[String]) -> Result<usize> {
    for word in words {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        ensure!(
            names.iter().any(|name| name.starts_with(word.as_str())),
            "no case begins with `{word}`; the cases are {}",
            names.join(", ")
        );
    }
    // From here on nothing that a client might try reaches anybody. There is one thread yet.
    if let Err(error) = namespace::enter() {
        println!("skipped  a network of the loopback interface alone: {error:#}");
    }
    let (mut passed, mut failed) = (0, 0);
    let begun = Instant::now();
    for case in CASES {
        if !words.is_empty() && !words.iter().any(|word| case.name.starts_with(word.as_str())) {
            continue;
        }
        let started = Instant::now();
        let scene = Scene::new()?;
        let result = (case.play)(&scene).and_then(|()| scene.nothing_is_left());
        let line = format!("{:5.1} s  {}: {}", started.elapsed().as_secs_f64(), case.name, case.about);
        match result {
            Ok(()) => {
                passed += 1;
                println!("ok      {line}");
            }
            Err(error) => {
                failed += 1;
                let why = format!("{error:#}\n{}", scene.autopsy());
                let why: String = why.lines().map(|line| format!("        {line}\n")).collect();
                println!("FAILED  {line}\n{why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(failed)
}
