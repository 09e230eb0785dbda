//! A sample entity, a container in memory, and documents that lose requests and replies.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, Container, ContainerName, ContainerSettings, Containers, CountingIds,
    Documents, Error, ErrorKind, Item, ItemId, ManualClock, PageSize, PartitionKey,
    PartitionKeyDefinition, ScanContinuation, ScanPage, ScanScope, TimeToLive, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Coalescing, DomainEvent, Entity, Events, NewEvent, Outbox, OutboxOptions, SoftDelete};

/// The contact of the sample service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Contact {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) email: String,
    #[serde(default)]
    pub(crate) visits: u64,
    pub(crate) deleted: bool,
    #[serde(skip)]
    events: Events,
    /// Where it lives, if not with itself.
    #[serde(skip)]
    pub(crate) moved_to: Option<&'static str>,
}

#[derive(Serialize)]
pub(crate) struct Told {
    #[serde(skip)]
    pub(crate) action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl DomainEvent for Told {
    fn action(&self) -> &str {
        self.action
    }
}

pub(crate) fn told(action: &'static str, text: &str) -> Told {
    Told { action, text: Some(text.to_owned()) }
}

impl Contact {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: "Ada".to_owned(),
            email: "ada@example.com".to_owned(),
            visits: 0,
            deleted: false,
            events: Events::for_new(),
            moved_to: None,
        }
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.name = name.to_owned();
        self.events.raise(told("ContactNameUpdated", name));
    }

    pub(crate) fn set_email(&mut self, email: &str) {
        self.email = email.to_owned();
        self.events.raise(told("ContactEmailUpdated", email));
    }

    /// Changes without an event.
    pub(crate) fn visit(&mut self) {
        self.visits += 1;
    }

    pub(crate) fn tell(&mut self, event: impl Into<NewEvent>) {
        self.events.raise(event);
    }
}

impl Entity for Contact {
    const TYPE: &'static str = "contact";
    const ID_PROPERTY: Option<&'static str> = Some("contactId");

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> PartitionKey {
        // Contacts named "a-1" of one household share the partition "a".
        let household = self.id.split('-').next().unwrap_or_default();
        self.moved_to.unwrap_or(household).into()
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        Some(told("ContactCreated", &self.name).into())
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

impl SoftDelete for Contact {
    fn delete(&mut self) {
        self.deleted = true;
        self.events.raise(Told { action: "ContactDeleted", text: None });
    }
}

/// An entity that keeps every event.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) id: String,
    #[serde(skip)]
    events: Events,
}

impl Journal {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), events: Events::for_new() }
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.events.raise(told("Noted", text));
    }
}

impl Entity for Journal {
    const TYPE: &'static str = "journal";
    const COALESCING: Coalescing = Coalescing::KeepAll;

    fn id(&self) -> &str {
        &self.id
    }

    fn events(&self) -> &Events {
        &self.events
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) container: Container,
    pub(crate) faults: Arc<Faults>,
}

/// What happens to the next commits: `.` nothing, `a` the answer is lost, `r` the request is lost,
/// `d` the store is down, `h` the answer never comes. Then nothing.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    script: Mutex<Vec<char>>,
    pub(crate) commits: AtomicUsize,
    /// Whether bodies are read with numbers as doubles and properties in another order.
    pub(crate) respells: AtomicBool,
}

impl Faults {
    pub(crate) fn plan(&self, script: &str) {
        *self.script.lock().unwrap() = script.chars().rev().collect();
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }
}

struct Faulty {
    documents: Arc<dyn Documents>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Documents for Faulty {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> millstream_core::Result<Option<Item>> {
        let item = self.documents.read(key, id).await?;
        if !self.faults.respells.load(Ordering::Relaxed) {
            return Ok(item);
        }
        Ok(item.map(|it| Item { body: respelled(&it.body).into(), ..it }))
    }

    async fn commit(&self, batch: Batch) -> millstream_core::Result<BatchOutcome> {
        self.faults.commits.fetch_add(1, Ordering::Relaxed);
        let fault = self.faults.script.lock().unwrap().pop().unwrap_or('.');
        let error = Error::new(ErrorKind::Unavailable, "reach the store");
        match fault {
            'a' => {
                self.documents.commit(batch).await?;
                Err(error.with_unknown_effect())
            }
            'h' => {
                self.documents.commit(batch).await?;
                std::future::pending().await
            }
            'r' => Err(error.with_unknown_effect()),
            'd' => Err(error),
            _ => self.documents.commit(batch).await,
        }
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> millstream_core::Result<ScanPage> {
        self.documents.scan(scope, after, size).await
    }
}

fn respelled(body: &[u8]) -> Vec<u8> {
    fn with_doubles(value: Value) -> Value {
        match value {
            Value::Number(number) => Value::from(number.as_f64()),
            Value::Object(properties) => {
                properties.into_iter().map(|(name, it)| (name, with_doubles(it))).collect()
            }
            other @ (Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_)) => other,
        }
    }
    serde_json::to_vec(&with_doubles(serde_json::from_slice(body).unwrap())).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(settings("/partitionKey").default_ttl(TimeToLive::Never))
    }

    pub(crate) fn with(settings: ContainerSettings) -> Self {
        // 2026-02-09T11:07:37.302Z
        let start = Timestamp::from_millis(1_770_635_257_302);
        let clock = Arc::new(ManualClock::starting_at(start));
        let store = Memory::new(clock.clone());
        let name = ContainerName::new("app", "data").unwrap();
        block_on(store.create_database("app")).unwrap();
        block_on(store.create(&name, settings)).unwrap();
        let mut container = block_on(store.open(&name)).unwrap();
        let faults = Arc::new(Faults::default());
        let documents = Arc::clone(&container.documents);
        container.documents = Arc::new(Faulty { documents, faults: Arc::clone(&faults) });
        Self { clock, container, faults }
    }

    pub(crate) fn outbox(&self) -> Outbox {
        self.outbox_with(OutboxOptions::default())
    }

    pub(crate) fn outbox_with(&self, options: OutboxOptions) -> Outbox {
        let ids = Arc::new(CountingIds::default());
        Outbox::new_with(&self.container, self.clock.clone(), ids, options).unwrap()
    }

    /// Stores a contact and its created event.
    pub(crate) async fn stored(&self, outbox: &Outbox, id: &str) {
        let mut unit = outbox.unit();
        unit.create(Contact::new(id)).unwrap();
        unit.commit().await.unwrap();
    }

    /// Every item of a partition by id: events after each other, as ids are counted.
    pub(crate) async fn items(&self, key: &str) -> Vec<Item> {
        let scope = ScanScope::Partition(key.into());
        self.container.documents.scan(&scope, None, PageSize::items(10_000)).await.unwrap().items
    }

    /// The bodies of a partition.
    pub(crate) async fn bodies(&self, key: &str) -> Vec<Value> {
        let items = self.items(key).await;
        items.iter().map(|it| serde_json::from_slice(&it.body).unwrap()).collect()
    }

    /// The actions of the events of a partition, by their numbers.
    pub(crate) async fn actions(&self, key: &str) -> Vec<String> {
        let mut events: Vec<_> =
            self.items(key).await.into_iter().filter(|it| it.sequence.is_some()).collect();
        events.sort_by_key(|it| it.sequence);
        let action = |it: &Item| crate::StoredEvent::read(it).unwrap().action;
        events.iter().map(action).collect()
    }
}

pub(crate) fn settings(path: &str) -> ContainerSettings {
    ContainerSettings::new(PartitionKeyDefinition::hash(path).unwrap())
}
