//! The two JSON Schemas. That the full one agrees with the validator is among the properties.

use ralph_report::{Limits, RoundReport, schema};
use serde_json::{Value, json};

#[test]
fn the_committed_schemas_are_fresh() {
    let remedy = "run `cargo run -p ralph-report --example schema -- crates/ralph-report/schema`";
    assert_eq!(schema::child_schema_json(), include_str!("../../schema/child.schema.json"), "{remedy}");
    assert_eq!(schema::full_schema_json(), include_str!("../../schema/report.schema.json"), "{remedy}");
}

#[test]
fn text_and_value_of_a_schema_say_the_same() {
    let value = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    assert_eq!(value(schema::child_schema_json()), schema::child_schema());
    assert_eq!(value(schema::full_schema_json()), schema::full_schema());
    assert!(schema::full_schema_json().is_ascii());
}

const KEYS: [&str; 5] = ["status", "summary", "evidence", "nextSteps", "blocker"];

#[test]
fn the_child_schema_is_closed_and_requires_every_key_in_order() {
    let schema = schema::child_schema();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], json!(KEYS));
    assert_eq!(schema["properties"].as_object().unwrap().len(), KEYS.len());
    let text = schema::child_schema_json();
    let places = KEYS.map(|key| text.find(&format!("    \"{key}\": {{")).unwrap());
    assert!(places.is_sorted(), "models fill in the keys in the order of the text: {places:?}");
}

#[test]
fn the_child_schema_stays_within_what_strict_modes_accept() {
    fn check(schema: &Value) {
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "type" => {
                    let types = ["object", "array", "string", "number", "integer", "boolean", "null"];
                    assert!(types.contains(&value.as_str().unwrap()));
                }
                "properties" => value.as_object().unwrap().values().for_each(check),
                "items" => check(value),
                "required" => {
                    let declared = schema["properties"].as_object().unwrap();
                    assert!(
                        value
                            .as_array()
                            .unwrap()
                            .iter()
                            .all(|key| declared.contains_key(key.as_str().unwrap()))
                    );
                }
                "enum" => assert!(value.as_array().unwrap().iter().all(Value::is_string)),
                "additionalProperties" => assert!(value.is_boolean()),
                "description" => assert!(value.is_string()),
                other => panic!("{other} is outside the subset"),
            }
        }
    }
    check(&schema::child_schema());
}

#[test]
fn the_full_schema_refuses_each_broken_rule_and_nothing_less() {
    let validator = jsonschema::draft202012::new(&schema::full_schema()).unwrap();
    let good =
        json!({"status": "complete", "summary": "s", "evidence": ["e"], "nextSteps": [], "blocker": ""});
    let check = |key: &str, value: Value, is_valid: bool| {
        let mut report = good.clone();
        report[key] = value;
        assert_eq!(validator.is_valid(&report), is_valid, "{report}");
        assert_eq!(RoundReport::from_value(&report, &Limits::default()).is_ok(), is_valid, "{report}");
    };
    check("summary", json!("s\n\ns"), true);
    check("summary", json!("s\n"), false);
    check("summary", json!("\u{feff}s"), false);
    check("summary", json!("\u{85}"), true);
    check("summary", json!(""), false);
    check("summary", json!(7), false);
    check("evidence", json!([]), false);
    check("evidence", json!(["e", " e"]), false);
    check("evidence", json!("e"), false);
    check("nextSteps", json!(["n"]), false);
    check("blocker", json!("b"), false);
    check("status", json!("continue"), false);
    check("status", json!("blocked"), false);
    check("status", json!("Complete"), false);
    check("extra", json!(null), false);
    assert!(jsonschema::meta::is_valid(&schema::full_schema()));
    assert!(jsonschema::meta::is_valid(&schema::child_schema()));
}
