use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use super::*;
use crate::buffer::Entry;

/// Flushes after which a table that seems to overlap others is written again.
const FLUSHES: u64 = 20;
const CACHE_BYTES: u64 = 1024 * 1024;

fn key(segment: u32, lsn: u64) -> [u8; 18] {
    Place { segment, lsn, origin: segment, index: 0 }.key()
}

fn layer(entries: impl IntoIterator<Item = Entry>, group: u64) -> Layer {
    let mut layer = Layer::default();
    layer.apply(entries, group);
    layer
}

fn entries_of(tables: &Tables, segment: u32) -> Vec<(Slice, Slice)> {
    let (from, to) = (segment.to_be_bytes(), Place::end_of_segment(segment));
    let entries = tables.range(&tables.snapshot(), Table::Feed, &from, &to);
    entries.collect::<Result<_>>().expect("they can be read")
}

/// The files of tables that hold much.
fn large_files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for keyspace in fs::read_dir(directory.join("keyspaces")).expect("it is there") {
        let tables = keyspace.expect("it can be read").path().join("tables");
        // Compaction removes files meanwhile.
        for file in fs::read_dir(tables).into_iter().flatten().flatten() {
            if file.metadata().is_ok_and(|it| 50_000 < it.len()) {
                files.insert(file.path());
            }
        }
    }
    files
}

/// Moves commits of a busy segment and of a quiet one beside it to the tables again and again, and
/// returns the files that were there at any time.
fn flush_often(tables: &Tables, directory: &Path) -> BTreeSet<PathBuf> {
    let mut seen = BTreeSet::new();
    for flush in 0..FLUSHES {
        let put = |segment, lsn| Entry::put(Table::Feed, key(segment, lsn), vec![b'x'; 1000]);
        let busy = (flush * 100..flush * 100 + 100).map(|lsn| put(2, lsn));
        let quiet = [put(1, flush), put(3, flush)];
        tables.take_over(&layer(busy.chain(quiet), flush)).expect("they are taken over");
        seen.append(&mut large_files(directory));
    }
    seen
}

#[test]
fn what_came_in_order_is_not_written_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let tables = Tables::open(directory.path(), 16, CACHE_BYTES).expect("they open");
    let seen = flush_often(&tables, directory.path());
    assert_eq!(seen.len(), 20, "one for each flush");
    sleep(Duration::from_millis(300));
    assert_eq!(large_files(directory.path()), seen);
    assert_eq!(entries_of(&tables, 2).len(), 2000);
    assert_eq!(entries_of(&tables, 3).len(), 20);
    // The same in one lane is: what the quiet segments write makes everything overlap.
    let directory = tempfile::tempdir().expect("a directory");
    let tables = Tables::open(directory.path(), 1, CACHE_BYTES).expect("they open");
    let seen = flush_often(&tables, directory.path());
    let is_written_again = || !seen.is_subset(&large_files(directory.path()));
    let look = |_| {
        sleep(Duration::from_millis(10));
        is_written_again()
    };
    assert!((0..6000).any(look), "nothing was written again");
}

#[test]
fn every_lane_is_found_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let segments = [0, 1, 15, 16, 17, 31, 1000, u32::MAX];
    let put = |table, segment, lsn| {
        Entry::put(table, key(segment, lsn), segment.to_le_bytes().as_slice())
    };
    for round in 0..3 {
        let tables = Tables::open(directory.path(), 16, CACHE_BYTES).expect("they open");
        for segment in segments {
            let expected: Vec<_> = (0..round)
                .map(|lsn| (Slice::from(key(segment, lsn)), Slice::from(segment.to_le_bytes())))
                .collect();
            assert_eq!(entries_of(&tables, segment), expected, "{segment} in round {round}");
            for (table, lsn) in [(Table::History, 0), (Table::History, 1), (Table::Items, 1)] {
                let found = tables.get(table, &key(segment, lsn)).expect("it is read");
                assert_eq!(found.is_some(), lsn < round, "{segment} in round {round}");
            }
        }
        let entries = [Table::Items, Table::Feed, Table::History]
            .into_iter()
            .flat_map(|table| segments.map(|it| put(table, it, round)));
        tables.take_over(&layer(entries, round)).expect("they are taken over");
    }
}

#[test]
fn what_is_removed_is_gone_from_its_lane() {
    let directory = tempfile::tempdir().expect("a directory");
    let tables = Tables::open(directory.path(), 16, CACHE_BYTES).expect("they open");
    let put = |segment| Entry::put(Table::Feed, key(segment, 1), b"x".as_slice());
    tables.take_over(&layer([put(5), put(21)], 1)).expect("they are taken over");
    let removed = Entry::remove(Table::Feed, key(5, 1));
    tables.take_over(&layer([removed], 2)).expect("they are taken over");
    assert_eq!(tables.get(Table::Feed, &key(5, 1)).expect("it is read"), None);
    assert!(tables.get(Table::Feed, &key(21, 1)).expect("it is read").is_some());
    assert_eq!(entries_of(&tables, 5), []);
}

/// A number that fjall gives out again after a loss of power must not go to another lane.
#[test]
fn a_lane_has_the_same_number_whichever_is_needed_first() {
    for order in [&[15][..], &[4, 1, 9], &[0, 1, 2, 3]] {
        let directory = tempfile::tempdir().expect("a directory");
        let tables = Tables::open(directory.path(), 16, CACHE_BYTES).expect("they open");
        for (group, lane) in (1..).zip(order) {
            let put = Entry::put(Table::Feed, key(*lane, 1), b"x".as_slice());
            tables.take_over(&layer([put], group)).expect("it is taken over");
        }
        for (table, lanes) in Table::ALL.iter().zip(&tables.tables) {
            for (lane, keyspace) in lanes.all().enumerate() {
                let number = if lane == 0 { 1 } else { 7 + (lane - 1) * 3 } + table.index();
                assert!(keyspace.path().ends_with(number.to_string()), "{table:?} {lane}");
            }
        }
    }
}
