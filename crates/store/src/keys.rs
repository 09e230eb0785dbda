//! The keys of the tables. Numbers are big-endian, so that keys sort as numbers do.

use fjall::Slice;
use millstream_core::{Claim, EffectiveKey, ItemId, KeyRange, Lsn, PartitionKey, Timestamp};

/// Key of the last group of the commit log that is in the tables; the smallest key of its table.
pub(crate) const APPLIED_GROUP: &[u8] = &[0];
/// Key of the numbers that are given out next.
pub(crate) const COUNTERS: &[u8] = &[1];

const CONTAINER: u8 = b'c';
const DATABASE: u8 = b'd';
const GUARD: u8 = b'g';
const RANGE: u8 = b'r';
const DROPPED: u8 = b'x';
const EXPIRY_CHANGED: u8 = b't';

/// Where a version of an item stands in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// The part of the feed table that holds it now. A range writes to a segment of its own.
    pub(crate) segment: u32,
    /// The commit.
    pub(crate) lsn: u64,
    /// The segment it was first written to. Two ranges that merge may both have a commit of the
    /// same number.
    pub(crate) origin: u32,
    /// The operation within the commit.
    pub(crate) index: u16,
}

impl Place {
    /// The key in the tables of the feed and of the history.
    pub(crate) fn key(self) -> [u8; 18] {
        let mut key = [0; 18];
        key[..4].copy_from_slice(&self.segment.to_be_bytes());
        key[4..12].copy_from_slice(&self.lsn.to_be_bytes());
        key[12..16].copy_from_slice(&self.origin.to_be_bytes());
        key[16..].copy_from_slice(&self.index.to_be_bytes());
        key
    }

    pub(crate) fn from_key(key: &[u8]) -> Option<Self> {
        let key: &[u8; 18] = key.try_into().ok()?;
        Some(Self {
            segment: u32::from_be_bytes(key[..4].try_into().ok()?),
            lsn: u64::from_be_bytes(key[4..12].try_into().ok()?),
            origin: u32::from_be_bytes(key[12..16].try_into().ok()?),
            index: u16::from_be_bytes(key[16..].try_into().ok()?),
        })
    }

    /// The first key of a segment after a commit.
    pub(crate) fn first_after(segment: u32, lsn: Lsn) -> [u8; 18] {
        let lsn = lsn.as_u64().saturating_add(1);
        Self { segment, lsn, origin: 0, index: 0 }.key()
    }

    /// The first key behind a segment.
    pub(crate) fn end_of_segment(segment: u32) -> Vec<u8> {
        successor(&segment.to_be_bytes())
    }
}

/// The key of an item: container, effective partition key, partition key, id.
pub(crate) fn item(
    container: u32,
    effective: &EffectiveKey,
    key: &PartitionKey,
    id: &ItemId,
) -> Vec<u8> {
    let mut bytes = partition(container, effective, key);
    bytes.extend_from_slice(id.as_str().as_bytes());
    bytes
}

/// What the keys of all items of a logical partition start with; also the key of its event number.
pub(crate) fn partition(container: u32, effective: &EffectiveKey, key: &PartitionKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + effective.as_bytes().len() + 64);
    bytes.extend_from_slice(&container.to_be_bytes());
    bytes.extend_from_slice(effective.as_bytes());
    key.encode(&mut bytes);
    bytes
}

/// The key of a unique value: the partition and what is claimed, which is never empty.
pub(crate) fn claim(partition: &[u8], claim: &Claim) -> Slice {
    Slice::from([partition, claim.as_bytes()].concat())
}

/// The keys of the items of a container whose effective partition key lies in a range.
pub(crate) fn items_in(container: u32, keys: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let with = |bound: &EffectiveKey| {
        let mut bytes = container.to_be_bytes().to_vec();
        bytes.extend_from_slice(bound.trimmed());
        bytes
    };
    let to =
        if *keys.max() == EffectiveKey::MAX { prefix_end(container) } else { with(keys.max()) };
    (with(keys.min()), to)
}

/// The end of the keys that start with a container.
pub(crate) fn prefix_end(container: u32) -> Vec<u8> {
    successor(&container.to_be_bytes())
}

/// The smallest key greater than all keys that start with `prefix`.
pub(crate) fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // A prefix of 0xFF bytes has no successor of its length; no key of ours is that long.
    vec![u8::MAX; 64]
}

