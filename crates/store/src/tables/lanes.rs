//! Where the entries of a table stand: in one keyspace of fjall, or in one of several.
//!
//! A range commits in order, so what moves to the tables lies behind everything of its segment that
//! is there, and fjall has nothing to merge. But it judges by the first and the last key of what it
//! is given: with two segments in one keyspace everything seems to overlap and is written again and
//! again. So neighbouring segments go to different keyspaces, the lanes; and so do the items of
//! neighbouring containers, that those which are written to leave the others alone.

use std::sync::OnceLock;

use fjall::{Database, Keyspace};

use crate::disk::{sync_directories, sync_directory};
use crate::tables::Table;

/// The keyspaces of a table.
pub(super) struct Lanes {
    table: Table,
    /// Lanes that never had an entry have no keyspace.
    keyspaces: Vec<OnceLock<Keyspace>>,
}

impl Lanes {
    /// Opens what is there, and the first lane in any case. The number of lanes must be the same
    /// each time. The caller makes the directories durable.
    pub(super) fn open(database: &Database, table: Table, count: usize) -> fjall::Result<Self> {
        let count = if table.has_lanes() { count } else { 1 };
        let lanes = Self { table, keyspaces: (0..count).map(|_| OnceLock::new()).collect() };
        for (lane, place) in lanes.keyspaces.iter().enumerate() {
            if lane == 0 || database.keyspace_exists(&lanes.name(lane)) {
                let keyspace = lanes.keyspace(database, lane)?;
                place.get_or_init(|| keyspace);
            }
        }
        Ok(lanes)
    }

    /// The lane of a key, by the segment or the container it begins with.
    pub(super) fn lane(&self, key: &[u8]) -> usize {
        let owner = key.first_chunk().map_or(0, |it| u32::from_be_bytes(*it));
        usize::try_from(owner).map_or(0, |it| it % self.keyspaces.len())
    }

    /// The keyspace that holds a key, if there is one.
    pub(super) fn holding(&self, key: &[u8]) -> Option<&Keyspace> {
        self.keyspaces[self.lane(key)].get()
    }

    /// The keyspaces that are there.
    pub(super) fn all(&self) -> impl Iterator<Item = &Keyspace> {
        self.keyspaces.iter().filter_map(OnceLock::get)
    }

    /// The keyspace of a lane, if it is there already.
    pub(super) fn get(&self, lane: usize) -> Option<&Keyspace> {
        self.keyspaces[lane].get()
    }

    /// Makes the keyspace of a lane, if it is not there yet, and makes it durable: fjall does not
    /// do that for the directories of new keyspaces.
    pub(super) fn make(&self, database: &Database, lane: usize) -> fjall::Result<()> {
        if self.get(lane).is_none() {
            let keyspace = self.keyspace(database, lane)?;
            sync_directories(keyspace.path())?;
            keyspace.path().parent().map_or(Ok(()), sync_directory)?;
            self.keyspaces[lane].get_or_init(|| keyspace);
        }
        Ok(())
    }

    /// Opens the keyspace of a lane, or makes it.
    fn keyspace(&self, database: &Database, lane: usize) -> fjall::Result<Keyspace> {
        database.keyspace(&self.name(lane), || self.table.options())
    }

    /// The first lane has the name that the only one had before there were several.
    fn name(&self, lane: usize) -> String {
        match lane {
            0 => self.table.name().to_owned(),
            lane => format!("{}-{lane}", self.table.name()),
        }
    }
}
