//! The other end: each message has its effect once.
//!
//! Read this file first, then `sequence`, which tells gaps and reorders, and `incoming`.

pub(crate) mod incoming;
pub(crate) mod options;
pub(crate) mod sequence;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millstream_core::{
    BATCH_OPERATIONS_MAX, Batch, Container, Documents, Effect, Etag, Item, ItemId, Operation,
    OperationKind, PartitionKey, TimeToLive,
};

use crate::document::{Layout, quote, seconds, unreadable};
use crate::error::ConflictReason;
use crate::flaw::Flaw;
use crate::inbox::sequence::{Seen, Verdict, judge};
use crate::{
    Conflict, DuplicateBy, Error, ErrorKind, GapPolicy, HandlerError, InboxOptions, Incoming,
    Order, Outcome, Result,
};

/// `type` of our documents.
const TYPE: &str = "inbox";
/// Most operations of ours in a batch.
const OWN_OPERATIONS: usize = 2;
/// Attempts to commit while others handle messages of the same key.
const ATTEMPTS_MAX: usize = 16;

/// Remembers which messages a consumer has handled, in the same batch as their effect.
///
/// For each message there is a document in the logical partition of its effect, and one per
/// partition with the numbers seen. Clones are cheap; any number of tasks and processes may use the
/// same consumer name.
///
/// ```
/// # use std::sync::Arc;
/// # use millstream_core::conformance::block_on;
/// # use millstream_core::*;
/// use millstream_outbox::{Inbox, Incoming, Outcome};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = memory::Memory::new(Arc::new(SystemClock::default()));
/// # let name = ContainerName::new("app", "search")?;
/// # let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?)
/// #     .default_ttl(TimeToLive::Never);
/// # block_on(store.create_database("app"))?;
/// # block_on(store.create(&name, settings))?;
/// # let container = block_on(store.open(&name))?;
///
/// let inbox = Inbox::new(&container, "search")?;
/// let message = Incoming::new("event-1", "contact-17")?.sequence(1);
/// for _ in 0..2 {
///     let outcome = block_on(inbox.handle(&message, |batch| async {
///         let row = r#"{"id":"row","partitionKey":"contact-17","name":"Ada"}"#;
///         Ok(batch.with(Operation::upsert(row)))
///     }))?;
///     println!("{outcome:?}"); // Handled, then Duplicate.
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Inbox {
    documents: Arc<dyn Documents>,
    layout: Layout,
    consumer: String,
    options: InboxOptions,
    keep: TimeToLive,
    flaw: Option<Flaw>,
}

/// What the inbox knows before a message is handled.
struct Before {
    /// The numbers seen, and the etag of the document that says so.
    seen: Option<(Seen, Etag)>,
}

impl Inbox {
    /// Longest name of a consumer.
    pub const CONSUMER_BYTES_MAX: usize = 128;

    /// An inbox with the default options; see [`Inbox::new_with`].
    ///
    /// # Errors
    ///
    /// As [`Inbox::new_with`].
    pub fn new(container: &Container, consumer: &str) -> Result<Self> {
        Self::new_with(container, consumer, InboxOptions::default())
    }

    /// The inbox of a consumer, in the container that holds the effects of its messages.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name is empty, too long or holds one of `: / \ ? #`; if `keep` is shorter
    /// than a second; if nothing expires in the container, so that it would grow for ever; or if
    /// its partition key is in the way of our documents.
    pub fn new_with(container: &Container, consumer: &str, options: InboxOptions) -> Result<Self> {
        let refused =
            |reason: &str| Err(Error::invalid(format!("open the inbox of {consumer:?}"), reason));
        if consumer.is_empty() || Self::CONSUMER_BYTES_MAX < consumer.len() {
            return refused("the name must have 1 to 128 bytes");
        }
        if consumer.contains([':', '/', '\\', '?', '#']) {
            return refused("the name holds one of : / \\ ? #");
        }
        let seconds = i64::try_from(options.keep.as_secs()).ok();
        let Some(keep) = seconds.filter(|it| 0 < *it).and_then(|it| TimeToLive::new(it).ok())
        else {
            return refused("messages must be remembered between a second and 68 years");
        };
        if container.info.settings.default_ttl.is_none() {
            return refused("nothing expires in the container; create it with the default TTL -1");
        }
        if container.info.settings.event_type.as_deref() == Some(TYPE) {
            return refused("the events of the container have the type \"inbox\"");
        }
        let layout = Layout::of(&container.info.settings)?;
        let documents = Arc::clone(&container.documents);
        let (consumer, flaw) = (consumer.to_owned(), None);
        Ok(Self { documents, layout, consumer, options, keep, flaw })
    }

