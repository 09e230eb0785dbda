//! Recent commits in memory, in front of the sorted tables.
//!
//! Commits go to the active layer. When it is full it is frozen, moved to the tables in key order,
//! and dropped. A key is looked up in the active layer, then in the frozen one, then in the tables;
//! the first answer counts.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Bound, Deref};
use std::sync::Arc;

use fjall::Slice;

use crate::tables::Table;

/// One table entry; no value means that the key is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: Table,
    pub(crate) key: Key,
    pub(crate) value: Option<Slice>,
}

impl Entry {
    pub(crate) fn put(table: Table, key: impl Into<Key>, value: impl Into<Slice>) -> Self {
        Self { table, key: key.into(), value: Some(value.into()) }
    }

    pub(crate) fn remove(table: Table, key: impl Into<Key>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// A key with its first bytes beside it: most comparisons end there, without a look at the heap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    head: [u64; 2],
    bytes: Slice,
}

impl<T: Into<Slice>> From<T> for Key {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        let mut head = [0; 16];
        let count = bytes.len().min(16);
        head[..count].copy_from_slice(&bytes[..count]);
        let head = u128::from_be_bytes(head);
        let halves = [head >> 64, head & u128::from(u64::MAX)];
        Self { head: halves.map(|it| u64::try_from(it).expect("it is half of the bits")), bytes }
    }
}

impl Deref for Key {
    type Target = Slice;

    fn deref(&self) -> &Slice {
        &self.bytes
    }
}

/// Entries of all tables.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    tables: [BTreeMap<Key, Option<Slice>>; Table::COUNT],
    bytes: usize,
    /// Whether entries may be in the tables already, because the log was replayed.
    replayed: bool,
    /// The last group whose entries are in here.
    through_group: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) active: Layer,
    pub(crate) frozen: Option<Arc<Layer>>,
}

impl Layer {
    pub(crate) fn after_replay() -> Self {
        Self { replayed: true, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn through_group(&self) -> u64 {
        self.through_group
    }

    fn get(&self, table: Table, key: &Key) -> Option<&Option<Slice>> {
        self.tables[table.index()].get(key)
    }

    pub(crate) fn table(&self, table: Table) -> &BTreeMap<Key, Option<Slice>> {
        &self.tables[table.index()]
    }

    pub(crate) fn range<'a>(
        &'a self,
        table: Table,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl Iterator<Item = (&'a Slice, &'a Option<Slice>)> {
        // A reversed range makes BTreeMap panic.
        let range = (from < to).then(|| {
            let bounds = (Bound::Included(Key::from(from)), Bound::Excluded(Key::from(to)));
            self.tables[table.index()].range(bounds)
        });
        range.into_iter().flatten().map(|(key, value)| (&key.bytes, value))
    }

    pub(crate) fn apply(&mut self, entries: impl IntoIterator<Item = Entry>, group: u64) {
        for entry in entries {
            self.apply_one(entry);
        }
        self.through_group = group;
    }

    fn apply_one(&mut self, entry: Entry) {
        let Entry { table, key, value } = entry;
        // A key that is written once and is gone again before it moved to the tables need not leave
        // a trace.
        let leaves_no_trace = value.is_none() && table.writes_keys_once() && !self.replayed;
        let new_cost = cost(key.len(), value.as_ref());
        match self.tables[table.index()].entry(key) {
            btree_map::Entry::Vacant(place) => {
                place.insert(value);
                self.bytes += new_cost;
            }
            btree_map::Entry::Occupied(mut place) => {
                self.bytes -= cost(place.key().len(), place.get().as_ref());
                if leaves_no_trace && place.get().is_some() {
                    place.remove();
                } else {
                    place.insert(value);
                    self.bytes += new_cost;
                }
            }
        }
    }
}

impl Buffer {
    /// The answer of the buffer; none if it has to be looked up in the tables.
    pub(crate) fn get(&self, table: Table, key: &Key) -> Option<Option<Slice>> {
        if let Some(value) = self.active.get(table, key) {
            return Some(value.clone());
        }
        self.frozen.as_ref()?.get(table, key).cloned()
    }

    /// Freezes the active layer.
    pub(crate) fn freeze(&mut self) -> Arc<Layer> {
        assert!(self.frozen.is_none(), "the frozen layer has not moved to the tables yet");
        let through_group = self.active.through_group;
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.active.through_group = through_group;
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// Takes the frozen layer away, whose entries are in the tables now.
    pub(crate) fn thaw(&mut self) -> Option<Arc<Layer>> {
        self.frozen.take()
    }
}

fn cost(key_bytes: usize, value: Option<&Slice>) -> usize {
    ENTRY_OVERHEAD_BYTES + key_bytes + value.map_or(0, |it| it.len())
}

/// Rough memory of an entry besides its bytes: two slices, their heads and a place in the tree.
const ENTRY_OVERHEAD_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Entry {
        Entry::put(Table::Feed, key.as_bytes(), value.as_bytes())
    }

    fn remove(key: &str) -> Entry {
        Entry::remove(Table::Feed, key.as_bytes())
    }

    fn key(text: &str) -> Key {
        Key::from(text.as_bytes())
    }

    #[test]
    fn keys_sort_as_their_bytes_do() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "aaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaa\0",
            "aaaaaaaaaaaaaaaab",
            "b",
        ];
        for pair in texts.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_feed_entry_that_came_and_went_leaves_no_trace() {
        let mut layer = Layer::default();
        layer.apply([put("a", "1"), remove("a")], 1);
        assert_eq!((layer.get(Table::Feed, &key("a")), layer.bytes()), (None, 0));
    }

    #[test]
    fn after_a_replay_it_may_be_in_the_tables_and_leaves_one() {
        let mut layer = Layer::after_replay();
        layer.apply([put("a", "1"), remove("a")], 1);
        assert_eq!(layer.get(Table::Feed, &key("a")), Some(&None));
    }

    #[test]
    fn an_entry_of_the_frozen_layer_is_hidden_by_its_removal() {
        let mut buffer = Buffer::default();
        buffer.active.apply([put("a", "1")], 1);
        buffer.freeze();
        buffer.active.apply([remove("a")], 2);
        assert_eq!(buffer.get(Table::Feed, &key("a")), Some(None));
        buffer.thaw();
        assert_eq!(buffer.get(Table::Feed, &key("a")), Some(None));
    }

    #[test]
    fn bytes_are_counted_once_per_key() {
        let mut layer = Layer::default();
        layer.apply([put("a", "1")], 1);
        let once = layer.bytes();
        layer.apply([put("a", "2")], 2);
        assert_eq!(layer.bytes(), once);
    }
}
