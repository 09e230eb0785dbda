//! Random work on the store and on the reference side by side: after each step both show the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, ChangeKind, Container, ContainerName, ContainerSettings, Containers,
    Effect, Error, ErrorKind, FeedMode, IfNoneMatch, ItemId, KeyRange, ManualClock, Operation,
    OperationResult, PageSize, PartitionKeyDefinition, Patch, PatchOperation, Result, ScanScope,
    StartFrom, TimeToLive, Timestamp, UniqueKey,
};
use millstream_store::{Disk, Durability, Store, StoreOptions, SystemDisk};
use tempfile::TempDir;

use crate::faulty::FaultyDisk;

const SEEDS: u64 = 40;
const STEPS: u32 = 60;

#[test]
fn random_work_shows_the_same_as_the_reference() {
    for seed in 0..SEEDS {
        World::new(seed).run(STEPS);
    }
}

#[test]
fn whatever_the_disk_refuses_nothing_acknowledged_is_lost() {
    let mut failures = 0;
    for seed in 1000..1000 + SEEDS {
        let mut world = World::new(seed);
        // From the first operations on, and with a flush in between.
        world.failing_after = Some(i64::try_from(seed % 23).expect("it is small"));
        world.run(STEPS);
        failures += world.failures;
    }
    assert!(SEEDS < u64::from(failures), "only {failures} operations failed");
}

