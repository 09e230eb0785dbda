use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishAckFuture, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use millstream_core::{Error, ErrorKind, Message, PublishLimits, Publisher, Result};
use tokio::sync::Semaphore;

use crate::messages::headers;
use crate::messages::names::lane_of;
use crate::messages::topic::TopicShared;
use crate::messages::wire::{Failure, failure, publish_error};

/// Most messages of one call that are sent together: what the server takes as one batch.
pub const PUBLISH_MESSAGES_MAX: usize = 1000;
/// Most bytes of one call that are sent together.
pub const PUBLISH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long messages without an answer are sent again before the caller hears of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before the first repetition; twice as long before each further one, up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Atomic batches on their way; the server takes 50 for a stream from everybody together.
const BATCHES_MAX: usize = 8;
const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const BATCH_COMMIT: &str = "Nats-Batch-Commit";

/// A topic as a [`Publisher`]. A cheap clone.
///
/// Messages need a session; its name decides the lane and with it what they stay in order with.
/// `scheduled_at` is refused with `Unsupported`; a relay holds such events back itself. A time to
/// live counts in whole seconds, and a message that an owner of its lane has in memory is delivered
/// even when it ends.
///
/// Where a call has several messages of one session they are one atomic batch, so a later one
/// cannot be kept without the earlier ones; otherwise all are on their way at once. An answer that
/// does not come within seconds is asked for by sending the same message with the same id again.
#[derive(Clone, Debug)]
pub struct NatsPublisher {
    topic: Arc<TopicShared>,
    batches: Arc<Semaphore>,
}

/// A message on its way.
#[derive(Clone, Debug)]
struct Outgoing {
    session: String,
    subject: String,
    headers: HeaderMap,
    body: Bytes,
    size: usize,
}

impl NatsPublisher {
    pub(crate) fn new(topic: Arc<TopicShared>) -> Self {
        Self { topic, batches: Arc::new(Semaphore::new(BATCHES_MAX)) }
    }

    fn encode(&self, message: &Message) -> Result<Outgoing> {
        message.check()?;
        let attempted = || format!("send the message {:?}", message.id);
        let Some(session) = &message.session_id else {
            return Err(Error::invalid(attempted(), "it has no session, which the topic requires"));
        };
        if message.scheduled_at.is_some() {
            let error = Error::new(ErrorKind::Unsupported, attempted());
            return Err(error.because("topics on NATS do not take scheduled messages"));
        }
        let headers = headers::encode(message)?;
        let names = headers.iter().map(|(name, values)| {
            let name: &str = name.as_ref();
            name.len() + values.iter().map(|it| it.as_str().len() + 4).sum::<usize>()
        });
        let size = names.sum::<usize>() + message.body.len();
        let bytes_max = self.topic.message_bytes_max();
        if bytes_max < size.max(message.size()) {
            let reason = format!("its {size} bytes exceed the limit of {bytes_max}");
            return Err(Error::new(ErrorKind::TooLarge, attempted()).because(reason));
        }
        let subject = self.topic.names.lane(lane_of(session, self.topic.lanes));
        let (session, body) = (session.clone(), message.body.clone());
        Ok(Outgoing { session, subject, headers, body, size })
    }

