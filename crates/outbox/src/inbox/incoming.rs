use millstream_core::{Message, PartitionKey, PropertyValue};

use crate::{Error, Result};

/// Properties of a message that may hold the number of its event, the first found counts.
const SEQUENCE_PROPERTIES: &[&str] =
    &["cloudEvents:sequence", "cloudEvents_sequence", "ce-sequence", "sequence"];

/// What an inbox needs to know of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub(super) id: String,
    pub(super) key: PartitionKey,
    pub(super) sequence: Option<u64>,
}

impl Incoming {
    /// Longest message id.
    pub const ID_BYTES_MAX: usize = 256;

    /// A message with this id, whose effect belongs to the logical partition `key`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the id is empty or too long.
    pub fn new(id: impl Into<String>, key: impl Into<PartitionKey>) -> Result<Self> {
        let id = id.into();
        let reason = if id.is_empty() {
            "it has no id"
        } else if Self::ID_BYTES_MAX < id.len() {
            "its id is longer than 256 bytes"
        } else {
            return Ok(Self { id, key: key.into(), sequence: None });
        };
        Err(Error::invalid("handle a message", reason))
    }

    /// Sets its number among those of its key. Default: none, order is not looked at.
    #[must_use]
    pub fn sequence(mut self, number: u64) -> Self {
        self.sequence = Some(number);
        self
    }
}

/// The partition key is the session, or else the partition key of the message; the number is its
/// property `sequence`, plain or as an attribute of CloudEvents.
impl TryFrom<&Message> for Incoming {
    type Error = Error;

    fn try_from(message: &Message) -> Result<Self> {
        let Some(key) = message.session_id.as_ref().or(message.partition_key.as_ref()) else {
            let reason = "it has neither a session nor a partition key";
            return Err(Error::invalid(format!("handle the message {:?}", message.id), reason));
        };
        let mut incoming = Self::new(message.id.as_str(), key.as_str())?;
        let found = SEQUENCE_PROPERTIES.iter().find_map(|name| message.properties.get(*name));
        incoming.sequence = found.and_then(number);
        Ok(incoming)
    }
}

fn number(property: &PropertyValue) -> Option<u64> {
    match property {
        PropertyValue::Integer(number) => u64::try_from(*number).ok(),
        PropertyValue::String(text) => text.parse().ok(),
        PropertyValue::Bool(_)
        | PropertyValue::Double(_)
        | PropertyValue::Timestamp(_)
        | PropertyValue::Binary(_) => None,
    }
}
