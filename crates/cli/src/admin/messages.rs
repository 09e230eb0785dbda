//! What is in the broker.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millstream_backend_nats::{AsideMessage, Connection, DeadLetters, NatsTopic};
use millstream_broker::{Counts, MessageState, PeekedMessage};
use millstream_core::PropertyValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::messages::{self, Messages};
use crate::system::System;

/// A queue, topic or subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntityRow {
    pub(crate) path: String,
    pub(crate) kind: String,
    pub(crate) requires_session: bool,
    /// None for a topic, which keeps messages only for its subscriptions.
    pub(crate) counts: Option<CountsRow>,
}

/// How many messages there are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CountsRow {
    pub(crate) active: usize,
    pub(crate) locked: usize,
    pub(crate) scheduled: usize,
    pub(crate) deferred: usize,
    pub(crate) dead_lettered: usize,
    pub(crate) sessions: usize,
}

/// A message that somebody looks at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeekedRow {
    pub(crate) sequence_number: u64,
    pub(crate) id: String,
    pub(crate) session_id: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) state: String,
    pub(crate) delivery_count: u32,
    pub(crate) enqueued_at: String,
    pub(crate) properties: BTreeMap<String, Value>,
    /// The text of the body, or its bytes in base64.
    pub(crate) body: String,
}

/// Everything in the broker that has a name.
pub(crate) async fn topics(system: &System) -> Result<Vec<EntityRow>> {
    let broker = match &system.messages {
        Messages::Own(broker) => broker,
        Messages::Nats(connection) => return nats_topics(connection).await,
    };
    let mut rows = Vec::new();
    for (path, settings) in broker.queues() {
        let counts = Some(broker.counts(&path)?.into());
        let requires_session = settings.receive.requires_session;
        rows.push(EntityRow { path, kind: "queue".to_owned(), requires_session, counts });
    }
    for (topic, _) in broker.topics() {
        let kind = "topic".to_owned();
        let (path, requires_session, counts) = (topic.clone(), false, None);
        rows.push(EntityRow { path, kind, requires_session, counts });
        for (name, settings) in broker.subscriptions(&topic)? {
            let path = format!("{topic}/Subscriptions/{name}");
            let counts = Some(broker.counts(&path)?.into());
            let requires_session = settings.receive.requires_session;
            rows.push(EntityRow {
                path,
                kind: "subscription".to_owned(),
                requires_session,
                counts,
            });
        }
    }
    Ok(rows)
}

pub(crate) async fn peek(
    system: &System,
    path: &str,
    from: u64,
    messages_max: usize,
    session: Option<&str>,
) -> Result<Vec<PeekedRow>> {
    match &system.messages {
        Messages::Own(broker) => {
            let peeked = broker.peek(path, from, messages_max, session).await?;
            Ok(peeked.into_iter().map(PeekedRow::from).collect())
        }
        Messages::Nats(connection) => nats_peek(connection, path, from, messages_max).await,
    }
}

/// The topics on NATS. The servers do not say how many messages a subscription waits for.
async fn nats_topics(connection: &Connection) -> Result<Vec<EntityRow>> {
    let mut rows = Vec::new();
    for name in NatsTopic::list(connection).await? {
        let topic = messages::open(connection, &name).await?;
        let row = |path: String, kind: &str| {
            let (requires_session, counts) = (true, None);
            EntityRow { path, kind: kind.to_owned(), requires_session, counts }
        };
        rows.push(row(name.clone(), "topic"));
        for subscription in topic.subscriptions().await? {
            rows.push(row(format!("{name}/Subscriptions/{subscription}"), "subscription"));
        }
    }
    Ok(rows)
}

/// Dead letters on NATS; for other messages there are the tools of the servers.
async fn nats_peek(
    connection: &Connection,
    path: &str,
    from: u64,
    messages_max: usize,
) -> Result<Vec<PeekedRow>> {
    let Some(letters) = nats_dead_letters(connection, path).await? else {
        return Err(Failure::usage(
            "on NATS only dead letters can be looked at, such as \
             events/Subscriptions/default/$DeadLetterQueue; the nats command shows the streams",
        ));
    };
    let found = letters.list(from.saturating_sub(1), messages_max).await?;
    Ok(found.into_iter().map(PeekedRow::from).collect())
}

/// The dead letters that a path names; none if it names something else.
pub(super) async fn nats_dead_letters(
    connection: &Connection,
    path: &str,
) -> Result<Option<DeadLetters>> {
    let parts: Vec<&str> = path.split('/').collect();
    let [topic, "Subscriptions", subscription, "$DeadLetterQueue"] = parts[..] else {
        return Ok(None);
    };
    let topic = messages::open(connection, topic).await?;
    Ok(Some(topic.dead_letters(subscription)?))
}

impl From<AsideMessage> for PeekedRow {
    fn from(letter: AsideMessage) -> Self {
        let mut message = letter.message;
        let why = [
            ("DeadLetterReason", letter.reason),
            ("DeadLetterErrorDescription", letter.description),
        ];
        for (name, text) in why {
            message.properties.insert(name.into(), PropertyValue::String(text));
        }
        Self::from(PeekedMessage {
            message,
            sequence_number: letter.sequence_number,
            delivery_count: letter.delivery_count,
            enqueued_at: letter.enqueued_at,
            state: MessageState::Active,
        })
    }
}

impl From<Counts> for CountsRow {
    fn from(counts: Counts) -> Self {
        Self {
            active: counts.active,
            locked: counts.locked,
            scheduled: counts.scheduled,
            deferred: counts.deferred,
            dead_lettered: counts.dead_lettered,
            sessions: counts.sessions,
        }
    }
}

impl From<PeekedMessage> for PeekedRow {
    fn from(peeked: PeekedMessage) -> Self {
        let message = peeked.message;
        let state = match peeked.state {
            MessageState::Active => "active",
            MessageState::Deferred => "deferred",
            MessageState::Scheduled => "scheduled",
        };
        let properties =
            message.properties.into_iter().map(|(name, it)| (name.into_owned(), value(it)));
        Self {
            sequence_number: peeked.sequence_number,
            id: message.id,
            session_id: message.session_id,
            subject: message.subject,
            content_type: message.content_type,
            state: state.to_owned(),
            delivery_count: peeked.delivery_count,
            enqueued_at: peeked.enqueued_at.to_rfc3339(),
            properties: properties.collect(),
            body: match std::str::from_utf8(&message.body) {
                Ok(text) => text.to_owned(),
                Err(_) => STANDARD.encode(&message.body),
            },
        }
    }
}

fn value(property: PropertyValue) -> Value {
    match property {
        PropertyValue::Bool(value) => value.into(),
        PropertyValue::Integer(value) => value.into(),
        PropertyValue::Double(value) => value.into(),
        PropertyValue::String(value) => value.into(),
        PropertyValue::Timestamp(value) => value.to_rfc3339().into(),
        PropertyValue::Binary(value) => STANDARD.encode(value).into(),
    }
}
