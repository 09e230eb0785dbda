//! Table entries as lines, so that damage to one value leaves the others alone.
//!
//! A line is a letter, a byte and a value. The letter is the tag of a key of the meta table, which
//! the byte goes on with as a number; or it names another table, and the byte counts the keys that
//! the store of the seeds has there.

use crate::buffer::Entry;
use crate::engine::decode_entries;
use crate::fuzzing::seeds;
use crate::keys;
use crate::tables::Table;

const TABLES: [(u8, Table); 5] = [
    (b'I', Table::Items),
    (b'F', Table::Feed),
    (b'H', Table::History),
    (b'E', Table::Expiry),
    (b'S', Table::Sequences),
];

/// The entries that lines stand for; others are left out.
pub(super) fn entries(data: &[u8]) -> Vec<Entry> {
    let known = known();
    data.split(|it| *it == b'\n').filter_map(|line| entry(line, &known)).collect()
}

/// Lines for the entries of the store of the seeds: each alone, and those of the meta table
/// together.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let known = known();
    let mut lines = Vec::new();
    let mut all_meta = Vec::new();
    for entry in &known {
        let Some(value) = entry.value.as_ref().filter(|it| !it.contains(&b'\n')) else { continue };
        let line = if entry.table == Table::Meta {
            let number = entry.key.get(4).copied().unwrap_or(0);
            let line = [&[letter(entry.key[0]), number], &value[..]].concat();
            all_meta.push(line.clone());
            line
        } else {
            let (letter, _) = TABLES.into_iter().find(|it| it.1 == entry.table).expect("all five");
            let keys = known.iter().filter(|it| it.table == entry.table);
            let place = keys.map(|it| &it.key).position(|it| *it == entry.key);
            let place = u8::try_from(place.expect("it is one of them")).unwrap_or(u8::MAX);
            [&[letter, place], &value[..]].concat()
        };
        lines.push(line);
    }
    lines.push(all_meta.join(&b'\n'));
    lines
}

/// Every entry that the store of the seeds has written.
fn known() -> Vec<Entry> {
    let groups = seeds::groups();
    let whole = groups.last().expect("the store wrote something");
    decode_entries(whole).expect("it is ours")
}

fn entry(line: &[u8], known: &[Entry]) -> Option<Entry> {
    let ([tag, number], value) = line.split_first_chunk()?;
    if let Some((_, table)) = TABLES.into_iter().find(|it| it.0 == *tag) {
        let mut keys = known.iter().filter(|it| it.table == table);
        let key = keys.nth(usize::from(*number))?.key.clone();
        return Some(Entry::put(table, key, value));
    }
    let key = match tag {
        b'n' => keys::COUNTERS.to_vec(),
        b'g' => keys::guard(u32::from(*number), "relay"),
        tag => {
            let mut key = vec![*tag];
            key.extend_from_slice(&u32::from(*number).to_be_bytes());
            key
        }
    };
    Some(Entry::put(Table::Meta, key, value))
}

/// The tag of the counters is no letter.
fn letter(tag: u8) -> u8 {
    if [tag] == *keys::COUNTERS { b'n' } else { tag }
}
