//! What holds for every report, and for everything that is none.

use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::{collection::vec, prelude::*, sample::select};
use ralph_report::{
    Limits, RoundReport, RoundReportRef, Status, ViolationKind, schema,
    strategies::{self, TEXT_RULES, VALUE_RULES},
    text,
};
use serde_json::{Map, Value};

/// The one limit that no schema states, out of the way.
const UNBOUNDED: Limits = Limits::new().with_max_report_chars(usize::MAX);

proptest! {
    #[test]
    fn a_report_survives_every_way_out_and_in(report in strategies::report()) {
        let limits = Limits::default();
        prop_assert_eq!(&RoundReport::parse(report.to_json(), &limits).unwrap(), &report);
        prop_assert_eq!(&RoundReport::parse(report.to_json_pretty(), &limits).unwrap(), &report);
        prop_assert_eq!(&RoundReport::parse(report.to_value().to_string(), &limits).unwrap(), &report);
        prop_assert_eq!(&RoundReport::from_value(&report.to_value(), &limits).unwrap(), &report);
        prop_assert_eq!(report.serialized_len(), report.to_json().encode_utf16().count());
        for expected in Status::ALL {
            let judged = RoundReport::from_value_as(&report.to_value(), expected, &limits);
            prop_assert_eq!(judged.is_ok(), expected == report.status());
        }
    }

    #[test]
    fn a_report_passes_at_its_own_length_and_not_below(report in strategies::report()) {
        let at = |units| RoundReport::from_value(&report.to_value(), &Limits::default().with_max_report_chars(units));
        prop_assert!(at(report.serialized_len()).is_ok());
        let refusal = at(report.serialized_len() - 1).unwrap_err();
        prop_assert_eq!(refusal.category(), ViolationKind::HandoffOversized);
        prop_assert_eq!(refusal.violations().len(), 1);
    }

    #[test]
    fn the_value_and_its_text_meet_the_same_verdict(value in anything_like_a_report()) {
        let limits = Limits::default().with_max_report_chars(200);
        prop_assert_eq!(RoundReport::from_value(&value, &limits), RoundReport::parse(value.to_string(), &limits));
        for expected in Status::ALL {
            let from_value = RoundReport::from_value_as(&value, expected, &limits);
            let from_text = RoundReport::parse_as(format!("{value:#}"), expected, &limits);
            prop_assert_eq!(from_value, from_text);
        }
    }

    #[test]
    fn the_loop_and_the_consumer_accept_the_same_reports(value in anything_like_a_report()) {
        let judged = RoundReport::from_value(&value, &UNBOUNDED).ok();
        for expected in Status::ALL {
            let as_expected = judged.clone().filter(|report| report.status() == expected);
            prop_assert_eq!(RoundReport::from_value_as(&value, expected, &UNBOUNDED).ok(), as_expected);
        }
    }

    #[test]
    fn what_was_accepted_is_what_was_said(value in anything_like_a_report()) {
        if let Ok(report) = RoundReport::from_value(&value, &UNBOUNDED) {
            prop_assert_eq!(report.to_value(), value);
        }
    }

    #[test]
    fn the_full_schema_and_the_validator_agree(value in anything_like_a_report()) {
        let is_valid = full_schema().is_valid(&value);
        prop_assert_eq!(is_valid, RoundReport::from_value(&value, &UNBOUNDED).is_ok(), "{}", value);
    }

    #[test]
    fn the_child_schema_admits_what_has_the_types_of_a_report(value in anything_like_a_report()) {
        prop_assert_eq!(child_schema().is_valid(&value), has_types_of_a_report(&value), "{}", value);
    }

    #[test]
    fn bytes_never_panic_and_are_refused_within_bounds(bytes in vec(any::<u8>(), 0..200)) {
        check_bytes(&bytes)?;
    }

    #[test]
    fn a_damaged_report_is_judged_as_the_document_that_it_has_become(
        report in strategies::report(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = report.to_json().into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_bytes(&bytes)?;
    }

    #[test]
    fn trimming_keeps_the_middle(start in blanks(), middle in strategies::text(), end in blanks()) {
        let padded = format!("{start}{middle}{end}");
        prop_assert_eq!(text::trim(&padded), &middle);
        prop_assert_eq!(text::is_trimmed(&padded), padded == middle);
        prop_assert_eq!(text::utf16_len(&padded), padded.encode_utf16().count());
    }

    #[test]
    fn a_cut_text_is_the_longest_that_fits(text in any::<String>(), max in 0..64_usize) {
        let cut = text::truncate_utf16(&text, max);
        prop_assert!(text.starts_with(cut));
        prop_assert!(text::utf16_len(cut) <= max);
        if let Some(next) = text[cut.len()..].chars().next() {
            prop_assert!(text::utf16_len(cut) + next.len_utf16() > max);
        }
    }
}

proptest! {
    // Some of these texts have a MiB.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_broken_rule_is_the_only_violation_that_is_found(
        (rule, broken) in select(&VALUE_RULES).prop_flat_map(|rule| (Just(rule), strategies::value_breaking(rule))),
        (text_rule, broken_text) in select([&TEXT_RULES[..], &VALUE_RULES[..]].concat())
            .prop_flat_map(|rule| (Just(rule), strategies::text_breaking(rule))),
    ) {
        let limits = Limits::default();
        let refusal = RoundReport::from_value(&broken, &limits).unwrap_err();
        prop_assert_eq!((refusal.category(), refusal.violations().len()), (rule, 1), "{:?}", refusal);

        let refusal = RoundReport::parse(&broken_text, &limits).unwrap_err();
        prop_assert_eq!((refusal.category(), refusal.violations().len()), (text_rule, 1), "{:?}", refusal);
    }
}

