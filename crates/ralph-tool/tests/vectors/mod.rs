//! Runs test vectors: lines of JSON, each an input and what must come of it.
//!
//! Shared by the tests, which run the vectors in this folder, and by the example `vectors`, which runs those of any
//! folder.

mod decoding;
mod embedded;
mod journaled;
mod rendering;
mod scene;
mod stubbed;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use self::scene::Scene;

/// The kinds of vectors that are run here.
pub(crate) const KINDS: [&str; 5] = ["config", "loop", "max-rounds", "render", "terminal"];

/// How the vectors of each kind went.
#[derive(Debug)]
pub(crate) struct Tally {
    runtime: Runtime,
    pub(crate) kinds: BTreeMap<&'static str, Count>,
    /// A line for each vector that went wrong.
    pub(crate) failures: Vec<String>,
    /// How many loop vectors were also run on the embedded engine.
    pub(crate) embedded: usize,
    /// How many of these were also run with a journal and an interruption after each round.
    pub(crate) journaled: usize,
    /// The most rounds of a vector that is interrupted after each of them: each is replayed every time.
    pub(crate) most_interrupted: usize,
}

/// How the vectors of one kind went.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// Makes a runtime whose time is virtual: whatever waits, waits for nothing else.
fn new_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime needs nothing that a test lacks")
}

/// Makes a folder, in memory where that is possible: what is simulated is the death of processes, not of machines.
fn new_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a folder can be made")
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            runtime: new_runtime(),
            kinds: BTreeMap::new(),
            failures: Vec::new(),
            embedded: 0,
            journaled: 0,
            most_interrupted: usize::MAX,
        }
    }
}

impl Tally {
    /// Runs one line, unless it is of a kind that is not run here.
    pub(crate) fn run(&mut self, line: &str) {
        let head: Head = serde_json::from_str(line).expect("a vector has an id and a kind");
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == head.kind) else {
            return;
        };
        let vector: Vector = serde_json::from_str(line).expect("a vector has the documented format");
        if vector.rust_unrepresentable && vector.ours.is_none() {
            self.kinds.entry(kind).or_default().skipped += 1;
            return;
        }
        let input = vector.input.as_deref().expect("a vector that can be represented has an input").get();
        let mut expected = vector.expect.expect("a vector that can be represented has an expectation");
        // What this project does on purpose replaces what the reference did.
        if let Some(ours) = vector.ours {
            expected = ours;
        }
        let verdict = match kind {
            "config" => decoding::config(input, &expected),
            "max-rounds" => decoding::max_rounds(input, &expected),
            "render" => rendering::render(input, &expected),
            "terminal" => decoding::terminal(input, &expected),
            _ => self.loops(input, &expected),
        };
        self.count(kind, &head.id, verdict);
    }

    /// Runs a loop vector on each engine on which it applies.
    fn loops(&mut self, input: &str, expected: &Value) -> Verdict {
        let scene = Scene::read(input);
        self.runtime.block_on(stubbed::judge(&scene, expected))?;
        if !embedded::applies(&scene, expected) {
            return Ok(());
        }
        self.embedded += 1;
        let verdict = self.runtime.block_on(embedded::judge(&scene, expected));
        verdict.map_err(|difference| format!("on the embedded engine: {difference}"))?;
        if !(2..=self.most_interrupted).contains(&embedded::agent_calls(expected)) {
            return Ok(());
        }
        self.journaled += 1;
        let folder = new_folder();
        let verdict = journaled::judge(&scene, expected, folder.path());
        verdict.map_err(|difference| format!("interrupted after each round: {difference}"))
    }

    /// Counts one vector.
    pub(crate) fn count(&mut self, kind: &'static str, id: &str, verdict: Verdict) {
        let count = self.kinds.entry(kind).or_default();
        match verdict {
            Ok(()) => count.passed += 1,
            Err(difference) => {
                count.failed += 1;
                self.failures.push(format!("{id}: {difference}"));
            }
        }
    }
}

/// Nothing, or how the outcome differs from the expected one.
pub(crate) type Verdict = Result<(), String>;

#[derive(Deserialize)]
struct Head {
    id: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    #[serde(default)]
    rust_unrepresentable: bool,
    input: Option<Box<RawValue>>,
    expect: Option<Value>,
    ours: Option<Value>,
}

/// Says which expected fields did not come out. A field that is not expected is not judged.
pub(crate) fn compare(expected: &Value, got: &Value) -> Verdict {
    let expected = expected.as_object().expect("an expectation is an object");
    // An input of a type that the code does not take has no category to compare.
    let untyped = expected.get("category").is_some_and(|category| category == "host-type-error");
    let differences: Vec<String> = expected
        .iter()
        .filter(|(field, _)| !(untyped && *field == "category"))
        .filter(|(field, value)| got.get(field) != Some(value))
        .map(|(field, value)| {
            format!("{field} should be {value} and is {}", got.get(field).unwrap_or(&Value::Null))
        })
        .collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}
