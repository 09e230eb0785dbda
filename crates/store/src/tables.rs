//! The sorted tables on disk, kept by fjall.
//!
//! Entries arrive in bulk and in key order from the frozen layer of the buffer, past fjall's own
//! journal and memtables: the commit log has made them durable already.

mod lanes;

use std::collections::{BTreeMap, btree_map};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice};
use millstream_core::{Error, ErrorKind, Result};

use crate::buffer::Layer;
use crate::disk::sync_directories;
use crate::keys::{self, Place};
use crate::reach::Reach;
use crate::store::give_way;
use crate::tables::lanes::Lanes;
use crate::view::Section;

/// The tables of a store. Their numbers are on disk: a retired one is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    /// Where the newest version of an item stands in the feed.
    Items,
    /// The newest version of each item in commit order.
    Feed,
    /// Every version of each item in commit order, where it is kept.
    History,
    /// Items by the time they expire.
    Expiry,
    /// The last event number of each partition key.
    Sequences,
    /// Databases, containers, ranges and the state of the store itself.
    Meta,
}

impl Table {
    pub(crate) const COUNT: usize = 6;

    /// Meta comes last: it says through which group all of them are complete.
    const ALL: [Self; Self::COUNT] =
        [Self::Items, Self::Feed, Self::History, Self::Expiry, Self::Sequences, Self::Meta];

    pub(crate) fn index(self) -> usize {
        usize::from(self.number())
    }

    /// The number in the commit log.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Items => 0,
            Self::Feed => 1,
            Self::History => 2,
            Self::Expiry => 3,
            Self::Sequences => 4,
            Self::Meta => 5,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }

    /// Whether a key that is gone never comes back.
    pub(crate) fn writes_keys_once(self) -> bool {
        match self {
            Self::Feed | Self::History => true,
            Self::Items | Self::Expiry | Self::Sequences | Self::Meta => false,
        }
    }

    /// Whether its entries are spread over lanes; their keys begin with a segment or a container.
    fn has_lanes(self) -> bool {
        match self {
            Self::Items | Self::Feed | Self::History => true,
            Self::Expiry | Self::Sequences | Self::Meta => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Feed => "feed",
            Self::History => "history",
            Self::Expiry => "expiry",
            Self::Sequences => "sequences",
            Self::Meta => "meta",
        }
    }

    fn options(self) -> KeyspaceCreateOptions {
        // The feed is read in long runs, so its blocks are large; the others are looked up key by
        // key.
        let block_bytes = match self {
            Self::Feed | Self::History => 32 * 1024,
            Self::Items | Self::Expiry | Self::Sequences | Self::Meta => 4 * 1024,
        };
        KeyspaceCreateOptions::default()
            .data_block_size_policy(BlockSizePolicy::all(block_bytes))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            // A table is synced when it is complete, and commits that are synced meanwhile wait for
            // it: many small ones delay them less than a few large ones.
            .compaction_strategy(Arc::new(
                Leveled::default()
                    .with_table_target_size(TABLE_BYTES)
                    .with_l0_threshold(FLUSHES_PER_COMPACTION),
            ))
    }
}

/// The open tables.
pub(crate) struct Tables {
    database: Database,
    tables: [Lanes; Table::COUNT],
    reach: Reach,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

/// What all tables held at one moment.
pub(crate) struct TablesSnapshot(fjall::Snapshot);

impl Tables {
    /// Opens the tables, of which the large ones have so many lanes. The threads that fjall starts
    /// for compaction give way to those of users.
    pub(crate) fn open(path: &Path, lanes: usize, cache_bytes: u64) -> Result<Self> {
        thread::scope(|scope| {
            let opening = scope.spawn(|| {
                // Threads inherit their priority from the one that starts them.
                give_way();
                Self::open_here(path, lanes, cache_bytes)
            });
            opening.join().expect("opening does not panic")
        })
    }

