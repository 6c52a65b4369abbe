//! Judges values by a schema that has been checked.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Number, Value, json};

use super::{Kind, MAX_LISTED, SchemaViolation};

/// A schema as it is walked through: nothing of it is looked up by its name any more.
#[derive(Debug)]
pub(super) enum Node {
    OneOf(Vec<Node>),
    /// Any scalar of a type, as most of what values are made of.
    Scalar(Kind),
    Typed(Box<Typed>),
}

#[derive(Debug)]
pub(super) struct Typed {
    kind: Kind,
    properties: Vec<Property>,
    /// No other properties are admitted.
    is_closed: bool,
    items: Option<Node>,
    allowed: Option<Vec<Value>>,
    constant: Option<Value>,
    minimum: Option<Number>,
    maximum: Option<Number>,
}

#[derive(Debug)]
struct Property {
    name: String,
    is_required: bool,
    node: Node,
}

impl Node {
    /// Reads a schema that has passed the check.
    pub(super) fn of(schema: &Value) -> Self {
        if let Some(branches) = schema.get("oneOf").and_then(Value::as_array) {
            return Self::OneOf(branches.iter().map(Self::of).collect());
        }
        let kind = schema
            .get("type")
            .and_then(Value::as_str)
            .and_then(Kind::parse)
            .expect("a checked schema has a type");
        let is_limited =
            ["enum", "const", "minimum", "maximum"].iter().any(|limit| schema.get(limit).is_some());
        if kind.is_scalar() && !is_limited {
            return Self::Scalar(kind);
        }
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let properties = properties.map(|(name, schema)| Property {
            name: name.clone(),
            is_required: required.iter().any(|required| required == name.as_str()),
            node: Self::of(schema),
        });
        let number = |keyword| schema.get(keyword).and_then(Value::as_number).cloned();
        Self::Typed(Box::new(Typed {
            kind,
            properties: properties.collect(),
            is_closed: schema.get("additionalProperties") == Some(&Value::Bool(false)),
            items: schema.get("items").map(Self::of),
            allowed: schema.get("enum").and_then(Value::as_array).cloned(),
            constant: schema.get("const").cloned(),
            minimum: number("minimum"),
            maximum: number("maximum"),
        }))
    }

    #[inline]
    pub(super) fn admits(&self, value: &Value) -> bool {
        match self {
            Self::Scalar(kind) => kind.admits_scalar(value),
            Self::OneOf(_) | Self::Typed(_) => self.admits_within(value),
        }
    }

    /// What is not a matter of the type alone. It stays a function of its own, so that the rest costs no call.
    #[inline(never)]
    fn admits_within(&self, value: &Value) -> bool {
        match self {
            Self::Scalar(kind) => kind.admits_scalar(value),
            Self::OneOf(branches) => {
                branches.iter().filter(|branch| branch.admits(value)).take(2).count() == 1
            }
            Self::Typed(typed) => typed.admits(value),
        }
    }

    pub(super) fn explain(&self, value: &Value, at: &mut String, found: &mut Vec<SchemaViolation>) {
        if found.len() >= MAX_LISTED {
            return;
        }
        match self {
            Self::OneOf(branches) => {
                let fitting = branches.iter().filter(|branch| branch.admits(value)).count();
                if fitting != 1 {
                    let forms: Vec<_> = branches.iter().map(Self::name).collect();
                    let forms = forms.join(", ");
                    report(found, at, format!("must fit one of {forms}, and fits {fitting} of them"));
                }
            }
            Self::Scalar(kind) => {
                kind.explain(value, at, found);
            }
            Self::Typed(typed) => typed.explain(value, at, found),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::OneOf(_) => "a choice",
            Self::Scalar(kind) => kind.name(),
            Self::Typed(typed) => typed.kind.name(),
        }
    }
}

