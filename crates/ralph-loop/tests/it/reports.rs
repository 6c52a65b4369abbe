//! `validate` and `schema`.

use std::fs::{self, File};
use std::process::Stdio;

use crate::stage::{BLOCKED, COMPLETE, Said, Stage, json};

#[test]
fn reports_come_from_files_and_lines() {
    let stage = Stage::new();
    fs::write(stage.file("good.json"), COMPLETE).unwrap();
    fs::write(stage.file("all.ndjson"), format!("{COMPLETE}\n\n{BLOCKED}\nnot json\n")).unwrap();
    stage.say(&["validate", "good.json"]).with_status(0).with_out("good.json: valid, complete");
    let said = stage.say(&["validate", "good.json", "all.ndjson"]).with_status(13);
    let said = said.with_out("all.ndjson:1: valid").with_out("all.ndjson:3: valid, blocked");
    said.with_out("all.ndjson:4: not valid");
    let mut command = stage.command(&["validate"]);
    command.stdin(Stdio::from(File::open(stage.file("all.ndjson")).unwrap()));
    Said::of(command.output().unwrap()).with_status(13).with_out("standard input:1: valid");
}

#[test]
fn violations_are_told_with_their_places() {
    let stage = Stage::new();
    fs::write(
        stage.file("bad.json"),
        r#"{"status":"complete","summary":" x","evidence":["a",3],"nextSteps":[]}"#,
    )
    .unwrap();
    stage.say(&["validate", "bad.json"]).with_status(13).with_out("/evidence/1").with_out("/summary");
    let line = json(&stage.say(&["validate", "--json", "bad.json"]).with_status(13).out);
    assert_eq!(line["valid"], false);
    let pointers: Vec<_> =
        line["violations"].as_array().unwrap().iter().map(|one| one["pointer"].to_string()).collect();
    assert!(pointers.contains(&"\"/evidence/1\"".to_owned()), "{pointers:?}");
}

#[test]
fn what_cannot_be_read_is_bad_usage() {
    let stage = Stage::new();
    stage.say(&["validate", "missing.json"]).with_status(2).with_err("missing.json");
    stage.say(&["validate", "."]).with_status(2).with_err("cannot read");
    let file = File::create(stage.file("huge.json")).unwrap();
    file.set_len(17 * 1024 * 1024).unwrap();
    stage.say(&["validate", "huge.json"]).with_status(2).with_err("is longer than");
}

#[test]
fn the_limit_on_a_report_can_be_given() {
    let stage = Stage::new();
    fs::write(stage.file("good.json"), COMPLETE).unwrap();
    stage.say(&["validate", "--max-chars", "80", "good.json"]).with_status(13);
}

#[test]
fn the_schemas_are_json() {
    let stage = Stage::new();
    for which in ["full", "child"] {
        let schema = json(&stage.say(&["schema", which]).with_status(0).out);
        assert_eq!(schema["type"], "object", "{which}");
    }
    stage.say(&["schema", "other"]).with_status(2);
}