    fn open_here(path: &Path, lanes: usize, cache_bytes: u64) -> Result<Self> {
        let failed = |error: fjall::Error| opening_failed(path, error);
        // fjall removes what a rename has made superfluous, and a process that died may not have
        // synced the rename.
        sync_directories(path).map_err(|error| failed(error.into()))?;
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            // One thread compacts; more would take the processor from commits on small machines.
            .worker_threads(COMPACTION_THREADS)
            .max_cached_files(Some(OPEN_FILES_MAX))
            .open()
            .map_err(failed)?;
        let open = |table: Table| Lanes::open(&database, table, lanes);
        let tables = [
            open(Table::Items).map_err(failed)?,
            open(Table::Feed).map_err(failed)?,
            open(Table::History).map_err(failed)?,
            open(Table::Expiry).map_err(failed)?,
            open(Table::Sequences).map_err(failed)?,
            open(Table::Meta).map_err(failed)?,
        ];
        // fjall does not make the directories of new keyspaces durable.
        sync_directories(path).map_err(|error| failed(error.into()))?;
        Ok(Self { database, tables, reach: Reach::default() })
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>> {
        let Some(keyspace) = self.tables[table.index()].holding(key) else { return Ok(None) };
        keyspace.get(key).map_err(|error| reading_failed(table, error))
    }

    pub(crate) fn snapshot(&self) -> TablesSnapshot {
        TablesSnapshot(self.database.snapshot())
    }

    /// The entries from one key to another; both are of the same segment or container.
    pub(crate) fn range(
        &self,
        snapshot: &TablesSnapshot,
        table: Table,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> + use<> {
        use fjall::Readable;

        let keyspace = self.tables[table.index()].holding(from).filter(|_| from < to);
        let range = keyspace.map(|it| snapshot.0.range(it, from.to_vec()..to.to_vec()));
        range
            .into_iter()
            .flatten()
            .map(move |guard| guard.into_inner().map_err(|error| reading_failed(table, error)))
    }

    /// Prepares [`Self::may_hold`] for a section, with a look at the disk the first time.
    pub(crate) fn learn_reach(&self, section: &Section) -> Result<()> {
        let table = section.table;
        self.reach.learn(section, |segment| {
            let (first, end) = (segment.to_be_bytes(), Place::end_of_segment(segment));
            let Some(keyspace) = self.tables[table.index()].holding(&first) else {
                return Ok(None);
            };
            let last = keyspace.range(first.to_vec()..end).next_back();
            let key = last.map(fjall::Guard::key).transpose();
            let key = key.map_err(|error| reading_failed(table, error))?;
            Ok(key.and_then(|it| Place::from_key(&it)))
        })
    }

    /// Whether they may hold something of a section that no layer of the buffer has.
    pub(crate) fn may_hold(&self, section: &Section) -> bool {
        self.reach.includes(section)
    }

    /// Takes over the entries of a layer and notes through which group of the log the tables are
    /// complete.
    ///
    /// A crash in between leaves some tables ahead of others; replaying the log evens that out,
    /// because an entry says what a key holds and not how it changed.
    pub(crate) fn take_over(&self, layer: &Layer) -> Result<()> {
        for table in Table::ALL {
            if table.writes_keys_once() {
                self.reach.extend(table, layer);
            }
            self.ingest(table, layer).map_err(|error| writing_failed(table, error))?;
        }
        Ok(())
    }

    /// The most tables that the newest level of any has; many mean that compaction is behind.
    pub(crate) fn backlog(&self) -> usize {
        self.keyspaces().map(|(_, it)| it.l0_table_count()).max().unwrap_or(0)
    }

    /// Asks for compaction where it is behind.
    pub(crate) fn nudge_compaction(&self) -> Result<()> {
        for (table, keyspace) in self.keyspaces() {
            if BACKLOG_TO_NUDGE <= keyspace.l0_table_count() {
                // Finishing an empty ingestion writes nothing and schedules a compaction.
                let nudged = keyspace.start_ingestion().and_then(|it| it.finish());
                nudged.map_err(|error| writing_failed(table, error))?;
            }
        }
        Ok(())
    }

    /// Whether compaction still runs; after a failure it has ended for good.
    pub(crate) fn check_alive(&self) -> Result<()> {
        // Nothing is in fjall's journal; the call only tells whether fjall has given up.
        let alive = self.database.persist(PersistMode::Buffer);
        alive.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "compact the tables").because(error)
        })
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.keyspaces().map(|(_, it)| it.disk_space()).sum()
    }

