//! A store with a feed, a container of foreign leases and one of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, Clock, Container, ContainerName, ContainerSettings, Containers,
    Continuation, Documents, Error as CoreError, ErrorKind as CoreErrorKind, FeedMode, Item,
    ItemId, KeyRange, ManualClock, Operation, PageSize, PartitionKey, PartitionKeyDefinition,
    RangeInfo, ScanContinuation, ScanPage, ScanScope, Timestamp,
};
use serde_json::{Value, json};

use crate::foreign::{Export, ForeignForm, Import};
use crate::lease_store::{LeaseStore, Listing};

pub(super) const PREFIX: &str = "billingexample.documents.azure.com_bf8uAA==_bf8uALgoqxk=";
pub(super) const RID: &str = "bf8uALgoqxk=";
pub(super) const PROCESSOR: &str = "billing";

pub(super) struct Scene {
    pub(super) store: Memory,
    pub(super) clock: Arc<ManualClock>,
    pub(super) feed: Container,
    pub(super) old: Container,
    pub(super) ours: Container,
}

impl Scene {
    /// A feed of so many ranges, and foreign leases in a container partitioned by `/id`.
    pub(super) fn new(ranges: u32) -> Self {
        Self::with_leases_by(ranges, "/id")
    }

    pub(super) fn with_leases_by(ranges: u32, path: &str) -> Self {
        // 2026-08-07T10:00:00Z
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_786_096_800_000)));
        let store = Memory::new(clock.clone());
        block_on(store.create_database("app")).unwrap();
        let make = |name: &str, path: &str, ranges| {
            let settings = ContainerSettings::new(PartitionKeyDefinition::hash(path).unwrap())
                .ranges(ranges)
                .all_versions_retention(Duration::from_secs(3_600));
            block_on(store.create(&name_of(name), settings)).unwrap();
            block_on(store.open(&name_of(name))).unwrap()
        };
        let feed = make("orders", "/customer", ranges);
        let (old, ours) = (make("old", path, 1), make("leases", "/id", 1));
        Self { store, clock, feed, old, ours }
    }

    pub(super) fn import(&self) -> Import {
        Import::new(&self.old, &self.feed, &self.ours, PROCESSOR, PREFIX)
            .clock(self.clock.clone())
            .expected_rid(RID)
    }

    pub(super) fn export(&self, form: ForeignForm) -> Export {
        Export::new(&self.feed, &self.ours, PROCESSOR, &self.old, PREFIX, form)
            .clock(self.clock.clone())
    }

    pub(super) fn ranges(&self) -> Vec<RangeInfo> {
        block_on(self.feed.feed.ranges()).unwrap()
    }

    pub(super) fn split(&self, place: usize) -> Vec<RangeInfo> {
        let id = self.ranges()[place].id;
        block_on(self.store.split(&name_of("orders"), id, None)).unwrap()
    }

    pub(super) fn merge(&self, place: usize) -> RangeInfo {
        let ranges = self.ranges();
        let (left, right) = (ranges[place].id, ranges[place + 1].id);
        block_on(self.store.merge(&name_of("orders"), left, right)).unwrap()
    }

    /// Writes orders of so many customers; they spread over the ranges.
    pub(super) fn write_orders(&self, customers: std::ops::Range<u32>) {
        for customer in customers {
            let body = json!({ "id": "order", "customer": format!("customer-{customer}") });
            let batch = Batch::new(format!("customer-{customer}"))
                .with(Operation::upsert(body.to_string()));
            block_on(self.feed.documents.commit(batch)).unwrap();
        }
    }

    /// The customers whose orders come after a position.
    pub(super) fn read(&self, keys: &KeyRange, position: &Continuation) -> Vec<String> {
        let read = self.feed.feed.read(keys, position, PageSize::items(10_000));
        let page = block_on(read).unwrap();
        page.changes.iter().map(|it| it.partition_key.to_string()).collect()
    }

    /// The etag up to which all changes of a range lie now.
    pub(super) fn newest(&self, keys: &KeyRange) -> u64 {
        let from = millstream_core::StartFrom::Beginning;
        let start = block_on(self.feed.feed.start(keys, from, FeedMode::LatestVersion)).unwrap();
        let read = self.feed.feed.read(keys, &start, PageSize::items(10_000));
        block_on(read).unwrap().newest.as_u64()
    }

    /// Stores documents of another processor.
    pub(super) fn put_old(&self, documents: &[Value]) {
        for document in documents {
            let body = document.to_string();
            let definition = &self.old.info.settings.partition_key;
            let key = definition.extract(body.as_bytes()).unwrap();
            let batch = Batch::new(key).with(Operation::upsert(body));
            block_on(self.old.documents.commit(batch)).unwrap();
        }
    }

    /// Everything in the container of the foreign leases, by id.
    pub(super) fn old_documents(&self) -> Vec<Value> {
        let mut found: Vec<Value> = all_items(&self.old)
            .iter()
            .map(|it| serde_json::from_slice(&it.body).unwrap())
            .collect();
        found.sort_by_key(|it| it["id"].as_str().unwrap().to_owned());
        found
    }

    pub(super) fn old_document(&self, suffix: &str) -> Value {
        let id = format!("{PREFIX}{suffix}");
        let found = self.old_documents().into_iter().find(|it| it["id"] == id.as_str());
        found.unwrap_or_else(|| panic!("there is no {id}"))
    }

    pub(super) fn our_store(&self) -> LeaseStore {
        let clock: Arc<dyn Clock> = self.clock.clone();
        LeaseStore::new(&self.ours, PROCESSOR, clock, Duration::from_secs(30)).unwrap()
    }

    pub(super) fn our_documents(&self) -> Listing {
        block_on(self.our_store().list()).unwrap()
    }

    /// Moves our leases forward, as an instance would that handles everything there is.
    pub(super) fn process(&self) {
        let store = self.our_store();
        for mut stored in self.our_documents().leases {
            let position = stored.document.continuation().unwrap();
            let read =
                self.feed.feed.read(&stored.document.keys, &position, PageSize::items(10_000));
            stored.document.position = block_on(read).unwrap().continuation.to_string();
            block_on(store.replace(stored.document, &stored.etag)).unwrap();
        }
    }
}

