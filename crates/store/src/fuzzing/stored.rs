//! What the tables, the groups of the log and `format.json` hold.

use std::fs;
use std::sync::{LazyLock, Mutex};

use millstream_core::{EffectiveKey, ErrorKind};

use crate::buffer::Entry;
use crate::engine::{decode_entries, lock};
use crate::format::Format;
use crate::fuzzing::disk::Scratch;
use crate::keys::{self, MetaKey, Place};
use crate::records::{FeedRecord, HistoryRecord, ItemRecord, RangeRecord, encode_feed};

pub(super) fn records(data: &[u8]) {
    let mut written = Vec::new();
    if let Some(record) = ItemRecord::decode(data) {
        record.encode(&mut written);
        assert_eq!(written, data, "{record:?}");
    }
    if let Some(record) = RangeRecord::decode(data) {
        // A newer version may have written more behind it.
        assert_eq!(record.encode(), data[..48], "{record:?}");
    }
    if let Some(record) = HistoryRecord::decode(data) {
        assert_eq!(record.encode(), data, "{record:?}");
        assert_eq!(HistoryRecord::peek(data), Some((record.committed_at, record.effective)));
    }
    if let Some(record) = FeedRecord::decode(data) {
        assert_eq!(FeedRecord::peek(data), Some((record.written_at, record.effective)));
        let stamp = record.stamp(Place { segment: 1, lsn: 2, origin: 3, index: 4 });
        // A key that is too long is refused when the entry is read.
        if let Ok(effective) = EffectiveKey::from_bytes(record.effective) {
            let FeedRecord { partition_key, id, body, .. } = &record;
            encode_feed(&mut written, &stamp, &effective, partition_key, id, body);
            assert_eq!(written, data, "{record:?}");
        }
    }
}

pub(super) fn table_keys(data: &[u8]) {
    let written = match MetaKey::parse(data) {
        None => None,
        Some(MetaKey::AppliedGroup) => Some(keys::APPLIED_GROUP.to_vec()),
        Some(MetaKey::Counters) => Some(keys::COUNTERS.to_vec()),
        Some(MetaKey::Database(id)) => Some(keys::database(id)),
        Some(MetaKey::Container(id)) => Some(keys::container(id)),
        Some(MetaKey::Range(segment)) => Some(keys::range(segment)),
        Some(MetaKey::Guard(id, name)) => Some(keys::guard(id, name)),
        Some(MetaKey::Dropped(id)) => Some(keys::dropped(id)),
        Some(MetaKey::ExpiryChanged(id)) => Some(keys::expiry_changed(id)),
    };
    assert!(written.is_none_or(|it| it == data));
    if let Some(place) = Place::from_key(data) {
        assert_eq!(place.key(), data);
    }
    if let Some((at, item_key)) = keys::split_expiry(data) {
        assert_eq!(keys::expiry(at, item_key), data);
    }
    let container = keys::container_of(data);
    assert_eq!(container.is_some(), 4 <= data.len());
    if container != Some(u32::MAX) {
        assert!(data < keys::successor(data).as_slice() || data.iter().all(|it| *it == u8::MAX));
    }
}

/// Input: the payload of a group.
pub(super) fn entries(data: &[u8]) {
    let Some(entries) = decode_entries(data) else { return };
    let mut written = Vec::new();
    for entry in &entries {
        encode_entry(entry, &mut written);
    }
    assert_eq!(written, data);
}

/// Input: the content of `format.json`.
pub(super) fn format(data: &[u8]) {
    static DIRECTORY: LazyLock<Mutex<Scratch>> = LazyLock::new(|| Mutex::new(Scratch::new()));
    let directory = lock(&DIRECTORY);
    fs::create_dir_all(directory.path()).expect("there is room for temporary files");
    fs::write(directory.path().join("format.json"), data).expect("there is room");
    match Format::check(directory.path()) {
        Ok(found) => assert!(found.is_some()),
        Err(error) => {
            let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{}", error.report());
        }
    }
    // Nobody drops what is static.
    fs::remove_dir_all(directory.path()).expect("it was just made");
}

/// Written from the description of the format, not from the code that reads it.
pub(super) fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("input is short");
    out.push(entry.table.number());
    out.extend_from_slice(&length(&entry.key).to_le_bytes()[..2]);
    let value_bytes = entry.value.as_ref().map_or(u32::MAX, |it| length(it));
    out.extend_from_slice(&value_bytes.to_le_bytes());
    out.extend_from_slice(&entry.key);
    out.extend_from_slice(entry.value.as_deref().unwrap_or_default());
}
