//! Table entries as they stand in a group of the commit log.

use crate::buffer::Entry;
use crate::tables::Table;

pub(super) fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    let key_bytes = u16::try_from(entry.key.len()).expect("keys are shorter than 64 KiB");
    let value_bytes = match &entry.value {
        None => REMOVED,
        Some(value) => u32::try_from(value.len()).expect("values are shorter than 4 GiB"),
    };
    out.push(entry.table.number());
    out.extend_from_slice(&key_bytes.to_le_bytes());
    out.extend_from_slice(&value_bytes.to_le_bytes());
    out.extend_from_slice(&entry.key);
    if let Some(value) = &entry.value {
        out.extend_from_slice(value);
    }
}

/// Reads the entries of a group; none if they are not what was written.
pub(crate) fn decode_entries(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at_checked(7)?;
        let table = Table::from_number(head[0])?;
        let key_bytes = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let value_bytes = u32::from_le_bytes([head[3], head[4], head[5], head[6]]);
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        if value_bytes == REMOVED {
            entries.push(Entry::remove(table, key));
            bytes = rest;
            continue;
        }
        let (value, rest) = rest.split_at_checked(usize::try_from(value_bytes).ok()?)?;
        entries.push(Entry::put(table, key, value));
        bytes = rest;
    }
    Some(entries)
}

/// Length of a value that says the key is gone.
const REMOVED: u32 = u32::MAX;
