//! Where the entries of a table stand: in one keyspace of fjall, or in one of several.
//!
//! A range commits in order, so what moves to the tables lies behind everything of its segment that
//! is there, and fjall has nothing to merge. But it judges by the first and the last key of what it
//! is given: with two segments in one keyspace everything seems to overlap and is written again and
//! again. So neighbouring segments go to different keyspaces, the lanes; and so do the items of
//! neighbouring containers, that those which are written to leave the others alone.

use std::sync::OnceLock;

use fjall::{Database, Keyspace};

use crate::tables::Table;

/// The keyspaces of a table.
pub(super) struct Lanes {
    table: Table,
    /// Lanes that never had an entry have no keyspace.
    keyspaces: Vec<OnceLock<Keyspace>>,
}

impl Lanes {
    /// Opens what is there, and the first lane in any case. The number of lanes must be the same
    /// each time.
    pub(super) fn open(database: &Database, table: Table, count: usize) -> fjall::Result<Self> {
        let count = if table.has_lanes() { count } else { 1 };
        let lanes = Self { table, keyspaces: (0..count).map(|_| OnceLock::new()).collect() };
        for lane in 0..count {
            if lane == 0 || database.keyspace_exists(&lanes.name(lane)) {
                lanes.make(database, lane)?;
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

    /// Makes the keyspace of a lane, or opens it.
    pub(super) fn make(&self, database: &Database, lane: usize) -> fjall::Result<&Keyspace> {
        let keyspace = database.keyspace(&self.name(lane), || self.table.options())?;
        Ok(self.keyspaces[lane].get_or_init(|| keyspace))
    }

    /// The first lane has the name that the only one had before there were several.
    fn name(&self, lane: usize) -> String {
        match lane {
            0 => self.table.name().to_owned(),
            lane => format!("{}-{lane}", self.table.name()),
        }
    }
}
