//! Bodies are deterministic on this engine: what was recorded comes about again, and what was changed is refused.
//!
//! The histories are recorded by `cargo xtask e2e temporal record`.

use std::fs;
use std::path::Path;

use harness_engine_temporal::{ReplayError, replay};
use harness_testkit::workflow::ScriptedBody;
use harness_workflow::WorkflowCatalog;
use serde_json::{Value, json};

use crate::bodies::{self, Change};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/histories");

fn recorded(name: &str) -> Vec<u8> {
    let file = Path::new(FOLDER).join(format!("{name}.json"));
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn all() -> Vec<String> {
    let files = fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

async fn replayed(name: &str, change: Change) -> Result<(), ReplayError> {
    replay(bodies::catalog(change), &recorded(name)).await
}

#[tokio::test]
async fn every_recorded_run_comes_about_again() {
    let names = all();
    for kind in [
        "sequence",
        "parallel",
        "stages",
        "race",
        "failures",
        "panic",
        "cancelled",
        "continued.2",
        "attempts",
        "exhausted",
    ] {
        assert!(names.iter().any(|name| name == kind), "{kind} is among {names:?}");
    }
    for name in names {
        for _ in 0..3 {
            let outcome = replayed(&name, Change::Nothing).await;
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
        }
    }
}

/// A worker may take a run over after any of its steps.
#[tokio::test]
async fn every_beginning_of_a_recorded_run_comes_about_again() {
    for name in all() {
        let history: Value = serde_json::from_slice(&recorded(&name)).unwrap();
        let events = history["events"].as_array().unwrap();
        let steps = (0..events.len())
            .filter(|at| events[*at]["attributes"].get("WorkflowTaskStartedEventAttributes").is_some());
        let mut count = 0;
        for at in steps {
            let beginning = json!({ "events": events[..=at] });
            let outcome = replay(bodies::catalog(Change::Nothing), beginning.to_string().as_bytes()).await;
            assert!(outcome.is_ok(), "{name} up to event {}: {outcome:?}", at + 1);
            count += 1;
        }
        assert!(count > 0, "{name}");
    }
}

#[tokio::test]
async fn a_body_whose_calls_changed_is_refused() {
    for change in [
        Change::OneCallMore,
        Change::OneCallLess,
        Change::OtherOrder,
        Change::OtherPrompt,
        Change::OtherLabel,
        Change::SpeaksLater,
        Change::EndsAtOnce,
    ] {
        let outcome = replayed("stages", change).await;
        assert!(matches!(outcome, Err(ReplayError::Changed { .. })), "{change:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_body_that_went_on_with_a_fresh_history_is_refused_as_well() {
    for change in [Change::OtherPrompt, Change::OtherOrder] {
        let outcome = replayed("continued.2", change).await;
        assert!(matches!(outcome, Err(ReplayError::Changed { .. })), "{change:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_body_that_only_says_something_else_is_not_refused() {
    let outcome = replayed("stages", Change::OtherWords).await;
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[tokio::test]
async fn a_run_of_a_workflow_that_is_not_there_is_given_back() {
    let outcome = replay(ScriptedBody::catalog(), &recorded("stages")).await;
    assert!(matches!(outcome, Err(ReplayError::GivenBack { .. })), "{outcome:?}");
    let outcome = replay(WorkflowCatalog::new(), &recorded("stages")).await;
    assert!(matches!(outcome, Err(ReplayError::GivenBack { .. })), "{outcome:?}");
}

#[tokio::test]
async fn what_is_no_history_is_refused() {
    let mut history: Value = serde_json::from_slice(&recorded("sequence")).unwrap();
    let events = history["events"].as_array_mut().unwrap();
    let without_its_start = json!({ "events": events[1..] }).to_string();
    events.remove(3);
    let with_a_gap = history.to_string();
    let texts = ["", "{", "[]", "{\"events\": 3}", "{\"events\": []}", "{}", &without_its_start, &with_a_gap];
    for text in texts {
        let outcome = replay(bodies::catalog(Change::Nothing), text.as_bytes()).await;
        assert!(matches!(outcome, Err(ReplayError::History { .. })), "{text:?}: {outcome:?}");
    }
}
