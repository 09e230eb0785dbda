//! What processes say to the broker, a line of JSON each way. Only for this proof: a message has
//! what the relay of the proof gives it, and no more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use millstream_core::{Delivery, Error, ErrorKind, Message, PropertyValue, Result, Timestamp};
use serde::{Deserialize, Serialize};

/// Longest line; a call publishes at most a hundred small messages.
pub(crate) const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What the broker is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Publish(Vec<WireMessage>),
    /// The next session, which belongs to this connection.
    Accept {
        wait_millis: u64,
    },
    Receive {
        messages_max: usize,
        wait_millis: u64,
    },
    Complete(Vec<String>),
    Renew,
    Close,
    Counts,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Session(Option<String>),
    Messages(Vec<WireDelivery>),
    Counts { active: usize, dead_lettered: usize },
    Failed(WireError),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireMessage {
    id: String,
    session: Option<String>,
    subject: Option<String>,
    body: String,
    numbers: BTreeMap<Cow<'static, str>, i64>,
    texts: BTreeMap<Cow<'static, str>, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireDelivery {
    message: WireMessage,
    sequence_number: u64,
    delivery_count: u32,
    enqueued_at: u64,
    lock_token: String,
}

/// An error, as far as it decides what the caller does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireError {
    kind: String,
    operation: Option<usize>,
    report: String,
}

impl From<&Message> for WireMessage {
    fn from(message: &Message) -> Self {
        let (mut numbers, mut texts) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in &message.properties {
            if let PropertyValue::Integer(number) = value {
                numbers.insert(name.clone(), *number);
            } else if let PropertyValue::String(text) = value {
                texts.insert(name.clone(), text.clone());
            }
        }
        Self {
            id: message.id.clone(),
            session: message.session_id.clone(),
            subject: message.subject.clone(),
            body: String::from_utf8_lossy(&message.body).into_owned(),
            numbers,
            texts,
        }
    }
}

impl From<WireMessage> for Message {
    fn from(wire: WireMessage) -> Self {
        let mut message = Self::new(wire.id, wire.body);
        message.session_id.clone_from(&wire.session);
        message.partition_key = wire.session;
        message.subject = wire.subject;
        let numbers = wire.numbers.into_iter();
        message.properties.extend(numbers.map(|(name, it)| (name, PropertyValue::Integer(it))));
        let texts = wire.texts.into_iter();
        message.properties.extend(texts.map(|(name, it)| (name, PropertyValue::String(it))));
        message
    }
}

impl From<&Delivery> for WireDelivery {
    fn from(delivery: &Delivery) -> Self {
        Self {
            message: WireMessage::from(&delivery.message),
            sequence_number: delivery.sequence_number,
            delivery_count: delivery.delivery_count,
            enqueued_at: delivery.enqueued_at.as_millis(),
            lock_token: delivery.lock_token.clone(),
        }
    }
}

impl From<WireDelivery> for Delivery {
    fn from(wire: WireDelivery) -> Self {
        Self {
            message: wire.message.into(),
            sequence_number: wire.sequence_number,
            delivery_count: wire.delivery_count,
            enqueued_at: Timestamp::from_millis(wire.enqueued_at),
            lock_token: wire.lock_token,
        }
    }
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        let known = [
            (ErrorKind::Invalid, "invalid"),
            (ErrorKind::TooLarge, "too-large"),
            (ErrorKind::PreconditionFailed, "lock-lost"),
        ];
        let kind = known.iter().find(|(kind, _)| *kind == error.kind());
        let kind = kind.map_or("unavailable", |(_, name)| name);
        Self { kind: kind.to_owned(), operation: error.operation(), report: error.report() }
    }
}

impl From<WireError> for Error {
    fn from(wire: WireError) -> Self {
        let kind = match wire.kind.as_str() {
            "invalid" => ErrorKind::Invalid,
            "too-large" => ErrorKind::TooLarge,
            "lock-lost" => ErrorKind::PreconditionFailed,
            _ => ErrorKind::Unavailable,
        };
        let error = Self::new(kind, "use the broker").because(wire.report);
        match (kind, wire.operation) {
            (ErrorKind::Unavailable, _) => error.with_unknown_effect(),
            (_, Some(operation)) => error.at_operation(operation),
            (_, None) => error,
        }
    }
}

impl Answer {
    /// The answer, or what went wrong.
    pub(crate) fn check(self) -> Result<Self> {
        if let Self::Failed(error) = self {
            return Err(error.into());
        }
        Ok(self)
    }
}
