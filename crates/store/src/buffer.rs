//! Recent commits in memory, in front of the sorted tables.
//!
//! Commits go to the active layer. When it is full it is frozen, moved to the tables in key order,
//! and dropped. A key is looked up in the active layer, then in the frozen one, then in the tables;
//! the first answer counts.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use fjall::Slice;

use crate::tables::Table;

/// One table entry; no value means that the key is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: Table,
    pub(crate) key: Slice,
    pub(crate) value: Option<Slice>,
}

impl Entry {
    pub(crate) fn put(table: Table, key: impl Into<Slice>, value: impl Into<Slice>) -> Self {
        Self { table, key: key.into(), value: Some(value.into()) }
    }

    pub(crate) fn remove(table: Table, key: impl Into<Slice>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// A key with its first bytes beside it: most comparisons end there, without a look at the heap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    head: u128,
    bytes: Slice,
}

impl Key {
    fn new(bytes: Slice) -> Self {
        let mut head = [0; 16];
        let count = bytes.len().min(16);
        head[..count].copy_from_slice(&bytes[..count]);
        Self { head: u128::from_be_bytes(head), bytes }
    }

    pub(crate) fn bytes(&self) -> &Slice {
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
    /// Counts the moves to the tables; what was read from a table holds as long as it stays the
    /// same.
    pub(crate) generation: u64,
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
            let bounds =
                (Bound::Included(Key::new(from.into())), Bound::Excluded(Key::new(to.into())));
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
        let key = Key::new(key);
        let map = &mut self.tables[table.index()];
        // A key that is written once and is gone again before it moved to the tables need not leave
        // a trace.
        let leaves_no_trace = value.is_none() && table.writes_keys_once() && !self.replayed;
        if leaves_no_trace && let Some(Some(old)) = map.get(&key) {
            self.bytes -= cost(key.bytes.len(), Some(old));
            map.remove(&key);
            return;
        }
        let key_bytes = key.bytes.len();
        self.bytes += cost(key_bytes, value.as_ref());
        if let Some(old) = map.insert(key, value) {
            self.bytes -= cost(key_bytes, old.as_ref());
        }
    }
}

impl Buffer {
    /// The answer of the buffer; none if it has to be looked up in the tables.
    pub(crate) fn get(&self, table: Table, key: &Slice) -> Option<Option<Slice>> {
        let key = Key::new(key.clone());
        if let Some(value) = self.active.get(table, &key) {
            return Some(value.clone());
        }
        self.frozen.as_ref()?.get(table, &key).cloned()
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
        self.generation += 1;
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
        Key::new(text.as_bytes().into())
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
        assert_eq!(buffer.get(Table::Feed, &key("a").bytes), Some(None));
        buffer.thaw();
        assert_eq!(buffer.get(Table::Feed, &key("a").bytes), Some(None));
        assert_eq!(buffer.generation, 1);
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
