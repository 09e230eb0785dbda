//! Where a reader begins that starts at a time, before and after ranges are split and merged.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Continuation, Cursor, FeedMode,
    KeyRange, ManualClock, Operation, PageSize, PartitionKeyDefinition, StartFrom, Timestamp,
};
use millstream_store::{Store, StoreOptions};

const MINUTE: Duration = Duration::from_secs(60);

struct World {
    _directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Store,
    name: ContainerName,
    container: Container,
    /// When each item was written; its id is its place.
    times: Vec<Timestamp>,
}

impl World {
    fn new(ranges: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let start = Timestamp::from_millis(1_700_000_000_000);
        let clock = Arc::new(ManualClock::starting_at(start));
        let options = StoreOptions::default().clock(clock.clone()).maintenance_interval(None);
        let store = Store::open_with(directory.path(), options).unwrap();
        let name = ContainerName::new("d", "c").unwrap();
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        let container = block_on(async {
            store.create_database("d").await.unwrap();
            store.create(&name, settings.ranges(ranges)).await.unwrap();
            store.open(&name).await.unwrap()
        });
        Self { _directory: directory, clock, store, name, container, times: Vec::new() }
    }

    /// Writes items of as many keys, a minute apart.
    fn write(&mut self, count: usize) {
        for _ in 0..count {
            self.clock.advance(MINUTE);
            let id = self.times.len();
            let body = format!(r#"{{"id":"{id}","pk":"k{id}"}}"#);
            let batch = Batch::new(format!("k{id}")).with(Operation::create(body));
            let outcome = block_on(self.container.documents.commit(batch)).unwrap();
            self.times.push(outcome.results[0].item().unwrap().written_at);
        }
    }

    fn ranges(&self) -> Vec<KeyRange> {
        let ranges = block_on(self.container.feed.ranges()).unwrap();
        ranges.into_iter().map(|it| it.keys).collect()
    }

    fn split(&self) {
        let range = block_on(self.container.feed.ranges()).unwrap().remove(0);
        block_on(self.store.split(&self.name, range.id, None)).unwrap();
    }

    fn merge(&self) {
        let ranges = block_on(self.container.feed.ranges()).unwrap();
        block_on(self.store.merge(&self.name, ranges[0].id, ranges[1].id)).unwrap();
    }

    /// Every item after a continuation of each range, or after nothing but its number.
    fn read(&self, from: StartFrom, keeps_time: bool) -> Vec<usize> {
        let mut found = Vec::new();
        for keys in self.ranges() {
            let start = self.container.feed.start(&keys, from, FeedMode::LatestVersion);
            let cursor = Cursor::parse(&block_on(start).unwrap()).unwrap();
            let since = cursor.since.filter(|_| keeps_time);
            self.drain(&keys, Cursor { since, ..cursor }.to_continuation(), &mut found);
        }
        found.sort_unstable();
        found
    }

    fn drain(&self, keys: &KeyRange, start: Continuation, found: &mut Vec<usize>) {
        let mut after = start;
        loop {
            let read = self.container.feed.read(keys, &after, PageSize::items(3));
            let page = block_on(read).unwrap();
            found.extend(page.changes.iter().map(|it| it.id.as_str().parse::<usize>().unwrap()));
            if page.continuation == after {
                return;
            }
            after = page.continuation;
        }
    }

    /// A start at the time of every item from `exact` on is a number behind which nothing is
    /// earlier; at any time nothing is missing.
    #[track_caller]
    fn check(&self, exact: usize) {
        for (place, time) in self.times.iter().enumerate() {
            let expected: Vec<usize> = (place..self.times.len()).collect();
            assert_eq!(self.read(StartFrom::Time(*time), true), expected, "from item {place}");
            if exact <= place {
                let found = self.read(StartFrom::Time(*time), false);
                assert_eq!(found, expected, "from the number for item {place}");
            }
        }
    }
}

#[test]
fn a_start_at_a_time_passes_over_what_a_split_range_inherited() {
    let mut world = World::new(1);
    world.write(12);
    world.check(0);
    world.split();
    world.check(0);
    world.write(6);
    world.check(0);
    world.store.maintain().unwrap();
    world.check(0);
    world.split();
    world.check(0);
    world.store.maintain().unwrap();
    world.write(6);
    world.check(0);
}

#[test]
fn a_start_at_a_time_after_a_merge_passes_over_what_was_inherited() {
    let mut world = World::new(2);
    world.write(12);
    world.check(0);
    world.merge();
    world.check(12);
    world.write(6);
    world.check(13);
    world.split();
    world.check(18);
    world.write(6);
    world.check(18);
    world.store.maintain().unwrap();
    world.check(18);
}
