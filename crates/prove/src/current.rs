use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_broker::{
    Broker, BrokerOptions, ReceiveSettings, SubscriptionSettings, TopicSettings,
};
use millstream_crash::{Attempt, Error, Result};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{World, unless_exists};

pub(crate) const TOPIC: &str = "accounts";
const SUBSCRIPTION: &str = "projection";
pub(crate) const PATH: &str = "accounts/Subscriptions/projection";
/// How long a session stays with a consumer that was killed.
pub(crate) const LOCK_DURATION: Duration = Duration::from_millis(500);
/// A consumer that is killed all the time must not lose a message to the dead letters.
const DELIVERY_COUNT_MAX: u32 = 2000;

/// The broker that runs now. It can be killed and opened again under those who use it.
pub(crate) struct Current {
    world: Arc<World>,
    running: Mutex<Option<Running>>,
}

struct Running {
    broker: Broker,
    task: JoinHandle<()>,
}

impl Current {
    /// Opens the broker. Unless it detects duplicates, whatever a relay repeats gets to the inbox.
    pub(crate) async fn open(world: &Arc<World>, detects_duplicates: bool) -> Result<Self> {
        let current = Self { world: Arc::clone(world), running: Mutex::new(None) };
        current.restart().await?;
        let broker = current.broker()?;
        let mut topic = TopicSettings::default();
        if !detects_duplicates {
            topic.duplicate_window = None;
        }
        unless_exists(broker.create_topic(TOPIC, topic).await).attempt(|| "create the topic")?;
        let receive = ReceiveSettings {
            lock_duration: LOCK_DURATION,
            delivery_count_max: DELIVERY_COUNT_MAX,
            ..ReceiveSettings::with_sessions()
        };
        let settings = SubscriptionSettings { receive, ..SubscriptionSettings::default() };
        unless_exists(broker.create_subscription(TOPIC, SUBSCRIPTION, settings).await)
            .attempt(|| "create the subscription")?;
        Ok(current)
    }

    /// Drops the broker in the middle of whatever it does, and opens it again.
    pub(crate) async fn restart(&self) -> Result<()> {
        let before = self.lock().take();
        if let Some(Running { task, .. }) = before {
            task.abort();
            // It ends by being aborted, which is what was asked for.
            let _ = task.await;
        }
        let (clock, ids) = (Arc::clone(&self.world.clock), Arc::clone(&self.world.ids));
        let opened = Broker::open(&self.world.broker, BrokerOptions::default(), clock, ids).await;
        let (broker, service) = opened.attempt(|| "open the broker")?;
        let task = tokio::spawn(service.run(CancellationToken::new()));
        *self.lock() = Some(Running { broker, task });
        Ok(())
    }

    /// The broker, unless it is just being opened.
    pub(crate) fn broker(&self) -> Result<Broker> {
        let running = self.lock();
        let running = running.as_ref().ok_or_else(|| Error::new("reach the broker"))?;
        Ok(running.broker.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
