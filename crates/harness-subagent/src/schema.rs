//! The subset of JSON Schema that an output contract may use.
//!
//! It is small so that every provider can hand it to its model and every registry can enforce it:
//!
//! | keyword | rule |
//! |---|---|
//! | `type` | one of the seven JSON type names; required where there is no `oneOf` |
//! | `properties`, `required`, `additionalProperties` | of objects; what is required must be declared, and required once; the last is a boolean |
//! | `items` | of arrays; one schema |
//! | `enum`, `const` | scalars of the declared type |
//! | `minimum`, `maximum` | inclusive, of numbers and integers |
//! | `oneOf` | two schemas or more, exactly one of which must match; no other constraint beside it |
//! | `title`, `description`, `default`, `examples` | annotations |
//!
//! The root of a contract's schema is an object. Schemas are at most 64 levels deep.

mod judge;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

const MAX_DEPTH: usize = 64;
const MAX_LISTED: usize = 100;

/// A schema of the subset, ready to judge values. Clones share it.
///
/// It is exact: 1 and 1.0 are the same number, a number without a fraction is an integer, and integers are compared as
/// integers however large they are.
///
/// ```
/// use harness_subagent::Schema;
/// use serde_json::json;
///
/// let schema = Schema::new(json!({
///     "type": "object",
///     "properties": { "lines": { "type": "integer", "minimum": 1 } },
///     "required": ["lines"],
/// }))?;
/// assert!(schema.admits(&json!({ "lines": 3 })));
///
/// let violations = schema.violations(&json!({ "lines": 0 }));
/// assert_eq!(violations[0].to_string(), "/lines: must be at least 1");
/// # Ok::<(), harness_subagent::InvalidSchema>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    source: Arc<Value>,
    root: judge::Node,
}

impl Schema {
    /// Checks a schema and makes it ready.
    ///
    /// # Errors
    ///
    /// [`InvalidSchema`], as [`check`] does.
    pub fn new(schema: impl Into<Arc<Value>>) -> Result<Self, InvalidSchema> {
        let source = schema.into();
        check(&source)?;
        let root = judge::Node::of(&source);
        Ok(Self(Arc::new(Parts { source, root })))
    }

    /// Returns the schema as JSON.
    #[must_use]
    pub fn source(&self) -> &Arc<Value> {
        &self.0.source
    }

    /// Says whether `value` is as the schema wants it.
    #[must_use]
    pub fn admits(&self, value: &Value) -> bool {
        self.0.root.admits(value)
    }

    /// Returns what is wrong with `value`, at most 100 entries; nothing when it is admitted.
    ///
    /// The messages say what is wanted and never repeat what stands in `value`. The pointers lead to it, so they hold
    /// the names of its properties, whatever those are.
    #[must_use]
    pub fn violations(&self, value: &Value) -> Vec<SchemaViolation> {
        let mut found = Vec::new();
        self.0.root.explain(value, &mut String::new(), &mut found);
        found
    }
}

/// Two are equal when their JSON is.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.source == other.0.source
    }
}

/// A schema that cannot be enforced, with everything that is wrong with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidSchema {
    violations: Vec<SchemaViolation>,
}

impl InvalidSchema {
    /// Returns what is wrong, in document order, at most 100 entries.
    #[must_use]
    pub fn violations(&self) -> &[SchemaViolation] {
        &self.violations
    }
}

impl fmt::Display for InvalidSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("schema is outside the subset that can be enforced: ")?;
        for (index, violation) in self.violations.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{violation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidSchema {}

/// One thing that is wrong with a schema, or with a value by a schema.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SchemaViolation {
    /// Where it stands, as a JSON Pointer.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "the root" } else { &self.pointer };
        write!(f, "{place}: {}", self.message)
    }
}

/// Checks that `schema` is within the subset and describes an object.
///
/// # Errors
///
/// [`InvalidSchema`], with all violations.
pub fn check(schema: &Value) -> Result<(), InvalidSchema> {
    let mut checker = Checker { violations: Vec::new() };
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        checker.report("", "the root must have type \"object\"");
    }
    checker.node(schema, &mut String::new(), 0);
    if checker.violations.is_empty() { Ok(()) } else { Err(InvalidSchema { violations: checker.violations }) }
}

struct Checker {
    violations: Vec<SchemaViolation>,
}

