//! What a deployment may decide.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use ralph_report::{Limits, RoundReport};
use ralph_tool::{InvalidConfig, RalphConfig};
use serde_json::{Value, json};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::stage::Stage;

#[track_caller]
fn refused(config: Value, code: &str) {
    assert_eq!(RalphConfig::from_value(&config).unwrap_err().code(), code, "{config}");
}

#[test]
fn each_key_is_checked_before_anything_is_done_with_it() {
    refused(json!({ "subagentProvider": "" }), "provider-not-normalized");
    refused(json!({ "subagentProvider": "spawn " }), "provider-not-normalized");
    refused(json!({ "subagentProvider": "\u{feff}spawn" }), "provider-not-normalized");
    refused(json!({ "maxRounds": 0 }), "max-rounds-invalid");
    refused(json!({ "maxHandoffChars": 1.5 }), "max-handoff-chars-invalid");
    refused(json!({ "maxResultChars": -1 }), "max-result-chars-invalid");
}

#[test]
fn the_first_key_that_is_wrong_decides() {
    refused(
        json!({ "maxResultChars": 0, "maxHandoffChars": 0, "maxRounds": 0, "subagentProvider": 1 }),
        "provider-not-normalized",
    );
    refused(json!({ "maxResultChars": 0, "maxHandoffChars": 0, "maxRounds": 0 }), "max-rounds-invalid");
    refused(json!({ "maxResultChars": 0, "maxHandoffChars": 0 }), "max-handoff-chars-invalid");
}

#[test]
fn what_is_not_given_has_its_default() {
    for config in [json!({}), json!({ "subagentProvider": null, "maxRounds": null, "unknown": 1 })] {
        assert_eq!(RalphConfig::from_value(&config).unwrap(), RalphConfig::default());
    }
    assert_eq!(
        serde_json::to_value(RalphConfig::default()).unwrap(),
        json!({
            "subagentProvider": "spawn", "maxRounds": 256, "maxHandoffChars": 16384, "maxResultChars": 16384,
        })
    );
}

#[test]
fn a_text_that_is_no_json_is_refused_with_its_cause() {
    let error = RalphConfig::from_json("{").unwrap_err();
    assert_eq!(error.code(), "config-unparsable");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(RalphConfig::from_json("[]").unwrap_err().code(), "config-not-an-object");
    assert_eq!(RalphConfig::from_json(r#"{"maxRounds":2e0}"#).unwrap().max_rounds(), 2);
}

#[test]
fn the_setters_check_like_the_reader() {
    let codes = [
        RalphConfig::default().with_subagent_provider(" x").map_err(|error| error.code()),
        RalphConfig::default().with_max_rounds(0).map_err(|error| error.code()),
        RalphConfig::default().with_max_handoff_chars(1 << 53).map_err(|error| error.code()),
        RalphConfig::default().with_max_result_chars(0).map_err(|error| error.code()),
    ];
    assert_eq!(
        codes.map(Result::unwrap_err),
        [
            "provider-not-normalized",
            "max-rounds-invalid",
            "max-handoff-chars-invalid",
            "max-result-chars-invalid"
        ]
    );
    let set = || -> Result<RalphConfig, InvalidConfig> {
        RalphConfig::default()
            .with_subagent_provider("p")?
            .with_max_rounds(1)?
            .with_max_handoff_chars(2)?
            .with_max_result_chars((1 << 53) - 1)
    };
    let read = json!({
        "subagentProvider": "p", "maxRounds": 1, "maxHandoffChars": 2, "maxResultChars": 9007199254740991_u64,
    });
    assert_eq!(set().unwrap(), serde_json::from_value(read).unwrap());
}

#[test]
fn a_refusal_quotes_what_was_given_shortly() {
    let error = RalphConfig::from_value(&json!({ "maxRounds": "x".repeat(10_000) })).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
}

/// Takes down the warnings that are logged while it is the default.
#[derive(Clone, Default)]
struct WarningLog(Arc<Mutex<Vec<String>>>);

impl Subscriber for WarningLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let log = Arc::clone(&self.0);
        event.record(&mut move |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                log.lock().unwrap().push(format!("{value:?}"));
            }
        });
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn what_cannot_work_is_logged_when_the_tool_is_made() {
    let log = WarningLog::default();
    let tool = tracing::subscriber::with_default(log.clone(), || {
        Stage::settable(json!({ "maxHandoffChars": 1, "maxRounds": 1001 })).tool
    });
    let warnings: Vec<String> = tool.config().warnings(1000).iter().map(ToString::to_string).collect();
    assert_eq!((warnings.len(), &*log.0.lock().unwrap()), (2, &warnings));
}

#[test]
fn what_cannot_work_is_accepted_with_a_warning() {
    #[track_caller]
    fn check(config: Value, ceiling: u64, expected: &[&str]) {
        let config = RalphConfig::from_value(&config).unwrap();
        let codes: Vec<_> = config.warnings(ceiling).iter().map(ralph_tool::ConfigWarning::code).collect();
        assert_eq!(codes, expected);
    }
    check(json!({}), 256, &[]);
    check(json!({}), 255, &["rounds-above-ceiling"]);
    check(json!({ "maxHandoffChars": 77 }), 256, &[]);
    check(json!({ "maxHandoffChars": 76 }), 256, &["handoff-too-small"]);
    check(json!({ "maxHandoffChars": 1, "maxRounds": 9 }), 8, &["handoff-too-small", "rounds-above-ceiling"]);

    // The warning starts just below what the shortest report needs.
    let shortest =
        json!({ "status": "blocked", "summary": "s", "evidence": [], "nextSteps": [], "blocker": "b" });
    let accepts =
        |chars| RoundReport::from_value(&shortest, &Limits::default().with_max_report_chars(chars)).is_ok();
    assert!(accepts(77) && !accepts(76));
}
