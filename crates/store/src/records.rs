//! The values of the tables. Everything here reads bytes from disk: garbage gives `None`, never a
//! panic.

use bytes::Bytes;
use millstream_core::{
    ChangeKind, EffectiveKey, Etag, Item, ItemId, Lsn, PartitionKey, TimeToLive, Timestamp,
};

use serde::{Deserialize, Serialize};

use crate::keys::Place;

/// What is known about a version of an item besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) lsn: u64,
    pub(crate) origin: u32,
    pub(crate) index: u16,
    pub(crate) written_at: Timestamp,
    pub(crate) ttl: Option<TimeToLive>,
    /// The event number; only events have one.
    pub(crate) sequence: Option<u64>,
}

/// The value of the items table: where the newest version of an item stands, and what a commit has
/// to know about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemRecord {
    pub(crate) segment: u32,
    pub(crate) stamp: Stamp,
    pub(crate) body_bytes: u32,
}

/// The value of the feed table: a version of an item with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeedRecord<'a> {
    pub(crate) written_at: Timestamp,
    pub(crate) ttl: Option<TimeToLive>,
    pub(crate) sequence: Option<u64>,
    pub(crate) effective: &'a [u8],
    pub(crate) partition_key: PartitionKey,
    pub(crate) id: ItemId,
    pub(crate) body: &'a [u8],
}

/// The value of the history table: a change with the versions before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryRecord<'a> {
    pub(crate) kind: ChangeKind,
    pub(crate) committed_at: Timestamp,
    pub(crate) effective: &'a [u8],
    pub(crate) partition_key: PartitionKey,
    pub(crate) id: ItemId,
    pub(crate) current: Option<(Stamp, &'a [u8])>,
    pub(crate) previous: Option<(Stamp, &'a [u8])>,
}

/// The value of a range in the meta table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    /// The newest commit.
    pub(crate) newest: u64,
    /// Its time.
    pub(crate) committed_at: Timestamp,
    /// Bytes of live items.
    pub(crate) live_bytes: u64,
    /// What is no longer in its history.
    pub(crate) history_floor: Floor,
    /// The newest commit of the ranges that were merged into it or into a predecessor. What is not
    /// later may stand in an order of its own in time.
    pub(crate) unordered: u64,
}

/// The newest commit that is no longer in a history, and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) lsn: u64,
    pub(crate) time_ms: u64,
}

impl Floor {
    pub(crate) fn max(self, other: Self) -> Self {
        Self { lsn: self.lsn.max(other.lsn), time_ms: self.time_ms.max(other.time_ms) }
    }
}

impl Stamp {
    pub(crate) fn etag(&self) -> Etag {
        // Every write makes one; formatting it would take several times as long.
        let mut digits = [0; 28];
        let number = u128::from(self.origin) << 80 | u128::from(self.lsn) << 16;
        let mut rest = number | u128::from(self.index);
        for digit in digits.iter_mut().rev() {
            let [value, ..] = (rest & 15).to_le_bytes();
            *digit = b"0123456789abcdef"[usize::from(value)];
            rest >>= 4;
        }
        Etag::new(str::from_utf8(&digits).expect("digits are ASCII"))
    }

    pub(crate) fn place(&self, segment: u32) -> Place {
        Place { segment, lsn: self.lsn, origin: self.origin, index: self.index }
    }

    pub(crate) fn expiry(&self, container: Option<TimeToLive>) -> Option<Timestamp> {
        TimeToLive::expiry(container, self.ttl, self.written_at)
    }

    pub(crate) fn item(
        &self,
        container: Option<TimeToLive>,
        partition_key: PartitionKey,
        id: ItemId,
        body: Bytes,
    ) -> Item {
        Item {
            id,
            partition_key,
            body,
            etag: self.etag(),
            lsn: Lsn::new(self.lsn),
            written_at: self.written_at,
            expires_at: self.expiry(container),
            sequence: self.sequence,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lsn.to_le_bytes());
        out.extend_from_slice(&self.origin.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.written_at.as_millis().to_le_bytes());
        out.extend_from_slice(&ttl_number(self.ttl).to_le_bytes());
        // Event numbers start at 1.
        out.extend_from_slice(&self.sequence.unwrap_or(0).to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            lsn: reader.u64()?,
            origin: reader.u32()?,
            index: reader.u16()?,
            written_at: Timestamp::from_millis(reader.u64()?),
            ttl: ttl_from(reader.u32()?)?,
            sequence: Some(reader.u64()?).filter(|it| 0 < *it),
        })
    }
}

impl ItemRecord {
    pub(crate) fn place(&self) -> Place {
        self.stamp.place(self.segment)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.segment.to_le_bytes());
        self.stamp.encode(out);
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let record = Self {
            segment: reader.u32()?,
            stamp: Stamp::decode(&mut reader)?,
            body_bytes: reader.u32()?,
        };
        reader.0.is_empty().then_some(record)
    }
}

/// Writes the value of a feed entry.
pub(crate) fn encode_feed(
    out: &mut Vec<u8>,
    stamp: &Stamp,
    effective: &EffectiveKey,
    partition_key: &PartitionKey,
    id: &ItemId,
    body: &[u8],
) {
    out.clear();
    out.extend_from_slice(&stamp.written_at.as_millis().to_le_bytes());
    out.extend_from_slice(&ttl_number(stamp.ttl).to_le_bytes());
    out.extend_from_slice(&stamp.sequence.unwrap_or(0).to_le_bytes());
    encode_identity(out, effective.as_bytes(), partition_key, id);
    out.extend_from_slice(body);
}