impl Typed {
    fn admits(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (Kind::Object, Value::Object(entries)) => self.admits_object(entries),
            (Kind::Array, Value::Array(items)) => {
                self.items.as_ref().is_none_or(|node| items.iter().all(|item| node.admits(item)))
            }
            (kind, scalar) => kind.admits_scalar(scalar) && self.admits_scalar(scalar),
        }
    }

    fn admits_object(&self, entries: &Map<String, Value>) -> bool {
        let mut known = 0;
        // Most objects have their properties in the order of the schema's: those need not be looked for.
        let mut rest = entries.iter();
        for property in &self.properties {
            let value = match rest.next() {
                Some((name, value)) if *name == property.name => Some(value),
                _ => entries.get(&property.name),
            };
            match value {
                Some(value) if !property.node.admits(value) => return false,
                Some(_) => known += 1,
                None if property.is_required => return false,
                None => {}
            }
        }
        !self.is_closed || known == entries.len()
    }

    fn admits_scalar(&self, value: &Value) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|other| same(other, value)))
            && self.constant.as_ref().is_none_or(|constant| same(constant, value))
            && self.minimum.as_ref().is_none_or(|least| within(value, least, Ordering::is_ge))
            && self.maximum.as_ref().is_none_or(|most| within(value, most, Ordering::is_le))
    }

    fn explain(&self, value: &Value, at: &mut String, found: &mut Vec<SchemaViolation>) {
        if !self.kind.explain(value, at, found) {
            return;
        }
        match value {
            Value::Object(entries) => {
                for property in &self.properties {
                    if let Some(value) = entries.get(&property.name) {
                        below(at, &property.name, |at| property.node.explain(value, at, found));
                    }
                }
                let is_lacking =
                    |property: &&Property| property.is_required && !entries.contains_key(&property.name);
                let lacking: Vec<_> =
                    self.properties.iter().filter(is_lacking).map(|property| json!(property.name)).collect();
                if !lacking.is_empty() {
                    report(found, at, format!("lacks {}", listed(&lacking)));
                }
                if self.is_closed {
                    let is_known =
                        |name: &String| self.properties.iter().any(|property| property.name == *name);
                    for name in entries.keys().filter(|name| !is_known(name)) {
                        below(at, name, |at| report(found, at, "is not a property that the schema knows"));
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(node) = &self.items {
                        below(at, &index.to_string(), |at| node.explain(item, at, found));
                    }
                }
            }
            scalar => self.explain_scalar(scalar, at, found),
        }
    }

    fn explain_scalar(&self, value: &Value, at: &str, found: &mut Vec<SchemaViolation>) {
        if let Some(allowed) = &self.allowed
            && !allowed.iter().any(|other| same(other, value))
        {
            report(found, at, format!("must be one of {}", listed(allowed)));
        }
        if let Some(constant) = self.constant.as_ref().filter(|constant| !same(constant, value)) {
            report(found, at, format!("must be {constant}"));
        }
        if let Some(least) = self.minimum.as_ref().filter(|least| !within(value, least, Ordering::is_ge)) {
            report(found, at, format!("must be at least {least}"));
        }
        if let Some(most) = self.maximum.as_ref().filter(|most| !within(value, most, Ordering::is_le)) {
            report(found, at, format!("must be at most {most}"));
        }
    }
}

impl Kind {
    fn is_scalar(self) -> bool {
        !matches!(self, Self::Array | Self::Object)
    }

    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
            scalar => scalar.admits_scalar(value),
        }
    }

    /// Reports a value of another type, and says whether it is of this one.
    fn explain(self, value: &Value, at: &str, found: &mut Vec<SchemaViolation>) -> bool {
        let is_admitted = self.admits(value);
        if !is_admitted {
            let (wanted, given) = (self.name(), type_of(value));
            report(found, at, format!("must be of type {wanted}, and is of type {given}"));
        }
        is_admitted
    }
}

fn report(found: &mut Vec<SchemaViolation>, at: &str, message: impl Into<String>) {
    if found.len() < MAX_LISTED {
        found.push(SchemaViolation { pointer: at.to_owned(), message: message.into() });
    }
}

/// Visits what stands below, under a name that is not yet a token of a JSON Pointer.
fn below(at: &mut String, name: &str, visit: impl FnOnce(&mut String)) {
    let length = at.len();
    at.push('/');
    for character in name.chars() {
        match character {
            '~' => at.push_str("~0"),
            '/' => at.push_str("~1"),
            other => at.push(other),
        }
    }
    visit(at);
    at.truncate(length);
}

fn listed(values: &[Value]) -> String {
    const MOST: usize = 20;
    let mut text = String::new();
    for (index, value) in values.iter().take(MOST).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(text, "{comma}{value}").expect("a text takes everything");
    }
    if values.len() > MOST {
        write!(text, ", and {} more", values.len() - MOST).expect("a text takes everything");
    }
    text
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        Value::String(_) => "string",
    }
}

/// JSON knows one kind of number: 1 and 1.0 are the same.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other).is_some_and(Ordering::is_eq),
        (one, other) => one == other,
    }
}

fn within(value: &Value, limit: &Number, fits: impl FnOnce(Ordering) -> bool) -> bool {
    value.as_number().and_then(|number| compare(number, limit)).is_some_and(fits)
}

/// Compares exactly, also an integer that no float has with a float.
fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(whole), None) => Some(against_float(whole, other.as_f64()?)),
        (None, Some(whole)) => Some(against_float(whole, one.as_f64()?).reverse()),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn against_float(whole: i128, float: f64) -> Ordering {
    // Numbers of JSON are integers of 64 bits or floats, so one beyond this is beyond every integer.
    const BEYOND: f64 = (1_u128 << 100) as f64;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    // Exact, since what is this small and has no fraction is an integer of 128 bits.
    let floor = float.floor();
    match whole.cmp(&(floor as i128)) {
        Ordering::Equal if float > floor => Ordering::Less,
        order => order,
    }
}
