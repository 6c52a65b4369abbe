//! JSON text as the judge wants it: bounded, borrowed from the input, and with its duplicate keys.
//!
//! [`serde_json`] does the reading. Its own `Value` would not do: it drops duplicate keys, copies every text, and
//! changes with features that other crates in a build may turn on.

use std::{borrow::Cow, cell::Cell, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    Field, InvalidReport, Limits, ViolationKind,
    violation::{Findings, Measure, Step},
};

/// A JSON value. A whole document if it was read from text.
pub(crate) enum Node<'a> {
    Null,
    Boolean,
    Number,
    Text(Cow<'a, str>),
    /// An array of nothing but texts, in the form in which a report keeps it.
    Texts(Vec<Cow<'a, str>>),
    /// Any other array.
    Array(Vec<Node<'a>>),
    /// The entries as they stand in the text, duplicates included.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// Reads `text`, or refuses it without having looked at any rule about reports.
    pub(crate) fn parse(text: &'a [u8], limits: &Limits) -> Result<Self, InvalidReport> {
        if text.len() > limits.max_bytes() {
            return Err(too_many_bytes(text.len(), limits.max_bytes()));
        }
        let reading = Reading { max_depth: limits.max_depth(), duplicates: Cell::new(false) };
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let node = Level { reading: &reading, depth: 0 }
            .deserialize(&mut deserializer)
            .and_then(|node| deserializer.end().map(|()| node))
            .map_err(|error| unreadable(text, limits, &error))?;
        if reading.duplicates.get() {
            return Err(duplicate_keys(&node));
        }
        Ok(node)
    }

    /// Returns as much of `value` as matters for a report. What is nested deeper than an item of a list is left out.
    pub(crate) fn from_value(value: &'a Value) -> Self {
        Self::shallow(value, 2)
    }

    fn shallow(value: &'a Value, levels: usize) -> Self {
        let below = levels.checked_sub(1);
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(_) => Self::Number,
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => match below {
                Some(below) => items.iter().map(|item| Self::shallow(item, below)).collect(),
                None => Self::Array(Vec::new()),
            },
            Value::Object(entries) => Self::Object(match below {
                Some(below) => entries
                    .iter()
                    .map(|(key, value)| (Cow::Borrowed(key.as_str()), Self::shallow(value, below)))
                    .collect(),
                None => Vec::new(),
            }),
        }
    }

    /// Says what this is, in words for a message.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Text(_) => "a string",
            Self::Texts(_) | Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Makes an array of its items.
impl<'a> FromIterator<Node<'a>> for Node<'a> {
    fn from_iter<T: IntoIterator<Item = Self>>(items: T) -> Self {
        let mut items = items.into_iter();
        let mut texts = Vec::with_capacity(items.size_hint().0);
        while let Some(item) = items.next() {
            match item {
                Self::Text(text) => texts.push(text),
                other => {
                    let texts = texts.into_iter().map(Self::Text);
                    return Self::Array(texts.chain([other]).chain(items).collect());
                }
            }
        }
        Self::Texts(texts)
    }
}

/// What all levels of one document share.
struct Reading {
    max_depth: usize,
    duplicates: Cell<bool>,
}

/// Reads a value that has `depth` arrays and objects around it.
#[derive(Clone, Copy)]
struct Level<'r> {
    reading: &'r Reading,
    depth: usize,
}

impl Level<'_> {
    fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    const fn is_too_deep(self) -> bool {
        self.depth >= self.reading.max_depth
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Node::Boolean)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Node::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Node::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Node::Number)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if self.is_too_deep() {
            return Err(A::Error::custom(TOO_DEEP));
        }
        let mut texts = Vec::new();
        while let Some(item) = items.next_element_seed(self.below())? {
            match item {
                Node::Text(text) => texts.push(text),
                other => {
                    let mut mixed: Vec<_> = texts.into_iter().map(Node::Text).collect();
                    mixed.push(other);
                    while let Some(item) = items.next_element_seed(self.below())? {
                        mixed.push(item);
                    }
                    return Ok(Node::Array(mixed));
                }
            }
        }
        Ok(Node::Texts(texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(Key)? {
            if entries.is_empty() {
                if self.is_too_deep() && key != NUMBER_KEY {
                    return Err(A::Error::custom(TOO_DEEP));
                }
                if self.depth == 0 {
                    // The five of a report.
                    entries.reserve_exact(5);
                }
            }
            let value = map.next_value_seed(self.below())?;
            entries.push((key, value));
        }
        if let [(key, Node::Text(text))] = &entries[..]
            && key == NUMBER_KEY
            && let Some(number) = spelled_number(text)
        {
            return if number.is_finite() {
                Ok(Node::Number)
            } else {
                Err(A::Error::custom("number out of range"))
            };
        }
        if self.is_too_deep() {
            return Err(A::Error::custom(TOO_DEEP));
        }
        if has_duplicates(&entries) {
            self.reading.duplicates.set(true);
        }
        Ok(Node::Object(entries))
    }
}

