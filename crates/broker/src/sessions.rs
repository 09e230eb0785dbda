//! Receiving by session, and the ports.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use millstream_core::{
    BoxFuture, Delivery, Error, ErrorKind, Message, PublishLimits, Publisher, Result,
    SessionReceiver, Settlement, Subscriber, Timestamp,
};
use tokio::sync::Notify;

use crate::broker::{Broker, Target};
use crate::options::{SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX};
use crate::outlet::{Source, Unavailable};
use crate::receiving::{ReceiveMode, Received, all_settled, lock_lost};
use crate::shared::Signal;
use crate::stored::{self, item_id};

/// Largest state of a session.
pub const SESSION_STATE_BYTES_MAX: usize = 256 * 1024;

/// A session of a queue or subscription, and the right to receive from it.
#[derive(Debug)]
pub struct BrokerSession {
    broker: Broker,
    target: Target,
    id: Arc<str>,
    lock: u64,
    wake: Arc<Notify>,
}

impl Broker {
    /// Takes the session `id`, or the one whose first message has waited longest; none if there is
    /// none within `wait`. A session that is named can be empty.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path has no sessions; `Locked` if the session that is named has a receiver.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing, or a session whose lock ends by itself.
    pub async fn accept_session(
        &self,
        path: &str,
        id: Option<&str>,
        wait: Duration,
    ) -> Result<Option<BrokerSession>> {
        let target = self.target(path)?;
        let attempted = || format!("accept a session of {path:?}");
        if !Self::has_sessions(&target) {
            return Err(Error::invalid(attempted(), "it has no sessions"));
        }
        let wake = target.cell.state().waker(target.outlet, Signal::Ready);
        let accepted = self.shared.until(&wake, wait, || {
            self.shared.with(&target.cell, |state, now| {
                let (outlet, log) = state.outlet(target.outlet)?;
                match outlet.accept(log, id, now) {
                    Ok((id, lock)) => {
                        let wake = state.waker(target.outlet, Signal::Session(lock));
                        Ok(Some((id, lock, wake)))
                    }
                    Err(Unavailable::None) => Ok(None),
                    Err(Unavailable::Taken) => {
                        let error = Error::new(ErrorKind::Locked, attempted());
                        Err(error.because("the session has another receiver"))
                    }
                }
            })
        });
        let Some((id, lock, wake)) = accepted.await? else { return Ok(None) };
        Ok(Some(BrokerSession { broker: self.clone(), target, id, lock, wake }))
    }

    /// Up to `top` sessions that have messages or a receiver, by name, after the first `skip`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    pub fn session_ids(&self, path: &str, skip: usize, top: usize) -> Result<Vec<String>> {
        let target = self.target(path)?;
        self.shared.with(&target.cell, |state, _| {
            let (outlet, _) = state.outlet(target.outlet)?;
            let names = outlet.session_names().skip(skip).take(top);
            Ok(names.map(|it| it.to_string()).collect())
        })
    }

    /// Sends to a queue or topic, through the port.
    pub fn publisher(&self, entity: impl Into<String>) -> BrokerPublisher {
        BrokerPublisher { broker: self.clone(), entity: entity.into(), is_directed: false }
    }

    /// Sends to one queue or subscription alone, through the port; see [`Broker::send_to_one`].
    pub fn publisher_to_one(&self, path: impl Into<String>) -> BrokerPublisher {
        BrokerPublisher { broker: self.clone(), entity: path.into(), is_directed: true }
    }

    /// Receives sessions of a queue or subscription, through the port.
    pub fn subscriber(&self, path: impl Into<String>) -> BrokerSubscriber {
        BrokerSubscriber { broker: self.clone(), path: path.into() }
    }
}

impl BrokerSession {
    /// Receives up to `messages_max` messages in order; empty if none came within `wait`.
    ///
    /// # Errors
    ///
    /// `PreconditionFailed` if the lock is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave messages locked until the session is given up, or, where they
    /// are deleted, gone.
    pub async fn receive_with(
        &self,
        mode: ReceiveMode,
        messages_max: usize,
        wait: Duration,
    ) -> Result<Vec<Received>> {
        let source = Source::Session(self.lock);
        let attempt = || self.broker.take(&self.target, source, messages_max);
        let taken = self.broker.shared.until(&self.wake, wait, attempt).await?;
        let Some((taken, until)) = taken else { return Ok(Vec::new()) };
        self.broker.deliver(&self.target, taken, until, mode).await
    }

    /// Receives deferred messages of the session by their numbers.
    ///
    /// # Errors
    ///
    /// `NotFound` with the first number that is not deferred in this session or is with somebody;
    /// `PreconditionFailed` if the lock is gone.
    ///
    /// # Cancel safety
    ///
    /// As for [`BrokerSession::receive_with`].
    pub async fn receive_deferred(
        &self,
        mode: ReceiveMode,
        sequence_numbers: &[u64],
    ) -> Result<Vec<Received>> {
        let lock = Some(self.lock);
        let (taken, until) = self.broker.take_deferred(&self.target, lock, sequence_numbers)?;
        self.broker.deliver(&self.target, taken, until, mode).await
    }

