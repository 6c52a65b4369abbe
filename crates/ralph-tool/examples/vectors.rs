//! Runs the test vectors about the tool and its loop in the `*.jsonl` files of a folder.
//!
//! Prints what failed, and as its last line a JSON object with the numbers for each kind. Ends with 1 if any failed.

#![expect(clippy::unwrap_used, reason = "a folder that cannot be read ends the program")]

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

#[path = "../tests/prompts/mod.rs"]
mod prompts;
#[path = "../tests/vectors/mod.rs"]
mod vectors;

const MOST_SHOWN: usize = 50;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: vectors DIR");
        return ExitCode::from(2);
    };
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();

    let mut tally = vectors::Tally::default();
    for file in files {
        for line in BufReader::new(File::open(file).unwrap()).lines() {
            tally.run(&line.unwrap());
        }
    }
    for failure in tally.failures.iter().take(MOST_SHOWN) {
        println!("{failure}");
    }
    println!(
        "of the loop vectors, {} also ran on the embedded engine, {} of them interrupted and resumed after each round",
        tally.embedded, tally.journaled
    );
    let kinds: serde_json::Map<String, Value> = tally
        .kinds
        .iter()
        .map(|(kind, count)| {
            let vectors::Count { passed, failed, skipped } = count;
            ((*kind).to_owned(), json!({ "passed": passed, "failed": failed, "skipped": skipped }))
        })
        .collect();
    println!("{}", json!({ "crate": "ralph-tool", "kinds": kinds }));
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