impl Checker {
    fn report(&mut self, pointer: &str, message: impl Into<String>) {
        if self.violations.len() < MAX_LISTED {
            self.violations.push(SchemaViolation { pointer: pointer.to_owned(), message: message.into() });
        }
    }

    fn node(&mut self, schema: &Value, at: &mut String, depth: usize) {
        let Value::Object(keywords) = schema else {
            return self.report(at, "a schema must be an object");
        };
        if depth >= MAX_DEPTH {
            return self.report(at, format!("schemas may be {MAX_DEPTH} levels deep at most"));
        }
        if keywords.contains_key("oneOf") {
            self.one_of(keywords, at, depth);
        } else {
            self.typed(keywords, at, depth);
        }
    }

    fn one_of(&mut self, keywords: &Map<String, Value>, at: &mut String, depth: usize) {
        for (keyword, value) in keywords {
            if keyword != "oneOf" && !self.annotation(keyword, value, at) {
                self.report(at, format!("`{keyword}` may not stand beside `oneOf`"));
            }
        }
        match keywords.get("oneOf").and_then(Value::as_array) {
            Some(branches) if branches.len() >= 2 => {
                for (index, branch) in branches.iter().enumerate() {
                    self.within(at, &format!("oneOf/{index}"), |this, at| this.node(branch, at, depth + 1));
                }
            }
            _ => self.report(at, "`oneOf` must be an array of two schemas or more"),
        }
    }

    fn typed(&mut self, keywords: &Map<String, Value>, at: &mut String, depth: usize) {
        let Some(kind) = keywords.get("type").and_then(Value::as_str).and_then(Kind::parse) else {
            return self.report(
                at,
                "`type` must be one of object, array, string, number, integer, boolean and null",
            );
        };
        for (keyword, value) in keywords {
            match (keyword.as_str(), kind) {
                ("type", _) => {}
                ("properties", Kind::Object) => self.properties(value, at, depth),
                ("required", Kind::Object) => self.required(value, keywords.get("properties"), at),
                ("additionalProperties", Kind::Object) => {
                    if !value.is_boolean() {
                        self.report(at, "`additionalProperties` must be true or false");
                    }
                }
                ("items", Kind::Array) => {
                    self.within(at, "items", |this, at| this.node(value, at, depth + 1));
                }
                ("enum", _) => match value.as_array() {
                    Some(values)
                        if !values.is_empty() && values.iter().all(|value| kind.admits_scalar(value)) => {}
                    _ => self.report(at, "`enum` must list scalars of the declared type"),
                },
                ("const", _) => {
                    if !kind.admits_scalar(value) {
                        self.report(at, "`const` must be a scalar of the declared type");
                    }
                }
                ("minimum" | "maximum", Kind::Number | Kind::Integer) => {
                    if !value.is_number() {
                        self.report(at, format!("`{keyword}` must be a number"));
                    }
                }
                (keyword, _) => {
                    if !self.annotation(keyword, value, at) {
                        self.report(
                            at,
                            format!("`{keyword}` is not enforced for type \"{}\"; leave it out", kind.name()),
                        );
                    }
                }
            }
        }
    }

    fn properties(&mut self, value: &Value, at: &mut String, depth: usize) {
        let Value::Object(properties) = value else {
            return self.report(at, "`properties` must be an object of schemas");
        };
        for (name, schema) in properties {
            let token = format!("properties/{}", name.replace('~', "~0").replace('/', "~1"));
            self.within(at, &token, |this, at| this.node(schema, at, depth + 1));
        }
    }

    fn required(&mut self, value: &Value, properties: Option<&Value>, at: &str) {
        let Some(names) = value.as_array() else {
            return self.report(at, "`required` must be an array of property names");
        };
        let mut seen = HashSet::new();
        for name in names {
            match name.as_str() {
                None => self.report(at, "`required` must hold property names"),
                Some(again) if !seen.insert(again) => {
                    self.report(at, format!("`required` names `{again}` more than once"));
                }
                Some(name) if properties.and_then(|properties| properties.get(name)).is_none() => {
                    self.report(
                        at,
                        format!("`required` names `{name}`, which `properties` does not declare"),
                    );
                }
                Some(_) => {}
            }
        }
    }

    /// Says whether `keyword` is an annotation, and reports one of the wrong type.
    fn annotation(&mut self, keyword: &str, value: &Value, at: &str) -> bool {
        let fits = match keyword {
            "title" | "description" => value.is_string(),
            "examples" => value.is_array(),
            "default" => true,
            _ => return false,
        };
        if !fits {
            self.report(at, format!("`{keyword}` has the wrong type"));
        }
        true
    }

