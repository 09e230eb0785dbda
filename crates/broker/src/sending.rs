//! Sending, scheduling and cancelling.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Error, ErrorKind, Message, Result, Timestamp};

use crate::broker::Broker;
use crate::codec::{encode_message, id_hash};
use crate::entity::SendOutcome;
use crate::log::Encoded;
use crate::routes::Routes;
use crate::shared::{EntityCell, EntityState};

/// When to try again where too much waits.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl Broker {
    /// Sends messages to a queue or topic and returns when they are durable.
    ///
    /// They are kept in the order of the call, after those of every call that returned before, and
    /// together with those of calls that are under way. More than a segment holds (1000 messages
    /// or 1.25 MiB) goes into several, in order. A message whose id came within the duplicate
    /// detection window is accepted and dropped. One with `scheduled_at` is kept back until then
    /// and delivered as if it had been sent at that time.
    ///
    /// # Errors
    ///
    /// `Invalid` or `TooLarge` with the message ([`Error::operation`]), nothing is kept then.
    /// `Overloaded` if the entity keeps or holds too much, nothing is kept then. `Unavailable` if
    /// the store fails; any number of messages from the first on may be kept. Sending again with
    /// the same ids is safe while duplicates are detected.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave any number of the messages kept.
    pub async fn send(&self, entity: &str, messages: Vec<Message>) -> Result<SendOutcome> {
        let cell = self.shared.cell(&entity.trim_start_matches('/').to_ascii_lowercase())?;
        self.send_into(&cell, None, messages).await
    }

    /// Sends messages to one queue or subscription of a topic, and to nobody else: what the other
    /// subscriptions have got, one gets again.
    ///
    /// The rules of the subscription are asked as always. Duplicate detection is not: messages are
    /// taken although their ids came before, and their ids do not keep later messages out, which
    /// all subscriptions are to get. Everything else is as for [`Broker::send`].
    ///
    /// # Errors
    ///
    /// As for [`Broker::send`]; `Invalid` if the path names a topic or dead letters.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::send`].
    pub async fn send_to_one(&self, path: &str, messages: Vec<Message>) -> Result<SendOutcome> {
        let target = self.target(path)?;
        if target.dead_letters {
            let reason = "messages become dead letters, they are not sent there";
            return Err(Error::invalid(format!("send to {path:?}"), reason));
        }
        self.send_into(&target.cell, Some(target.outlet), messages).await
    }

    async fn send_into(
        &self,
        cell: &Arc<EntityCell>,
        only: Option<u16>,
        messages: Vec<Message>,
    ) -> Result<SendOutcome> {
        let shared = &self.shared;
        let routes = Arc::clone(&cell.state().routes);
        let mut encoded = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let one = self.encode(message, &routes, only);
            encoded.push(one.map_err(|error| error.at_operation(index))?);
        }
        drop(messages);
        if encoded.is_empty() {
            return Ok(SendOutcome::default());
        }
        let answer = shared.with(cell, |state, _| {
            self.check_room(state, &encoded)?;
            Ok(state.send(encoded))
        })?;
        shared.answer(answer).await
    }

    /// Sends messages that are delivered from `at` on, and returns their numbers, by which they can
    /// be cancelled until then; none for a duplicate.
    ///
    /// # Errors
    ///
    /// As for [`Broker::send`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::send`].
    pub async fn schedule(
        &self,
        entity: &str,
        mut messages: Vec<Message>,
        at: Timestamp,
    ) -> Result<Vec<Option<u64>>> {
        for message in &mut messages {
            message.scheduled_at = Some(at);
        }
        Ok(self.send(entity, messages).await?.sequence_numbers)
    }

    /// Removes scheduled messages before their time has come: all of them or none.
    ///
    /// # Errors
    ///
    /// `NotFound` with the first number that is not scheduled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them cancelled or not.
    pub async fn cancel_scheduled(&self, entity: &str, sequence_numbers: &[u64]) -> Result<()> {
        let shared = &self.shared;
        let cell = shared.cell(&entity.to_ascii_lowercase())?;
        let answer = shared.with(&cell, |state, now| {
            let cancelled = state.entity.cancel_scheduled(sequence_numbers, now);
            cancelled.map_err(|number| {
                let attempted = format!("cancel message {number} of {entity:?}");
                let error = Error::new(ErrorKind::NotFound, attempted);
                error.because("there is no scheduled message with this number")
            })?;
            Ok(state.when_committed())
        })?;
        shared.answer(answer).await
    }

    fn encode(&self, message: &Message, routes: &Routes, only: Option<u16>) -> Result<Encoded> {
        message.check()?;
        let (size, bytes_max) = (message.size(), self.shared.options.message_bytes_max);
        let attempted = || format!("send the message {:?}", message.id);
        if bytes_max < size {
            let reason = format!("its {size} bytes exceed the limit of {bytes_max}");
            return Err(Error::new(ErrorKind::TooLarge, attempted()).because(reason));
        }
        if routes.requires_session && message.session_id.is_none() {
            let reason = "the queue requires sessions and the message has none";
            return Err(Error::invalid(attempted(), reason));
        }
        let wanted_by = match only {
            Some(outlet) => routes.wanted_by_one(outlet, message),
            None => routes.wanted_by(message),
        };
        let mut bytes = Vec::with_capacity(size);
        if wanted_by.is_empty() {
            // Only its id counts.
            let empty = Message::new(message.id.clone(), "");
            encode_message(&empty, only.is_some(), &mut bytes);
        } else {
            encode_message(message, only.is_some(), &mut bytes);
        }
        let hash = only.is_none().then(|| id_hash(&message.id));
        Ok(Encoded { hash, bytes, wanted_by })
    }

    fn check_room(&self, state: &EntityState, messages: &[Encoded]) -> Result<()> {
        let options = &self.shared.options;
        let (entity, name) = (&state.entity, &state.document.name);
        let bytes: usize = messages.iter().map(|it| it.bytes.len()).sum();
        let reason = if options.messages_max < entity.messages() + messages.len() {
            format!("it keeps {} messages of at most {}", entity.messages(), options.messages_max)
        } else if 0 < entity.pending_bytes
            && options.pending_bytes_max < entity.pending_bytes + bytes
        {
            format!("{} bytes wait for its next commits already", entity.pending_bytes)
        } else {
            return Ok(());
        };
        let error = Error::new(ErrorKind::Overloaded, format!("send to {name:?}"));
        Err(error.because(reason).with_retry_after(RETRY_AFTER))
    }
}
