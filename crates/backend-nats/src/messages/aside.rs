//! Messages that went aside: dead letters and deferred ones.

use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use millstream_core::{Message, Result, Timestamp};

use crate::messages::headers::{self, MESSAGE_ID, header_text, set};
use crate::messages::lane::{Aside, Leaving};
use crate::messages::names::SubscriptionNames;
use crate::messages::topic::TopicShared;
use crate::messages::wire::{call_error, newest, put};

/// Longest reason and description that are kept, in characters.
const TEXT_MAX: usize = 4096;
const DEAD: &str = "dead";
const DEFERRED: &str = "deferred";
const REASON: &str = "Millstream-Dead-Letter-Reason";
const DESCRIPTION: &str = "Millstream-Dead-Letter-Description";
const TRIES: &str = "Millstream-Delivery-Count";
/// The id of a message that went aside.
const ID: &str = "Millstream-Id";
const ENQUEUED: &str = "Millstream-Enqueued";
/// The header that would let the server remove the message.
const TIME_TO_LIVE: &str = "Nats-TTL";

/// The dead letters and the deferred messages of a subscription.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    topic: Arc<TopicShared>,
    names: SubscriptionNames,
}

/// A message that went aside.
#[derive(Clone, Debug, PartialEq)]
pub struct AsideMessage {
    /// Its number in the topic.
    pub sequence_number: u64,
    /// The message.
    pub message: Message,
    /// How often it was given out.
    pub delivery_count: u32,
    /// When it came to the topic.
    pub enqueued_at: Timestamp,
    /// Why it is a dead letter, in a word; empty for a deferred one.
    pub reason: String,
    /// Why, in a sentence.
    pub description: String,
}

impl DeadLetters {
    pub(crate) fn new(topic: Arc<TopicShared>, names: SubscriptionNames) -> Self {
        Self { topic, names }
    }

    /// Up to `messages_max` dead letters with numbers above `after`, in order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self, after: u64, messages_max: usize) -> Result<Vec<AsideMessage>> {
        let numbers = self.numbers().await?.into_iter().filter(|it| after < *it);
        let mut found = Vec::new();
        for number in numbers.take(messages_max) {
            found.extend(self.read(DEAD, number).await?);
        }
        Ok(found)
    }

    /// The numbers of all dead letters, in order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn numbers(&self) -> Result<Vec<u64>> {
        let subjects = self.topic.subjects(self.names.aside(DEAD, "*")).await?;
        let number = |it: &String| it.rsplit('.').next().and_then(|it| it.parse::<u64>().ok());
        let mut numbers: Vec<u64> = subjects.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The deferred message with this number.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn deferred(&self, number: u64) -> Result<Option<AsideMessage>> {
        self.read(DEFERRED, number).await
    }

    /// Removes a dead letter or a deferred message, when somebody has dealt with it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it removed or not.
    pub async fn remove(&self, number: u64) -> Result<()> {
        for kind in [DEAD, DEFERRED] {
            let subject = self.names.aside(kind, &number.to_string());
            let purged = self.topic.subscriptions.purge().filter(subject).await;
            purged.map_err(|error| call_error(format!("remove message {number}"), error))?;
        }
        Ok(())
    }

    async fn read(&self, kind: &str, number: u64) -> Result<Option<AsideMessage>> {
        let subject = self.names.aside(kind, &number.to_string());
        let found = newest(&self.topic.subscriptions, &subject).await?;
        Ok(found.map(|it| decode(&it, number)))
    }

    /// Puts a message aside. Doing so twice leaves one.
    pub(crate) async fn put(&self, leaving: &Leaving) -> Result<()> {
        let mut headers = headers::encode(&leaving.message)?;
        remove(&mut headers, TIME_TO_LIVE);
        let kind = match &leaving.aside {
            Aside::Dead { reason, description } => {
                set(&mut headers, REASON, &bounded(reason))?;
                set(&mut headers, DESCRIPTION, &bounded(description))?;
                DEAD
            }
            Aside::Deferred => DEFERRED,
        };
        set(&mut headers, TRIES, &leaving.tries.to_string())?;
        set(&mut headers, ENQUEUED, &leaving.enqueued_at.as_millis().to_string())?;
        // With its id the copies of two subscriptions would be duplicates of each other.
        remove(&mut headers, MESSAGE_ID);
        set(&mut headers, ID, &header_text(&leaving.message.id))?;
        let subject = self.names.aside(kind, &leaving.number.to_string());
        let body = leaving.message.body.clone();
        put(&self.topic.context, subject, headers, body, None).await.map(|_| ())
    }
}

fn decode(stored: &StreamMessage, number: u64) -> AsideMessage {
    let headers = Some(&stored.headers);
    let mut message = headers::decode(headers, stored.payload.clone(), number);
    if let Some(id) = headers::text(headers, ID) {
        message.id = id;
    }
    let text = |name| headers::text(headers, name).unwrap_or_default();
    let enqueued_at = Timestamp::from_millis(text(ENQUEUED).parse().unwrap_or_default());
    AsideMessage {
        sequence_number: number,
        message,
        delivery_count: text(TRIES).parse().unwrap_or_default(),
        enqueued_at,
        reason: text(REASON),
        description: text(DESCRIPTION),
    }
}

fn bounded(text: &str) -> String {
    let text: String = text.chars().take(TEXT_MAX).collect();
    header_text(&text)
}

/// Takes a header away.
fn remove(headers: &mut HeaderMap, name: &str) {
    let kept = headers.iter().filter(|(it, _)| {
        let it: &str = it.as_ref();
        it != name
    });
    let kept =
        kept.flat_map(|(name, values)| values.iter().map(|value| (name.clone(), value.clone())));
    *headers = kept.collect();
}
