//! A subscription in memory that repeats and loses what a broker may.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    BoxFuture, Delivery, Error, ErrorKind, Message, Result, SessionReceiver, Settlement,
    Subscriber, Timestamp,
};
use millstream_outbox::StoredEvent;
use tokio_util::sync::CancellationToken;

/// Clones share their messages.
#[derive(Clone, Default)]
pub(crate) struct Subscription {
    state: Arc<Mutex<State>>,
    /// Cancelled when nothing is left.
    pub(crate) drained: CancellationToken,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<String, VecDeque<(Message, u32)>>,
    locked: BTreeSet<String>,
    /// Settlements to lose: they fail, and the messages stay.
    lost_settlements: usize,
    failing_accepts: usize,
    completed: Vec<String>,
    dead: Vec<(String, String)>,
    deliveries: usize,
}

impl Subscription {
    pub(crate) fn add(&self, message: Message) {
        let session = message.session_id.clone().unwrap_or_default();
        self.lock().sessions.entry(session).or_default().push_back((message, 0));
    }

    pub(crate) fn lose_settlements(&self, count: usize) {
        self.lock().lost_settlements = count;
    }

    pub(crate) fn fail_accepts(&self, count: usize) {
        self.lock().failing_accepts = count;
    }

    /// The ids that were completed, in order.
    pub(crate) fn completed(&self) -> Vec<String> {
        self.lock().completed.clone()
    }

    /// The ids of the dead letters, each with its reason.
    pub(crate) fn dead(&self) -> Vec<(String, String)> {
        self.lock().dead.clone()
    }

    pub(crate) fn deliveries(&self) -> usize {
        self.lock().deliveries
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

#[async_trait]
impl Subscriber for Subscription {
    async fn accept_session(&self, _: Duration) -> Result<Option<Box<dyn SessionReceiver>>> {
        tokio::task::yield_now().await;
        let mut state = self.lock();
        if 0 < state.failing_accepts {
            state.failing_accepts -= 1;
            return Err(Error::new(ErrorKind::Unavailable, "accept a session"));
        }
        if state.sessions.values().all(VecDeque::is_empty) {
            self.drained.cancel();
            return Ok(None);
        }
        let open = state.sessions.iter().filter(|(_, messages)| !messages.is_empty());
        let open = open.map(|(id, _)| id).find(|it| !state.locked.contains(*it)).cloned();
        let Some(id) = open else {
            return Ok(None);
        };
        state.locked.insert(id.clone());
        drop(state);
        Ok(Some(Box::new(Receiver { subscription: self.clone(), id })))
    }
}

struct Receiver {
    subscription: Subscription,
    id: String,
}

impl SessionReceiver for Receiver {
    fn session_id(&self) -> &str {
        &self.id
    }

    fn receive(&self, messages_max: usize, _: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        let mut state = self.subscription.lock();
        let mut deliveries = Vec::new();
        let messages = state.sessions.get_mut(&self.id).into_iter().flatten();
        for (number, (message, count)) in messages.take(messages_max).enumerate() {
            *count += 1;
            deliveries.push(Delivery {
                message: message.clone(),
                sequence_number: u64::try_from(number).unwrap(),
                delivery_count: *count,
                enqueued_at: Timestamp::EPOCH,
                lock_token: format!("{}:{count}", message.id),
            });
        }
        state.deliveries += deliveries.len();
        Box::pin(async move { Ok(deliveries) })
    }

    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>> {
        let mut state = self.subscription.lock();
        if 0 < state.lost_settlements {
            state.lost_settlements -= 1;
            let error = Error::new(ErrorKind::PreconditionFailed, "settle the messages");
            return Box::pin(async { Err(error) });
        }
        for delivery in deliveries.iter().filter(|_| settlement != Settlement::Abandon) {
            let id = &delivery.message.id;
            let session = state.sessions.get_mut(&self.id).unwrap();
            let place = session.iter().position(|(message, _)| message.id == *id).unwrap();
            session.remove(place);
            if let Settlement::DeadLetter { reason, .. } = &settlement {
                state.dead.push((id.clone(), reason.clone()));
            } else {
                state.completed.push(id.clone());
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn renew(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.subscription.lock().locked.remove(&self.id);
        Box::pin(async { Ok(()) })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The lock of a receiver that went away ends by itself.
        self.subscription.lock().locked.remove(&self.id);
    }
}

/// The message that a relay makes of an event.
pub(crate) fn message(event: &StoredEvent) -> Message {
    let number = i64::try_from(event.sequence.unwrap()).unwrap();
    Message::new(event.id.to_string(), event.data.as_str().to_owned())
        .session(event.entity_id.as_str())
        .subject(event.action.as_str())
        .content_type("application/json")
        .property("sequence", number)
}