/// A store, the reference, and the clock both use.
struct World {
    seed: u64,
    random: Random,
    clock: Arc<ManualClock>,
    directory: TempDir,
    store: Option<Store>,
    memory: Memory,
    name: ContainerName,
    failing_after: Option<i64>,
    failures: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let mut world = Self {
            seed,
            random: Random(seed),
            memory: Memory::new(clock.clone()),
            clock,
            directory: tempfile::tempdir().expect("a directory"),
            store: None,
            name: ContainerName::new("model", "items").expect("a name"),
            failing_after: None,
            failures: 0,
        };
        world.open(Arc::new(SystemDisk));
        let settings = world.settings();
        let both: [&dyn Containers; 2] = [&world.memory, world.store()];
        for store in both {
            block_on(store.create_database("model")).expect("it is new");
            block_on(store.create(&world.name, settings.clone())).expect("it is new");
        }
        world
    }

    fn settings(&mut self) -> ContainerSettings {
        let definition = PartitionKeyDefinition::hash("/key").expect("a path");
        let mut settings = ContainerSettings::new(definition).ranges(self.random.below(3) + 1);
        settings.default_ttl = self.random.ttl();
        if self.random.below(2) == 0 {
            settings.all_versions_retention = Duration::from_secs(3600);
        }
        if self.random.below(2) == 0 {
            settings = settings.unique_key(UniqueKey::new(["/n"]).expect("a path"));
        }
        settings
    }

    fn open(&mut self, disk: Arc<dyn Disk>) {
        self.store = None;
        let options = StoreOptions::default()
            .clock(self.clock.clone())
            .durability(Durability::Always)
            .write_buffer_bytes(256 * 1024)
            .maintenance_interval(None)
            .disk(disk);
        let opened = Store::open_with(self.directory.path(), options.clone());
        // A disk that fails at once keeps the store closed and does no harm.
        let opened = opened.or_else(|_| {
            self.failures += 1;
            Store::open_with(self.directory.path(), options.disk(Arc::new(SystemDisk)))
        });
        self.store =
            Some(opened.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report())));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn run(&mut self, steps: u32) {
        for step in 0..steps {
            if step == steps / 3
                && let Some(operations) = self.failing_after
            {
                self.open(Arc::new(FaultyDisk::new(operations)));
            }
            self.step();
            self.compare(&format!("seed {}, step {step}", self.seed));
        }
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0 if self.failing_after.is_some() => self.open_on_failing_disk(),
            0 => self.open(Arc::new(SystemDisk)),
            1 => self.tolerate(self.store().flush()),
            2 | 3 => self.clock.advance(Duration::from_secs(self.random.below(40).into())),
            4 => self.tolerate(self.store().maintain()),
            5 => self.split(),
            6 => self.merge(),
            7 => self.replace_settings(),
            _ => self.commit(),
        }
    }

    fn commit(&mut self) {
        let batch = self.random.batch();
        let (ours, theirs) = (self.open_container(self.store()), self.open_container(&self.memory));
        let found = block_on(ours.documents.commit(batch.clone()));
        drop(ours);
        if self.is_disk_failure(&found) {
            return self.recover(|_| {
                let _ = block_on(theirs.documents.commit(batch));
            });
        }
        let expected = block_on(theirs.documents.commit(batch.clone()));
        let context = format!("seed {}: {batch:?}", self.seed);
        assert_eq!(outcome(&found), outcome(&expected), "{context}");
    }

    fn split(&mut self) {
        let (ours, theirs) = (self.open_container(self.store()), self.open_container(&self.memory));
        let (mine, yours) = (
            block_on(ours.feed.ranges()).expect("ranges"),
            block_on(theirs.feed.ranges()).expect("ranges"),
        );
        drop(ours);
        let index = self.random.index(mine.len());
        let found = block_on(self.store().split(&self.name, mine[index].id, None));
        let id = yours[index].id;
        if self.is_disk_failure(&found) {
            return self.recover(|world| {
                let _ = block_on(world.memory.split(&world.name, id, None));
            });
        }
        block_on(self.memory.split(&self.name, id, None)).expect("the reference splits");
        found.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report()));
    }

    fn merge(&mut self) {
        let (ours, theirs) = (self.open_container(self.store()), self.open_container(&self.memory));
        let (mine, yours) = (
            block_on(ours.feed.ranges()).expect("ranges"),
            block_on(theirs.feed.ranges()).expect("ranges"),
        );
        drop(ours);
        if mine.len() < 2 {
            return;
        }
        let index = self.random.index(mine.len() - 1);
        let found = block_on(self.store().merge(&self.name, mine[index].id, mine[index + 1].id));
        let (left, right) = (yours[index].id, yours[index + 1].id);
        if self.is_disk_failure(&found) {
            return self.recover(|world| {
                let _ = block_on(world.memory.merge(&world.name, left, right));
            });
        }
        block_on(self.memory.merge(&self.name, left, right)).expect("the reference merges");
        found.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report()));
    }

    fn replace_settings(&mut self) {
        let mut settings = self.open_container(&self.memory).info.settings;
        settings.default_ttl = self.random.ttl();
        let found = block_on(self.store().replace(&self.name, settings.clone(), None));
        if self.is_disk_failure(&found) {
            return self.recover(|world| {
                let _ = block_on(world.memory.replace(&world.name, settings, None));
            });
        }
        block_on(self.memory.replace(&self.name, settings, None)).expect("the reference replaces");
        found.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report()));
    }

    /// Whether the planted failure was met. What was in doubt must be said to be in doubt.
    fn is_disk_failure<T>(&self, result: &Result<T>) -> bool {
        let Err(error) = result else { return false };
        error.kind() == ErrorKind::Unavailable && self.failing_after.is_some()
    }

    fn tolerate(&mut self, result: Result<()>) {
        if self.is_disk_failure(&result) {
            return self.recover(|_| {});
        }
        result.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report()));
    }

    /// Reads still work, writes are refused without effect; after reopening the change in doubt is
    /// there whole or not at all.
    fn recover(&mut self, repeat: impl FnOnce(&mut Self)) {
        self.failures += 1;
        let container = self.open_container(self.store());
        block_on(container.feed.ranges()).expect("reads go on");
        let refused = block_on(
            container
                .documents
                .commit(Batch::new("k").with(Operation::upsert(r#"{"id":"x","key":"k"}"#))),
        );
        let refused = refused.expect_err("a failed store takes no writes");
        assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Unavailable, Effect::None));
        drop(container);
        self.open(Arc::new(SystemDisk));
        let is_there = self.observe(self.store()) != self.observe(&self.memory.clone());
        if is_there {
            repeat(self);
        }
        self.compare(&format!("seed {}, after a failure", self.seed));
        self.open_on_failing_disk();
    }

    fn open_on_failing_disk(&mut self) {
        let operations = i64::from(self.random.below(30));
        self.open(Arc::new(FaultyDisk::new(operations)));
    }

    fn compare(&mut self, context: &str) {
        let (found, expected) = (self.observe(self.store()), self.observe(&self.memory));
        assert_eq!(found, expected, "{context}");
    }

    fn open_container(&self, store: &dyn Containers) -> Container {
        block_on(store.open(&self.name)).expect("it exists")
    }

    fn observe(&self, store: &dyn Containers) -> Observed {
        let container = self.open_container(store);
        let mut observed = Observed {
            default_ttl: container.info.settings.default_ttl,
            ranges: block_on(container.feed.ranges())
                .expect("ranges")
                .into_iter()
                .map(|it| it.keys)
                .collect(),
            ..Observed::default()
        };
        let scope = ScanScope::Keys(KeyRange::all());
        let mut after = None;
        loop {
            let size = PageSize::items(7);
            let page =
                block_on(container.documents.scan(&scope, after.as_ref(), size)).expect("a page");
            for item in page.items {
                let place = format!("{}/{}", item.partition_key, item.id);
                let body = text(&item.body);
                observed.items.push((place, body, item.sequence, item.expires_at));
            }
            after = page.continuation;
            if after.is_none() {
                break;
            }
        }
        for keys in &observed.ranges {
            self.read_feed(&container, keys, FeedMode::LatestVersion, &mut observed.latest);
            if !container.info.settings.all_versions_retention.is_zero() {
                self.read_feed(&container, keys, FeedMode::AllVersions, &mut observed.versions);
            }
        }
        // When what has expired is removed differs, and with it where an expiry stands among other
        // changes.
        for changes in observed.versions.values_mut() {
            changes.retain(|it| it.kind != ChangeKind::Expired);
        }
        observed.versions.retain(|_, it| !it.is_empty());
        observed
    }

    fn read_feed(
        &self,
        container: &Container,
        keys: &KeyRange,
        mode: FeedMode,
        into: &mut BTreeMap<String, Vec<Shown>>,
    ) {
        let started = block_on(container.feed.start(keys, StartFrom::Beginning, mode));
        let mut after = started.expect("a start");
        loop {
            let page = block_on(container.feed.read(keys, &after, PageSize::items(3)));
            let page =
                page.unwrap_or_else(|error| panic!("seed {}: {}", self.seed, error.report()));
            for change in &page.changes {
                let shown = Shown {
                    kind: change.kind,
                    id: change.id.to_string(),
                    current: change.current.as_ref().map(|it| text(&it.body)),
                    previous: change.previous.as_ref().map(|it| text(&it.body)),
                };
                into.entry(change.partition_key.to_string()).or_default().push(shown);
            }
            let is_end = page.changes.is_empty() && page.continuation == after;
            after = page.continuation;
            if is_end {
                return;
            }
        }
    }
}

