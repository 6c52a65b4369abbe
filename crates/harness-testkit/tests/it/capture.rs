//! The stand-in of a capture server takes what the test accepts and hands back the rest.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use harness_subagent::OutputViolation;
use harness_testkit::subagent::CaptureStandIn;
use serde_json::{Value, json};

/// Serves `calls` and returns whether each was answered as an error.
fn serve(directory: &Path, corrections: &str, calls: &[Value]) -> Vec<bool> {
    let variable = |name: &str| match name {
        "HARNESS_TOOL" => Some("hand_in".to_owned()),
        "HARNESS_VALUE_FILE" => Some(directory.join("value.json").to_str()?.to_owned()),
        "HARNESS_REFUSED_FILE" => Some(directory.join("refused.json").to_str()?.to_owned()),
        "HARNESS_CORRECTIONS" => Some(corrections.to_owned()),
        _ => None,
    };
    let mut input =
        String::from("not a message\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    for (id, arguments) in calls.iter().enumerate() {
        let params = json!({ "name": "hand_in", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        input.push_str(&format!("{call}\n"));
    }
    let mut output = Vec::new();
    let judge = |value: &Value| match value["n"].as_u64() {
        Some(_) => vec![],
        None => vec![OutputViolation::new("/n", "type", "must be a number")],
    };
    CaptureStandIn::from_variables(variable).unwrap().serve(input.as_bytes(), &mut output, judge).unwrap();
    let lines = String::from_utf8(output).unwrap();
    let answers: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), calls.len(), "{lines}");
    answers.iter().map(|answer| answer["result"]["isError"].as_bool().unwrap()).collect()
}

#[test]
fn the_first_accepted_value_stays_and_the_last_refused_one_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let calls = [json!({}), json!({ "n": "x" }), json!({ "n": 1 }), json!({ "n": 2 }), json!({})];
    assert_eq!(serve(directory.path(), "2", &calls), [true, true, false, false, false]);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("value.json"), r#"{"n":1}"#);
    assert_eq!(read("refused.json"), r#"{"n":"x"}"#);
}

#[test]
fn a_server_that_is_not_told_where_to_put_a_value_does_not_start() {
    assert!(CaptureStandIn::from_variables(|_| None).is_err());
    let corrections = |name: &str| (name != "HARNESS_TOOL").then(|| "many".to_owned());
    assert!(CaptureStandIn::from_variables(corrections).is_err());
    assert!(CaptureStandIn::from_variables(|_| Some("many".to_owned())).is_err());
}