/// Reads a key of an object.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// How `serde_json` hands over a number when some crate in the build has turned on `arbitrary_precision`: as an
/// object with this one key and the spelling as its value. It is read as a number whether or not one has, so that the
/// verdict does not depend on it.
const NUMBER_KEY: &str = "$serde_json::private::Number";

const TOO_DEEP: &str = "nested too deep";

fn spelled_number(text: &str) -> Option<f64> {
    let numeric = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(numeric).then(|| text.parse().ok()).flatten()
}

fn has_duplicates(entries: &[(Cow<'_, str>, Node<'_>)]) -> bool {
    const FEW: usize = 8;

    if entries.len() <= FEW {
        let is_repeated =
            |(at, (key, _)): (usize, &(Cow<'_, str>, _))| entries[..at].iter().any(|(k, _)| k == key);
        return entries.iter().enumerate().any(is_repeated);
    }
    let mut seen = HashSet::with_capacity(entries.len());
    !entries.iter().all(|(key, _)| seen.insert(key))
}

#[cold]
fn too_many_bytes(actual: usize, limit: usize) -> InvalidReport {
    let mut findings = Findings::default();
    findings.add_excess(ViolationKind::InputOversized, Measure { actual, limit }, || {
        format!("has {actual} bytes as it was sent: send at most {limit}")
    });
    findings.into_refusal().expect("a violation was just added")
}

/// Refuses a text that is no document, or that nests too deep to find out.
#[cold]
fn unreadable(text: &[u8], limits: &Limits, error: &serde_json::Error) -> InvalidReport {
    let limit = limits.max_depth();
    if deepest_level(text) > limit {
        let complaint = format!(
            "has more than {limit} arrays and objects in one another: send texts and lists of texts only"
        );
        return InvalidReport::whole(ViolationKind::NestingLimit, None, &complaint);
    }
    let complaint = format!(
        "is not a single JSON document ({error}): send one JSON object, with nothing before or after it"
    );
    InvalidReport::whole(ViolationKind::Unparsable, None, &complaint)
}

/// Returns how deep the brackets outside of strings nest, whether or not they match.
fn deepest_level(text: &[u8]) -> usize {
    let (mut level, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => level += 1,
            b']' | b'}' => level = level.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => _ = bytes.next(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

#[cold]
fn duplicate_keys(document: &Node<'_>) -> InvalidReport {
    let mut findings = Findings::default();
    find_duplicates(document, &mut Vec::new(), &mut findings);
    findings.into_refusal().expect("the document has a duplicate key")
}

/// Adds each repetition of a key. No deeper than the document, so the recursion is bounded.
fn find_duplicates<'n>(node: &'n Node<'_>, place: &mut Vec<Step<'n>>, findings: &mut Findings) {
    match node {
        Node::Object(entries) => {
            let mut seen = HashSet::with_capacity(entries.len());
            for (key, value) in entries {
                place.push(Step::Key(key));
                if !seen.insert(key) {
                    findings.add(ViolationKind::DuplicateKey, Field::Keys, place, || {
                        "is given more than once: give each key once".to_owned()
                    });
                }
                find_duplicates(value, place, findings);
                place.pop();
            }
        }
        Node::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                place.push(Step::Item(index));
                find_duplicates(item, place, findings);
                place.pop();
            }
        }
        Node::Null | Node::Boolean | Node::Number | Node::Text(_) | Node::Texts(_) => {}
    }
}
