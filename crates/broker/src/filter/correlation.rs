mod stored;

use std::collections::BTreeMap;

use millstream_core::{Error, Message, PropertyValue, Result};
use serde::{Deserialize, Serialize};

use crate::filter::value::{self, Value};

/// Wants messages whose values are equal to all values given here.
///
/// Text is compared with regard to case, names of properties without. A whole number equals the
/// same number with a fraction (`5` and `5.0`); values of other different types are never equal, so
/// `5` is not `"5"`. What is absent from the message equals nothing.
///
/// As JSON, fields that are not given are left out and unknown fields are refused. Properties are
/// `true`, `17`, `"text"`, `{"double":"0.5"}` (text, so that every bit survives; a plain `0.5` is
/// also read), `{"timestamp":1700000000000}` (milliseconds since 1970), `{"binary":"AAE="}`
/// (base64).
///
/// ```
/// use millstream_broker::{CorrelationFilter, Filter};
/// use millstream_core::Message;
///
/// let filter = CorrelationFilter::default().subject("ContactCreated");
/// let filter = Filter::from(filter.property("source", "contacts"));
/// let message = Message::new("event-1", "").subject("ContactCreated");
/// assert!(!filter.matches(&message));
/// assert!(filter.matches(&message.property("source", "contacts")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CorrelationFilter {
    /// [`Message::correlation_id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// [`Message::id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// [`Message::to`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// [`Message::reply_to`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// [`Message::subject`], also known as the label.
    #[serde(skip_serializing_if = "Option::is_none", alias = "label")]
    pub subject: Option<String>,
    /// [`Message::session_id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// [`Message::reply_to_session_id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    /// [`Message::content_type`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// [`Message::properties`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty", with = "stored")]
    pub properties: BTreeMap<String, PropertyValue>,
}

impl CorrelationFilter {
    /// Wants this correlation id.
    #[must_use]
    pub fn correlation_id(mut self, value: impl Into<String>) -> Self {
        self.correlation_id = Some(value.into());
        self
    }

    /// Wants this message id.
    #[must_use]
    pub fn message_id(mut self, value: impl Into<String>) -> Self {
        self.message_id = Some(value.into());
        self
    }

    /// Wants this destination.
    #[must_use]
    pub fn to(mut self, value: impl Into<String>) -> Self {
        self.to = Some(value.into());
        self
    }

    /// Wants this address for answers.
    #[must_use]
    pub fn reply_to(mut self, value: impl Into<String>) -> Self {
        self.reply_to = Some(value.into());
        self
    }

    /// Wants this subject.
    #[must_use]
    pub fn subject(mut self, value: impl Into<String>) -> Self {
        self.subject = Some(value.into());
        self
    }

    /// Wants this session.
    #[must_use]
    pub fn session_id(mut self, value: impl Into<String>) -> Self {
        self.session_id = Some(value.into());
        self
    }

    /// Wants this session for answers.
    #[must_use]
    pub fn reply_to_session_id(mut self, value: impl Into<String>) -> Self {
        self.reply_to_session_id = Some(value.into());
        self
    }

    /// Wants this content type.
    #[must_use]
    pub fn content_type(mut self, value: impl Into<String>) -> Self {
        self.content_type = Some(value.into());
        self
    }

    /// Wants this value of a property.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<PropertyValue>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Whether the message has all these values. A filter without values wants every message.
    #[must_use]
    pub fn matches(&self, message: &Message) -> bool {
        let id = Some(&message.id);
        let texts = [
            (self.message_id.as_ref(), id),
            (self.correlation_id.as_ref(), message.correlation_id.as_ref()),
            (self.to.as_ref(), message.to.as_ref()),
            (self.reply_to.as_ref(), message.reply_to.as_ref()),
            (self.subject.as_ref(), message.subject.as_ref()),
            (self.session_id.as_ref(), message.session_id.as_ref()),
            (self.reply_to_session_id.as_ref(), message.reply_to_session_id.as_ref()),
            (self.content_type.as_ref(), message.content_type.as_ref()),
        ];
        let texts_match = texts.iter().all(|(wanted, actual)| wanted.is_none() || wanted == actual);
        texts_match && self.properties.iter().all(|(name, wanted)| has(message, name, wanted))
    }

    /// Checks what a broker refuses when a rule is made.
    ///
    /// # Errors
    ///
    /// `Invalid` if no value is given, a property has no name, or there are more properties than a
    /// message can have.
    pub fn check(&self) -> Result<()> {
        let reason = if *self == Self::default() {
            "it names no value; use the filter true for every message"
        } else if self.properties.contains_key("") {
            "a property has no name"
        } else if Message::PROPERTIES_MAX < self.properties.len() {
            "it has more than 256 properties"
        } else {
            return Ok(());
        };
        Err(Error::invalid("use the correlation filter", reason))
    }
}

fn has(message: &Message, name: &str, wanted: &PropertyValue) -> bool {
    let actual = value::user_property(message, name);
    actual.and_then(|actual| actual.equal(&Value::from(wanted))) == Some(true)
}
