//! Reads JSON in which nothing is ambiguous.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::value_file::MAX_VALUES;

/// Reads exactly one JSON document of at most [`MAX_VALUES`] values.
///
/// What is left open elsewhere is refused here: a key given twice in one object, text behind the document, a
/// byte order mark before it. Nesting is bounded by the parser.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let left = Cell::new(MAX_VALUES);
    let value = Strict { left: &left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    /// How many values there may still be.
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => return Err(D::Error::custom(format_args!("there are more than {MAX_VALUES} values"))),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is given twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anything_but_one_unambiguous_document_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "{}{}",
            "{} x",
            "\u{feff}{}",
            "{'a':1}",
            r#"{"a":1,"a":1}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
            "1e999",
            r#""\ud800""#,
            "```json\n{}\n```",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let many = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
        assert!(parse(many(MAX_VALUES).as_bytes()).is_ok());
        assert!(parse(many(MAX_VALUES + 1).as_bytes()).is_err(), "the number of values is bounded");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err(), "nesting is bounded");
        assert!(parse(b"\"\xff\"").is_err(), "bytes that are no UTF-8");
    }

    #[test]
    fn one_document_is_read_as_it_is() {
        let text = r#" {"a":[1,-2,2.5,null,true,"x\u0000"],"b":{"a":{}}} "#;
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            json!({"a": [1, -2, 2.5, null, true, "x\0"], "b": {"a": {}}})
        );
    }
}
