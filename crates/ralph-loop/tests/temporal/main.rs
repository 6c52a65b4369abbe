//! The built `ralph-loop` against a real Temporal server: the loop's vectors, and whole runs with workers in processes of
//! their own.
//!
//! `cargo xtask e2e temporal` runs it; words behind that choose parts by the beginnings of their names. The server is a
//! development server from the package registry, pinned; see `server.rs`.

mod cases;
mod gate;
mod hosts;
mod prompts;
mod scene;
#[expect(dead_code, reason = "the engine's own tests ask it for more")]
mod server;
mod vectors;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::server::Server;

type Part = (&'static str, fn(&mut Server) -> Result<()>);

const PARTS: &[Part] = &[("loop-vectors", vectors::run)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.starts_with(word.as_str()));
    let parts: Vec<&Part> = PARTS.iter().chain(cases::CASES).filter(|(name, _)| chosen(name)).collect();
    if parts.is_empty() {
        return ExitCode::SUCCESS;
    }
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("there is no server: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for (name, run) in &parts {
        let start = Instant::now();
        let outcome = run(&mut server);
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("ok      {seconds:5.1} s  {name}"),
            Err(why) => {
                failed += 1;
                println!("FAILED  {seconds:5.1} s  {name}: {why:#}");
            }
        }
    }
    println!("{} passed, {failed} failed", parts.len() - failed);
    drop(server);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
