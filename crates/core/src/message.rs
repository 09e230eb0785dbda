use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{BoxFuture, Error, Result, Timestamp};

/// What a broker carries: a body, and what it is told about it.
///
/// ```
/// use millstream_core::Message;
///
/// let message = Message::new("event-1", r#"{"name":"Ada"}"#)
///     .session("contact-17")
///     .subject("ContactCreated")
///     .property("source", "contacts");
/// assert_eq!(message.session_id.as_deref(), Some("contact-17"));
/// assert!(message.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Names the message; the same on every attempt to send it, so that a broker and a consumer can
    /// tell a repetition.
    pub id: String,
    /// Messages with the same session are delivered in order, to one receiver at a time.
    pub session_id: Option<String>,
    /// Where the message is kept; the same as the session if both are given.
    pub partition_key: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
    /// What the body is, such as `application/json`.
    pub content_type: Option<String>,
    /// Which request or conversation it belongs to.
    pub correlation_id: Option<String>,
    /// Where it is meant to go, for whoever routes it on.
    pub to: Option<String>,
    /// Where an answer should go.
    pub reply_to: Option<String>,
    /// The session an answer should belong to.
    pub reply_to_session_id: Option<String>,
    /// How long it is worth delivering.
    pub time_to_live: Option<Duration>,
    /// Not delivered before this time.
    pub scheduled_at: Option<Timestamp>,
    /// Everything else, by name. Most names are known when a program is built and cost nothing.
    pub properties: BTreeMap<Cow<'static, str>, PropertyValue>,
    /// The bytes.
    pub body: Bytes,
}

/// A property of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum PropertyValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Double(f64),
    /// Text.
    String(String),
    /// A time.
    Timestamp(Timestamp),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// Longest id, session id or partition key, as in Service Bus.
    pub const NAME_BYTES_MAX: usize = 128;
    /// Most properties.
    pub const PROPERTIES_MAX: usize = 256;

    /// A message with this id and body.
    pub fn new(id: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            id: id.into(),
            session_id: None,
            partition_key: None,
            subject: None,
            content_type: None,
            correlation_id: None,
            to: None,
            reply_to: None,
            reply_to_session_id: None,
            time_to_live: None,
            scheduled_at: None,
            properties: BTreeMap::new(),
            body: body.into(),
        }
    }

    /// Puts it into a session, and into the partition of the same name.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        self.partition_key = Some(id.clone());
        self.session_id = Some(id);
        self
    }

    /// Says what it is about.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Says what the body is.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn property(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<PropertyValue>,
    ) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// About how many bytes it takes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        /// What the fixed parts take.
        const OVERHEAD: usize = 64;
        let texts = [
            &self.session_id,
            &self.partition_key,
            &self.subject,
            &self.content_type,
            &self.correlation_id,
            &self.to,
            &self.reply_to,
            &self.reply_to_session_id,
        ];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        let properties: usize =
            self.properties.iter().map(|(name, value)| name.len() + value.size() + 4).sum();
        OVERHEAD + self.id.len() + texts + properties + self.body.len()
    }

    /// Checks what every broker refuses.
    ///
    /// # Errors
    ///
    /// `Invalid` if the id is empty, a name too long, the session differs from the partition key,
    /// or there are too many properties.
    pub fn check(&self) -> Result<()> {
        let names = [Some(&self.id), self.session_id.as_ref(), self.partition_key.as_ref()];
        let differs = |session: &String| {
            self.partition_key.as_ref().is_some_and(|partition| partition != session)
        };
        let reason = if self.id.is_empty() {
            "it has no id"
        } else if names.into_iter().flatten().any(|it| Self::NAME_BYTES_MAX < it.len()) {
            "its id, session or partition key is longer than 128 bytes"
        } else if self.session_id.as_ref().is_some_and(differs) {
            "its session and its partition key differ"
        } else if Self::PROPERTIES_MAX < self.properties.len() {
            "it has more than 256 properties"
        } else {
            return Ok(());
        };
        let id: String = self.id.chars().take(64).collect();
        Err(Error::invalid(format!("send the message {id:?}"), reason))
    }
}

