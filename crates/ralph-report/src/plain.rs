//! The quick way to read a report.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::{Field, RoundReportRef, Status};

/// Reads a text in which each of the five keys stands once, with a value of its type, and no other key does.
///
/// Such is nearly every text that is a report at all, and this is the quick way to read it. `None` says that the text
/// is not of this form, and not why: the way through [`Node::parse`](crate::document::Node::parse) finds out.
///
/// The rules about reports are still to be judged.
pub(crate) fn read_plain(text: &[u8]) -> Option<RoundReportRef<'_>> {
    // To check the encoding once is quicker than to do so for each key and text.
    let mut deserializer = serde_json::Deserializer::from_str(str::from_utf8(text).ok()?);
    let report = deserializer.deserialize_map(Plain).ok()?;
    deserializer.end().ok()?;
    Some(report)
}

struct Plain;

impl<'de> Visitor<'de> for Plain {
    type Value = RoundReportRef<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut status, mut summary, mut evidence, mut next_steps, mut blocker) =
            (None, None, None, None, None);
        while let Some(field) = map.next_key_seed(PlainKey)? {
            let is_new = match field {
                Field::Status => status.replace(map.next_value_seed(PlainStatus)?).is_none(),
                Field::Summary => summary.replace(map.next_value_seed(PlainText)?).is_none(),
                Field::Evidence => evidence.replace(map.next_value_seed(PlainTexts)?).is_none(),
                Field::NextSteps => next_steps.replace(map.next_value_seed(PlainTexts)?).is_none(),
                Field::Blocker => blocker.replace(map.next_value_seed(PlainText)?).is_none(),
                Field::Object | Field::Keys => false,
            };
            if !is_new {
                return Err(A::Error::custom(NOT_PLAIN));
            }
        }
        match (status, summary, evidence, next_steps, blocker) {
            (Some(status), Some(summary), Some(evidence), Some(next_steps), Some(blocker)) => {
                Ok(RoundReportRef { status, summary, evidence, next_steps, blocker })
            }
            _ => Err(A::Error::custom(NOT_PLAIN)),
        }
    }
}

/// Nobody reads this.
const NOT_PLAIN: &str = "not plain";

struct PlainKey;

impl<'de> DeserializeSeed<'de> for PlainKey {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PlainKey {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key of a report")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Field::of_key(key).ok_or_else(|| E::custom(NOT_PLAIN))
    }
}

struct PlainStatus;

impl<'de> DeserializeSeed<'de> for PlainStatus {
    type Value = Status;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PlainStatus {
    type Value = Status;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Status::from_name(name).ok_or_else(|| E::custom(NOT_PLAIN))
    }
}

struct PlainText;

impl<'de> DeserializeSeed<'de> for PlainText {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for PlainText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

struct PlainTexts;

impl<'de> DeserializeSeed<'de> for PlainTexts {
    type Value = Vec<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PlainTexts {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element_seed(PlainText)? {
            texts.push(text);
        }
        Ok(texts)
    }
}
