//! Bytes of the commit log: the header of a segment and the header of a group.

use xxhash_rust::xxh3::Xxh3;

/// Bytes before the first group of a segment.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
/// Bytes before the payload of a group.
pub(crate) const GROUP_HEADER_BYTES: usize = 48;

const SEGMENT_MAGIC: [u8; 8] = *b"MSTRLOG1";
const GROUP_MAGIC: [u8; 4] = *b"MSGR";

/// The first bytes of a segment file. It is written again when the file is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentHeader {
    /// Counts the openings of the store. Groups of an earlier one that stand in the same file are
    /// remains.
    pub(crate) incarnation: u64,
    /// The number of the first group in the file.
    pub(crate) first_group: u64,
}

/// The bytes before the payload of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// As in the segment it stands in.
    pub(crate) incarnation: u64,
    /// Counts the groups of the store, without gaps.
    pub(crate) number: u64,
    /// Every group up to this number had been synced when this one was written.
    pub(crate) synced: u64,
    /// Length of the payload.
    pub(crate) payload_bytes: u32,
}

/// What stands at a place of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A whole group.
    Group(GroupHeader, &'a [u8]),
    /// Nothing that was written whole by this incarnation.
    Nothing,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_group.to_le_bytes());
        let checksum = checksum(&[&bytes[..32]]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// None if the bytes are not a whole header.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES)?;
        if bytes[..8] != SEGMENT_MAGIC || checksum(&[&bytes[..32]]) != u64_at(bytes, 32)? {
            return None;
        }
        Some(Self { incarnation: u64_at(bytes, 8)?, first_group: u64_at(bytes, 16)? })
    }
}

impl GroupHeader {
    /// Writes the header over the first bytes of `group`, which the payload follows.
    pub(crate) fn write_over(self, group: &mut [u8]) {
        let (header, payload) = group.split_at_mut(GROUP_HEADER_BYTES);
        header[..4].copy_from_slice(&GROUP_MAGIC);
        header[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        header[16..24].copy_from_slice(&self.number.to_le_bytes());
        header[24..32].copy_from_slice(&self.synced.to_le_bytes());
        header[32..40].fill(0);
        let checksum = checksum(&[&header[..40], payload]);
        header[40..].copy_from_slice(&checksum.to_le_bytes());
    }
}

impl<'a> Frame<'a> {
    /// Reads what stands at `offset` of a segment of this incarnation.
    pub(crate) fn read(segment: &'a [u8], offset: usize, incarnation: u64) -> Self {
        Self::group_at(segment, offset, Some(incarnation)).unwrap_or(Self::Nothing)
    }

    /// The groups that stand one behind the other from the beginning of a segment, whoever wrote
    /// them.
    pub(crate) fn all(segment: &'a [u8]) -> impl Iterator<Item = GroupHeader> {
        let mut offset = SEGMENT_HEADER_BYTES;
        std::iter::from_fn(move || match Self::group_at(segment, offset, None)? {
            Self::Group(header, payload) => {
                offset += GROUP_HEADER_BYTES + payload.len();
                Some(header)
            }
            Self::Nothing => None,
        })
    }

    fn group_at(segment: &'a [u8], offset: usize, incarnation: Option<u64>) -> Option<Self> {
        let header = segment.get(offset..offset.checked_add(GROUP_HEADER_BYTES)?)?;
        if header[..4] != GROUP_MAGIC {
            return None;
        }
        let decoded = GroupHeader {
            payload_bytes: u32::from_le_bytes(header[4..8].try_into().ok()?),
            incarnation: u64_at(header, 8)?,
            number: u64_at(header, 16)?,
            synced: u64_at(header, 24)?,
        };
        if incarnation.is_some_and(|it| it != decoded.incarnation) {
            return None;
        }
        let start = offset + GROUP_HEADER_BYTES;
        let end = start.checked_add(usize::try_from(decoded.payload_bytes).ok()?)?;
        let payload = segment.get(start..end)?;
        let is_whole = checksum(&[&header[..40], payload]) == u64_at(header, 40)?;
        is_whole.then_some(Self::Group(decoded, payload))
    }

    /// Looks behind a place where nothing whole stands for a group that was written after `number`
    /// had been synced: then `number` is not the torn end of the log but damaged.
    pub(crate) fn proves_damage(
        segment: &[u8],
        from: usize,
        incarnation: u64,
        number: u64,
    ) -> bool {
        let tail = segment.get(from..).unwrap_or_default();
        memchr_all(tail, GROUP_MAGIC).any(|at| match Frame::read(segment, from + at, incarnation) {
            Frame::Group(header, _) => number < header.number && number <= header.synced,
            Frame::Nothing => false,
        })
    }
}

fn memchr_all(bytes: &[u8], magic: [u8; 4]) -> impl Iterator<Item = usize> + '_ {
    bytes.windows(4).enumerate().filter(move |(_, it)| *it == magic).map(|(at, _)| at)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn checksum(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(incarnation: u64, number: u64, synced: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; GROUP_HEADER_BYTES];
        bytes.extend_from_slice(payload);
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        GroupHeader { incarnation, number, synced, payload_bytes }.write_over(&mut bytes);
        bytes
    }

    #[test]
    fn headers_come_back() {
        let header = SegmentHeader { incarnation: 3, first_group: 99 };
        assert_eq!(SegmentHeader::decode(&header.encode()), Some(header));
        let bytes = group(3, 7, 6, b"abc");
        let Frame::Group(header, payload) = Frame::read(&bytes, 0, 3) else { panic!("not read") };
        assert_eq!((header.number, header.synced, payload), (7, 6, &b"abc"[..]));
    }

    #[test]
    fn a_flipped_bit_is_noticed_wherever_it_is() {
        let bytes = group(3, 7, 6, b"abc");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::read(&damaged, 0, 3), Frame::Nothing, "bit {bit}");
        }
    }

    #[test]
    fn groups_of_an_earlier_opening_are_remains() {
        assert_eq!(Frame::read(&group(2, 7, 6, b"abc"), 0, 3), Frame::Nothing);
    }

    #[test]
    fn damage_is_told_from_a_torn_end() {
        let torn = vec![0xAB; 60];
        let after = |number, synced| [torn.clone(), group(3, number, synced, b"x")].concat();
        assert!(Frame::proves_damage(&after(8, 7), 0, 3, 7), "7 had been synced");
        assert!(!Frame::proves_damage(&after(8, 6), 0, 3, 7), "7 had not been synced");
        assert!(!Frame::proves_damage(&torn, 0, 3, 7));
    }
}