impl PropertyValue {
    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Bool(_) => 1,
            Self::Integer(_) | Self::Double(_) | Self::Timestamp(_) => 8,
            Self::String(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

impl From<&str> for PropertyValue {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for PropertyValue {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<i64> for PropertyValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for PropertyValue {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<bool> for PropertyValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Timestamp> for PropertyValue {
    fn from(time: Timestamp) -> Self {
        Self::Timestamp(time)
    }
}

/// How much one call of a [`Publisher`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishLimits {
    /// Largest message, by [`Message::size`].
    pub message_bytes_max: usize,
    /// Most bytes in one call.
    pub batch_bytes_max: usize,
    /// Most messages in one call.
    pub batch_messages_max: usize,
}

/// Takes messages and keeps them: a queue or topic of a broker, or whatever stands for one.
///
/// 1. When `publish` returns without error, every message of the call is kept and will be offered
///    to every subscriber that wants it.
/// 2. Messages of one session are offered in the order of the call, and after those of every
///    earlier call that returned.
/// 3. After an error any number of the messages may have been kept, of each session from the first
///    on. Sending the same messages with the same ids again is safe: where the destination detects
///    duplicates they are offered once.
/// 4. `TooLarge` and `Invalid` name the message ([`Error::operation`]) and will not go away; it was
///    not kept, nor anything of its session after it.
/// 5. `Unavailable` and `Overloaded` may go away; the caller waits and repeats. An `Unavailable`
///    that names a message is about this message alone: the destination can be reached, but failed
///    at it, and nothing of its session after it was kept. The caller gives up on it after some
///    attempts.
/// 6. A message with [`Message::scheduled_at`] is not offered before that time, and others of its
///    session may overtake it. Where [`Publisher::can_schedule`] is false such a message is not
///    given to the publisher: the caller keeps it until then.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// How much one call takes.
    fn limits(&self) -> PublishLimits;

    /// Whether it holds messages back until they are due.
    fn can_schedule(&self) -> bool;

    /// Keeps the messages, in order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave any number of the messages kept; send them again.
    async fn publish(&self, messages: Vec<Message>) -> Result<()>;
}

/// A message that a receiver has for a while.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Its number in the queue or topic; larger for later ones.
    pub sequence_number: u64,
    /// How often it was given out, this time included.
    pub delivery_count: u32,
    /// When it came to the broker.
    pub enqueued_at: Timestamp,
    /// Names this very delivery when it is settled.
    pub lock_token: String,
}

/// What becomes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is done; the message goes away.
    Complete,
    /// Somebody shall try again; the next delivery counts one more.
    Abandon,
    /// It stays aside until somebody asks for it by its number.
    Defer,
    /// It goes to the dead letters.
    DeadLetter {
        /// Why, in a word.
        reason: String,
        /// Why, in a sentence.
        description: String,
    },
}

/// Gives out the sessions of a queue or subscription.
///
/// 1. A session has one receiver at a time; others wait for it or get another session.
/// 2. Its messages come in the order they were sent; one that was abandoned, or whose receiver went
///    away, comes again before any later one.
/// 3. A message that was completed does not come again.
/// 4. A lock that is not renewed ends by itself; the message then counts as abandoned.
#[async_trait]
pub trait Subscriber: Send + Sync {
    /// Takes the next session that has messages and no receiver; none if there is no such session
    /// within `wait`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing, or a session whose lock ends by itself.
    async fn accept_session(&self, wait: Duration) -> Result<Option<Box<dyn SessionReceiver>>>;
}

/// Receives the messages of one session. Dropping it gives the session up when its lock ends;
/// [`SessionReceiver::close`] does so at once.
pub trait SessionReceiver: Send + Sync {
    /// Which session it is.
    fn session_id(&self) -> &str;

    /// Up to `messages_max` messages in order; empty if none came within `wait`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave messages locked until the lock ends.
    fn receive(&self, messages_max: usize, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>>;

    /// Settles deliveries. `PreconditionFailed` if the lock is gone: the message comes again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them settled or not.
    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>>;

    /// Keeps the session for another lock duration.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it renewed or not.
    fn renew(&self) -> BoxFuture<'_, Result<()>>;

    /// Gives the session up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it given up or not.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
