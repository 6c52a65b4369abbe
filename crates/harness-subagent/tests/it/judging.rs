//! What a schema admits, beside an independent validator of JSON Schema.

use harness_subagent::{OutputContract, Schema};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

const NAMES: [&str; 5] = ["a", "b", "", "a/b~c", "$ref"];

fn numbers() -> impl Strategy<Value = Value> {
    let edges = [
        json!(0),
        json!(-0.0),
        json!(1),
        json!(1.0),
        json!(0.5),
        json!(-1),
        json!(3),
        json!(3.0),
        json!(1e300),
        json!(-1e300),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992.0),
        json!(18_446_744_073_709_551_615.0),
        json!(9_223_372_036_854_775_807.0),
        json!(2.5e-308),
    ];
    prop_oneof![select(edges.to_vec()), (-3..4).prop_map(|number| json!(number))]
}

fn texts() -> impl Strategy<Value = Value> {
    select(vec![json!(""), json!("a"), json!("1"), json!("漢\u{0}")])
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "null" })),
        Just(json!({ "type": "boolean", "enum": [true] })),
        Just(json!({ "type": "boolean" })),
        option::of(vec(texts(), 1..3)).prop_map(|allowed| match allowed {
            Some(allowed) => json!({ "type": "string", "enum": allowed }),
            None => json!({ "type": "string", "title": "t", "default": 7 }),
        }),
        texts().prop_map(|text| json!({ "type": "string", "const": text })),
        (
            select(vec!["number", "integer"]),
            option::of(numbers()),
            option::of(numbers()),
            option::of(numbers())
        )
            .prop_map(|(kind, least, most, listed)| {
                let mut schema = json!({ "type": kind });
                if let Some(least) = least {
                    schema["minimum"] = least;
                }
                if let Some(most) = most {
                    schema["maximum"] = most;
                }
                if let Some(listed) = listed.filter(|listed| {
                    kind == "number" || listed.as_f64().is_some_and(|number| number.fract() == 0.0)
                }) {
                    schema["enum"] = json!([listed]);
                }
                schema
            }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            Just(json!({ "type": "array" })),
            vec(inner.clone(), 2..4).prop_map(|branches| json!({ "oneOf": branches })),
            objects(inner),
        ]
    })
}

fn objects(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (
        vec(inner, NAMES.len()),
        subsequence(NAMES.to_vec(), 0..=NAMES.len()),
        option::of(any::<bool>()),
        vec(any::<bool>(), NAMES.len()),
    )
        .prop_map(|(schemas, declared, open, required)| {
            let required: Vec<_> = declared
                .iter()
                .zip(required)
                .filter(|(_, is_required)| *is_required)
                .map(|(name, _)| *name)
                .collect();
            let properties: Map<_, _> = declared.iter().map(|name| (*name).to_owned()).zip(schemas).collect();
            let mut schema = json!({ "type": "object", "properties": properties, "required": required });
            if let Some(open) = open {
                schema["additionalProperties"] = json!(open);
            }
            schema
        })
}

/// A value that goes along with the schema at most of its choices, so that deep places are reached.
fn value_for(schema: &Value, choices: &mut dyn Iterator<Item = usize>, strays: &[Value]) -> Value {
    let choose =
        |choices: &mut dyn Iterator<Item = usize>, among: usize| choices.next().unwrap_or_default() % among;
    if choose(choices, 8) == 0 {
        return strays[choose(choices, strays.len())].clone();
    }
    if let Some(branches) = schema["oneOf"].as_array() {
        let branch = choose(choices, branches.len());
        return value_for(&branches[branch], choices, strays);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let mut entries = Map::new();
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if choose(choices, 6) != 0 {
                    entries.insert(name.clone(), value_for(schema, choices, strays));
                }
            }
            if choose(choices, 6) == 0 {
                entries.insert("extra".to_owned(), Value::Null);
            }
            Value::Object(entries)
        }
        Some("array") => {
            let length = choose(choices, 3);
            (0..length).map(|_| value_for(&schema["items"], choices, strays)).collect()
        }
        Some("null") => Value::Null,
        Some("boolean") => json!(choose(choices, 3) > 0),
        Some(_) => {
            let known = [&schema["const"], &schema["enum"][0], &schema["minimum"], &schema["maximum"]];
            let known = known.into_iter().find(|known| !known.is_null());
            match known {
                Some(known) if choose(choices, 4) > 0 => known.clone(),
                _ => strays[choose(choices, strays.len())].clone(),
            }
        }
        None => strays[choose(choices, strays.len())].clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_schema_admits_what_json_schema_says(
        schema in vec(schemas(), NAMES.len()).prop_flat_map(|schemas| objects(select(schemas))),
        choices in vec(any::<Index>(), 64),
        strays in vec(prop_oneof![numbers(), texts(), Just(json!(null)), Just(json!([])), Just(json!({}))], 4),
    ) {
        let choices: Vec<usize> = choices.iter().map(|choice| choice.index(1 << 20)).collect();
        let value = value_for(&schema, &mut choices.into_iter(), &strays);
        let ours = Schema::new(schema.clone()).unwrap();
        let oracle = jsonschema::draft202012::new(&schema).unwrap();
        prop_assert_eq!(ours.admits(&value), oracle.is_valid(&value), "{} by {}", value, schema);
        prop_assert_eq!(ours.admits(&value), ours.violations(&value).is_empty());
        for violation in ours.violations(&value) {
            let there = value.pointer(&violation.pointer);
            prop_assert!(there.is_some(), "{} leads nowhere in {}", violation.pointer, value);
        }
    }
}

