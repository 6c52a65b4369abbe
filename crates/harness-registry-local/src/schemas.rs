use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use harness_subagent::{Diagnostic, Error, ErrorKind, OutputContract, Result, StopReason};
use jsonschema::Validator;
use serde_json::Value;

/// The schemas of recent contracts, the latest used first.
///
/// A contract that is cloned from start to start is found by the address of its schema; one that was
/// deserialized again is found by value.
pub(crate) struct SchemaCache {
    entries: Mutex<Vec<Schema>>,
}

impl SchemaCache {
    /// How many contracts a registry remembers. An application has a handful.
    const CAPACITY: usize = 64;

    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default() }
    }

    pub(crate) fn schema(&self, contract: &OutputContract) -> Schema {
        let source = contract.schema();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.source, source))
            .or_else(|| entries.iter().position(|entry| entry.source == *source));
        if let Some(position) = known {
            entries[..=position].rotate_right(1);
            // The next clone of this contract is then found by its address.
            entries[0].source = Arc::clone(source);
        } else {
            entries.truncate(Self::CAPACITY - 1);
            entries.insert(0, Schema::new(source));
        }
        entries[0].clone()
    }
}

impl fmt::Debug for SchemaCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaCache").finish_non_exhaustive()
    }
}

/// A schema that judges values. Clones share what is compiled of it.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    source: Arc<Value>,
    compiled: Arc<OnceLock<Result<Validator>>>,
}

/// Why a child that claims success has none.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: StopReason,
    pub(crate) diagnostic: Diagnostic,
}

impl Schema {
    /// How many violations a diagnostic tells.
    const TOLD: usize = 8;

    fn new(source: &Arc<Value>) -> Self {
        Self { source: Arc::clone(source), compiled: Arc::default() }
    }

    /// Compiles the schema when the first child has something to be judged, which may be a while after it was started.
    ///
    /// A contract admits only schemas that can be compiled, so nothing is learned late.
    fn validator(&self) -> Result<&Validator> {
        let compiled = self.compiled.get_or_init(|| {
            jsonschema::draft202012::new(&self.source).map_err(|error| {
                Error::new(
                    ErrorKind::UnsupportedSchema,
                    format!(
                        "the schema of the output contract cannot be enforced; correct its {:?}",
                        error.instance_path().as_str()
                    ),
                )
                .with_source(error.to_string())
            })
        });
        compiled.as_ref().map_err(Clone::clone)
    }

    /// Judges what a child handed in.
    pub(crate) fn judge(&self, value: Option<&Value>) -> Result<Option<Refusal>> {
        let Some(value) = value else {
            return Ok(Some(Refusal {
                reason: StopReason::NO_VALUE,
                diagnostic: Diagnostic::new("the child completed without the value it was asked for"),
            }));
        };
        let validator = self.validator()?;
        if validator.is_valid(value) {
            return Ok(None);
        }
        Ok(Some(Refusal { reason: StopReason::SCHEMA_REFUSED, diagnostic: Self::explain(validator, value) }))
    }

    /// Says what is wrong without repeating the value, which may hold anything.
    fn explain(validator: &Validator, value: &Value) -> Diagnostic {
        let mut message = String::from("the schema refuses the value that the child handed in");
        let mut errors = validator.iter_errors(value);
        let mut first = None;
        for (index, error) in errors.by_ref().take(Self::TOLD).enumerate() {
            let place = error.instance_path().as_str();
            message.push_str(if index == 0 { ": " } else { "; " });
            message.push_str(if place.is_empty() { "the root" } else { place });
            message.push_str(": ");
            message.push_str(&error.masked().to_string());
            first.get_or_insert_with(|| place.to_owned());
        }
        if errors.next().is_some() {
            message.push_str("; and more");
        }
        Diagnostic::new(message).with_detail("pointer", first.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn contract(name: &str) -> OutputContract {
        OutputContract::new(json!({ "type": "object", "title": name })).unwrap()
    }

    fn same(one: &Schema, other: &Schema) -> bool {
        Arc::ptr_eq(&one.compiled, &other.compiled)
    }

    #[test]
    fn an_equal_contract_is_not_compiled_again() {
        let cache = SchemaCache::new();
        let first = cache.schema(&contract("a"));
        assert!(same(&first, &cache.schema(&contract("a"))));
        assert!(!same(&first, &cache.schema(&contract("b"))));
        assert!(same(&first, &cache.schema(&contract("a"))));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_what_was_used_least_recently() {
        let cache = SchemaCache::new();
        let kept = contract("kept");
        let entry = cache.schema(&kept);
        let lost = contract("lost");
        let gone = cache.schema(&lost);
        for index in 0..SchemaCache::CAPACITY * 2 {
            cache.schema(&contract(&index.to_string()));
            assert!(same(&entry, &cache.schema(&kept)));
        }
        assert!(!same(&gone, &cache.schema(&lost)));
        assert_eq!(cache.entries.lock().unwrap().len(), SchemaCache::CAPACITY);
    }

    /// Otherwise a child would be judged by an error that nobody can do anything about by then.
    #[test]
    fn whatever_a_contract_admits_can_be_compiled() {
        let annotated = json!({
            "type": "string", "title": "t", "description": "d", "default": 7, "examples": ["a", null],
            "enum": ["a", "a", ""], "const": "a",
        });
        let number = json!({ "type": "number", "minimum": -1e308, "maximum": u64::MAX, "enum": [0.5, 1] });
        let whole = json!({ "type": "integer", "minimum": i64::MIN, "maximum": 0.5, "const": 3 });
        let list = json!({ "type": "array", "items": { "type": "boolean", "enum": [true] } });
        let nested = json!({
            "type": "object",
            "properties": { "": { "type": "null", "const": null }, "$ref": { "type": "string" } },
            "required": ["$ref", ""],
            "additionalProperties": true,
        });
        let either = json!({ "oneOf": [annotated, number, whole, list, nested], "title": "t" });
        let mut deep = json!({ "type": "array", "items": either });
        for _ in 0..50 {
            deep = json!({ "type": "object", "properties": { "a/b~c%": deep }, "required": ["a/b~c%"] });
        }
        let contract = OutputContract::new(deep).unwrap();
        Schema::new(contract.schema()).validator().unwrap();
    }

    #[test]
    fn a_diagnostic_tells_places_but_not_values() {
        let schema = json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "list": { "type": "array", "items": { "type": "string" } } },
            "required": ["n"],
        });
        let schema = Schema::new(&Arc::new(schema));
        let refusal = schema.judge(Some(&json!({ "n": "hunter2", "list": ["x", 7] }))).unwrap().unwrap();
        let message = refusal.diagnostic.message();
        assert!(message.contains("/n: ") && message.contains("/list/1: "), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        let many: Vec<u32> = (0..100).collect();
        let message = schema.judge(Some(&json!({ "n": 1, "list": many }))).unwrap().unwrap();
        assert!(message.diagnostic.message().ends_with("; and more"));
    }
}
