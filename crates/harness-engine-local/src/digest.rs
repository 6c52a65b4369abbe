use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 of `data` as JSON with sorted keys, in hex.
///
/// The order of a JSON object's keys depends on how `serde_json` was built, so it must not count.
pub(crate) fn digest(data: &impl Serialize) -> String {
    let value = serde_json::to_value(data).expect("requests and calls have text keys only");
    let mut hasher = Sha256::new();
    feed(&mut hasher, &value);
    hex(hasher)
}

/// Returns the same digest of a text, without making a JSON value of it.
pub(crate) fn digest_text(text: &str) -> String {
    let mut hasher = Sha256::new();
    feed_text(&mut hasher, text);
    hex(hasher)
}

fn hex(hasher: Sha256) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    hasher.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                feed(hasher, item);
                hasher.update(b",");
            }
            hasher.update(b"]");
        }
        Value::Object(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            hasher.update(b"{");
            for (key, item) in sorted {
                feed_text(hasher, key);
                feed(hasher, item);
            }
            hasher.update(b"}");
        }
        Value::String(text) => feed_text(hasher, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => hasher.update(value.to_string()),
    }
}

/// The length in front keeps neighbouring texts apart.
fn feed_text(hasher: &mut Sha256, text: &str) {
    hasher.update(format!("\"{}:", text.len()));
    hasher.update(text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_depends_on_everything_but_the_order_of_keys() {
        let reordered: Value = serde_json::from_str(r#"{"b":[1,"x"],"a":null}"#).unwrap();
        let same = json!({ "a": null, "b": [1, "x"] });
        assert_eq!(digest(&same), digest(&reordered));
        let different = [
            json!({ "a": null, "b": [1.0, "x"] }),
            json!({ "a": null, "b": ["1", "x"] }),
            json!({ "ab": [1, "x"] }),
            json!([]),
        ];
        for other in different {
            assert_ne!(digest(&same), digest(&other), "{other}");
        }
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&Value::Null).len(), 64);
        assert_eq!(digest(&"ab\n"), digest_text("ab\n"));
    }
}
