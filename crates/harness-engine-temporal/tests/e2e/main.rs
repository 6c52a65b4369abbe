//! The engine against a real server: the contract's suite, and what no double can show.
//!
//! `cargo xtask e2e temporal` runs it; words behind that choose parts by name. The server is a development server from
//! the package registry, pinned; see `server.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod faults;
mod server;

use std::process::ExitCode;
use std::time::Instant;

use crate::server::Server;

type Part = (&'static str, fn(&mut Server) -> Result<(), String>);

const PARTS: &[Part] = &[("conformance", conformance::run)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = faults::role(&words) {
        return code;
    }
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.starts_with(word.as_str()));
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("there is no server: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = Vec::new();
    for (name, run) in PARTS.iter().chain(faults::TRIALS).filter(|(name, _)| chosen(name)) {
        let start = Instant::now();
        let outcome = run(&mut server);
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("passed  {seconds:4} s  {name}"),
            Err(why) => {
                println!("FAILED  {seconds:4} s  {name}: {why}");
                failed.push(*name);
            }
        }
    }
    drop(server);
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