    /// Plants a bug, so that a simulation can show that it would find it.
    #[cfg(feature = "planted-flaws")]
    #[must_use]
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Commits the effect of a message, unless it had its effect before.
    ///
    /// `effect` gets an empty batch on the partition of the message and returns it with up to 98
    /// operations; conditions on etags belong there. It is called at most once, and not for a
    /// duplicate. If two consumers handle the same message at once, the effect of one is committed
    /// and the other gets `Duplicate`.
    ///
    /// # Errors
    ///
    /// `Refused` if `effect` fails; `SequenceGap` by policy; `Conflict` if an operation of the
    /// effect is refused, or too many others work on the same key: let the message come again.
    /// After `Unknown` handle it again, which tells whether it had its effect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the effect committed or not, never half; as after `Unknown`.
    pub async fn handle<F, R>(&self, message: &Incoming, effect: F) -> Result<Outcome>
    where
        F: FnOnce(Batch) -> R,
        R: Future<Output = Result<Batch, HandlerError>>,
    {
        let mut before = match self.look(message).await? {
            Ok(before) => before,
            Err(duplicate) => return Ok(duplicate),
        };
        // A gap that is refused anyway should not cost the effect.
        if let Err(outcome) = self.bookkeeping(message, &before)? {
            return Ok(outcome);
        }
        let effect = effect(Batch::new(message.key.clone())).await.map_err(|reason| {
            Error::new(ErrorKind::Refused, self.attempted(message)).because(reason)
        })?;
        self.check_effect(message, &effect)?;
        for _ in 0..ATTEMPTS_MAX {
            let (order, mut batch) = match self.bookkeeping(message, &before)? {
                Ok(own) => own,
                Err(duplicate) => return Ok(duplicate),
            };
            let own = batch.operations.len();
            if self.flaw == Some(Flaw::RecordAfterEffect) {
                let early = self.documents.commit(effect.clone()).await;
                early.map_err(|error| self.refused(message, &effect, 0, error))?;
            } else {
                batch.operations.extend(effect.operations.iter().cloned());
            }
            let Err(error) = self.documents.commit(batch).await else {
                return Ok(Outcome::Handled { order });
            };
            let in_own = error.operation().is_some_and(|it| it < own);
            if !in_own || ConflictReason::of(error.kind()).is_none() {
                return Err(self.refused(message, &effect, own, error));
            }
            // Somebody handled this message, or another one of the same key, in the meantime.
            before = match self.look(message).await? {
                Ok(before) => before,
                Err(duplicate) => return Ok(duplicate),
            };
        }
        let (id, reason) = (self.state_id(), ConflictReason::Changed);
        let kind = ErrorKind::Conflict(Conflict { id, reason });
        let error = Error::new(kind, self.attempted(message));
        Err(error.because("too many others handle messages of the same key"))
    }

