//! Interleavings that went wrong once. A gate holds back the syncs of the log, so that commits pile
//! up behind it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]
#![allow(clippy::redundant_clone, reason = "handles are cloned for threads throughout")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ErrorKind, FeedMode, ItemId,
    ManualClock, Operation, PageSize, PartitionKey, PartitionKeyDefinition, StartFrom, TimeToLive,
    Timestamp, UniqueKey,
};
use millstream_store::{Disk, DiskFile, Durability, Store, StoreOptions, SystemDisk};

/// Lets the threads that were started get to where they wait. If they do not, a test checks less,
/// and never fails wrongly.
fn a_moment() {
    thread::sleep(Duration::from_millis(100));
}

#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}
impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }
    fn pass(&self) {
        let mut it = self.closed.lock().unwrap();
        while *it {
            it = self.changed.wait(it).unwrap();
        }
    }
}
#[derive(Debug)]
struct GateDisk(Arc<Gate>);
#[derive(Debug)]
struct GateFile(Arc<dyn DiskFile>, Arc<Gate>);
impl Disk for GateDisk {
    fn create(&self, p: &Path, l: u64) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(GateFile(SystemDisk.create(p, l)?, self.0.clone())))
    }
    fn open(&self, p: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(GateFile(SystemDisk.open(p)?, self.0.clone())))
    }
    fn list(&self, d: &Path) -> io::Result<Vec<PathBuf>> {
        SystemDisk.list(d)
    }
    fn remove(&self, p: &Path) -> io::Result<()> {
        SystemDisk.remove(p)
    }
}
impl DiskFile for GateFile {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.0.read_all()
    }
    fn write_at(&self, b: &[u8], o: u64) -> io::Result<()> {
        self.0.write_at(b, o)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
}

