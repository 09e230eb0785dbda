//! A store in memory with a feed and a container for leases, and processors without instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, Clock, Container, ContainerName, ContainerSettings, Containers, Documents,
    Error as CoreError, ErrorKind as CoreErrorKind, FeedMode, Item, ItemId, KeyRange, ManualClock,
    Operation, PageSize, PartitionKey, PartitionKeyDefinition, RangeInfo, Result as CoreResult,
    ScanContinuation, ScanPage, ScanScope, StartFrom, Timestamp,
};
use serde_json::Map;
use uuid::Uuid;

use crate::lease_store::{LeaseStore, Stored};
use crate::leaves::root_lease;
use crate::stored::schema::Schema;
use crate::stored::{Control, Lease, LeaseState, Member, Owner, Root};

pub(crate) const PROCESSOR: &str = "orders";
/// How long all versions are kept.
pub(crate) const RETENTION: Duration = Duration::from_secs(3600);

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) feed: Container,
    pub(crate) leases: Container,
    pub(crate) store: LeaseStore,
    name: ContainerName,
    written: AtomicUsize,
}

impl World {
    /// A feed of `ranges` ranges; leases are partitioned by `lease_path`. No processor yet.
    pub(crate) fn new(lease_path: &str, ranges: u32) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let memory = Memory::new(clock.clone());
        let name = ContainerName::new("app", "data").unwrap();
        let (feed, leases) = block_on(async {
            memory.create_database("app").await?;
            let leases = ContainerName::new("app", "leases")?;
            let settings = ContainerSettings::new(PartitionKeyDefinition::hash(lease_path)?);
            memory.create(&leases, settings).await?;
            let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk")?)
                .ranges(ranges)
                .all_versions_retention(RETENTION);
            memory.create(&name, settings).await?;
            Ok::<_, CoreError>((memory.open(&name).await?, memory.open(&leases).await?))
        })
        .unwrap();
        let store = store_of(&leases, &clock);
        Self { memory, clock, feed, leases, store, name, written: AtomicUsize::new(0) }
    }

    /// The same with a processor that starts at the beginning: one unowned lease per range.
    pub(crate) fn started(lease_path: &str, ranges: u32) -> Self {
        let world = Self::new(lease_path, ranges);
        world.start(FeedMode::LatestVersion, StartFrom::Beginning);
        world
    }

    pub(crate) fn start(&self, mode: FeedMode, from: StartFrom) {
        let position = |keys: &KeyRange| {
            block_on(self.feed.feed.start(keys, from, mode)).unwrap().as_str().to_owned()
        };
        let ranges = self.ranges().into_iter().map(|it| it.keys);
        let roots = ranges.map(|keys| Root { position: position(&keys), keys, resets: 0 });
        let control = Control {
            schema: Schema::default(),
            epoch: 1,
            container: self.feed.info.resource_id.incarnation(),
            mode: mode.into(),
            start: "beginning".to_owned(),
            roots: roots.collect(),
            complete: true,
            paused: false,
            redrives: 0,
            resets: 0,
            postpones: false,
            unknown: Map::new(),
        };
        block_on(async {
            for root in &control.roots {
                self.store.create(root_lease(&control, root)).await.unwrap();
            }
            self.store.create(control).await.unwrap();
        });
    }

    /// Commits one item for each of `keys`, each in a commit of its own.
    pub(crate) fn write(&self, keys: &[&str]) {
        for key in keys {
            self.write_batch(key, 1);
        }
    }

    /// Commits that many items of one partition key at once.
    pub(crate) fn write_batch(&self, key: &str, items: usize) {
        let mut batch = Batch::new(key);
        for _ in 0..items {
            let id = self.written.fetch_add(1, Ordering::Relaxed);
            batch = batch.with(Operation::create(format!(r#"{{"id":"{id}","pk":"{key}"}}"#)));
        }
        block_on(self.feed.documents.commit(batch)).unwrap();
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn ranges(&self) -> Vec<RangeInfo> {
        block_on(self.feed.feed.ranges()).unwrap()
    }

    /// Splits the range that stands at this place.
    pub(crate) fn split_range(&self, place: usize) {
        let id = self.ranges()[place].id;
        block_on(self.memory.split(&self.name, id, None)).unwrap();
    }

    /// Merges the ranges at this place and the next.
    pub(crate) fn merge_ranges(&self, place: usize) {
        let ranges = self.ranges();
        block_on(self.memory.merge(&self.name, ranges[place].id, ranges[place + 1].id)).unwrap();
    }

    /// Deletes the container of the feed and creates it again.
    pub(crate) fn recreated_feed(&self) -> Container {
        let settings = self.feed.info.settings.clone();
        block_on(async {
            self.memory.delete(&self.name).await?;
            self.memory.create(&self.name, settings).await?;
            self.memory.open(&self.name).await
        })
        .unwrap()
    }

    /// A partition key that lies in the range at this place.
    pub(crate) fn key_in(&self, place: usize) -> String {
        let keys = self.ranges()[place].keys.clone();
        let definition = &self.feed.info.settings.partition_key;
        let lies_in = |key: &String| {
            let hash = definition.effective(&PartitionKey::from(key.as_str())).unwrap();
            keys.contains(&hash)
        };
        (0..10_000).map(|it| format!("key-{it}")).find(lies_in).unwrap()
    }

    pub(crate) fn control(&self) -> Stored<Control> {
        block_on(self.store.read_control()).unwrap().unwrap()
    }

    /// The leases that were not replaced, in the order of keys.
    pub(crate) fn leases(&self) -> Vec<Stored<Lease>> {
        let mut leases = block_on(self.store.list()).unwrap().leases;
        leases.retain(|it| it.document.state != LeaseState::Retired);
        leases.sort_by_key(|it| it.document.keys.min().trimmed().to_vec());
        leases
    }

    pub(crate) fn replace(&self, stored: &Stored<Lease>, lease: Lease) -> Stored<Lease> {
        block_on(self.store.replace(lease, &stored.etag)).unwrap()
    }

    /// Makes an instance the owner of a lease.
    pub(crate) fn acquire(&self, lease: &Stored<Lease>, instance: &str) -> Stored<Lease> {
        let mut document = lease.document.clone();
        document.owner = Some(owner(instance));
        document.epoch += 1;
        self.replace(lease, document)
    }

    /// Handles everything a lease can read, as its owner would.
    pub(crate) fn catch_up(&self, lease: &Stored<Lease>) -> Stored<Lease> {
        self.advance_lease(lease, PageSize::ITEMS_MAX)
    }

    /// Handles one page of so many changes of a lease.
    pub(crate) fn advance_lease(&self, lease: &Stored<Lease>, items: usize) -> Stored<Lease> {
        let mut document = lease.document.clone();
        let after = document.continuation().unwrap();
        let read = self.feed.feed.read(&document.keys, &after, PageSize::items(items));
        let page = block_on(read).unwrap();
        document.position = page.continuation.as_str().to_owned();
        self.replace(lease, document)
    }

    /// Marks a lease for replacement by those of the current ranges, and creates none of them.
    pub(crate) fn begin_split(&self, lease: &Stored<Lease>) -> Stored<Lease> {
        let mut document = lease.document.clone();
        document.state = LeaseState::Splitting;
        let ranges = self.ranges();
        document.children =
            ranges.iter().filter_map(|it| it.keys.intersect(&document.keys)).collect();
        self.replace(lease, document)
    }

    pub(crate) fn join(&self, instance: &str, control_epoch: u64) -> Stored<Member> {
        let member = Member {
            schema: Schema::default(),
            instance: instance.to_owned(),
            incarnation: owner(instance).incarnation,
            counter: 1,
            leases_min: 0,
            leases_max: None,
            accepting: true,
            leases: 2,
            load: 1.5,
            control_epoch,
            version: "1.0.0".to_owned(),
            written_at: self.clock.now().as_millis(),
            unknown: Map::new(),
        };
        block_on(self.store.create(member)).unwrap()
    }

    /// The container of the leases, whose commits fail from the one of this number on.
    pub(crate) fn failing_leases(&self, good_commits: usize, fault: Fault) -> Container {
        let documents = Arc::new(Faulty {
            documents: Arc::clone(&self.leases.documents),
            good_commits: AtomicUsize::new(good_commits),
            fault,
        });
        Container { documents, ..self.leases.clone() }
    }
}

pub(crate) fn store_of(leases: &Container, clock: &Arc<ManualClock>) -> LeaseStore {
    LeaseStore::new(leases, PROCESSOR, clock.clone(), Duration::from_secs(10)).unwrap()
}

pub(crate) fn owner(instance: &str) -> Owner {
    Owner { instance: instance.to_owned(), incarnation: Uuid::nil() }
}

/// What happens to a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It does not arrive.
    RequestLost,
    /// It is done, but nobody hears of it.
    ReplyLost,
}

/// Somebody who does something before every commit of another, which is counted from 0.
pub(crate) struct Rival<F> {
    documents: Arc<dyn Documents>,
    commits: AtomicUsize,
    before: F,
}

impl World {
    /// The container of the leases with a rival.
    pub(crate) fn rivalled_leases(
        &self,
        before: impl Fn(usize) + Send + Sync + 'static,
    ) -> Container {
        let documents = Arc::clone(&self.leases.documents);
        let documents = Arc::new(Rival { documents, commits: AtomicUsize::new(0), before });
        Container { documents, ..self.leases.clone() }
    }
}

#[async_trait]
impl<F: Fn(usize) + Send + Sync> Documents for Rival<F> {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> CoreResult<Option<Item>> {
        self.documents.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> CoreResult<BatchOutcome> {
        (self.before)(self.commits.fetch_add(1, Ordering::SeqCst));
        self.documents.commit(batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> CoreResult<ScanPage> {
        self.documents.scan(scope, after, size).await
    }
}

struct Faulty {
    documents: Arc<dyn Documents>,
    good_commits: AtomicUsize,
    fault: Fault,
}

#[async_trait]
impl Documents for Faulty {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> CoreResult<Option<Item>> {
        self.documents.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> CoreResult<BatchOutcome> {
        let left = |it: usize| it.checked_sub(1);
        if self.good_commits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return self.documents.commit(batch).await;
        }
        if let Fault::ReplyLost = self.fault {
            self.documents.commit(batch).await?;
        }
        Err(CoreError::new(CoreErrorKind::Unavailable, "commit").with_unknown_effect())
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> CoreResult<ScanPage> {
        self.documents.scan(scope, after, size).await
    }
}