impl<'a> FeedRecord<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let written_at = Timestamp::from_millis(reader.u64()?);
        let ttl = ttl_from(reader.u32()?)?;
        let sequence = Some(reader.u64()?).filter(|it| 0 < *it);
        let (effective, partition_key, id) = decode_identity(&mut reader)?;
        Some(Self { written_at, ttl, sequence, effective, partition_key, id, body: reader.0 })
    }

    /// The effective partition key and the time of an entry, without decoding the rest.
    pub(crate) fn peek(bytes: &'a [u8]) -> Option<(Timestamp, &'a [u8])> {
        let mut reader = Reader(bytes);
        let written_at = Timestamp::from_millis(reader.u64()?);
        reader.take(12)?;
        let length = reader.u16()?;
        Some((written_at, reader.take(usize::from(length))?))
    }

    pub(crate) fn stamp(&self, place: Place) -> Stamp {
        Stamp {
            lsn: place.lsn,
            origin: place.origin,
            index: place.index,
            written_at: self.written_at,
            ttl: self.ttl,
            sequence: self.sequence,
        }
    }
}

impl<'a> HistoryRecord<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bodies = [&self.current, &self.previous];
        let body_bytes: usize =
            bodies.iter().filter_map(|it| it.as_ref()).map(|it| it.1.len()).sum();
        let mut out = Vec::with_capacity(192 + body_bytes);
        out.push(kind_number(self.kind));
        out.extend_from_slice(&self.committed_at.as_millis().to_le_bytes());
        encode_identity(&mut out, self.effective, &self.partition_key, &self.id);
        for version in bodies {
            match version {
                None => out.push(0),
                Some((stamp, body)) => {
                    out.push(1);
                    stamp.encode(&mut out);
                    let length = u32::try_from(body.len()).expect("an item has at most 2 MiB");
                    out.extend_from_slice(&length.to_le_bytes());
                    out.extend_from_slice(body);
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = kind_from(reader.u8()?)?;
        let committed_at = Timestamp::from_millis(reader.u64()?);
        let (effective, partition_key, id) = decode_identity(&mut reader)?;
        let current = Self::version(&mut reader)?;
        let previous = Self::version(&mut reader)?;
        let record = Self { kind, committed_at, effective, partition_key, id, current, previous };
        reader.0.is_empty().then_some(record)
    }

    /// The time and effective partition key of an entry, without decoding the rest.
    pub(crate) fn peek(bytes: &'a [u8]) -> Option<(Timestamp, &'a [u8])> {
        let mut reader = Reader(bytes.get(1..)?);
        let committed_at = Timestamp::from_millis(reader.u64()?);
        let length = reader.u16()?;
        Some((committed_at, reader.take(usize::from(length))?))
    }

    fn version(reader: &mut Reader<'a>) -> Option<Option<(Stamp, &'a [u8])>> {
        match reader.u8()? {
            0 => Some(None),
            1 => {
                let stamp = Stamp::decode(reader)?;
                let length = usize::try_from(reader.u32()?).ok()?;
                Some(Some((stamp, reader.take(length)?)))
            }
            _ => None,
        }
    }
}

impl RangeRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.newest,
            self.committed_at.as_millis(),
            self.live_bytes,
            self.history_floor.lsn,
            self.history_floor.time_ms,
            self.unordered,
        ];
        numbers.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            newest: reader.u64()?,
            committed_at: Timestamp::from_millis(reader.u64()?),
            live_bytes: reader.u64()?,
            history_floor: Floor { lsn: reader.u64()?, time_ms: reader.u64()? },
            unordered: reader.u64()?,
        })
    }
}

fn encode_identity(out: &mut Vec<u8>, effective: &[u8], key: &PartitionKey, id: &ItemId) {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("keys and ids are short");
    out.extend_from_slice(&length(effective).to_le_bytes());
    out.extend_from_slice(effective);
    key.encode(out);
    out.extend_from_slice(&length(id.as_str().as_bytes()).to_le_bytes());
    out.extend_from_slice(id.as_str().as_bytes());
}

fn decode_identity<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], PartitionKey, ItemId)> {
    let length = reader.u16()?;
    let effective = reader.take(usize::from(length))?;
    let (partition_key, rest) = PartitionKey::decode(reader.0).ok()?;
    reader.0 = rest;
    let length = reader.u16()?;
    let id = std::str::from_utf8(reader.take(usize::from(length))?).ok()?;
    Some((effective, partition_key, ItemId::new(id).ok()?))
}

/// 0 says nothing, 2^32-1 never; the rest are seconds.
fn ttl_number(ttl: Option<TimeToLive>) -> u32 {
    match ttl {
        None => 0,
        Some(TimeToLive::Never) => u32::MAX,
        Some(TimeToLive::Seconds(seconds)) => seconds,
    }
}

fn ttl_from(number: u32) -> Option<Option<TimeToLive>> {
    match number {
        0 => Some(None),
        u32::MAX => Some(Some(TimeToLive::Never)),
        seconds => Some(Some(TimeToLive::new(seconds.into()).ok()?)),
    }
}

fn kind_number(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Written => 0,
        ChangeKind::Created => 1,
        ChangeKind::Replaced => 2,
        ChangeKind::Deleted => 3,
        ChangeKind::Expired => 4,
    }
}

fn kind_from(number: u8) -> Option<ChangeKind> {
    Some(match number {
        0 => ChangeKind::Written,
        1 => ChangeKind::Created,
        2 => ChangeKind::Replaced,
        3 => ChangeKind::Deleted,
        4 => ChangeKind::Expired,
        _ => return None,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|it| it[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests;
