//! All parts on a store in memory, with a clock that stands still unless it is moved.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use millstream_broker::{Broker, BrokerOptions};
use millstream_core::memory::Memory;
use millstream_core::{
    Clock, Container, ContainerName, ContainerSettings, Containers, CountingIds, Error, ErrorKind,
    ManualClock, Message, PageSize, PartitionKey, PartitionKeyDefinition, PublishLimits, Publisher,
    Result, ScanScope, TimeToLive, Timestamp,
};
use millstream_outbox::{
    DomainEvent, Entity, Events, NewEvent, Outbox, OutboxOptions, TraceContext,
};
use millstream_processor::{DeadLetters, Notification};
use millstream_relay::{Relay, StartedRelay};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
const RELAY: &str = "relay";

/// An entity with a text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Thing {
    id: String,
    pub(crate) text: String,
    #[serde(skip)]
    events: Events,
}

#[derive(Serialize)]
struct Changed {
    text: String,
}

impl DomainEvent for Changed {
    fn action(&self) -> &'static str {
        "Changed"
    }
}

impl Entity for Thing {
    const TYPE: &'static str = "thing";

    fn id(&self) -> &str {
        &self.id
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        Some(Changed { text: self.text.clone() }.into())
    }
}

/// A publisher that keeps what it takes.
const BATCH_MESSAGES_MAX: usize = 4;

pub(crate) struct Limited {
    message_bytes_max: usize,
    expected: usize,
    taken: Mutex<Vec<Message>>,
    refusals: Mutex<usize>,
    done: CancellationToken,
}

impl Limited {
    /// Takes messages of at most so many bytes, and in one call twice as many bytes; is done with
    /// so many messages.
    pub(crate) fn new(message_bytes_max: usize, expected: usize) -> Arc<Self> {
        Arc::new(Self {
            message_bytes_max,
            expected,
            taken: Mutex::default(),
            refusals: Mutex::default(),
            done: CancellationToken::new(),
        })
    }

    pub(crate) fn taken(&self) -> Vec<Message> {
        self.taken.lock().unwrap().clone()
    }

    /// Calls with a message, or with messages together, that were too large.
    pub(crate) fn refusals(&self) -> usize {
        *self.refusals.lock().unwrap()
    }
}

#[async_trait]
impl Publisher for Limited {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: self.message_bytes_max,
            batch_bytes_max: 2 * self.message_bytes_max,
            batch_messages_max: BATCH_MESSAGES_MAX,
        }
    }

    fn can_schedule(&self) -> bool {
        false
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        if let Some(large) = messages.iter().position(|it| self.message_bytes_max < it.size()) {
            *self.refusals.lock().unwrap() += 1;
            return Err(Error::new(ErrorKind::TooLarge, "publish").at_operation(large));
        }
        let bytes: usize = messages.iter().map(Message::size).sum();
        if BATCH_MESSAGES_MAX < messages.len() || self.limits().batch_bytes_max < bytes {
            *self.refusals.lock().unwrap() += 1;
            return Err(Error::new(ErrorKind::TooLarge, "publish"));
        }
        let mut taken = self.taken.lock().unwrap();
        taken.extend(messages);
        if self.expected <= taken.len() {
            self.done.cancel();
        }
        Ok(())
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) effects: Container,
    data: Container,
    leases: Container,
    messages: Container,
    ids: Arc<CountingIds>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let start = Timestamp::from_millis(1_770_635_257_302);
        let clock = Arc::new(ManualClock::starting_at(start));
        let store = Memory::new(clock.clone());
        store.create_database("app").await.unwrap();
        let key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
        let plain = ContainerSettings::new(key);
        let expiring = plain.clone().default_ttl(TimeToLive::Never);
        let mut opened = Vec::new();
        let all = [("data", &expiring), ("leases", &plain), ("messages", &plain)];
        for (name, settings) in all.into_iter().chain([("effects", &expiring)]) {
            let name = ContainerName::new("app", name).unwrap();
            store.create(&name, settings.clone()).await.unwrap();
            opened.push(store.open(&name).await.unwrap());
        }
        let [data, leases, messages, effects] = <[Container; 4]>::try_from(opened).unwrap();
        Self { clock, effects, data, leases, messages, ids: Arc::default() }
    }

    pub(crate) fn outbox(&self, trace: Option<TraceContext>) -> Outbox {
        let mut options = OutboxOptions::default();
        if let Some(trace) = trace {
            options = options.trace(move || trace.clone());
        }
        Outbox::new_with(&self.data, self.clock.clone(), self.ids.clone(), options).unwrap()
    }

    pub(crate) fn thing(&self, id: &str) -> Thing {
        Thing { id: id.to_owned(), text: String::new(), events: Events::for_new() }
    }

    /// Creates the thing, or changes it, with one event.
    pub(crate) async fn commit(&self, key: &str, text: &str, trace: Option<TraceContext>) {
        let outbox = self.outbox(trace);
        let mut unit = outbox.unit();
        match unit.read::<Thing>(key, key).await.unwrap() {
            Some(mut found) => {
                text.clone_into(&mut found.entity.text);
                found.entity.events.raise(Changed { text: text.to_owned() });
                unit.update(found.entity, found.etag).unwrap();
            }
            None => {
                let thing = Thing { text: text.to_owned(), ..self.thing(key) };
                unit.create(thing).unwrap();
            }
        }
        unit.commit().await.unwrap();
    }

    pub(crate) async fn started(&self, publisher: &Arc<Limited>) -> StartedRelay {
        let relay = Relay::new(&self.data, &self.leases, RELAY)
            .instance("one")
            .clock(self.clock.clone())
            .ids(self.ids.clone())
            .predecessor_is_dead();
        relay.start(publisher.clone()).await.unwrap()
    }

    /// Relays until the publisher has what it expects and so many keys were parked.
    pub(crate) async fn relay(&self, publisher: &Arc<Limited>, parked: usize) {
        let mut started = self.started(publisher).await;
        let mut notifications = started.notifications();
        let stop = CancellationToken::new();
        let watch = async {
            let mut seen = 0;
            while seen < parked {
                let Some(notification) = notifications.next().await else { break };
                seen += usize::from(matches!(notification, Notification::Parked { .. }));
            }
            publisher.done.cancelled().await;
            stop.cancel();
        };
        let both = async { tokio::join!(watch, started.run(stop.clone())).1 };
        tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
    }

    pub(crate) fn letters(&self) -> DeadLetters {
        let clock: Arc<dyn Clock> = self.clock.clone();
        DeadLetters::new(&self.leases, RELAY, clock, PATIENCE).unwrap()
    }

    /// Does something with a broker.
    pub(crate) async fn with_broker(&self, work: impl AsyncFnOnce(&Broker)) {
        let options = BrokerOptions::default();
        let opened =
            Broker::open(&self.messages, options, self.clock.clone(), self.ids.clone()).await;
        let (broker, service) = opened.unwrap();
        let shutdown = CancellationToken::new();
        let work = async {
            work(&broker).await;
            shutdown.cancel();
        };
        let both = async { tokio::join!(work, service.run(shutdown.clone())) };
        tokio::time::timeout(PATIENCE, both).await.unwrap();
    }

    /// How many documents a key has.
    pub(crate) async fn documents(&self, key: &str) -> usize {
        let scope = ScanScope::Partition(PartitionKey::from(key));
        self.data.documents.scan(&scope, None, PageSize::items(100)).await.unwrap().items.len()
    }
}
