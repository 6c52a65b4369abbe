//! What may cross the border between a body and its engine.
//!
//! Everything a body is given or returns is a [`Value`], so most of what could not be stored cannot be
//! expressed: numbers are finite, keys are texts, nothing is shared or cyclic. Integers cross exactly, also
//! beyond 2^53, and so does negative zero. What is left is nesting, since a journal or another machine
//! reads the value back with a parser that bounds it.

use std::fmt;

use serde_json::Value;

/// The greatest number of levels of arrays and objects in a value.
pub const MAX_DEPTH: usize = 100;

/// A value that cannot cross, with the place that is at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct NotPlain {
    /// The first place that is too deep, as a JSON Pointer.
    pub pointer: String,
}

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value is nested more than {MAX_DEPTH} levels deep at {}", self.pointer)
    }
}

impl std::error::Error for NotPlain {}

/// Checks that `value` may cross.
///
/// # Errors
///
/// [`NotPlain`] when it is nested deeper than [`MAX_DEPTH`].
pub fn check(value: &Value) -> Result<(), NotPlain> {
    if is_within(value, MAX_DEPTH) {
        return Ok(());
    }
    let mut path = Vec::new();
    if fits(value, &mut path) {
        return Ok(());
    }
    let mut pointer = String::new();
    for token in path {
        pointer.push('/');
        pointer.push_str(&token.replace('~', "~0").replace('/', "~1"));
    }
    Err(NotPlain { pointer })
}

/// Says whether `value` has at most `levels` levels, which is all that there is to know of most values.
fn is_within(value: &Value, levels: usize) -> bool {
    let inner_fits = |inner: &Value| is_scalar(inner) || is_within(inner, levels - 1);
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(inner_fits),
        Value::Object(entries) => levels > 0 && entries.values().all(inner_fits),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Walks `value` and leaves the path of the first place that is too deep.
fn fits(value: &Value, path: &mut Vec<String>) -> bool {
    let empty = match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return true,
    };
    if path.len() >= MAX_DEPTH {
        return false;
    }
    if empty {
        return true;
    }
    // Scalars, by far the most, cost no path entry.
    let mut visit = |token: &dyn Fn() -> String, inner: &Value| {
        if is_scalar(inner) {
            return true;
        }
        path.push(token());
        let fits = fits(inner, path);
        if fits {
            path.pop();
        }
        fits
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().all(|(index, item)| visit(&|| index.to_string(), item))
        }
        Value::Object(entries) => entries.iter().all(|(key, item)| visit(&|| key.clone(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!([]), |inner, _| json!([inner]))
    }

    #[test]
    fn a_value_deeper_than_the_bound_is_refused_with_its_place() {
        check(&nested(MAX_DEPTH)).unwrap();
        let error = check(&json!({ "ok": 1, "a/b": nested(MAX_DEPTH) })).unwrap_err();
        assert!(error.pointer.starts_with("/a~1b/0/0/"), "{error}");
        assert_eq!(error.pointer.matches('/').count(), MAX_DEPTH);
    }

    #[test]
    fn whatever_is_admitted_can_be_read_back_from_its_text() {
        for value in [nested(MAX_DEPTH), json!({ "n": -0.0, "big": u64::MAX, "": null }), Value::Null] {
            check(&value).unwrap();
            let text = value.to_string();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
