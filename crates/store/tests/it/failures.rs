//! Disks that are slow, full or not asked to sync, and callers that go away.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use futures_lite::future::poll_once;
use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, BatchOutcome, Container, ContainerName, ContainerSettings, Containers, Effect,
    ErrorKind, ItemId, Operation, PartitionKey, PartitionKeyDefinition, Result,
};
use millstream_store::{Disk, DiskFile, Durability, Store, StoreOptions, SystemDisk};
use tempfile::TempDir;

#[test]
fn commits_that_are_not_synced_survive_a_close() {
    for durability in [Durability::Never, Durability::Interval(Duration::from_secs(3600))] {
        let world = World::new(StoreOptions::default().durability(durability));
        for number in 0..50 {
            world.commit(number).expect("the disk takes it");
            assert!(world.has(number), "a commit is visible once it is acknowledged");
        }
        let world = world.reopen();
        assert!((0..50).all(|it| world.has(it)), "{durability:?}");
    }
}

#[test]
fn syncs_follow_at_the_interval_while_commits_go_on() {
    const INTERVAL: Duration = Duration::from_millis(20);
    let world = World::new(StoreOptions::default().durability(Durability::Interval(INTERVAL)));
    let before = world.control.syncs();
    for number in 0..100 {
        world.commit(number).expect("the disk takes it");
        thread::sleep(INTERVAL / 4);
    }
    let syncs = world.control.syncs() - before;
    assert!((5..90).contains(&syncs), "{syncs} syncs in 25 intervals or more");
}

#[test]
fn a_sync_follows_the_last_commit() {
    let interval = Durability::Interval(Duration::from_millis(20));
    let world = World::new(StoreOptions::default().durability(interval));
    world.commit(0).expect("the disk takes it");
    let before = world.control.syncs();
    world.commit(1).expect("the disk takes it");
    wait_until("it is synced", || before < world.control.syncs());
}

#[test]
fn nothing_is_synced_if_nobody_wants_it() {
    let world = World::new(StoreOptions::default().durability(Durability::Never));
    let before = world.control.syncs();
    for number in 0..50 {
        world.commit(number).expect("the disk takes it");
    }
    assert_eq!(world.control.syncs(), before);
}

#[test]
fn a_full_queue_refuses_and_goes_on_when_the_disk_does() {
    let world = World::new(StoreOptions::default().waiting_commits_max(1));
    world.commit(0).expect("the disk takes it");
    thread::scope(|scope| {
        let held = world.control.hold_syncs();
        let waiting = scope.spawn(|| world.commit(1));
        wait_until("the first commit waits for the disk", || world.control.is_held());
        for number in 2..5 {
            let error = world.commit(number).expect_err("the queue is full");
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Overloaded, Effect::None));
            assert!(error.retry_after().is_some_and(|it| !it.is_zero()), "{}", error.report());
            assert!(!world.has(number));
        }
        assert!(world.has(0), "reads do not wait");
        assert!(!world.has(1), "it is not durable yet");
        drop(held);
        waiting.join().expect("it does not panic").expect("it was only slow");
    });
    world.commit(5).expect("the queue is empty again");
    let world = world.reopen();
    let found: Vec<u32> = (0..6).filter(|it| world.has(*it)).collect();
    assert_eq!(found, [0, 1, 5]);
}

