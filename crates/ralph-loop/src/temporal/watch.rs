//! Whether somebody does the work of a run.

use std::time::Duration;

use harness_engine_temporal::{SeenWorker, TemporalEngine, Work};

use crate::progress::Progress;
use crate::typed;

/// How often it is looked whether there are workers, and whether one that was missing is there now.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the server may take to say who is there.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a worker that lives may be silent at a queue: it asks for a minute at most, then asks again.
const SILENCE: Duration = Duration::from_secs(90);

/// A queue that a run needs a worker at.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    pub(super) queue: String,
    pub(super) work: Work,
    /// What is taken from the queue, for people.
    pub(super) what: String,
}

impl Needed {
    /// What a run with an agent needs.
    pub(super) fn by_a_run(loops: &str, children: &str, agent: &str) -> [Self; 2] {
        [
            Self { queue: loops.to_owned(), work: Work::Bodies, what: "loops".to_owned() },
            Self { queue: children.to_owned(), work: Work::Children, what: format!("rounds of {agent}") },
        ]
    }
}

/// Tells, as long as it is polled, when a queue has no worker, and when it has one again.
///
/// A worker that is full asks for nothing. So nobody is missed for rounds while one is under way.
pub(super) async fn tell_of_workers(engine: &TemporalEngine, needed: &[Needed], progress: &Progress) -> ! {
    let say = |text: &str| progress.say(text);
    // A run that is refused at once needs no worker.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut missing = vec![false; needed.len()];
    let mut silent = false;
    loop {
        for (needed, was_missing) in needed.iter().zip(&mut missing) {
            if needed.work == Work::Children && progress.is_under_way() {
                // Whoever has taken it was quicker than the next look.
                if std::mem::take(was_missing) {
                    say(&there(needed));
                }
                continue;
            }
            let looked = tokio::time::timeout(ANSWER, engine.workers(&needed.queue, needed.work)).await;
            let Ok(Ok(workers)) = looked else {
                if !std::mem::replace(&mut silent, true) {
                    say("the Temporal server cannot be asked; the run is safe there, and we ask again");
                }
                continue;
            };
            if std::mem::replace(&mut silent, false) {
                say("the Temporal server answers again");
            }
            let is_missing = !workers.iter().any(is_alive);
            match (is_missing, std::mem::replace(was_missing, is_missing)) {
                (true, false) => say(&nobody(needed)),
                (false, true) => say(&there(needed)),
                _ => {}
            }
        }
        tokio::time::sleep(if missing.contains(&true) { LOOK_AGAIN } else { LOOK }).await;
    }
}

/// Says what is missing for a run, if something is.
pub(super) async fn missing(engine: &TemporalEngine, needed: &[Needed]) -> Option<String> {
    for needed in needed {
        let looked = tokio::time::timeout(ANSWER, engine.workers(&needed.queue, needed.work)).await;
        if let Ok(Ok(workers)) = looked
            && !workers.iter().any(is_alive)
        {
            return Some(nobody(needed));
        }
    }
    None
}

pub(super) fn is_alive(worker: &SeenWorker) -> bool {
    worker.asked_ago < SILENCE
}

fn there(needed: &Needed) -> String {
    format!("a worker takes {} now", needed.what)
}

fn nobody(needed: &Needed) -> String {
    format!(
        "no worker takes {} from the queue {}: none is there, or all have enough to do. The run waits; see `{}`",
        needed.what,
        needed.queue,
        typed::command("worker --help")
    )
}
