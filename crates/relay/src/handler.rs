//! The handler of the relay: publishes the events of a batch, and says how far it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_core::{
    BoxFuture, Change, Clock, Effect, Error, ErrorKind, Message, PublishLimits, Publisher, Result,
    Timestamp,
};
use millstream_processor::{ChangeBatch, Context, Handler, HandlerError, HandlerResult};

use crate::flaw::Flaw;
use crate::mapping::{self, MessageForm};
use crate::observer::{Published, RelayObserver};
use crate::relay::RelayMonitor;

/// Publishes what it is given.
pub(crate) struct PublishingHandler {
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) mapping: Mapping,
    pub(crate) monitor: RelayMonitor,
    pub(crate) observer: Option<Arc<dyn RelayObserver>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) flaw: Option<Flaw>,
    /// Calls of the publisher; only a planted bug looks at it.
    pub(crate) attempts: AtomicU64,
}

/// Which changes become messages, and how.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) form: MessageForm,
    pub(crate) source: String,
    pub(crate) event_type: String,
    pub(crate) all_documents: bool,
}

/// Messages for one call of the publisher, each with the place of its change in the batch.
struct Chunk {
    messages: Vec<Message>,
    places: Vec<usize>,
}

impl Mapping {
    /// The message of a change; none if it is not for the relay.
    pub(crate) fn message(&self, change: &Change) -> Result<Option<Message>> {
        let Some(item) = &change.current else { return Ok(None) };
        if mapping::is_event(item, &self.event_type) {
            return mapping::message(item, self.form, &self.source).map(Some);
        }
        if !self.all_documents {
            return Ok(None);
        }
        mapping::document(change, item).map(Some)
    }
}

impl Handler for PublishingHandler {
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(async move {
            let limits = self.publisher.limits();
            let mut chunk = Chunk::new();
            let mut bytes = 0;
            for (place, change) in batch.iter().enumerate() {
                let message = match self.mapping.message(change) {
                    Ok(Some(message)) => message,
                    Ok(None) => continue,
                    Err(error) => {
                        self.publish(&batch, &mut chunk).await?;
                        return Err(HandlerError::permanent(error).at(place));
                    }
                };
                if let Some(due) = self.not_due(&message) {
                    self.publish(&batch, &mut chunk).await?;
                    bytes = 0;
                    let kept = context.postpone(change, due).await;
                    if !self.has(Flaw::HeldBackWithoutKeeping) {
                        kept.map_err(|it| it.at(place))?;
                    }
                    batch.acknowledge(place);
                    continue;
                }
                let size = message.size();
                if limits.message_bytes_max < size {
                    self.publish(&batch, &mut chunk).await?;
                    return Err(too_large(&message, size, limits).at(place));
                }
                let is_full = limits.batch_messages_max <= chunk.messages.len()
                    || limits.batch_bytes_max < bytes + size;
                if is_full {
                    self.publish(&batch, &mut chunk).await?;
                    bytes = 0;
                    if context.cancellation.is_cancelled() {
                        return Err(HandlerError::transient("the lease is given up"));
                    }
                }
                bytes += size;
                chunk.messages.push(self.dated(message));
                chunk.places.push(place);
            }
            self.publish(&batch, &mut chunk).await
        })
    }
}

impl PublishingHandler {
    /// Publishes a chunk whole. A message that is refused for good, or that the destination fails
    /// at, is reported with its place, after those before it were published.
    async fn publish(&self, batch: &ChangeBatch, chunk: &mut Chunk) -> HandlerResult {
        let Chunk { messages, places } = std::mem::replace(chunk, Chunk::new());
        if messages.is_empty() {
            return Ok(());
        }
        if self.has(Flaw::AcknowledgeBeforePublished) {
            acknowledge(batch, &places);
        }
        let Err(error) = self.publish_all(batch, &places, messages).await else {
            return Ok(());
        };
        let is_about_one = is_permanent(&error) || error.kind() == ErrorKind::Unavailable;
        let refused = error.operation().filter(|_| is_about_one);
        let Some(refused) = refused.filter(|it| *it < places.len()) else {
            return Err(classified(error));
        };
        if 0 < refused {
            let again = self.made_again(batch, &places[..refused]);
            self.publish_all(batch, &places[..refused], again).await.map_err(classified)?;
        }
        if self.has(Flaw::RefusedIsOvertaken) {
            let _ = self.call(self.made_again(batch, &places[refused + 1..])).await;
        }
        let failure = match is_permanent(&error) {
            true => HandlerError::permanent(error),
            false => HandlerError::failed(error),
        };
        Err(failure.at(places[refused]))
    }