/// What can be seen of a container without numbers that backends choose themselves. Order is kept
/// per partition key.
#[derive(Debug, Default, PartialEq)]
struct Observed {
    default_ttl: Option<TimeToLive>,
    ranges: Vec<KeyRange>,
    items: Vec<(String, String, Option<u64>, Option<Timestamp>)>,
    latest: BTreeMap<String, Vec<Shown>>,
    versions: BTreeMap<String, Vec<Shown>>,
}

#[derive(Debug, PartialEq)]
struct Shown {
    kind: ChangeKind,
    id: String,
    current: Option<String>,
    previous: Option<String>,
}

/// Enough of a body to tell it from others and to read a failure.
fn text(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(48)]).into_owned();
    format!("{start} {}", body.len())
}

fn outcome(
    result: &Result<BatchOutcome>,
) -> std::result::Result<Vec<String>, (ErrorKind, Option<usize>)> {
    let shown = |it: &OperationResult| {
        let item = it.item().map(|it| (text(&it.body), it.sequence, it.expires_at));
        format!("{:?} {item:?}", std::mem::discriminant(it))
    };
    let refused = |error: &Error| (error.kind(), error.operation());
    result.as_ref().map(|it| it.results.iter().map(shown).collect()).map_err(refused)
}

/// SplitMix64, and what it can make up.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit)).expect("it is below a u32")
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u32::try_from(length).expect("it is short")))
            .expect("it is short")
    }

    fn ttl(&mut self) -> Option<TimeToLive> {
        match self.below(3) {
            0 => None,
            1 => Some(TimeToLive::Never),
            _ => Some(TimeToLive::Seconds(self.below(60) + 1)),
        }
    }

    fn batch(&mut self) -> Batch {
        let key = format!("k{}", self.below(5));
        let mut batch = Batch::new(key.as_str());
        for _ in 0..self.below(4) + 1 {
            batch = batch.with(self.operation(&key));
        }
        batch
    }

    fn operation(&mut self, key: &str) -> Operation {
        let name = format!("i{}", self.below(6));
        let id = ItemId::new(&name).expect("an id");
        let body = self.body(key, &name);
        let operation = match self.below(10) {
            0..=2 => Operation::create(body),
            3..=5 => Operation::upsert(body),
            6 => Operation::replace(id, body),
            7 => {
                let count = PatchOperation::increment("/n", 1).expect("a path");
                Operation::patch(id, Patch::new(vec![count]).expect("one operation"))
            }
            8 => Operation::delete(id),
            _ => Operation::read(id),
        };
        if self.below(8) == 0 { operation.if_none_match(IfNoneMatch::Any) } else { operation }
    }

    fn body(&mut self, key: &str, id: &str) -> String {
        let ttl = match self.below(5) {
            0 => format!(r#","ttl":{}"#, self.below(90) + 1),
            1 => r#","ttl":-1"#.to_owned(),
            _ => String::new(),
        };
        let kind = if self.below(3) == 0 { r#","type":"domainEvent""# } else { "" };
        let filler = "x".repeat(self.index(2000));
        format!(
            r#"{{"id":"{id}","key":"{key}","n":{}{ttl}{kind},"filler":"{filler}"}}"#,
            self.below(12)
        )
    }
}