#[track_caller]
fn told(schema: Value, value: Value) -> Vec<String> {
    let schema = json!({ "type": "object", "properties": { "v": schema } });
    let contract = OutputContract::new(schema).unwrap();
    contract.judge().violations(&json!({ "v": value })).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_without_the_value() {
    let closed = json!({
        "type": "object",
        "properties": { "a": { "type": "null" }, "b": { "type": "null" }, "c": { "type": "null" } },
        "required": ["b", "c"],
        "additionalProperties": false,
    });
    assert_eq!(told(closed.clone(), json!({})), ["/v: lacks \"b\", \"c\""]);
    assert_eq!(
        told(closed, json!({ "c": null, "a": 1, "x/y": "secret" })),
        [
            "/v/a: must be of type null, and is of type number",
            "/v: lacks \"b\"",
            "/v/x~1y: is not a property that the schema knows",
        ]
    );
    let listed = json!({ "type": "string", "enum": ["red", "green"] });
    assert_eq!(told(listed.clone(), json!("secret")), [r#"/v: must be one of "red", "green""#]);
    let either = json!({ "oneOf": [listed, { "type": "null" }, { "type": "string" }] });
    assert_eq!(
        told(either.clone(), json!(7)),
        ["/v: must fit one of string, null, string, and fits 0 of them"]
    );
    assert_eq!(told(either, json!("red")), ["/v: must fit one of string, null, string, and fits 2 of them"]);
    assert_eq!(told(json!({ "type": "integer", "const": 2 }), json!(3)), ["/v: must be 2"]);
    let bounded = json!({ "type": "number", "minimum": 0.5, "maximum": 2 });
    assert_eq!(told(bounded.clone(), json!(0)), ["/v: must be at least 0.5"]);
    assert_eq!(told(bounded, json!(2.5)), ["/v: must be at most 2"]);
}

#[test]
fn a_value_with_many_faults_is_told_a_hundred() {
    let items: Vec<_> = (0..1000).collect();
    assert_eq!(told(json!({ "type": "array", "items": { "type": "null" } }), json!(items)).len(), 100);
}

#[test]
fn numbers_are_compared_exactly() {
    let at_most = |most: Value| json!({ "type": "number", "maximum": most });
    // The next float is 2^53, which is one less.
    assert_eq!(told(at_most(json!(9_007_199_254_740_992.0)), json!(9_007_199_254_740_993_u64)).len(), 1);
    assert_eq!(told(at_most(json!(9_007_199_254_740_993_u64)), json!(9_007_199_254_740_992.0)).len(), 0);
    assert_eq!(told(at_most(json!(-1)), json!(-1.5)).len(), 0);
    assert_eq!(told(at_most(json!(-2)), json!(-1.5)).len(), 1);
    assert_eq!(told(at_most(json!(u64::MAX)), json!(1e300)).len(), 1);
    assert_eq!(told(at_most(json!(i64::MIN)), json!(-1e300)).len(), 0);
    assert_eq!(told(json!({ "type": "integer", "const": 1 }), json!(1.0)).len(), 0);
}
