use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::schema::{InvalidSchema, Schema};

/// What a child must hand in: a JSON value that a schema admits, and perhaps a rule besides.
///
/// It is data and crosses processes. The registry enforces the schema on every child that claims success.
/// A provider may let the same child correct itself against the rule; the rule's verdict is nobody's below
/// the caller of the child. The schema has been checked when the contract was made, so whoever holds a
/// contract holds one that can be enforced. Clones share all of it.
///
/// ```
/// use harness_subagent::{OutputContract, RuleRef};
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "answer": { "type": "string" } },
///     "required": ["answer"],
///     "additionalProperties": false,
/// });
/// let contract = OutputContract::new(schema)?.with_rule(RuleRef::new("one-sentence"));
/// assert_eq!(contract.rule().map(RuleRef::name), Some("one-sentence"));
///
/// let refused = OutputContract::new(json!({ "type": "string", "pattern": "x" })).unwrap_err();
/// assert_eq!(refused.violations().len(), 2); // The root is no object, and `pattern` is not enforced.
/// # Ok::<(), harness_subagent::InvalidSchema>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputContract {
    #[serde(serialize_with = "as_value")]
    schema: Schema,
    #[serde(serialize_with = "as_rule", skip_serializing_if = "Option::is_none")]
    rule: Option<Arc<RuleRef>>,
}

impl OutputContract {
    /// Makes a contract of `schema`.
    ///
    /// # Errors
    ///
    /// [`InvalidSchema`], with every keyword that the enforced subset lacks; see [`crate::schema`].
    pub fn new(schema: impl Into<Arc<Value>>) -> Result<Self, InvalidSchema> {
        Ok(Self { schema: Schema::new(schema)?, rule: None })
    }

    /// Adds the rule that a provider may use to let the child correct itself.
    #[must_use]
    pub fn with_rule(mut self, rule: RuleRef) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Returns the schema as JSON.
    #[must_use]
    pub fn schema(&self) -> &Arc<Value> {
        self.schema.source()
    }

    /// Returns the schema, ready to judge values.
    #[must_use]
    pub fn judge(&self) -> &Schema {
        &self.schema
    }

    /// Returns the rule's name and parameters.
    #[must_use]
    pub fn rule(&self) -> Option<&RuleRef> {
        self.rule.as_deref()
    }
}

fn as_value<S: Serializer>(schema: &Schema, serializer: S) -> Result<S::Ok, S::Error> {
    schema.source().as_ref().serialize(serializer)
}

fn as_rule<S: Serializer>(rule: &Option<Arc<RuleRef>>, serializer: S) -> Result<S::Ok, S::Error> {
    rule.as_deref().serialize(serializer)
}

impl<'de> Deserialize<'de> for OutputContract {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            schema: Value,
            #[serde(default)]
            rule: Option<RuleRef>,
        }
        let wire = Wire::deserialize(deserializer)?;
        let mut contract = Self::new(wire.schema).map_err(serde::de::Error::custom)?;
        contract.rule = wire.rule.map(Arc::new);
        Ok(contract)
    }
}

/// Names an output rule of an [`OutputRuleCatalog`](crate::OutputRuleCatalog), with its parameters.
///
/// A name and data, never code: the side that runs the child finds the rule in its own catalog.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleRef {
    name: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    parameters: Value,
}

impl RuleRef {
    /// Names a rule that needs no parameters.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), parameters: Value::Null }
    }

    /// Adds the parameters, in the form that the rule documents.
    #[must_use]
    pub fn with_parameters(mut self, parameters: Value) -> Self {
        self.parameters = parameters;
        self
    }

    /// Returns the rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule's parameters, `null` where there are none.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }
}
