//! A store, the broker in it as in the program, and the relay between them.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use millstream_broker::{
    Broker, BrokerOptions, BrokerPublisher, SubscriptionSettings, TopicSettings,
};
use millstream_core::{
    Batch, Clock, Container, Error, Message, Operation, PropertyValue, PublishLimits, Publisher,
    RandomIds, SystemClock,
};
use millstream_relay::{Relay, RelayMonitor};
use millstream_store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Result,
    documents::{create, create_divided},
    measure::Stopwatch,
    store,
    workload::{EVENT_BYTES, ITEM_BYTES, Random},
};

/// More ranges than cores, as a container that was split has.
const RANGES: u32 = 4;
const TOPIC: &str = "events";
const SUBSCRIPTION: &str = "bench";
/// Where the subscriber receives.
pub(super) const PATH: &str = "events/Subscriptions/bench";
/// Keys of a run; one of them is the poisoned one.
pub(super) const KEYS: u64 = 10_000;
/// The key that is refused, if one is.
pub(super) const POISONED: u64 = 0;

/// What is measured.
pub(super) struct Stage {
    pub(super) data: Container,
    pub(super) broker: Broker,
    pub(super) publisher: Arc<Checked>,
    leases: Container,
    messages: Container,
    relay: Option<JoinHandle<millstream_processor::Result<()>>>,
    service: JoinHandle<()>,
    shutdown: CancellationToken,
    _store: Store,
}

/// The broker, which may refuse a key. Sees that the events of each key come in order.
pub(super) struct Checked {
    inner: BrokerPublisher,
    /// Whether the events of the poisoned key are refused.
    pub(super) poisoned: AtomicBool,
    /// The number of the last event of each key of the run.
    last: Vec<AtomicU64>,
    /// Events that came out of order.
    pub(super) disordered: AtomicU64,
}

impl Stage {
    /// Opens the store. Nothing is relayed yet.
    pub(super) async fn open(directory: &Path) -> Result<Self> {
        Self::open_with(directory, SubscriptionSettings::default()).await
    }

    /// The same with a subscription whose messages are received a session at a time.
    pub(super) async fn open_with_sessions(directory: &Path) -> Result<Self> {
        Self::open_with(directory, SubscriptionSettings::with_sessions()).await
    }

    async fn open_with(directory: &Path, settings: SubscriptionSettings) -> Result<Self> {
        let store = store::open(&directory.join("store"))?;
        let data = create_divided(&store, "items", RANGES).await?;
        let leases = create(&store, "leases").await?;
        let messages = create(&store, "messages").await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let (broker, service) =
            Broker::open(&messages, BrokerOptions::default(), clock, ids).await?;
        let shutdown = CancellationToken::new();
        let service = tokio::spawn(service.run(shutdown.child_token()));
        broker.create_topic(TOPIC, TopicSettings::default()).await?;
        broker.create_subscription(TOPIC, SUBSCRIPTION, settings).await?;
        let publisher = Arc::new(Checked {
            inner: broker.publisher(TOPIC),
            poisoned: AtomicBool::new(false),
            last: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            disordered: AtomicU64::new(0),
        });
        Ok(Self {
            data,
            broker,
            publisher,
            leases,
            messages,
            relay: None,
            service,
            shutdown,
            _store: store,
        })
    }

    /// Begins to relay from the beginning, with default options.
    pub(super) async fn start_relay(&mut self) -> Result<RelayMonitor> {
        let relay = Relay::new(&self.data, &self.leases, "relay")
            .instance("bench")
            .spawn_with(|task| drop(tokio::spawn(task)));
        let publisher: Arc<dyn Publisher> = self.publisher.clone();
        let started = relay.start(publisher).await?;
        let monitor = started.monitor();
        self.relay = Some(tokio::spawn(started.run(self.shutdown.child_token())));
        Ok(monitor)
    }