    fn within(&mut self, at: &mut String, token: &str, visit: impl FnOnce(&mut Self, &mut String)) {
        let length = at.len();
        at.push('/');
        at.push_str(token);
        visit(self, at);
        at.truncate(length);
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Array,
    Boolean,
    Integer,
    Null,
    Number,
    Object,
    String,
}

impl Kind {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "array" => Self::Array,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "null" => Self::Null,
            "number" => Self::Number,
            "object" => Self::Object,
            "string" => Self::String,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Null => "null",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    #[inline]
    fn admits_scalar(self, value: &Value) -> bool {
        match self {
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Self::Null => value.is_null(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array | Self::Object => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refuses(schema: Value, pointers: &[&str]) {
        let error = check(&schema).unwrap_err();
        let found: Vec<&str> =
            error.violations().iter().map(|violation| violation.pointer.as_str()).collect();
        assert_eq!(found, pointers, "{error}");
    }

    #[test]
    fn a_root_that_is_no_object_is_refused() {
        refuses(json!({ "type": "array", "items": { "type": "string" } }), &[""]);
        refuses(json!({ "oneOf": [{ "type": "object" }, { "type": "object" }] }), &[""]);
        refuses(json!(true), &["", ""]);
    }

    #[test]
    fn every_unenforced_keyword_is_listed_with_its_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a/b": { "type": "string", "pattern": "x" },
                "list": { "type": "array", "items": { "type": "string", "minLength": 1 } },
            },
        });
        refuses(schema, &["/properties/a~1b", "/properties/list/items"]);
    }

    #[test]
    fn keywords_of_another_type_are_refused() {
        refuses(
            json!({ "type": "object", "properties": { "n": { "type": "string", "minimum": 1 } } }),
            &["/properties/n"],
        );
        refuses(json!({ "type": "object", "items": { "type": "string" } }), &[""]);
    }

    #[test]
    fn required_names_must_be_declared() {
        refuses(json!({ "type": "object", "properties": {}, "required": ["missing"] }), &[""]);
    }

    #[test]
    fn required_names_must_be_given_once() {
        let properties = json!({ "a": { "type": "null" }, "b": { "type": "null" } });
        refuses(json!({ "type": "object", "properties": properties, "required": ["a", "b", "a"] }), &[""]);
        check(&json!({ "type": "object", "properties": properties, "required": ["b", "a"] })).unwrap();
    }

    #[test]
    fn one_of_needs_two_branches_and_no_sibling() {
        let with = |extra: Value| json!({ "type": "object", "properties": { "v": extra } });
        refuses(with(json!({ "oneOf": [{ "type": "null" }] })), &["/properties/v"]);
        refuses(
            with(json!({ "oneOf": [{ "type": "null" }, { "type": "string" }], "type": "string" })),
            &["/properties/v"],
        );
        check(&with(json!({ "oneOf": [{ "type": "null" }, { "type": "string" }], "title": "t" }))).unwrap();
    }

    #[test]
    fn enumerated_values_must_be_scalars_of_the_declared_type() {
        let with = |extra: Value| json!({ "type": "object", "properties": { "v": extra } });
        refuses(with(json!({ "type": "string", "enum": ["a", 1] })), &["/properties/v"]);
        refuses(with(json!({ "type": "string", "enum": [] })), &["/properties/v"]);
        refuses(with(json!({ "type": "integer", "const": 1.5 })), &["/properties/v"]);
        check(&with(json!({ "type": "integer", "enum": [1, 2.0] }))).unwrap();
    }

    #[test]
    fn a_schema_deeper_than_the_bound_is_refused() {
        let mut schema = json!({ "type": "string" });
        for _ in 0..MAX_DEPTH {
            schema = json!({ "type": "object", "properties": { "inner": schema } });
        }
        assert_eq!(check(&schema).unwrap_err().violations().len(), 1);
    }

    #[test]
    fn the_list_of_violations_is_bounded() {
        let properties: Map<String, Value> =
            (0..500).map(|index| (format!("p{index}"), json!({ "type": "unknown" }))).collect();
        let error = check(&json!({ "type": "object", "properties": properties })).unwrap_err();
        assert_eq!(error.violations().len(), MAX_LISTED);
    }
}
