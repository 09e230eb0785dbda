//! From the document of an event to a message.

use std::borrow::Cow;

use bytes::Bytes;
use millstream_core::{
    Change, Error, Item, Message, PartitionKey, PartitionKeyComponent, PropertyValue, Result,
    Timestamp,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

/// How an event looks as a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageForm {
    /// CloudEvents 1.0 in binary mode: the body is the data of the event, its attributes are
    /// properties of the message.
    #[default]
    CloudEvents,
    /// The body is the data of the event; only its number among those of its key and the trace
    /// context are added.
    Raw,
}

/// The parts of an event document that a message is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventDocument<'a> {
    #[serde(borrow, default)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    entity_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    created_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    deliver_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tracestate: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    baggage: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// What documents of other origin keep inside their data.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inner<'a> {
    #[serde(borrow, default)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    created_at: Option<Cow<'a, str>>,
}

/// The type of a document, when nothing else of it is needed.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
}

/// Whether the item is an event.
pub(crate) fn is_event(item: &Item, event_type: &str) -> bool {
    // The store numbers events; only where it does not, the document is asked.
    item.sequence.is_some()
        || serde_json::from_slice::<Typed<'_>>(&item.body)
            .is_ok_and(|it| it.kind.as_deref() == Some(event_type))
}

/// The message of an event.
///
/// # Errors
///
/// `Invalid` if the document has no data, or its key cannot be a session.
pub(crate) fn message(item: &Item, form: MessageForm, source: &str) -> Result<Message> {
    let refused = |reason: &str| {
        Error::invalid(format!("make a message of the event \"{}\"", item.id), reason)
    };
    let document: EventDocument<'_> = serde_json::from_slice(&item.body)
        .map_err(|error| Error::invalid(format!("read the event \"{}\"", item.id), error))?;
    let data = document.data.ok_or_else(|| refused("it has no data"))?;
    let inner: Option<Inner<'_>> = match (&document.action, &document.created_at) {
        (Some(_), Some(_)) => None,
        _ => serde_json::from_str(data.get()).ok(),
    };
    let (inner_action, inner_time) = inner.map_or((None, None), |it| (it.action, it.created_at));
    let action = document.action.or(inner_action).ok_or_else(|| refused("it has no action"))?;
    let created_at = document.created_at.or(inner_time);
    let session = session_id(&item.partition_key);
    let mut message = Message::new(item.id.as_str(), Bytes::copy_from_slice(data.get().as_bytes()))
        .session(session.as_str())
        .subject(action.as_ref())
        .content_type("application/json");
    message.scheduled_at = match document.deliver_at {
        Some(text) => {
            let time = Timestamp::from_rfc3339(&text);
            Some(time.ok_or_else(|| refused("its deliverAt is not a time as RFC 3339"))?)
        }
        None => None,
    };
    let mut set = |name: &'static str, value: PropertyValue| {
        message.properties.insert(name.into(), value);
    };
    if form == MessageForm::CloudEvents {
        // Named as in the AMQP binding.
        let attributes = [
            ("cloudEvents:id", Some(item.id.as_str())),
            ("cloudEvents:partitionkey", Some(session.as_str())),
            ("cloudEvents:source", Some(source)),
            ("cloudEvents:specversion", Some("1.0")),
            ("cloudEvents:subject", document.entity_id.as_deref()),
            ("cloudEvents:time", created_at.as_deref()),
            ("cloudEvents:traceparent", document.traceparent.as_deref()),
            ("cloudEvents:tracestate", document.tracestate.as_deref()),
            ("cloudEvents:type", Some(action.as_ref())),
        ];
        for (name, value) in attributes {
            if let Some(value) = value {
                set(name, PropertyValue::from(value));
            }
        }
    }
    if let Some(sequence) = item.sequence {
        let number = i64::try_from(sequence).unwrap_or(i64::MAX);
        set("sequence", PropertyValue::Integer(number));
        if form == MessageForm::CloudEvents {
            set("cloudEvents:sequence", PropertyValue::from(sequence.to_string()));
        }
    }
    let trace = [
        ("traceparent", document.traceparent),
        ("tracestate", document.tracestate),
        ("baggage", document.baggage),
    ];
    for (name, value) in trace {
        if let Some(value) = value {
            set(name, PropertyValue::String(value.into_owned()));
        }
    }
    message.check()?;
    Ok(message)
}

/// The session of a key: its text if it is one, otherwise its JSON.
fn session_id(key: &PartitionKey) -> String {
    match key.components() {
        [PartitionKeyComponent::String(text)] => text.as_str().to_owned(),
        _ => key.to_string(),
    }
}

/// The id of a message about a document: another version of it is another message. Ids of documents
/// may be longer than those of messages; then a hash stands for what does not fit.
fn document_message_id(id: &str, change: &Change) -> String {
    let whole = format!("{id}:{}", change.lsn);
    if whole.len() <= Message::NAME_BYTES_MAX {
        return whole;
    }
    let hash = xxh3_128(id.as_bytes());
    let cut = (0..=64).rev().find(|it| id.is_char_boundary(*it)).unwrap_or(0);
    format!("{}~{hash:032x}:{}", &id[..cut], change.lsn)
}

/// The message of a document that is not an event: the document as it is, named after the change.
pub(crate) fn document(change: &Change, item: &Item) -> Result<Message> {
    let kind = serde_json::from_slice::<Typed<'_>>(&item.body).ok().and_then(|it| it.kind);
    let subject = kind.map_or_else(|| "document".to_owned(), Cow::into_owned);
    let message = Message::new(document_message_id(item.id.as_str(), change), item.body.clone())
        .session(session_id(&item.partition_key))
        .subject(subject)
        .content_type("application/json");
    message.check()?;
    Ok(message)
}