/// The key of an item among those that expire.
pub(crate) fn expiry(at: Timestamp, item_key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + item_key.len());
    bytes.extend_from_slice(&at.as_millis().to_be_bytes());
    bytes.extend_from_slice(item_key);
    bytes
}

/// Takes the key of an expiry apart: the time and the key of the item.
pub(crate) fn split_expiry(key: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (at, item_key) = key.split_at_checked(8)?;
    Some((Timestamp::from_millis(u64::from_be_bytes(at.try_into().ok()?)), item_key))
}

/// The container an item key belongs to.
pub(crate) fn container_of(item_key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(item_key.get(..4)?.try_into().ok()?))
}

pub(crate) fn database(id: u32) -> Vec<u8> {
    numbered(DATABASE, id)
}

pub(crate) fn container(id: u32) -> Vec<u8> {
    numbered(CONTAINER, id)
}

/// The key of the newest number of the range that writes to a segment.
pub(crate) fn range(segment: u32) -> Vec<u8> {
    numbered(RANGE, segment)
}

pub(crate) fn guard(container: u32, name: &str) -> Vec<u8> {
    let mut bytes = numbered(GUARD, container);
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// The key of a container that was deleted and whose entries are still there.
pub(crate) fn dropped(container: u32) -> Vec<u8> {
    numbered(DROPPED, container)
}

/// The key of a container whose default TTL changed and whose items are still to be looked at.
pub(crate) fn expiry_changed(container: u32) -> Vec<u8> {
    numbered(EXPIRY_CHANGED, container)
}

/// What a key of the meta table is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MetaKey<'a> {
    AppliedGroup,
    Counters,
    Database(u32),
    Container(u32),
    Range(u32),
    Guard(u32, &'a str),
    Dropped(u32),
    ExpiryChanged(u32),
}

impl<'a> MetaKey<'a> {
    pub(crate) fn parse(key: &'a [u8]) -> Option<Self> {
        let (tag, rest) = key.split_first()?;
        if rest.is_empty() {
            return match *tag {
                0 => Some(Self::AppliedGroup),
                1 => Some(Self::Counters),
                _ => None,
            };
        }
        let (number, rest) = rest.split_at_checked(4)?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        if *tag == GUARD {
            return Some(Self::Guard(number, std::str::from_utf8(rest).ok()?));
        }
        if !rest.is_empty() {
            return None;
        }
        match *tag {
            DATABASE => Some(Self::Database(number)),
            CONTAINER => Some(Self::Container(number)),
            RANGE => Some(Self::Range(number)),
            DROPPED => Some(Self::Dropped(number)),
            EXPIRY_CHANGED => Some(Self::ExpiryChanged(number)),
            _ => None,
        }
    }
}

fn numbered(tag: u8, number: u32) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_by_segment_then_commit_then_operation() {
        let place = |segment, lsn, origin, index| Place { segment, lsn, origin, index };
        let ordered =
            [place(1, 9, 1, 0), place(1, 9, 1, 1), place(1, 256, 0, 0), place(2, 1, 1, 0)];
        for pair in ordered.windows(2) {
            assert!(pair[0].key() < pair[1].key(), "{pair:?}");
        }
        for it in ordered {
            assert_eq!(Place::from_key(&it.key()), Some(it));
        }
    }

    #[test]
    fn a_segment_ends_behind_its_last_commit() {
        let last = Place { segment: 1, lsn: u64::MAX, origin: u32::MAX, index: u16::MAX }.key();
        assert!(last.as_slice() < Place::end_of_segment(1).as_slice());
    }

    #[test]
    fn meta_keys_come_back() {
        assert_eq!(MetaKey::parse(&container(7)), Some(MetaKey::Container(7)));
        assert_eq!(MetaKey::parse(&guard(7, "relay")), Some(MetaKey::Guard(7, "relay")));
        assert_eq!(MetaKey::parse(APPLIED_GROUP), Some(MetaKey::AppliedGroup));
        assert_eq!(MetaKey::parse(b"zzz"), None);
        assert_eq!(MetaKey::parse(b""), None);
    }

    #[test]
    fn the_successor_of_a_prefix_is_behind_all_its_keys() {
        assert_eq!(successor(&[1, 255]), [2]);
        assert!(successor(&[255, 255]) > vec![255, 255, 255]);
    }
}