struct World {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    gate: Arc<Gate>,
    store: Store,
    name: ContainerName,
}
fn options(clock: &Arc<ManualClock>, gate: &Arc<Gate>) -> StoreOptions {
    StoreOptions::default()
        .clock(clock.clone())
        .maintenance_interval(None)
        .disk(Arc::new(GateDisk(gate.clone())))
}
fn settings() -> ContainerSettings {
    ContainerSettings::new(PartitionKeyDefinition::hash("/key").unwrap())
}
fn world(settings: ContainerSettings) -> World {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
    let gate = Arc::new(Gate::default());
    let store = Store::open_with(dir.path(), options(&clock, &gate)).unwrap();
    block_on(store.create_database("d")).unwrap();
    let name = ContainerName::new("d", "c").unwrap();
    block_on(store.create(&name, settings)).unwrap();
    World { dir, clock, gate, store, name }
}
impl World {
    fn container(&self) -> Container {
        block_on(self.store.open(&self.name)).unwrap()
    }
    fn reopen(self) -> Self {
        let World { dir, clock, gate, store, name } = self;
        drop(store);
        let store = Store::open_with(dir.path(), options(&clock, &gate)).unwrap();
        World { dir, clock, gate, store, name }
    }
}
fn put(
    c: &Container,
    key: &str,
    id: &str,
    pad: usize,
) -> millstream_core::Result<millstream_core::BatchOutcome> {
    let body = format!(r#"{{"id":"{id}","key":"{key}","pad":"{}"}}"#, "x".repeat(pad));
    block_on(c.documents.commit(Batch::new(key).with(Operation::upsert(body))))
}
fn fill(c: &Container, count: usize) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
        let mut batch = Batch::new("k");
        for n in chunk {
            batch = batch.with(Operation::upsert(format!(r#"{{"id":"i{n:06}","key":"k"}}"#)));
        }
        block_on(c.documents.commit(batch)).unwrap();
    }
}
fn within<T: Send + 'static>(seconds: u64, run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (s, r) = mpsc::channel();
    thread::spawn(move || {
        let _ = s.send(run());
    });
    r.recv_timeout(Duration::from_secs(seconds)).ok()
}

#[test]
fn removing_a_large_deleted_container_ends() {
    let w = world(settings());
    fill(&w.container(), 3000);
    block_on(w.store.delete(&w.name)).unwrap();
    let store = w.store.clone();
    assert!(within(20, move || store.maintain()).is_some(), "maintenance never ends");
}

#[test]
fn purging_many_items_of_one_millisecond_ends() {
    let w = world(settings().default_ttl(TimeToLive::Seconds(1)));
    fill(&w.container(), 3000);
    w.clock.advance(Duration::from_secs(5));
    let store = w.store.clone();
    assert!(within(20, move || store.maintain()).is_some(), "maintenance never ends");
}

#[test]
fn a_long_history_is_trimmed_whole() {
    let w = world(settings().all_versions_retention(Duration::from_secs(10)));
    let c = w.container();
    fill(&c, 4000);
    w.store.flush().unwrap();
    w.clock.advance(Duration::from_secs(100));
    for _ in 0..5 {
        w.store.maintain().unwrap();
    }
    let keys = block_on(c.feed.ranges()).unwrap()[0].keys.clone();
    let mut at =
        block_on(c.feed.start(&keys, StartFrom::Beginning, FeedMode::AllVersions)).unwrap();
    let mut left = 0;
    loop {
        let page = block_on(c.feed.read(&keys, &at, PageSize::items(1000))).unwrap();
        if page.changes.is_empty() {
            break;
        }
        left += page.changes.len();
        at = page.continuation;
    }
    assert_eq!(left, 0, "versions that are ten times as old as the retention");
}

#[test]
fn commits_go_on_after_a_refused_delete() {
    let w = world(settings());
    let c = w.container();
    put(&c, "k", "a", 1).unwrap();
    w.gate.set(true);
    let mut threads = Vec::new();
    for n in 0..12 {
        let c = c.clone();
        threads.push(thread::spawn(move || put(&c, "k", &format!("b{n}"), 1_990_000).map(|_| ())));
        a_moment();
    }
    let refused = {
        let (store, name) = (w.store.clone(), w.name.clone());
        within(3, move || block_on(store.delete(&name)))
    };
    w.gate.set(false);
    let refused = refused.expect("it was refused at once").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    for t in threads {
        let _ = t.join();
    }
    let again = {
        let c = c.clone();
        within(10, move || put(&c, "k", "z", 1).map(|_| ()))
    };
    assert!(again.is_some(), "a commit hangs after a refused delete");
}

#[test]
fn a_batch_that_reads_shows_only_what_is_durable() {
    let w = world(settings());
    let c = w.container();
    put(&c, "k", "a", 1).unwrap();
    w.gate.set(true);
    let writer = {
        let c = c.clone();
        thread::spawn(move || put(&c, "k", "b", 1).map(|_| ()))
    };
    a_moment();
    let read = {
        let c = c.clone();
        within(2, move || {
            block_on(
                c.documents
                    .commit(Batch::new("k").with(Operation::read(ItemId::new("b").unwrap()))),
            )
        })
    };
    let create = {
        let c = c.clone();
        within(2, move || {
            block_on(
                c.documents
                    .commit(Batch::new("k").with(Operation::create(r#"{"id":"b","key":"k"}"#))),
            )
        })
    };
    let plain =
        block_on(c.documents.read(&PartitionKey::from("k"), &ItemId::new("b").unwrap())).unwrap();
    w.gate.set(false);
    let _ = writer.join();
    assert!(plain.is_none() && create.is_none(), "answered with what is not durable yet");
    assert!(read.is_none(), "a read answered with a version that is not durable yet");
}

#[test]
fn a_unique_value_refuses_others_only_once_it_is_durable() {
    let w = world(settings().unique_key(UniqueKey::new(["/u"]).unwrap()));
    let c = w.container();
    let create = |id: &str| {
        let (c, body) = (c.clone(), format!(r#"{{"id":"{id}","key":"k","u":1}}"#));
        move || block_on(c.documents.commit(Batch::new("k").with(Operation::create(body))))
    };
    w.gate.set(true);
    let writer = thread::spawn(create("a"));
    a_moment();
    let refused = within(2, create("b"));
    w.gate.set(false);
    writer.join().unwrap().unwrap();
    assert!(refused.is_none(), "refused because of what is not durable yet");
    assert_eq!(create("b")().unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_container_deleted_during_maintenance_stays_deleted() {
    let w = world(settings().default_ttl(TimeToLive::Never));
    fill(&w.container(), 10);
    block_on(w.store.replace(&w.name, settings().default_ttl(TimeToLive::Seconds(1000)), None))
        .unwrap();
    w.gate.set(true);
    let maintenance = {
        let store = w.store.clone();
        thread::spawn(move || store.maintain())
    };
    a_moment();
    let deletion = {
        let (store, name) = (w.store.clone(), w.name.clone());
        thread::spawn(move || block_on(store.delete(&name)))
    };
    a_moment();
    w.gate.set(false);
    deletion.join().unwrap().unwrap();
    let _ = maintenance.join().unwrap();
    let w = w.reopen();
    let left = block_on(w.store.list("d")).unwrap();
    assert!(
        left.is_empty(),
        "it is back: {:?}",
        left.iter().map(|it| it.name.to_string()).collect::<Vec<_>>()
    );
}

#[test]
fn the_floor_of_a_history_survives_reopening() {
    let w = world(settings().all_versions_retention(Duration::from_secs(10)));
    let c = w.container();
    let keys = block_on(c.feed.ranges()).unwrap()[0].keys.clone();
    let start = block_on(c.feed.start(&keys, StartFrom::Beginning, FeedMode::AllVersions)).unwrap();
    fill(&c, 20);
    w.clock.advance(Duration::from_secs(100));
    w.gate.set(true);
    let mut threads = Vec::new();
    for n in 0..2 {
        let c = c.clone();
        threads.push(thread::spawn(move || put(&c, "k", &format!("b{n}"), 1).map(|_| ())));
        a_moment();
    }
    let maintenance = {
        let store = w.store.clone();
        thread::spawn(move || store.maintain())
    };
    a_moment();
    w.gate.set(false);
    for t in threads {
        t.join().unwrap().unwrap();
    }
    maintenance.join().unwrap().unwrap();
    let before =
        block_on(c.feed.read(&keys, &start, PageSize::default())).map(|it| it.changes.len());
    assert_eq!(before.unwrap_err().kind(), ErrorKind::PositionExpired);
    drop(c);
    let w = w.reopen();
    let c = w.container();
    let after =
        block_on(c.feed.read(&keys, &start, PageSize::default())).map(|it| it.changes.len());
    assert!(after.is_err(), "20 changes were skipped in silence; the page has {after:?}");
}

#[test]
fn a_sync_interval_is_kept_under_steady_load() {
    let w = world(settings());
    drop(w.store);
    let options =
        options(&w.clock, &w.gate).durability(Durability::Interval(Duration::from_millis(50)));
    let store = Store::open_with(w.dir.path(), options).unwrap();
    let c = block_on(store.open(&w.name)).unwrap();
    let before = store.statistics().syncs;
    for n in 0..100 {
        put(&c, "k", &format!("a{n}"), 1).unwrap();
        w.clock.advance(Duration::from_millis(10));
    }
    let syncs = store.statistics().syncs - before;
    assert!(5 <= syncs, "{syncs} syncs in a second with an interval of 50 ms");
}

#[test]
fn a_position_survives_the_merge_with_an_idle_range() {
    let w = world(settings().ranges(2));
    let c = w.container();
    let definition = PartitionKeyDefinition::hash("/key").unwrap();
    let ranges = block_on(c.feed.ranges()).unwrap();
    let key_in = |n: usize| {
        (0..)
            .map(|it| format!("p{it}"))
            .find(|it| {
                ranges[n]
                    .keys
                    .contains(&definition.effective(&PartitionKey::from(it.as_str())).unwrap())
            })
            .unwrap()
    };
    let (idle, busy) = (key_in(0), key_in(1));
    for _ in 0..50 {
        put(&c, &idle, "x", 1).unwrap();
    }
    for _ in 0..5 {
        put(&c, &busy, "y", 1).unwrap();
    }
    block_on(w.store.replace(
        &w.name,
        settings().ranges(2).all_versions_retention(Duration::from_secs(3600)),
        None,
    ))
    .unwrap();
    for _ in 0..5 {
        put(&c, &busy, "y", 1).unwrap();
    }
    let at =
        block_on(c.feed.start(&ranges[1].keys, StartFrom::Now, FeedMode::AllVersions)).unwrap();
    put(&c, &busy, "y", 1).unwrap();
    block_on(w.store.merge(&w.name, ranges[0].id, ranges[1].id)).unwrap();
    let before =
        block_on(c.feed.read(&ranges[1].keys, &at, PageSize::default())).unwrap().changes.len();
    w.store.maintain().unwrap();
    let after =
        block_on(c.feed.read(&ranges[1].keys, &at, PageSize::default())).map(|it| it.changes.len());
    assert!(
        after.is_ok(),
        "{before} change before the ranges settled, then {}",
        after.unwrap_err().report()
    );
}

#[test]
fn a_log_of_few_items_written_again_and_again_stays_short() {
    let w = world(settings());
    let c = w.container();
    for _ in 0..2000 {
        put(&c, "k", "hot", 100_000).unwrap();
    }
    let files = std::fs::read_dir(w.dir.path().join("log")).unwrap().count();
    assert!(files < 20, "{files} segments");
    assert!(w.store.statistics().flushes > 0);
}