#[test]
fn as_many_may_wait_as_are_allowed_to_however_they_come() {
    const WAITING_MAX: u64 = 8;
    const COMMITS: u64 = 24;
    for _ in 0..20 {
        let world = World::new(StoreOptions::default().waiting_commits_max(8));
        let (refused, together) = (AtomicU64::new(0), Barrier::new(24));
        thread::scope(|scope| {
            let held = world.control.hold_syncs();
            for number in 0..24 {
                let (world, refused, together) = (&world, &refused, &together);
                scope.spawn(move || {
                    together.wait();
                    match world.commit(number) {
                        Ok(_) => assert!(world.has(number)),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Overloaded, "{}", error.report());
                            refused.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            wait_until("those who may not wait are refused", || {
                COMMITS - WAITING_MAX <= refused.load(Ordering::SeqCst)
            });
            drop(held);
        });
        assert_eq!(refused.into_inner(), COMMITS - WAITING_MAX);
        let world = world.reopen();
        assert_eq!((0..24).filter(|it| world.has(*it)).count(), 8);
    }
}

#[test]
fn a_full_disk_stops_writes_and_nothing_else() {
    let world = World::new(StoreOptions::default());
    for number in 0..3 {
        world.commit(number).expect("the disk takes it");
    }
    world.control.fill_disk();
    let error = world.commit(3).expect_err("the disk is full");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.report().contains("no storage space"), "{}", error.report());
    for number in 4..6 {
        let error = world.commit(number).expect_err("it takes no writes any more");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
        assert!(error.report().contains("repair the disk and open it again"), "{}", error.report());
    }
    assert!((0..3).all(|it| world.has(it)), "reads go on");
    assert_eq!(world.store().flush().expect_err("it failed").kind(), ErrorKind::Unavailable);

    world.control.free_disk();
    assert!(world.commit(6).is_err(), "what the disk holds is not known until it is opened again");
    let world = world.reopen();
    assert!((0..3).all(|it| world.has(it)));
    assert!(!(4..7).any(|it| world.has(it)), "they were refused without effect");
    for number in 7..10 {
        world.commit(number).expect("there is room again");
    }
    let world = world.reopen();
    assert!((7..10).all(|it| world.has(it)));
}

#[test]
fn a_caller_that_goes_away_leaves_its_batch_whole_or_absent() {
    let world = World::new(StoreOptions::default());
    let mut acknowledged = Vec::new();
    for number in 0..120 {
        // Held syncs make sure that some callers leave while their commit waits.
        let held = (number % 3 == 0).then(|| world.control.hold_syncs());
        let container = world.container();
        let commit = container.documents.commit(batch(number));
        if let Some(outcome) = block_on(poll_once(commit)) {
            outcome.expect("the disk takes it");
            acknowledged.push(number);
        }
        drop(held);
    }
    world.commit(1000).expect("the disk takes it");
    let world = world.reopen();
    for number in 0..120 {
        let parts = (0..PARTS).filter(|it| world.has_part(number, *it)).count();
        assert!([0, PARTS].contains(&parts), "{parts} parts of batch {number} are there");
        assert!(parts == PARTS || !acknowledged.contains(&number));
    }
}

#[test]
fn memory_stays_bounded_under_load() {
    const BUFFER_BYTES: usize = 1024 * 1024;
    const LOAD_BYTES: usize = 50 * 1024 * 1024;
    const WRITERS: usize = 4;
    const BODY_BYTES: usize = 16 * 1024;
    let options =
        StoreOptions::default().durability(Durability::Never).write_buffer_bytes(BUFFER_BYTES);
    let world = World::new(options);
    let highest = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (world, highest) = (&world, &highest);
            scope.spawn(move || {
                let container = world.container();
                let filler = "x".repeat(BODY_BYTES);
                for number in 0..LOAD_BYTES / BODY_BYTES / WRITERS {
                    let key = format!("{writer}-{number}");
                    let body = format!(r#"{{"id":"1","key":"{key}","filler":"{filler}"}}"#);
                    let batch = Batch::new(key).with(Operation::create(body));
                    block_on(container.documents.commit(batch)).expect("the disk takes it");
                    let buffered = world.store().statistics().buffered_bytes;
                    highest.fetch_max(buffered, Ordering::Relaxed);
                }
            });
        }
    });
    let statistics = world.store().statistics();
    let limit = u64::try_from(3 * BUFFER_BYTES).expect("it is small");
    let highest = highest.into_inner();
    assert!(highest < limit, "{highest} bytes in memory; {statistics:?}");
    assert!(10 < statistics.flushes, "{statistics:?}");
}

