//! What hosts show to models and to people.

use std::sync::Arc;

use harness_testkit::workflow::StubEngine;
use jsonschema::validator_for;
use ralph_tool::{RalphConfig, RalphTool, workflows};
use serde_json::{Value, json};

use crate::stage::{Stage, complete, fresh, registry_with};

fn tool(config: Value) -> Arc<RalphTool> {
    Stage::settable(config).tool
}

#[test]
fn the_definition_describes_the_call_and_its_result() {
    let tool = tool(json!({ "maxRounds": 7 }));
    let definition = tool.definition();
    assert_eq!(definition.name(), "ralph");
    assert!(definition.description().contains("worker reports completion"), "{}", definition.description());
    assert!(definition.description().contains("nobody has verified it"));

    let input = definition.input_schema();
    assert_eq!(input["properties"]["maxRounds"]["type"], json!(["integer", "null"]));
    assert!(input["properties"]["maxRounds"]["description"].as_str().unwrap().contains("from 1 to 7"));
    assert!(input.get("additionalProperties").is_none());
    let admits = validator_for(input).unwrap();
    for (args, fits) in [
        (json!({ "objective": "o" }), true),
        (json!({ "objective": "o", "maxRounds": null }), true),
        (json!({ "objective": "o", "maxRounds": 3, "invented": [] }), true),
        (json!({ "objective": "o", "maxRounds": 3.0 }), true),
        (json!({ "objective": "o", "maxRounds": 3.5 }), false),
        (json!({ "objective": "o", "maxRounds": "3" }), false),
        (json!({ "objective": 1 }), false),
        (json!({ "maxRounds": 3 }), false),
        (json!("o"), false),
    ] {
        assert_eq!(admits.is_valid(&args), fits, "{args}");
        // What fits the schema has a view, and nothing else has.
        assert_eq!(tool.call_view(&args).is_some(), fits, "{args}");
        assert_eq!(tool.result_view(&args).is_some(), fits, "{args}");
    }
}

#[tokio::test]
async fn an_envelope_fits_the_output_schema() {
    let value = json!({ "status": "complete", "roundsStarted": 1, "report": complete("done") });
    let stage = Stage::returning(json!({}), value, 1);
    let envelope = stage.shown().await.0.unwrap().to_value();
    let admits = validator_for(stage.tool.definition().output_schema()).unwrap();
    assert!(admits.is_valid(&envelope));
    for key in ["runId", "agentsStarted", "result", "more"] {
        let mut other = envelope.clone();
        let keys = other.as_object_mut().unwrap();
        if keys.remove(key).is_none() {
            keys.insert(key.to_owned(), json!(1));
        }
        assert!(!admits.is_valid(&other), "{other}");
    }
}

#[test]
fn the_section_says_when_to_use_the_tool() {
    let section = tool(json!({})).prompt_section();
    assert_eq!((section.name(), section.order()), ("tool:ralph", 116));
    for said in [
        "ONLY when the direct human explicitly asks",
        "worker reports, not independent evaluation",
        "the workspace is the memory",
    ] {
        assert!(section.text().contains(said), "{said}");
    }
}

#[test]
fn definition_and_section_are_the_same_bytes_for_the_same_configuration() {
    let written = |config: Value| {
        let config = RalphConfig::from_value(&config).unwrap();
        let (registry, _provider) = registry_with(fresh("spawn"));
        let (engine, _handle) = StubEngine::settable(workflows());
        let tool = RalphTool::new(config, Arc::new(engine), registry).unwrap();
        let definition = serde_json::to_string(tool.definition()).unwrap();
        (definition, serde_json::to_string(&tool.prompt_section()).unwrap())
    };
    let config = || json!({ "maxRounds": 12, "maxResultChars": 500 });
    assert_eq!(written(config()), written(config()));
    assert_ne!(written(json!({ "maxRounds": 13 })).0, written(config()).0);
    assert_eq!(written(json!({ "maxRounds": 13 })).1, written(config()).1);
}

#[test]
fn a_call_is_shown_as_it_was_given() {
    let tool = tool(json!({}));
    let args = json!({ "objective": "  Port it\n", "maxRounds": 2 });
    assert_eq!(
        serde_json::to_value(tool.call_view(&args)).unwrap(),
        json!({ "card": "generic", "title": "ralph", "rawInput": "  Port it\n" })
    );
    assert_eq!(serde_json::to_value(tool.result_view(&args)).unwrap(), json!({ "card": "generic" }));
}
