//! The meta table: JSON and records that are read when a store opens.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use millstream_core::{ErrorKind, KeyRange};

use crate::buffer::Entry;
use crate::catalog::Catalog;
use crate::engine::{Engine, lock};
use crate::format::Format;
use crate::fuzzing::disk::{MemoryDisk, Scratch};
use crate::fuzzing::lines;
use crate::options::{Durability, StoreOptions};
use crate::tables::Table;

/// Input: lines. Those of other tables are left out.
pub(super) fn load(data: &[u8]) {
    static WORLD: Mutex<Option<World>> = Mutex::new(None);
    let entries = lines::entries(data).into_iter().filter(|it| it.table == Table::Meta).collect();
    let mut kept = lock(&WORLD);
    let mut world = kept.take().unwrap_or_else(World::new);
    world.load(entries);
    // What is removed leaves traces in memory, so a world is not used for ever.
    *kept = (world.runs < RUNS_MAX).then_some(world);
}

/// An engine without tables, whose meta table has what an input says.
struct World {
    engine: Arc<Engine>,
    log: Option<JoinHandle<()>>,
    runs: u32,
}

impl World {
    fn new() -> Self {
        let options = StoreOptions::default()
            .durability(Durability::Never)
            .write_buffer_bytes(WRITE_BUFFER_BYTES)
            .disk(Arc::new(MemoryDisk::default()));
        let directory = Scratch::new();
        // Nothing moves to the tables, so their files may go at once.
        let engine =
            Arc::new(Engine::open(directory.path(), Format::NEW, options).expect("it is empty"));
        drop(directory);
        let runs = Arc::clone(&engine);
        let log = thread::spawn(move || runs.run_log());
        Self { engine, log: Some(log), runs: 0 }
    }

    fn load(&mut self, entries: Vec<Entry>) {
        let keys: Vec<_> = entries.iter().map(|it| it.key.clone()).collect();
        self.write(entries);
        match Catalog::load(&self.engine) {
            Ok(catalog) => look_around(&catalog),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.report()),
        }
        self.write(keys.into_iter().map(|key| Entry::remove(Table::Meta, key)).collect());
        self.runs += 1;
    }

    fn write(&self, entries: Vec<Entry>) {
        let (done, waiter) = mpsc::channel();
        let completion = Box::new(move |outcome: Result<(), Arc<str>>| {
            let _ = done.send(outcome);
        });
        let queued = self.engine.enqueue(entries, None, completion);
        assert!(queued.is_ok(), "the engine takes entries");
        waiter.recv().expect("the engine answers").expect("memory takes it");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.engine.close();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }
}

/// What every commit and every reader asks.
fn look_around(catalog: &Catalog) {
    for container in catalog.containers.values() {
        let ranges: Vec<_> = container.ranges().iter().map(|it| it.keys.clone()).collect();
        if !are_whole(&ranges) {
            continue;
        }
        let keys = KeyRange::divide(3).expect("three is few");
        for part in &keys {
            let range = container.range_of(part.min());
            assert!(range.keys.contains(part.min()), "{:?}", container.info());
        }
        let _ = container.range_covering(&KeyRange::all());
    }
}

/// Whether ranges are the whole key space, in order and without gap. Today a catalog where they are
/// not is accepted, and the first commit panics.
pub(super) fn are_whole(ranges: &[KeyRange]) -> bool {
    let all = KeyRange::all();
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return false };
    let is_joined = |pair: &[KeyRange]| pair[0].max().trimmed() == pair[1].min().trimmed();
    first.min().trimmed() == all.min().trimmed()
        && last.max().trimmed() == all.max().trimmed()
        && ranges.windows(2).all(is_joined)
}

const RUNS_MAX: u32 = 300;
const WRITE_BUFFER_BYTES: usize = 16 * 1024 * 1024;