    fn keyspaces(&self) -> impl Iterator<Item = (Table, &Keyspace)> {
        let with_lanes = |table: Table| self.tables[table.index()].all().map(move |it| (table, it));
        Table::ALL.into_iter().flat_map(with_lanes)
    }

    fn ingest(&self, table: Table, layer: &Layer) -> fjall::Result<()> {
        let lanes = &self.tables[table.index()];
        // Entries come in key order, and so do those of each lane.
        let mut ingestions = BTreeMap::new();
        if table == Table::Meta {
            let lane = lanes.lane(keys::APPLIED_GROUP);
            let mut ingestion = self.lane(table, lane)?.start_ingestion()?;
            // The key of the applied group sorts before every other key of its table.
            let applied = Slice::from(layer.through_group().to_le_bytes());
            ingestion.write(keys::APPLIED_GROUP, applied)?;
            ingestions.insert(lane, ingestion);
        }
        for (key, value) in layer.table(table) {
            let lane = lanes.lane(key);
            let ingestion = match ingestions.entry(lane) {
                btree_map::Entry::Occupied(begun) => begun.into_mut(),
                btree_map::Entry::Vacant(place) => {
                    place.insert(self.lane(table, lane)?.start_ingestion()?)
                }
            };
            match value {
                Some(value) => ingestion.write(Slice::clone(key), value.clone())?,
                None => ingestion.write_tombstone(Slice::clone(key))?,
            }
        }
        ingestions.into_values().try_for_each(|it| it.finish())
    }

    /// The keyspace of a lane, which is made if this is the first entry for it.
    ///
    /// fjall numbers keyspaces by the directories that it finds, and a loss of power may take back
    /// the directory of the newest one but not its name. So that the number goes to the same lane
    /// again, lanes are made in one order, and each is durable before the next.
    fn lane(&self, table: Table, lane: usize) -> fjall::Result<&Keyspace> {
        let lanes = &self.tables[table.index()];
        if lanes.get(lane).is_none() {
            for number in 0..=lane {
                for table in Table::ALL.into_iter().filter(|it| it.has_lanes()) {
                    self.tables[table.index()].make(&self.database, number)?;
                }
            }
        }
        Ok(lanes.get(lane).expect("it was just made"))
    }
}

fn opening_failed(path: &Path, error: fjall::Error) -> Error {
    let kind = if matches!(error, fjall::Error::Locked) { ErrorKind::Locked } else { kind(&error) };
    Error::new(kind, format!("open the tables in {}", path.display())).because(error)
}

fn reading_failed(table: Table, error: fjall::Error) -> Error {
    Error::new(kind(&error), format!("read the table {:?}", table.name())).because(error)
}

fn kind(error: &fjall::Error) -> ErrorKind {
    if matches!(error, fjall::Error::Io(_)) { ErrorKind::Unavailable } else { ErrorKind::Corrupt }
}

fn writing_failed(table: Table, error: fjall::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("write the table {:?}", table.name())).because(error)
}

const TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// What came with so many flushes is compacted at once. Each time, everything in the first sorted
/// level is written again; more flushes would make look-ups of absent keys dearer.
const FLUSHES_PER_COMPACTION: u8 = 8;
const COMPACTION_THREADS: usize = 1;
const OPEN_FILES_MAX: usize = 256;
const BACKLOG_TO_NUDGE: usize = 8;

#[cfg(test)]
mod tests;
