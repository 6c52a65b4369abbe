//! Each fault many times, with a table of what was lost and done twice.
//!
//! `cargo xtask soak temporal` runs it; words behind that choose faults by name, and `TEMPORAL_TIMES` sets how often.

use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{self, Seen, TRIALS};
use crate::server::Server;

/// The trials that go side by side, each row on a server of its own. Those in which a worker sweeps what a killed one has
/// left stand in one row, since they would end each other's.
const ROWS: [&[&str]; 3] = [
    &["kill-worker", "lose-one-of-two-workers"],
    &["freeze-worker"],
    &["kill-server", "kill-client", "cancel-elsewhere"],
];

/// What came of one fault.
struct Outcome {
    name: &'static str,
    trials: Vec<(Seen, Duration)>,
    failures: Vec<String>,
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let times = std::env::var("TEMPORAL_TIMES").map_or(Ok(30), |text| text.parse());
    let times: u64 = times.map_err(|error| format!("TEMPORAL_TIMES: {error}"))?;
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.starts_with(word.as_str()));
    let begin = Instant::now();
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let rows: Vec<_> = ROWS
            .iter()
            .map(|row| {
                scope.spawn(move || {
                    let names = row.iter().filter(|name| chosen(name));
                    let mut server = None;
                    names.map(|name| soak(&mut server, name, times)).collect::<Vec<_>>()
                })
            })
            .collect();
        rows.into_iter().flat_map(|row| row.join().unwrap()).collect()
    });
    println!("\n{}\n", faults::settings());
    print!("{}", table(&outcomes));
    println!("\nin {} s", begin.elapsed().as_secs());
    let failures: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.failures).cloned().collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n        ")) }
}

fn soak(server: &mut Option<Server>, name: &str, times: u64) -> Outcome {
    let (name, trial) = *TRIALS.iter().find(|(known, _)| *known == name).unwrap();
    let mut outcome = Outcome { name, trials: Vec::new(), failures: Vec::new() };
    for number in 1..=times {
        let server = server.get_or_insert_with(|| Server::start().unwrap());
        match faults::play_once(server, trial, number) {
            Ok((seen, took)) => {
                println!("{name} {number}: {:.1} s, {seen:?}", took.as_secs_f64());
                outcome.trials.push((seen, took));
            }
            Err(why) => {
                println!("{name} {number} FAILED: {why}");
                outcome.failures.push(format!("{name} {number}: {why}"));
            }
        }
    }
    outcome
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| fault | trials | failed | rounds completed | missing | doubled | twice under one token | lost attempts \
         | lost without the fault | ended and not counted | left alive | child gone after, median | at most \
         | trial, median |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Outcome { name, trials, failures } in outcomes {
        let sum = |count: fn(&Seen) -> u64| trials.iter().map(|(seen, _)| count(seen)).sum::<u64>();
        let gone = sorted(trials.iter().filter_map(|(seen, _)| seen.gone_after).collect());
        let took = sorted(trials.iter().map(|(_, took)| *took).collect());
        text.push_str(&format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            trials.len() + failures.len(),
            failures.len(),
            sum(|seen| seen.rounds),
            sum(|seen| seen.missing),
            sum(|seen| seen.doubled),
            sum(|seen| seen.same_fence),
            sum(|seen| seen.lost),
            sum(|seen| seen.lost_besides),
            sum(|seen| seen.uncounted),
            sum(|seen| seen.survivors),
            seconds(gone.get(gone.len() / 2)),
            seconds(gone.last()),
            seconds(took.get(took.len() / 2)),
        ));
    }
    text
}

fn sorted(mut durations: Vec<Duration>) -> Vec<Duration> {
    durations.sort_unstable();
    durations
}

fn seconds(duration: Option<&Duration>) -> String {
    duration.map_or_else(|| "–".to_owned(), |duration| format!("{:.2} s", duration.as_secs_f64()))
}
