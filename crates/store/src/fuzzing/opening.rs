//! A whole store: opened from whatever the log holds, and asked with whatever clients kept.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_lite::future::block_on;
use millstream_core::{
    Batch, Container, Containers, Continuation, Error, ErrorKind, FeedMode, KeyRange, ManualClock,
    Operation, PageSize, PartitionKey, PartitionKeyComponent, RangeInfo, Result, ScanContinuation,
    ScanScope, StartFrom, Timestamp,
};

use crate::format::Format;
use crate::fuzzing::disk::{MemoryDisk, Scratch};
use crate::fuzzing::{catalog, lines, log, seeds, stored};
use crate::keys;
use crate::options::{Durability, StoreOptions};
use crate::store::Store;

/// Input: lines, which follow what the store of the seeds has written.
///
/// Whatever they say, the store opens or says that it is corrupt; and once it has opened, every
/// call returns.
pub(super) fn store(data: &[u8]) {
    let directory = Scratch::new();
    let disk = MemoryDisk::default();
    Format::write(directory.path()).expect("there is room for temporary files");
    let mut payload = seeds::groups().pop().expect("the store wrote something");
    // Counters that went back would give numbers out again, which nothing is prepared for.
    let entries = lines::entries(data).into_iter().filter(|it| it.key[..] != *keys::COUNTERS);
    for entry in entries {
        stored::encode_entry(&entry, &mut payload);
    }
    disk.put(directory.path().join(log::path(7)), log::segment(&payload));
    match open(&directory, &disk) {
        Ok(store) => tolerate(use_everything(&store)),
        Err(error) => tolerate(Err(error)),
    }
}

/// Input: text, taken for the continuation of a scan and of a feed.
pub(super) fn continuation(data: &[u8]) {
    static CONTAINER: LazyLock<Container> = LazyLock::new(|| {
        let directory = Scratch::new();
        let disk = MemoryDisk::default();
        let store = open(&directory, &disk).expect("it is empty");
        // Nothing moves to the tables, so their files may go at once.
        drop(directory);
        seeds::fill(&store);
        block_on(store.open(&seeds::container())).expect("it was just made")
    });
    let Ok(text) = std::str::from_utf8(data) else { return };
    let size = PageSize::items(2);
    let scan = ScanContinuation::new(text);
    for scope in [ScanScope::Keys(KeyRange::all()), ScanScope::Partition("a".into())] {
        match block_on(CONTAINER.documents.scan(&scope, Some(&scan), size)) {
            Ok(page) => assert!(page.items.len() <= 2),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report()),
        }
    }
    let Ok(after) = Continuation::new(text) else { return };
    for RangeInfo { keys, .. } in block_on(CONTAINER.feed.ranges()).expect("it is open") {
        match block_on(CONTAINER.feed.read(&keys, &after, size)) {
            Ok(page) => assert!(page.changes.len() < 100),
            Err(error) => {
                let kinds =
                    [ErrorKind::Invalid, ErrorKind::ContainerRecreated, ErrorKind::PositionExpired];
                assert!(kinds.contains(&error.kind()), "{}", error.report());
            }
        }
    }
}

pub(super) fn open(directory: &Scratch, disk: &MemoryDisk) -> Result<Store> {
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000));
    let options = StoreOptions::default()
        .durability(Durability::Never)
        .write_buffer_bytes(256 * 1024)
        .maintenance_interval(None)
        .clock(Arc::new(clock))
        .disk(Arc::new(disk.clone()));
    Store::open_with(directory.path(), options)
}

fn use_everything(store: &Store) -> Result<()> {
    tolerate(store.guard_lags().map(drop));
    tolerate(store.maintain());
    for database in block_on(store.list_databases())? {
        // A container may be in a database that is not there.
        let Ok(containers) = block_on(store.list(&database.name)) else { continue };
        for info in containers {
            let container = block_on(store.open(&info.name))?;
            let ranges = block_on(container.feed.ranges())?;
            let keys: Vec<_> = ranges.iter().map(|it| it.keys.clone()).collect();
            if !catalog::are_whole(&keys) {
                continue;
            }
            tolerate(read_everything(&container));
            tolerate(write_something(&container));
            tolerate(block_on(store.split(&info.name, ranges[0].id, None)).map(drop));
            tolerate(block_on(store.replace(&info.name, info.settings, None)).map(drop));
        }
    }
    tolerate(store.flush());
    tolerate(store.maintain());
    Ok(())
}

fn read_everything(container: &Container) -> Result<()> {
    let scope = ScanScope::Keys(KeyRange::all());
    let mut after = None;
    loop {
        let size = PageSize::items(10);
        let page = block_on(container.documents.scan(&scope, after.as_ref(), size))?;
        after = page.continuation;
        if after.is_none() {
            break;
        }
    }
    for range in block_on(container.feed.ranges())? {
        for mode in [FeedMode::LatestVersion, FeedMode::AllVersions] {
            tolerate(read_feed(container, &range.keys, mode));
        }
    }
    Ok(())
}

fn read_feed(container: &Container, keys: &KeyRange, mode: FeedMode) -> Result<()> {
    let mut after = block_on(container.feed.start(keys, StartFrom::Beginning, mode))?;
    loop {
        let page = block_on(container.feed.read(keys, &after, PageSize::items(10)))?;
        if page.continuation == after {
            return Ok(());
        }
        after = page.continuation;
    }
}

fn write_something(container: &Container) -> Result<()> {
    let definition = &container.info.settings.partition_key;
    let paths = definition.paths().len();
    let key = PartitionKey::of(vec![PartitionKeyComponent::Undefined; paths])?;
    let body = r#"{"id":"fuzzed","type":"domainEvent"}"#;
    let batch = Batch::new(key.clone()).with(Operation::upsert(body));
    let outcome = block_on(container.documents.commit(batch))?;
    let item = outcome.results[0].item().expect("it was written").clone();
    let found = block_on(container.documents.read(&key, &item.id))?;
    let lives_on = item.expires_at.is_none_or(|it| Timestamp::EPOCH.plus(NOW) < it);
    assert!(!lives_on || found.is_some_and(|it| it.etag == item.etag), "a commit was lost");
    Ok(())
}

/// Garbage may be refused in many ways, but not every way.
#[track_caller]
fn tolerate(result: Result<()>) {
    let Err(error) = result else { return };
    let is_fine = |error: &Error| {
        let kind = error.kind();
        kind == ErrorKind::Corrupt
            || kind == ErrorKind::Invalid
            || kind == ErrorKind::Unsupported
            || kind == ErrorKind::PositionExpired
            || kind == ErrorKind::NotFound
            || kind == ErrorKind::RangeMoved
            || kind == ErrorKind::AlreadyExists
    };
    assert!(is_fine(&error), "{:?}: {}", error.kind(), error.report());
}

const NOW: Duration = Duration::from_millis(1_700_000_000_000);
