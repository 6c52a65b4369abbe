use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use harness_subagent::{Diagnostic, Error, ErrorKind, OutputContract, Result, StopReason};
use jsonschema::Validator;
use serde_json::Value;

/// The compiled schemas of recent contracts, the latest used first.
///
/// A contract that is cloned from start to start is found by the address of its schema; one that was
/// deserialized again is found by value. Compiling happens outside the lock, once per contract.
pub(crate) struct SchemaCache {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    schema: Arc<Value>,
    compiled: Arc<OnceLock<Result<Schema>>>,
}

impl SchemaCache {
    /// How many contracts a registry remembers. An application has a handful.
    const CAPACITY: usize = 64;

    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default() }
    }

    pub(crate) fn compiled(&self, contract: &OutputContract) -> Result<Schema> {
        let compiled = self.entry(contract.schema());
        compiled.get_or_init(|| Schema::compile(contract.schema())).clone()
    }

    fn entry(&self, schema: &Arc<Value>) -> Arc<OnceLock<Result<Schema>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.schema, schema))
            .or_else(|| entries.iter().position(|entry| entry.schema == *schema));
        if let Some(position) = known {
            entries[..=position].rotate_right(1);
            // The next clone of this contract is then found by its address.
            entries[0].schema = Arc::clone(schema);
        } else {
            entries.truncate(Self::CAPACITY - 1);
            entries.insert(0, Entry { schema: Arc::clone(schema), compiled: Arc::default() });
        }
        Arc::clone(&entries[0].compiled)
    }
}

impl fmt::Debug for SchemaCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaCache").finish_non_exhaustive()
    }
}

/// A schema ready to judge values.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    validator: Arc<Validator>,
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

    fn compile(schema: &Value) -> Result<Self> {
        match jsonschema::draft202012::new(schema) {
            Ok(validator) => Ok(Self { validator: Arc::new(validator) }),
            Err(error) => Err(Error::new(
                ErrorKind::UnsupportedSchema,
                format!(
                    "the schema of the output contract cannot be enforced; correct its {:?}",
                    error.instance_path().as_str()
                ),
            )
            .with_source(error.to_string())),
        }
    }

    /// Judges what a child handed in.
    pub(crate) fn judge(&self, value: Option<&Value>) -> Option<Refusal> {
        let Some(value) = value else {
            return Some(Refusal {
                reason: StopReason::NO_VALUE,
                diagnostic: Diagnostic::new("the child completed without the value it was asked for"),
            });
        };
        if self.validator.is_valid(value) {
            return None;
        }
        Some(Refusal { reason: StopReason::SCHEMA_REFUSED, diagnostic: self.explain(value) })
    }

    /// Says what is wrong without repeating the value, which may hold anything.
    fn explain(&self, value: &Value) -> Diagnostic {
        let mut message = String::from("the schema refuses the value that the child handed in");
        let mut errors = self.validator.iter_errors(value);
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

    #[test]
    fn an_equal_contract_is_not_compiled_again() {
        let cache = SchemaCache::new();
        let first = cache.entry(contract("a").schema());
        assert!(Arc::ptr_eq(&first, &cache.entry(contract("a").schema())));
        assert!(!Arc::ptr_eq(&first, &cache.entry(contract("b").schema())));
        assert!(Arc::ptr_eq(&first, &cache.entry(contract("a").schema())));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_what_was_used_least_recently() {
        let cache = SchemaCache::new();
        let kept = contract("kept");
        let entry = cache.entry(kept.schema());
        let lost = contract("lost");
        let gone = cache.entry(lost.schema());
        for index in 0..SchemaCache::CAPACITY * 2 {
            cache.compiled(&contract(&index.to_string())).unwrap();
            assert!(Arc::ptr_eq(&entry, &cache.entry(kept.schema())));
        }
        assert!(!Arc::ptr_eq(&gone, &cache.entry(lost.schema())));
        assert_eq!(cache.entries.lock().unwrap().len(), SchemaCache::CAPACITY);
    }

    #[test]
    fn a_diagnostic_tells_places_but_not_values() {
        let schema = json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "list": { "type": "array", "items": { "type": "string" } } },
            "required": ["n"],
        });
        let schema = Schema::compile(&schema).unwrap();
        let refusal = schema.judge(Some(&json!({ "n": "hunter2", "list": ["x", 7] }))).unwrap();
        let message = refusal.diagnostic.message();
        assert!(message.contains("/n: ") && message.contains("/list/1: "), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        let many: Vec<u32> = (0..100).collect();
        let message = schema.judge(Some(&json!({ "n": 1, "list": many }))).unwrap();
        assert!(message.diagnostic.message().ends_with("; and more"));
    }
}