fn full_schema() -> &'static Validator {
    static FULL_SCHEMA: LazyLock<Validator> =
        LazyLock::new(|| jsonschema::draft202012::new(&schema::full_schema()).unwrap());
    &FULL_SCHEMA
}

fn child_schema() -> &'static Validator {
    static CHILD_SCHEMA: LazyLock<Validator> =
        LazyLock::new(|| jsonschema::validator_for(&schema::child_schema()).unwrap());
    &CHILD_SCHEMA
}

fn has_types_of_a_report(value: &Value) -> bool {
    let is_list = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    value.as_object().is_some_and(|members| {
        members.len() == 5
            && value["status"].as_str().and_then(Status::from_name).is_some()
            && value["summary"].is_string()
            && is_list(&value["evidence"])
            && is_list(&value["nextSteps"])
            && value["blocker"].is_string()
    })
}

/// Checks what must hold for any bytes.
fn check_bytes(bytes: &[u8]) -> Result<(), TestCaseError> {
    let document: Option<Value> = serde_json::from_slice(bytes).ok();
    match RoundReportRef::parse(bytes, &Limits::default()) {
        Ok(report) => {
            let report = report.into_owned();
            prop_assert_eq!(Some(report.to_value()), document);
        }
        Err(refusal) => {
            prop_assert!(!refusal.violations().is_empty());
            prop_assert!(serde_json::to_string(&refusal).unwrap().len() < 100 * 2048);
            prop_assert!(
                refusal.category() != ViolationKind::Unparsable || document.is_none(),
                "{:?}",
                refusal
            );
        }
    }
    Ok(())
}

/// Generates values that are reports, or nearly so, or not at all.
fn anything_like_a_report() -> impl Strategy<Value = Value> {
    let patched = (strategies::report(), vec((key(), member()), 0..3)).prop_map(|(report, patches)| {
        let mut report = report.to_value();
        for (key, value) in patches {
            match value {
                Some(value) => report[key] = value,
                None => _ = report.as_object_mut().unwrap().remove(&key),
            }
        }
        report
    });
    let assembled = vec((key(), member()), 0..7).prop_map(|members| {
        let members = members.into_iter().filter_map(|(key, value)| Some((key, value?)));
        Value::from(members.collect::<Map<_, _>>())
    });
    let broken = select(&VALUE_RULES).prop_flat_map(strategies::value_breaking);
    prop_oneof![4 => patched, 1 => assembled, 2 => broken, 1 => member().prop_map(Option::unwrap_or_default)]
}

fn key() -> impl Strategy<Value = String> {
    let keys = select(&["status", "summary", "evidence", "nextSteps", "blocker"]).prop_map(str::to_owned);
    prop_oneof![9 => keys, 1 => strategies::text()]
}

/// Generates what may stand for a key, or that it is not there.
fn member() -> impl Strategy<Value = Option<Value>> {
    let text = || prop_oneof![2 => strategies::text(), 1 => strategies::padded_text()];
    let status = select(&["continue", "complete", "blocked", "Blocked"]);
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => any::<i64>().prop_map(|number| Some(Value::from(number))),
        3 => text().prop_map(|text| Some(Value::from(text))),
        1 => Just(Some(Value::from(""))),
        3 => status.prop_map(|status| Some(Value::from(status))),
        3 => vec(text(), 0..4).prop_map(|texts| Some(Value::from(texts))),
        1 => vec(any::<bool>(), 0..2).prop_map(|items| Some(Value::from(items))),
    ]
}

fn blanks() -> impl Strategy<Value = String> {
    let blanks: Vec<char> = ('\0'..=char::MAX).filter(|c| text::is_blank(*c)).collect();
    vec(select(blanks), 0..4).prop_map(String::from_iter)
}