    /// When to publish a message that is not due yet and that the publisher cannot hold back.
    fn not_due(&self, message: &Message) -> Option<Timestamp> {
        let due = message.scheduled_at.filter(|_| !self.publisher.can_schedule())?;
        (self.clock.now() < due && !self.has(Flaw::NotHeldBack)).then_some(due)
    }

    /// The message, without the time that has come where the publisher knows no times.
    fn dated(&self, mut message: Message) -> Message {
        message.scheduled_at = message.scheduled_at.filter(|_| self.publisher.can_schedule());
        message
    }

    /// Messages of the changes at these places once more, because keeping a copy of what is nearly
    /// always taken costs more.
    fn made_again(&self, batch: &ChangeBatch, places: &[usize]) -> Vec<Message> {
        let changes = places.iter().filter_map(|it| batch.get(*it));
        let messages = changes.filter_map(|it| self.mapping.message(it).ok().flatten());
        messages.map(|it| self.dated(it)).collect()
    }

    async fn call(&self, mut messages: Vec<Message>) -> Result<()> {
        if self.has(Flaw::IdPerAttempt) {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
            messages.iter_mut().for_each(|it| it.id = format!("{}-{attempt}", it.id));
        }
        match self.publisher.publish(messages).await {
            Err(error)
                if self.has(Flaw::UnknownIsPublished) && error.effect() == Effect::Unknown =>
            {
                Ok(())
            }
            answer => answer,
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Publishes the messages of the changes at these places.
    async fn publish_all(
        &self,
        batch: &ChangeBatch,
        places: &[usize],
        messages: Vec<Message>,
    ) -> Result<()> {
        let observed = self.observer.as_ref().map(|it| (it, messages.clone()));
        let (begun_at, began) = (self.clock.now(), self.clock.monotonic());
        self.call(messages).await?;
        self.monitor.published(places.len());
        acknowledge(batch, places);
        let Some((observer, messages)) = observed else { return Ok(()) };
        let lasted = self.clock.monotonic().saturating_sub(began);
        for (message, place) in messages.iter().zip(places) {
            let Some(change) = batch.get(*place) else { continue };
            let committed_at = change.committed_at;
            observer.published(&Published { message, committed_at, begun_at, lasted });
        }
        Ok(())
    }
}

fn acknowledge(batch: &ChangeBatch, places: &[usize]) {
    for place in places {
        batch.acknowledge(*place);
    }
}

impl Chunk {
    fn new() -> Self {
        Self { messages: Vec::new(), places: Vec::new() }
    }
}

/// Whether trying again cannot help.
pub(crate) fn is_permanent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// What the processor shall do about a failure.
pub(crate) fn classified(error: Error) -> HandlerError {
    if is_permanent(&error) {
        return HandlerError::permanent(error);
    }
    let is_outage =
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded | ErrorKind::Locked);
    if is_outage { HandlerError::transient(error) } else { HandlerError::failed(error) }
}

fn too_large(message: &Message, size: usize, limits: PublishLimits) -> HandlerError {
    let attempted = format!("publish the event \"{}\"", message.id);
    let reason = format!(
        "its message has {size} bytes and the destination takes {}; make the event smaller",
        limits.message_bytes_max
    );
    HandlerError::permanent(Error::new(ErrorKind::TooLarge, attempted).because(reason))
}