    async fn send(&self, messages: Vec<Outgoing>) -> Result<()> {
        let clock = &self.topic.clock;
        let deadline = clock.monotonic() + PATIENCE;
        let mut pause = PAUSE_FIRST;
        let mut left = messages;
        loop {
            let error = if is_each_session_once(&left) {
                let (unsent, error) = self.send_together(left).await?;
                left = unsent;
                error
            } else {
                match self.send_batch(&left).await {
                    Ok(()) => None,
                    Err(error) if failure(&error) == Failure::NotAsBatch => {
                        return self.send_in_turn(left, deadline).await;
                    }
                    Err(error) => Some(self.transient(error)?),
                }
            };
            let Some(error) = error else { return Ok(()) };
            if deadline <= clock.monotonic() {
                return Err(error.with_unknown_effect());
            }
            clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends all at once; returns those without an answer and what one of them failed with.
    async fn send_together(
        &self,
        messages: Vec<Outgoing>,
    ) -> Result<(Vec<Outgoing>, Option<Error>)> {
        let mut sent = Vec::with_capacity(messages.len());
        for message in &messages {
            sent.push(self.start(message, message.headers.clone()).await);
        }
        let answers = join_all(sent.into_iter().map(|it| async { it?.await }));
        let (mut unsent, mut last) = (Vec::new(), None);
        for (message, answer) in messages.into_iter().zip(answers.await) {
            if let Err(error) = answer {
                last = Some(self.transient(error)?);
                unsent.push(message);
            }
        }
        Ok((unsent, last))
    }

    /// Sends all as one atomic batch.
    async fn send_batch(&self, messages: &[Outgoing]) -> Result<(), PublishError> {
        // The semaphore is never closed; without a permit there would only be more at once.
        let _permit = self.batches.acquire().await.ok();
        let id = self.topic.ids.next_id().to_string();
        let mut last = None;
        for (index, message) in messages.iter().enumerate() {
            let mut headers = message.headers.clone();
            headers.insert(BATCH_ID, id.as_str());
            headers.insert(BATCH_SEQUENCE, (index + 1).to_string());
            if index + 1 == messages.len() {
                headers.insert(BATCH_COMMIT, "1");
                last = Some(self.start(message, headers).await?);
                continue;
            }
            let (subject, body) = (message.subject.clone(), message.body.clone());
            let sent = self.topic.client.publish_with_headers(subject, headers, body).await;
            sent.map_err(|error| {
                PublishError::with_source(
                    async_nats::jetstream::context::PublishErrorKind::BrokenPipe,
                    error,
                )
            })?;
        }
        match last {
            Some(answer) => answer.await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Sends the messages of each session one after the other.
    async fn send_in_turn(&self, messages: Vec<Outgoing>, deadline: Duration) -> Result<()> {
        let mut sessions: BTreeMap<String, Vec<Outgoing>> = BTreeMap::new();
        for message in messages {
            sessions.entry(message.session.clone()).or_default().push(message);
        }
        let turns = sessions.into_values().map(|messages| async {
            for message in messages {
                self.send_one(message, deadline).await?;
            }
            Ok(())
        });
        join_all(turns).await.into_iter().collect()
    }

    async fn send_one(&self, message: Outgoing, deadline: Duration) -> Result<()> {
        let clock = &self.topic.clock;
        let mut left = vec![message];
        loop {
            let (unsent, error) = self.send_together(left).await?;
            let Some(error) = error else { return Ok(()) };
            if deadline <= clock.monotonic() {
                return Err(error.with_unknown_effect());
            }
            left = unsent;
            clock.sleep(PAUSE_FIRST).await;
        }
    }

    async fn start(
        &self,
        message: &Outgoing,
        headers: HeaderMap,
    ) -> Result<PublishAckFuture, PublishError> {
        let publish = PublishMessage::build().payload(message.body.clone()).headers(headers);
        self.topic.context.send_publish(message.subject.clone(), publish).await
    }

    /// The error, if sending again may help; otherwise it is the end.
    fn transient(&self, error: PublishError) -> Result<Error> {
        let attempted = || format!("send to the topic {:?}", self.topic.name);
        match failure(&error) {
            Failure::NotYet | Failure::Unknown => Ok(publish_error(attempted(), error)),
            Failure::Conflict
            | Failure::NotAsBatch
            | Failure::Full
            | Failure::TooLarge
            | Failure::Refused => Err(publish_error(attempted(), error).with_unknown_effect()),
        }
    }
}

#[async_trait]
impl Publisher for NatsPublisher {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: self.topic.message_bytes_max(),
            batch_bytes_max: PUBLISH_BYTES_MAX,
            batch_messages_max: PUBLISH_MESSAGES_MAX,
        }
    }

    fn can_schedule(&self) -> bool {
        false
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        let mut outgoing = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let encoded = self.encode(message).map_err(|error| error.at_operation(index))?;
            outgoing.push(encoded);
        }
        let mut chunk = Vec::new();
        let mut bytes = 0;
        for message in outgoing {
            if PUBLISH_MESSAGES_MAX <= chunk.len() || PUBLISH_BYTES_MAX < bytes + message.size {
                self.send(std::mem::take(&mut chunk)).await?;
                bytes = 0;
            }
            bytes += message.size;
            chunk.push(message);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        self.send(chunk).await
    }
}

fn is_each_session_once(messages: &[Outgoing]) -> bool {
    let mut seen = BTreeSet::new();
    messages.iter().all(|it| seen.insert(it.session.as_str()))
}