    /// Keeps the session for another lock duration and returns until when.
    ///
    /// # Errors
    ///
    /// `PreconditionFailed` if the lock is gone.
    pub fn renew_lock(&self) -> Result<Timestamp> {
        self.broker.shared.with(&self.target.cell, |state, now| {
            let (outlet, log) = state.outlet(self.target.outlet)?;
            outlet.renew_session(log, self.lock, now).map_err(lock_lost)?;
            Ok(now.wall.plus(outlet.settings.lock_duration))
        })
    }

    /// The state of the session: whatever its last receiver left for the next.
    ///
    /// # Errors
    ///
    /// `PreconditionFailed` if the lock is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn state(&self) -> Result<Option<Bytes>> {
        self.check()?;
        let id = item_id(&stored::state_id(self.target.outlet, &self.id));
        let documents = self.broker.shared.documents();
        let item = documents.read(&self.target.cell.partition, &id).await?;
        item.map(|item| stored::unpack_state(&item.body)).transpose()
    }

    /// Leaves a state for the next receiver, or none, and returns when that is durable.
    ///
    /// # Errors
    ///
    /// `TooLarge` beyond 256 KiB; `PreconditionFailed` if the lock is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it set or not.
    pub async fn set_state(&self, state: Option<&[u8]>) -> Result<()> {
        let size = state.map_or(0, <[u8]>::len);
        if SESSION_STATE_BYTES_MAX < size {
            let attempted = format!("set the state of session {:?}", self.id);
            let reason = format!("its {size} bytes exceed the limit of 256 KiB");
            return Err(Error::new(ErrorKind::TooLarge, attempted).because(reason));
        }
        let shared = &self.broker.shared;
        let answer = shared.with(&self.target.cell, |entity, now| {
            let (outlet, log) = entity.outlet(self.target.outlet)?;
            outlet.advance(log, now);
            outlet.session_of(self.lock).map_err(lock_lost)?;
            entity.entity.set_state(self.target.outlet, &self.id, state);
            Ok(entity.when_committed())
        })?;
        shared.answer(answer).await
    }

    /// Settles messages by their lock tokens; for each whether it was settled.
    ///
    /// # Errors
    ///
    /// As for [`Broker::settle_each`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them settled or not.
    pub async fn settle_each(
        &self,
        lock_tokens: &[&str],
        settlement: &Settlement,
    ) -> Result<Vec<bool>> {
        self.broker.settle_target(&self.target, lock_tokens, settlement).await
    }

    /// When the lock ends if it were renewed now; for the answer to a receiver that was just let
    /// in.
    ///
    /// # Errors
    ///
    /// `NotFound` if the subscription was removed.
    pub fn locked_until(&self) -> Result<Timestamp> {
        self.broker.locked_until(&self.target)
    }

    fn check(&self) -> Result<()> {
        self.broker.shared.with(&self.target.cell, |state, now| {
            let (outlet, log) = state.outlet(self.target.outlet)?;
            outlet.advance(log, now);
            outlet.session_of(self.lock).map(|_| ()).map_err(lock_lost)
        })
    }
}

impl SessionReceiver for BrokerSession {
    fn session_id(&self) -> &str {
        &self.id
    }

    fn receive(&self, messages_max: usize, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let received = self.receive_with(ReceiveMode::PeekLock, messages_max, wait).await?;
            Ok(received.into_iter().map(|it| it.delivery).collect())
        })
    }

    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let tokens: Vec<&str> = deliveries.iter().map(|it| it.lock_token.as_str()).collect();
            all_settled(&self.settle_each(&tokens, &settlement).await?)
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.renew_lock().map(|_| ()) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.broker.shared.with(&self.target.cell, |state, now| {
                let (outlet, log) = state.outlet(self.target.outlet)?;
                outlet.close_session(log, self.lock, now).map_err(lock_lost)
            })
        })
    }
}

/// A queue or topic, or one subscription, as a [`Publisher`].
#[derive(Clone, Debug)]
pub struct BrokerPublisher {
    broker: Broker,
    entity: String,
    is_directed: bool,
}

#[async_trait]
impl Publisher for BrokerPublisher {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: self.broker.shared.options.message_bytes_max,
            batch_bytes_max: SEGMENT_BYTES_MAX,
            batch_messages_max: SEGMENT_MESSAGES_MAX,
        }
    }

    fn can_schedule(&self) -> bool {
        true
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        let sent = match self.is_directed {
            true => self.broker.send_to_one(&self.entity, messages).await,
            false => self.broker.send(&self.entity, messages).await,
        };
        sent.map(drop)
    }
}

/// A queue or subscription with sessions as a [`Subscriber`].
#[derive(Clone, Debug)]
pub struct BrokerSubscriber {
    broker: Broker,
    path: String,
}

#[async_trait]
impl Subscriber for BrokerSubscriber {
    async fn accept_session(&self, wait: Duration) -> Result<Option<Box<dyn SessionReceiver>>> {
        let session = self.broker.accept_session(&self.path, None, wait).await?;
        let Some(session) = session else { return Ok(None) };
        Ok(Some(Box::new(session)))
    }
}
