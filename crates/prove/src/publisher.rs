use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use millstream_broker::{MESSAGE_BYTES_LIMIT, SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX};
use millstream_core::{Error, ErrorKind, Message, PublishLimits, Publisher, Result};
use millstream_crash::Random;

use crate::account::Counted;
use crate::mutant::Mutant;
use crate::remote::RemoteBroker;
use crate::service::POISONED;

/// In a storm one call in so many has no answer although part or all of it was kept.
const LOST_ANSWERS: u64 = 25;
/// From this event on the poisoned key is refused, so that some went through before.
const POISONED_FROM: u64 = 3;
/// How long the mutant that acknowledges early takes to publish.
const EARLY: Duration = Duration::from_millis(20);

/// How the way to the broker is.
pub(crate) struct Weather {
    /// Whether answers get lost.
    pub(crate) stormy: AtomicBool,
    /// Whether nothing gets through.
    pub(crate) outage: AtomicBool,
    /// Whether the poisoned key is refused.
    pub(crate) poisoned: AtomicBool,
    random: Mutex<Random>,
}

/// The broker, and what can go wrong on the way to it.
#[derive(Clone)]
pub(crate) struct UnreliablePublisher {
    pub(crate) broker: RemoteBroker,
    pub(crate) weather: Arc<Weather>,
    pub(crate) mutant: Option<Mutant>,
}

impl Weather {
    pub(crate) fn new(stormy: bool, seed: u64) -> Self {
        Self {
            stormy: AtomicBool::new(stormy),
            outage: AtomicBool::new(false),
            poisoned: AtomicBool::new(true),
            random: Mutex::new(Random::new(seed)),
        }
    }

    /// How many of the messages are kept before the answer is lost; none if it is not lost.
    fn answer_lost_after(&self, messages: usize) -> Option<usize> {
        if !self.stormy.load(Ordering::Relaxed) {
            return None;
        }
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if !random.one_in(LOST_ANSWERS) {
            return None;
        }
        let messages = u64::try_from(messages).unwrap_or(u64::MAX);
        usize::try_from(random.below(messages.saturating_add(1))).ok()
    }
}

#[async_trait]
impl Publisher for UnreliablePublisher {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: MESSAGE_BYTES_LIMIT,
            batch_bytes_max: SEGMENT_BYTES_MAX,
            batch_messages_max: SEGMENT_MESSAGES_MAX,
        }
    }

    fn can_schedule(&self) -> bool {
        false
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        if self.mutant == Some(Mutant::AcknowledgeEarly) {
            let publisher = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(EARLY).await;
                // The flaw: nobody hears of a failure.
                let _ = publisher.publish_truly(messages).await;
            });
            return Ok(());
        }
        self.publish_truly(messages).await
    }
}

impl UnreliablePublisher {
    async fn publish_truly(&self, mut messages: Vec<Message>) -> Result<()> {
        if self.weather.outage.load(Ordering::Relaxed) {
            return Err(unreachable());
        }
        if self.weather.poisoned.load(Ordering::Relaxed)
            && let Some(refused) = messages.iter().position(is_poisoned)
        {
            let error = Error::invalid("publish an event", "it is poisoned");
            return Err(error.at_operation(refused));
        }
        let lost = self.weather.answer_lost_after(messages.len());
        if let Some(kept) = lost {
            messages.truncate(kept);
        }
        if self.mutant == Some(Mutant::Reversed) {
            messages.reverse();
        }
        self.broker.publish(&messages).await?;
        match lost {
            Some(_) => Err(unreachable().with_unknown_effect()),
            None => Ok(()),
        }
    }
}

/// The version that an event tells; none if it is not one of ours.
pub(crate) fn version(message: &Message) -> Option<u64> {
    serde_json::from_slice::<Counted>(&message.body).ok().map(|it| it.version)
}

fn is_poisoned(message: &Message) -> bool {
    message.session_id.as_deref() == Some(POISONED)
        && version(message).is_none_or(|it| POISONED_FROM <= it)
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unavailable, "reach the broker")
}
