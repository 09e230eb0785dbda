//! The handler of the relay: publishes the events of a batch, and says how far it came.

use std::sync::Arc;

use millstream_core::{
    BoxFuture, Change, Error, ErrorKind, Message, PublishLimits, Publisher, Result,
};
use millstream_processor::{ChangeBatch, Context, Handler, HandlerError, HandlerResult};

use crate::mapping::{self, MessageForm};
use crate::relay::RelayMonitor;

/// Publishes what it is given.
pub(crate) struct PublishingHandler {
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) mapping: Mapping,
    pub(crate) monitor: RelayMonitor,
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
                chunk.messages.push(message);
                chunk.places.push(place);
            }
            self.publish(&batch, &mut chunk).await
        })
    }
}

impl PublishingHandler {
    /// Publishes a chunk whole. A message that is refused for good is reported with its place,
    /// after those before it were published.
    async fn publish(&self, batch: &ChangeBatch, chunk: &mut Chunk) -> HandlerResult {
        let Chunk { mut messages, places } = std::mem::replace(chunk, Chunk::new());
        if messages.is_empty() {
            return Ok(());
        }
        let Err(error) = self.publisher.publish(messages.clone()).await else {
            self.acknowledge(batch, &places, messages.len());
            return Ok(());
        };
        let refused = error.operation().filter(|_| is_permanent(&error));
        let Some(refused) = refused.filter(|it| *it < messages.len()) else {
            return Err(classified(error));
        };
        messages.truncate(refused);
        if !messages.is_empty() {
            let count = messages.len();
            self.publisher.publish(messages).await.map_err(classified)?;
            self.acknowledge(batch, &places[..count], count);
        }
        Err(HandlerError::permanent(error).at(places[refused]))
    }

    fn acknowledge(&self, batch: &ChangeBatch, places: &[usize], published: usize) {
        self.monitor.published(published);
        for place in places {
            batch.acknowledge(*place);
        }
    }
}

impl Chunk {
    fn new() -> Self {
        Self { messages: Vec::new(), places: Vec::new() }
    }
}

/// Whether trying again cannot help.
fn is_permanent(error: &Error) -> bool {
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