pub(super) fn name_of(container: &str) -> ContainerName {
    ContainerName::new("app", container).unwrap()
}

pub(super) fn all_items(container: &Container) -> Vec<Item> {
    let scope = ScanScope::Keys(KeyRange::all());
    block_on(container.documents.scan(&scope, None, PageSize::items(10_000))).unwrap().items
}

pub(super) fn info() -> Value {
    json!({ "id": format!("{PREFIX}.info") })
}

/// The continuation as every form but Java's epk keeps it.
pub(super) fn etag(number: u64) -> String {
    format!("\"{number}\"")
}

pub(super) fn dotnet_pk(partition: u32, token: &Value) -> Value {
    json!({
        "id": format!("{PREFIX}..{partition}"), "version": 0, "_etag": "\"0\"",
        "LeaseToken": partition.to_string(), "FeedRange": null, "Owner": null,
        "ContinuationToken": token, "properties": { "kept": "as it is" },
        "timestamp": "2026-08-07T10:00:00.0000000Z", "_ts": 1_754_560_800,
        "Mode": "Incremental Feed",
    })
}

pub(super) fn dotnet_epk(keys: &KeyRange, token: &Value) -> Value {
    let (min, max) = (keys.min(), keys.max());
    json!({
        "id": format!("{PREFIX}..{min}-{max}"), "version": 1,
        "LeaseToken": format!("{min}-{max}"), "FeedRange": { "Range": { "min": min, "max": max } },
        "Owner": null, "ContinuationToken": token, "properties": {},
        "timestamp": "2026-08-07T10:00:00.0000000Z", "Mode": "Incremental Feed",
    })
}

pub(super) fn java_pk(partition: u32, token: &Value) -> Value {
    json!({
        "id": format!("{PREFIX}..{partition}"), "LeaseToken": partition.to_string(),
        "ContinuationToken": token, "timestamp": "2022-11-15T17:43:34.634427Z", "Owner": null,
    })
}

pub(super) fn java_epk(keys: &KeyRange, token: &Value) -> Value {
    let (min, max) = (keys.min(), keys.max());
    json!({
        "id": format!("{PREFIX}..{min}-{max}"), "version": 1,
        "LeaseToken": format!("{min}-{max}"), "feedRange": { "Range": { "min": min, "max": max } },
        "Owner": null, "ContinuationToken": token, "timestamp": "2022-11-15T17:43:34.634427Z",
    })
}

pub(super) fn library(partition: u32, token: &Value) -> Value {
    json!({
        "id": format!("{PREFIX}..{partition}"), "PartitionId": partition.to_string(),
        "Owner": null, "ContinuationToken": token, "properties": {},
        "timestamp": "2019-01-01T00:00:00Z",
    })
}

/// A state of Java's feed; `tokens` are etags with quotes.
pub(super) fn java_state(keys: &KeyRange, start: &Value, tokens: &[&str]) -> Value {
    let range = json!({ "min": keys.min(), "max": keys.max() });
    let tokens: Vec<Value> =
        tokens.iter().map(|it| json!({ "token": it, "range": range })).collect();
    java_base64(&json!({
        "V": 1, "Rid": "/dbs/app/colls/orders", "Mode": "INCREMENTAL", "StartFrom": start,
        "Continuation": {
            "V": 1, "Rid": "/dbs/app/colls/orders", "Continuation": tokens, "Range": range,
        },
    }))
}

pub(super) fn java_base64(state: &Value) -> Value {
    Value::from(URL_SAFE.encode(state.to_string()))
}

/// A container whose writes fail after a number of them, before or after they took effect.
pub(super) struct Failing {
    inner: Arc<dyn Documents>,
    left: AtomicUsize,
    is_reply_lost: bool,
}

impl Failing {
    pub(super) fn after(writes: usize, is_reply_lost: bool, container: &Container) -> Container {
        let inner = Arc::clone(&container.documents);
        let left = AtomicUsize::new(writes);
        let documents = Arc::new(Self { inner, left, is_reply_lost });
        Container { documents, ..container.clone() }
    }
}

#[async_trait]
impl Documents for Failing {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> millstream_core::Result<Option<Item>> {
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> millstream_core::Result<BatchOutcome> {
        let left = self.left.load(Ordering::SeqCst);
        if 0 < left {
            self.left.store(left - 1, Ordering::SeqCst);
            return self.inner.commit(batch).await;
        }
        if self.is_reply_lost {
            self.inner.commit(batch).await?;
        }
        Err(CoreError::new(CoreErrorKind::Unavailable, "write").with_unknown_effect())
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> millstream_core::Result<ScanPage> {
        self.inner.scan(scope, after, size).await
    }
}