    /// Stops everything.
    pub(super) async fn close(self) -> Result<()> {
        self.shutdown.cancel();
        if let Some(relay) = self.relay {
            relay.await??;
        }
        self.service.await?;
        Ok(())
    }

    /// Stops everything, opens the broker again with all that it keeps, and returns how long that
    /// took and how many messages it has.
    pub(super) async fn reopen_broker(self) -> Result<(Duration, usize)> {
        let (messages, store) = (self.messages.clone(), self._store.clone());
        self.close().await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let stopwatch = Stopwatch::start();
        let opened = Broker::open(&messages, BrokerOptions::default(), clock, ids).await?;
        let elapsed = stopwatch.elapsed();
        let counts = opened.0.counts(PATH)?;
        drop((opened, store));
        Ok((elapsed, counts.active))
    }

    /// Fails if an event came to the broker before an earlier one of its key.
    pub(super) fn check_order(&self) -> Result<()> {
        match self.publisher.disordered.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => Err(format!("{count} events came out of order").into()),
        }
    }
}

impl Checked {
    /// Begins a run, whose keys were never used.
    pub(super) fn begin(&self, poisoned: bool) {
        self.poisoned.store(poisoned, Ordering::Relaxed);
        self.last.iter().for_each(|it| it.store(0, Ordering::Relaxed));
    }

    /// Notes what the broker has taken. A repetition is allowed, a gap is not.
    fn note(&self, keys: &[(usize, u64)]) {
        for (key, sequence) in keys {
            let last = &self.last[*key];
            if last.load(Ordering::Relaxed) + 1 < *sequence {
                self.disordered.fetch_add(1, Ordering::Relaxed);
            }
            last.fetch_max(*sequence, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Publisher for Checked {
    fn limits(&self) -> PublishLimits {
        self.inner.limits()
    }

    fn can_schedule(&self) -> bool {
        self.inner.can_schedule()
    }

    async fn publish(&self, messages: Vec<Message>) -> millstream_core::Result<()> {
        let keys: Vec<(usize, u64)> = messages.iter().filter_map(key_and_sequence).collect();
        if self.poisoned.load(Ordering::Relaxed) {
            let is_poisoned = |it: &Message| key_and_sequence(it).is_some_and(|it| it.0 == 0);
            if let Some(refused) = messages.iter().position(is_poisoned) {
                let error = Error::invalid("publish an event", "its key is poisoned");
                return Err(error.at_operation(refused));
            }
        }
        self.inner.publish(messages).await?;
        self.note(&keys);
        Ok(())
    }
}

/// The number of the key, and of the event among those of its key.
pub(super) fn key_and_sequence(message: &Message) -> Option<(usize, u64)> {
    let (_, key) = message.session_id.as_deref()?.split_once('-')?;
    let PropertyValue::Integer(number) = message.properties.get("sequence")? else { return None };
    Some((key.parse().ok()?, u64::try_from(*number).ok()?))
}

/// One commit: an item, and events of the same key with these numbers.
pub(super) fn commit(
    run: u64,
    key: u64,
    events: std::ops::Range<u64>,
    random: &mut Random,
) -> Batch {
    let partition = format!("{run}-{key}");
    let start =
        format!(r#"{{"id":"item","partitionKey":"{partition}","type":"contact","data":{{"text":""#);
    let mut batch = Batch::new(partition.as_str())
        .with(Operation::upsert(random.filled(start, ITEM_BYTES, "\"}}")));
    for event in events {
        let start = format!(
            r#"{{"id":"event-{event}","partitionKey":"{partition}","type":"domainEvent","action":"Changed","entityId":"item","createdAt":"2026-11-15T10:00:00.000Z","data":{{"text":""#
        );
        batch = batch.with(Operation::create(random.filled(start, EVENT_BYTES, "\"}}")));
    }
    batch
}

/// The number of an event, from the id of its message.
pub(super) fn event_number(message: &Message) -> Option<u64> {
    message.id.strip_prefix("event-")?.parse().ok()
}