/// A store on a disk that can be told what to do.
struct World {
    directory: TempDir,
    control: Arc<Control>,
    options: StoreOptions,
    store: Option<Store>,
}

impl World {
    fn new(options: StoreOptions) -> Self {
        let control = Arc::new(Control::default());
        let disk = ControlledDisk(Arc::clone(&control));
        let options = options.maintenance_interval(None).disk(Arc::new(disk));
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open_with(directory.path(), options.clone()).expect("it opens");
        block_on(store.create_database("app")).expect("it is new");
        let definition = PartitionKeyDefinition::hash("/key").expect("a path");
        block_on(store.create(&name(), ContainerSettings::new(definition))).expect("it is new");
        Self { directory, control, options, store: Some(store) }
    }

    fn reopen(mut self) -> Self {
        self.store = None;
        let opened = Store::open_with(self.directory.path(), self.options.clone());
        self.store = Some(opened.unwrap_or_else(|error| panic!("{}", error.report())));
        self
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn container(&self) -> Container {
        block_on(self.store().open(&name())).expect("it is there")
    }

    fn commit(&self, number: u32) -> Result<BatchOutcome> {
        block_on(self.container().documents.commit(batch(number)))
    }

    fn has(&self, number: u32) -> bool {
        self.has_part(number, 0)
    }

    fn has_part(&self, number: u32, part: usize) -> bool {
        let id = ItemId::new(&part.to_string()).expect("an id");
        let key = PartitionKey::from(number.to_string());
        block_on(self.container().documents.read(&key, &id)).expect("reads go on").is_some()
    }
}

/// A disk that does what it is told.
#[derive(Debug)]
struct ControlledDisk(Arc<Control>);

#[derive(Debug)]
struct ControlledFile(Arc<dyn DiskFile>, Arc<Control>);

struct HeldSyncs<'a>(&'a Control);

#[derive(Debug, Default)]
struct Control {
    syncs: AtomicU64,
    is_full: AtomicBool,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    waiting: u32,
}

impl Control {
    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Lets no sync go on until it is dropped, also by a test that fails and whose threads wait.
    fn hold_syncs(&self) -> HeldSyncs<'_> {
        self.gate.lock().expect("nobody panics").is_closed = true;
        HeldSyncs(self)
    }

    /// Whether a sync is being held.
    fn is_held(&self) -> bool {
        0 < self.gate.lock().expect("nobody panics").waiting
    }

    fn fill_disk(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    fn free_disk(&self) {
        self.is_full.store(false, Ordering::SeqCst);
    }

    fn pass(&self) {
        let mut gate = self.gate.lock().expect("nobody panics");
        gate.waiting += 1;
        while gate.is_closed {
            gate = self.changed.wait(gate).expect("nobody panics");
        }
        gate.waiting -= 1;
    }

    fn check_room(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Drop for HeldSyncs<'_> {
    fn drop(&mut self) {
        self.0.gate.lock().expect("nobody panics").is_closed = false;
        self.0.changed.notify_all();
    }
}

impl ControlledDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(ControlledFile(file, Arc::clone(&self.0)))
    }
}

impl Disk for ControlledDisk {
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.0.check_room()?;
        Ok(self.file(SystemDisk.create(path, length)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(SystemDisk.open(path)?))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        SystemDisk.list(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }
}

impl DiskFile for ControlledFile {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.0.read_all()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.1.check_room()?;
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.1.syncs.fetch_add(1, Ordering::SeqCst);
        self.0.sync()
    }
}

/// Three items of one partition.
fn batch(number: u32) -> Batch {
    let create = |part| Operation::create(format!(r#"{{"id":"{part}","key":"{number}"}}"#));
    let empty = Batch::new(number.to_string());
    (0..PARTS).fold(empty, |batch, part| batch.with(create(part)))
}

fn name() -> ContainerName {
    ContainerName::new("app", "data").expect("a name")
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it took longer than ten seconds until {what}");
}

const PARTS: usize = 3;