    /// Whether a message with this id was handled, as far back as ids are remembered.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn has_seen(&self, message: &Incoming) -> Result<bool> {
        let id = item_id(&self.record_id(message))?;
        Ok(self.item(message, &id).await?.is_some())
    }

    /// Forgets the numbers seen of a key, so that the next one is the first again. Ids stay.
    ///
    /// For a producer that began to count anew, because its container was created again.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them forgotten or not; call it again.
    pub async fn forget_sequence(&self, key: impl Into<PartitionKey>) -> Result<()> {
        let id = item_id(&self.state_id())?;
        let batch = Batch::new(key.into()).with(Operation::delete(id));
        match self.documents.commit(batch).await {
            Err(error) if error.kind() != millstream_core::ErrorKind::NotFound => {
                let attempted = format!("forget the numbers {:?} has seen", self.consumer);
                Err(Error::store(attempted, error))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads what is known; the outcome if the message was handled.
    async fn look(&self, message: &Incoming) -> Result<Result<Before, Outcome>> {
        if self.has_seen(message).await? {
            return Ok(Err(Outcome::Duplicate { by: DuplicateBy::Id }));
        }
        if message.sequence.is_none() {
            return Ok(Ok(Before { seen: None }));
        }
        let Some(item) = self.item(message, &item_id(&self.state_id())?).await? else {
            return Ok(Ok(Before { seen: None }));
        };
        let seen: Seen =
            serde_json::from_slice(&item.body).map_err(|it| unreadable(&item).because(it))?;
        Ok(Ok(Before { seen: Some((seen, item.etag)) }))
    }

    /// Our own operations; the outcome if the number was seen.
    fn bookkeeping(
        &self,
        message: &Incoming,
        before: &Before,
    ) -> Result<Result<(Order, Batch), Outcome>> {
        let further = [
            ("consumer", quote(&self.consumer)),
            ("messageId", quote(&message.id)),
            ("ttl", seconds(self.keep).to_string()),
        ];
        let id = self.record_id(message);
        let record = self.layout.document(&id, &message.key, TYPE, &further)?;
        let overwrites = self.flaw == Some(Flaw::RecordOverwritten);
        let record = match overwrites {
            false => Operation::create(record),
            true => Operation::upsert(record),
        };
        let batch = Batch::new(message.key.clone()).with(record);
        let Some(number) = message.sequence else {
            return Ok(Ok((Order::Unnumbered, batch)));
        };
        let (order, after) = match judge(before.seen.as_ref().map(|(seen, _)| seen), number) {
            Verdict::Repeated => {
                return Ok(Err(Outcome::Duplicate { by: DuplicateBy::Sequence }));
            }
            Verdict::New(order, after) => (order, after),
        };
        if let (Order::Gap { expected, found }, GapPolicy::Refuse) = (order, self.options.gaps) {
            let kind = ErrorKind::SequenceGap { expected, found };
            let reason = format!("it has number {found} and number {expected} was due");
            return Err(Error::new(kind, self.attempted(message)).because(reason));
        }
        let body = self.state(message, &after)?;
        let operation = match &before.seen {
            _ if overwrites => Operation::upsert(body),
            None => Operation::create(body),
            Some((_, etag)) => {
                Operation::replace(item_id(&self.state_id())?, body).if_match(etag.clone())
            }
        };
        Ok(Ok((order, batch.with(operation))))
    }

    fn state(&self, message: &Incoming, seen: &Seen) -> Result<Bytes> {
        let missing = serde_json::to_string(&seen.missing)
            .map_err(|error| Error::invalid(self.attempted(message), error))?;
        let further = [
            ("consumer", quote(&self.consumer)),
            ("lastSequence", seen.last_sequence.to_string()),
            ("missing", missing),
            // A key that is quiet for long is still expected to go on where it was.
            ("ttl", seconds(TimeToLive::Never).to_string()),
        ];
        self.layout.document(&self.state_id(), &message.key, TYPE, &further)
    }

    fn check_effect(&self, message: &Incoming, effect: &Batch) -> Result<()> {
        if effect.partition_key != message.key {
            let reason = format!(
                "the effect is in partition {} and the message in {}",
                effect.partition_key, message.key
            );
            let error = Error::new(ErrorKind::OtherPartition, self.attempted(message));
            return Err(error.because(reason));
        }
        let operations = effect.operations.len();
        let operations_max = BATCH_OPERATIONS_MAX - OWN_OPERATIONS;
        if operations_max < operations {
            let kind = ErrorKind::TooManyOperations { operations, operations_max };
            let reason = format!("its effect has {operations} operations of {operations_max}");
            return Err(Error::new(kind, self.attempted(message)).because(reason));
        }
        Ok(())
    }

    /// Decides what a failed commit means that is not about our own documents.
    fn refused(
        &self,
        message: &Incoming,
        effect: &Batch,
        own: usize,
        error: millstream_core::Error,
    ) -> Error {
        let attempted = self.attempted(message);
        if error.effect() == Effect::Unknown {
            return Error::new(ErrorKind::Unknown, attempted).because(error);
        }
        let Some(reason) = ConflictReason::of(error.kind()) else {
            return Error::store(attempted, error);
        };
        let place = error.operation().unwrap_or(own).saturating_sub(own);
        let id = effect.operations.get(place).map(target).unwrap_or_default();
        Error::new(ErrorKind::Conflict(Conflict { id, reason }), attempted).because(error)
    }

    async fn item(&self, message: &Incoming, id: &ItemId) -> Result<Option<Item>> {
        let item = self.documents.read(&message.key, id).await;
        item.map_err(|error| Error::store(self.attempted(message), error))
    }

    fn record_id(&self, message: &Incoming) -> String {
        format!("{TYPE}:{}:{}", self.consumer, escaped(&message.id))
    }

    fn state_id(&self) -> String {
        format!("{TYPE}:{}", self.consumer)
    }

    fn attempted(&self, message: &Incoming) -> String {
        format!("handle the message {:?} for {:?}", message.id, self.consumer)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("consumer", &self.consumer)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn item_id(id: &str) -> Result<ItemId> {
    ItemId::new(id).map_err(|error| Error::invalid("use the inbox", error))
}

/// A message id in the form of an item id: what may not stand there becomes `%` and two digits.
fn escaped(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for character in id.chars() {
        match character {
            '%' | '/' | '\\' | '?' | '#' => {
                text.push_str(&format!("%{:02X}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text
}

/// The item an operation touches, as far as it says.
fn target(operation: &Operation) -> String {
    match &operation.kind {
        OperationKind::Create(body) | OperationKind::Upsert(body) => {
            millstream_core::Envelope::scan(body).map(|it| it.id.into()).unwrap_or_default()
        }
        OperationKind::Replace(id, _)
        | OperationKind::Patch(id, _)
        | OperationKind::Delete(id)
        | OperationKind::Read(id) => id.as_str().to_owned(),
    }
}
