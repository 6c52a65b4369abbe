//! The engine against a real server: the contract's suite, and what no double can show.
//!
//! `cargo xtask e2e temporal` runs it; words behind that choose parts by name. `cargo xtask soak temporal` repeats the
//! faults. The server is a development server from the package registry, pinned; see `server.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alone;
#[path = "../bodies/mod.rs"]
mod bodies;
mod conformance;
mod costs;
mod faults;
mod history;
mod record;
mod scene;
mod secure;
mod server;
mod soak;
#[path = "../tls/mod.rs"]
mod tls;

use std::process::ExitCode;
use std::time::Instant;

use crate::server::Server;

type Part = Box<dyn Fn(&mut Server) -> Result<(), String>>;
type Chore = fn(&mut Server) -> Result<(), String>;

/// What is done only where it is asked for.
const CHORES: &[(&str, Chore)] = &[("costs", costs::run), ("record", record::run)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = scene::role(&words) {
        return code;
    }
    if let Some(code) = alone::go_on(&words) {
        return code;
    }
    if let Some(("soak", chosen)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return match soak::run(chosen) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("FAILED  {why}");
                ExitCode::FAILURE
            }
        };
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
    let asked_for = |name: &str| words.iter().any(|word| name == word);
    let chores = CHORES.iter().filter(|(name, _)| asked_for(name));
    let chores = chores.map(|(name, run)| (*name, Box::new(run) as Part));
    let parts = parts().into_iter().filter(|(name, _)| chosen(name));
    for (name, run) in parts.chain(chores) {
        let start = Instant::now();
        let outcome = run(&mut server);
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("passed  {seconds:4} s  {name}"),
            Err(why) => {
                println!("FAILED  {seconds:4} s  {name}: {why}");
                failed.push(name);
            }
        }
    }
    drop(server);
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parts() -> Vec<(&'static str, Part)> {
    let mut parts: Vec<(&'static str, Part)> = vec![("conformance", Box::new(conformance::run))];
    for (name, trial) in faults::TRIALS.iter().copied() {
        let once = move |server: &mut Server| {
            let (seen, _) = faults::play_once(server, trial, 1)?;
            println!("  {seen:?}");
            Ok(())
        };
        parts.push((name, Box::new(once)));
    }
    parts.push(("fresh-history", Box::new(faults::fresh_history)));
    parts.push(("secure", Box::new(secure::run)));
    parts
}
