//! The messages of one commit, as bytes and in memory.
//!
//! Their bytes, version 1: the version, the time they were made, the sets of subscriptions, then
//! for each message the number of its set and its bytes. Version 2 has no messages that everybody
//! is done with: the version, the time, how often messages were left out, the sets, how many
//! messages there were, the ids of those that are gone as far as they count in duplicate detection,
//! then for each message its place among them, the number of its set and its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{Result, Timestamp};

use crate::codec::{
    MessageHead, Reader, corrupt, decode_head, id_hash, put_bytes, put_count, put_number,
};
use crate::log::{OrderKey, Sessions};

const WHOLE: u8 = 1;
const COMPACTED: u8 = 2;
/// A segment below this is not worth writing again.
const SPARSE_BYTES_MIN: usize = 4096;
/// One is written again when at most one byte in so many is of a message that somebody wants.
const SPARSE_SHARE: usize = 4;

/// A message on its way into a segment.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    /// What duplicate detection knows it by; none if it has no part in that.
    pub(crate) hash: Option<u128>,
    pub(crate) bytes: Vec<u8>,
    /// The subscriptions that get it, by number.
    pub(crate) wanted_by: Arc<[u16]>,
}

/// The bytes of a new segment.
pub(crate) fn encode_segment(enqueued_at: Timestamp, messages: &[Encoded]) -> Vec<u8> {
    let mut sets: BTreeMap<&[u16], usize> = BTreeMap::new();
    let mut listed: Vec<&[u16]> = Vec::new();
    let mut numbers = Vec::with_capacity(messages.len());
    let mut last: Option<(&Arc<[u16]>, usize)> = None;
    for message in messages {
        // Nearly always the same set as before, often the very same one.
        let number = match last {
            Some((set, number)) if Arc::ptr_eq(set, &message.wanted_by) => number,
            _ => *sets.entry(&message.wanted_by).or_insert_with(|| {
                listed.push(&message.wanted_by);
                listed.len() - 1
            }),
        };
        last = Some((&message.wanted_by, number));
        numbers.push(number);
    }

    let bytes: usize = messages.iter().map(|it| it.bytes.len() + 8).sum();
    let mut out = Vec::with_capacity(bytes + 64);
    out.push(WHOLE);
    put_number(&mut out, enqueued_at.as_millis());
    put_sets(&mut out, listed.into_iter());
    put_count(&mut out, messages.len());
    for (message, set) in messages.iter().zip(numbers) {
        put_count(&mut out, set);
        put_bytes(&mut out, &message.bytes);
    }
    out
}

/// Sets of subscriptions; messages name theirs by its number.
type Sets = Vec<Box<[u16]>>;

/// The messages of one commit, without their bodies.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of its first message; the others follow without gap.
    pub(crate) first: u64,
    pub(crate) enqueued_at: Timestamp,
    /// How many messages there were.
    span: u16,
    /// How often messages were left out.
    revision: u32,
    sets: Sets,
    /// In the order of their places; those that were left out are missing.
    entries: Vec<Entry>,
    scheduled: BTreeMap<u16, Timestamp>,
    /// Of the ids that count in duplicate detection.
    pub(crate) hashes: Arc<[u128]>,
    /// How many times somebody still has to be done with one of its messages.
    pub(crate) open: usize,
    /// The same when it was last looked at.
    open_before: usize,
    /// Of all entries, and of those that somebody wants.
    bytes: usize,
    bytes_wanted: usize,
}

/// What is kept in memory of one message.
#[derive(Debug)]
struct Entry {
    session: Option<Arc<str>>,
    time_to_live: Option<Box<Duration>>,
    index: u16,
    set: u16,
    /// Who still has to be done with it.
    open: u16,
    offset: u32,
    length: u32,
}

/// Where a message is in the log, and where its bytes are in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) first: u64,
    pub(crate) index: u16,
    revision: u32,
    offset: usize,
    length: usize,
}

impl Place {
    pub(crate) fn sequence(&self) -> u64 {
        self.first + u64::from(self.index)
    }

    /// The message in the bytes of its segment; none if it is not there any more.
    ///
    /// # Errors
    ///
    /// `Corrupt` if these are no bytes of a segment.
    pub(crate) fn find(&self, bytes: &Bytes) -> Result<Option<Bytes>> {
        let is_same = revision_of(bytes) == Some(self.revision);
        let range = match is_same {
            true => Some(self.offset..self.offset + self.length),
            // Messages were left out since, or are in what is stored and not here yet.
            false => {
                let segment = Segment::decode(self.first, bytes, &mut Sessions::default())?;
                segment.place(self.index).map(|it| it.offset..it.offset + it.length)
            }
        };
        let range = range.filter(|it| it.end <= bytes.len());
        Ok(range.map(|it| bytes.slice(it)))
    }
}

impl Segment {
    /// Reads the bytes of a segment; sessions that are known already are shared.
    pub(crate) fn decode(first: u64, bytes: &[u8], sessions: &mut Sessions) -> Result<Self> {
        let corrupt = || corrupt(format!("read segment {first}"));
        let mut reader = Reader::new(bytes);
        let mut segment = Self::read_start(first, &mut reader).ok_or_else(corrupt)?;
        let mut hashes = Vec::new();
        let count = match bytes.first() {
            Some(&COMPACTED) => {
                hashes = read_hashes(&mut reader).ok_or_else(corrupt)?;
                reader.count().ok_or_else(corrupt)?
            }
            Some(_) | None => usize::from(segment.span),
        };
        let is_whole = bytes.first() == Some(&WHOLE);
        segment.entries.reserve_exact(count);
        for position in 0..count {
            let index = if is_whole { u64::try_from(position).ok() } else { reader.number() };
            let found = index.zip(reader.number()).zip(reader.bytes());
            let ((index, set), message) = found.ok_or_else(corrupt)?;
            let end = reader.at;
            hashes.extend(segment.read_message(index, set, message, end, sessions)?);
        }
        segment.hashes = hashes.into();
        Ok(segment)
    }

    fn read_start(first: u64, reader: &mut Reader<'_>) -> Option<Self> {
        let version = reader.byte()?;
        let enqueued_at = Timestamp::from_millis(reader.number()?);
        let revision = match version {
            WHOLE => 0,
            COMPACTED => u32::try_from(reader.number()?).ok()?,
            _ => return None,
        };
        let mut sets = Vec::new();
        for _ in 0..reader.count()? {
            let numbers = (0..reader.count()?).map(|_| u16::try_from(reader.number()?).ok());
            sets.push(numbers.collect::<Option<_>>()?);
        }
        let span = u16::try_from(reader.number()?).ok()?;
        Some(Self {
            first,
            enqueued_at,
            span,
            revision,
            sets,
            entries: Vec::new(),
            scheduled: BTreeMap::new(),
            hashes: [].into(),
            open: 0,
            open_before: usize::MAX,
            bytes: 0,
            bytes_wanted: 0,
        })
    }

    /// Adds a message whose bytes end at `end`, and returns the hash of its id if that counts.
    fn read_message(
        &mut self,
        index: u64,
        set: u64,
        message: &[u8],
        end: usize,
        sessions: &mut Sessions,
    ) -> Result<Option<u128>> {
        let corrupt = || corrupt(format!("read segment {}", self.first));
        let sets = self.sets.len();
        let index = u16::try_from(index).ok().filter(|it| *it < self.span);
        let index = index.filter(|it| self.entries.last().is_none_or(|last| last.index < *it));
        let set = u16::try_from(set).ok().filter(|it| usize::from(*it) < sets);
        let offset = end.checked_sub(message.len()).and_then(|it| u32::try_from(it).ok());
        let length = u32::try_from(message.len()).ok();
        let (Some(index), Some(set), Some(offset), Some(length)) = (index, set, offset, length)
        else {
            return Err(corrupt());
        };
        let head = decode_head(message)?;
        let MessageHead { id, session_id, time_to_live, scheduled_at, is_directed } = head;
        if let Some(at) = scheduled_at.filter(|it| self.enqueued_at < *it) {
            self.scheduled.insert(index, at);
        }
        let session = session_id.map(|it| sessions.hold(it));
        let time_to_live = time_to_live.map(Box::new);
        self.bytes += message.len();
        self.entries.push(Entry { session, time_to_live, index, set, open: 0, offset, length });
        Ok((!is_directed).then(|| id_hash(id)))
    }

    /// How many messages it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first number after it.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.span)
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.entries.iter().map(|it| self.place_of(it))
    }

    pub(crate) fn place(&self, index: u16) -> Option<Place> {
        self.entry(index).map(|it| self.place_of(it))
    }

    pub(crate) fn session(&self, index: u16) -> Option<&Arc<str>> {
        self.entry(index)?.session.as_ref()
    }

    pub(crate) fn wanted_by(&self, index: u16) -> &[u16] {
        self.entry(index).map_or(&[], |it| &self.sets[usize::from(it.set)])
    }

    /// When it is to be delivered at the earliest, if it came before.
    pub(crate) fn scheduled_at(&self, index: u16) -> Option<Timestamp> {
        self.scheduled.get(&index).copied()
    }

    /// When it could first be delivered.
    pub(crate) fn starts_at(&self, index: u16) -> Timestamp {
        self.scheduled.get(&index).copied().unwrap_or(self.enqueued_at)
    }

    pub(crate) fn order_key(&self, index: u16) -> OrderKey {
        (self.starts_at(index), self.first + u64::from(index))
    }

    /// When it is no longer worth delivering, if nobody keeps it longer than `longest`.
    pub(crate) fn expires_at(&self, index: u16, longest: Option<Duration>) -> Option<Timestamp> {
        let own = self.entry(index)?.time_to_live.as_deref().copied();
        let time_to_live = match (own, longest) {
            (Some(own), Some(longest)) => own.min(longest),
            (own, longest) => own.or(longest)?,
        };
        Some(self.starts_at(index).plus(time_to_live))
    }

    /// So many have to be done with a message.
    pub(crate) fn open(&mut self, index: u16, times: u16) {
        let entry = self.position(index).and_then(|it| self.entries.get_mut(it));
        let entry = entry.expect("a message has its entry");
        entry.open += times;
        if 0 < times {
            self.bytes_wanted += usize::try_from(entry.length).unwrap_or(usize::MAX);
            self.open += usize::from(times);
        }
    }

    /// A planted bug: changes the place of a message.
    pub(crate) fn delay(&mut self, index: u16, until: Timestamp) {
        self.scheduled.insert(index, until);
    }

    /// Somebody is done with a message.
    pub(crate) fn close(&mut self, index: u16) {
        let entry = self.position(index).and_then(|it| self.entries.get_mut(it));
        let entry = entry.expect("a message that somebody wants has its entry");
        entry.open -= 1;
        self.open -= 1;
        if entry.open == 0 {
            self.bytes_wanted -= usize::try_from(entry.length).unwrap_or(usize::MAX);
        }
    }

    /// Whether most of it is of messages that everybody is done with.
    pub(crate) fn is_sparse(&self) -> bool {
        SPARSE_BYTES_MIN <= self.bytes && self.bytes_wanted * SPARSE_SHARE <= self.bytes
    }

    /// Whether nobody was done with a message since this was last asked.
    pub(crate) fn is_steady(&mut self) -> bool {
        std::mem::replace(&mut self.open_before, self.open) == self.open
    }

    /// The bytes of the segment without the messages that everybody is done with; their ids are
    /// kept if they still count. None if `bytes` are not those of this segment as it is.
    pub(crate) fn compacted(&self, bytes: &[u8], keeps_ids: bool) -> Option<Vec<u8>> {
        if revision_of(bytes) != Some(self.revision) {
            return None;
        }
        let mut messages = Vec::new();
        for entry in self.entries.iter().filter(|it| 0 < it.open) {
            let Place { offset, length, .. } = self.place_of(entry);
            messages.push((entry, bytes.get(offset..offset + length)?));
        }
        let left: BTreeSet<u128> = messages
            .iter()
            .filter_map(|(_, message)| decode_head(message).ok())
            .filter(|head| !head.is_directed)
            .map(|head| id_hash(head.id))
            .collect();
        let gone = self.hashes.iter().filter(|it| keeps_ids && !left.contains(it));
        let gone: Vec<&u128> = gone.collect();
        let mut out = vec![COMPACTED];
        put_number(&mut out, self.enqueued_at.as_millis());
        put_number(&mut out, u64::from(self.revision) + 1);
        put_sets(&mut out, self.sets.iter().map(|it| &**it));
        put_number(&mut out, u64::from(self.span));
        put_count(&mut out, gone.len());
        gone.iter().for_each(|it| out.extend_from_slice(&it.to_le_bytes()));
        put_count(&mut out, messages.len());
        for (entry, message) in messages {
            put_number(&mut out, u64::from(entry.index));
            put_number(&mut out, u64::from(entry.set));
            put_bytes(&mut out, message);
        }
        Some(out)
    }

    /// Takes over from `before`, of which it is what is left, who is to be done with what.
    pub(crate) fn follow(&mut self, before: &Self) {
        for entry in &before.entries {
            if self.position(entry.index).is_some() {
                self.open(entry.index, entry.open);
            }
        }
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.iter().filter_map(|it| it.session.as_ref())
    }

    fn entry(&self, index: u16) -> Option<&Entry> {
        self.entries.get(self.position(index)?)
    }

    fn position(&self, index: u16) -> Option<usize> {
        if self.entries.len() == usize::from(self.span) {
            return (index < self.span).then_some(usize::from(index));
        }
        self.entries.binary_search_by_key(&index, |it| it.index).ok()
    }

    fn place_of(&self, entry: &Entry) -> Place {
        Place {
            first: self.first,
            index: entry.index,
            revision: self.revision,
            offset: usize::try_from(entry.offset).unwrap_or(usize::MAX),
            length: usize::try_from(entry.length).unwrap_or(usize::MAX),
        }
    }
}

/// How often messages were left out of these bytes.
fn revision_of(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        WHOLE => Some(0),
        COMPACTED => {
            reader.number()?;
            u32::try_from(reader.number()?).ok()
        }
        _ => None,
    }
}

fn read_hashes(reader: &mut Reader<'_>) -> Option<Vec<u128>> {
    (0..reader.count()?).map(|_| reader.hash()).collect()
}

fn put_sets<'a>(out: &mut Vec<u8>, sets: impl ExactSizeIterator<Item = &'a [u16]>) {
    put_count(out, sets.len());
    for set in sets {
        put_count(out, set.len());
        for number in set {
            put_number(out, u64::from(*number));
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::Message;

    use super::*;
    use crate::codec::encode_message;

    fn encoded(message: &Message, wanted_by: &[u16]) -> Encoded {
        let mut bytes = Vec::new();
        encode_message(message, false, &mut bytes);
        Encoded { hash: Some(id_hash(&message.id)), bytes, wanted_by: wanted_by.into() }
    }

    #[test]
    fn a_segment_comes_back_as_it_was() {
        let mut late = Message::new("b", "22").session("s");
        late.scheduled_at = Some(Timestamp::from_millis(500));
        late.time_to_live = Some(Duration::from_millis(7));
        let messages = [
            encoded(&Message::new("a", "1").session("s"), &[1, 2]),
            encoded(&late, &[2]),
            encoded(&Message::new("c", "3"), &[1, 2]),
        ];
        let bytes = encode_segment(Timestamp::from_millis(100), &messages);
        let mut sessions = Sessions::default();
        let segment = Segment::decode(10, &bytes, &mut sessions).unwrap();
        assert_eq!((segment.len(), segment.sets.len()), (3, 2));
        assert_eq!(segment.wanted_by(0), [1, 2]);
        assert_eq!(segment.wanted_by(1), [2]);
        assert_eq!(segment.order_key(1), (Timestamp::from_millis(500), 11));
        assert_eq!(segment.order_key(2), (Timestamp::from_millis(100), 12));
        assert_eq!(segment.expires_at(1, None), Some(Timestamp::from_millis(507)));
        let longest = Some(Duration::from_millis(3));
        assert_eq!(segment.expires_at(1, longest), Some(Timestamp::from_millis(503)));
        assert_eq!(segment.expires_at(0, longest), Some(Timestamp::from_millis(103)));
        assert_eq!(segment.hashes[2], id_hash("c"));
        let place = segment.place(1).unwrap();
        let found = place.find(&Bytes::from(bytes)).unwrap();
        assert_eq!(found.unwrap(), messages[1].bytes);
        assert_eq!(sessions.held(), [2]);
        sessions.release(&segment);
        assert!(sessions.held().is_empty());
    }

    #[test]
    fn a_segment_without_the_messages_that_are_done_keeps_numbers_ids_and_the_others() {
        let message =
            |number: u16| Message::new(format!("m{number}"), "x".repeat(100)).session("s");
        let messages: Vec<Encoded> = (0..100).map(|it| encoded(&message(it), &[1, 2])).collect();
        let bytes = Bytes::from(encode_segment(Timestamp::from_millis(100), &messages));
        let mut sessions = Sessions::default();
        let mut before = Segment::decode(10, &bytes, &mut sessions).unwrap();
        (0..100).for_each(|it| before.open(it, 2));
        for index in (0..100).filter(|it| *it != 7 && *it != 50) {
            assert!(!before.is_sparse() || 70 < index);
            before.close(index);
            before.close(index);
        }
        before.close(7);
        let old = before.place(50).unwrap();
        assert!(before.is_sparse() && !before.is_steady() && before.is_steady());

        let left = Bytes::from(before.compacted(&bytes, true).unwrap());
        assert!(before.compacted(&left, true).is_none(), "these are other bytes");
        assert!(left.len() < bytes.len() / 4);
        let mut after = Segment::decode(10, &left, &mut sessions).unwrap();
        after.follow(&before);
        assert_eq!((after.len(), after.end(), after.open), (2, 110, 3));
        assert_eq!(after.wanted_by(50), [1, 2]);
        assert!(after.place(49).is_none() && after.session(49).is_none());
        assert_eq!(after.wanted_by(49), [0; 0]);
        let mut hashes = [before.hashes.to_vec(), after.hashes.to_vec()];
        hashes.iter_mut().for_each(|it| it.sort_unstable());
        assert_eq!(hashes[0], hashes[1]);
        assert!(!after.is_sparse(), "what is left is small");
        // Whoever knows the old place finds the message in the new bytes, and the other way round.
        for (place, bytes) in [(old, &left), (after.place(50).unwrap(), &bytes)] {
            let found = place.find(bytes).unwrap();
            assert_eq!(found.unwrap(), messages[50].bytes);
        }
        assert_eq!(before.place(49).unwrap().find(&left).unwrap(), None);
        let forgotten = before.compacted(&bytes, false).unwrap();
        assert_eq!(Segment::decode(10, &forgotten, &mut sessions).unwrap().hashes.len(), 2);
    }

    #[test]
    fn other_bytes_are_refused() {
        let messages = [encoded(&Message::new("a", "1"), &[0])];
        let bytes = encode_segment(Timestamp::EPOCH, &messages);
        let mut sessions = Sessions::default();
        let segment = Segment::decode(1, &bytes, &mut sessions).unwrap();
        for bytes in [segment.compacted(&bytes, true).unwrap(), bytes] {
            for end in 0..bytes.len() {
                assert!(Segment::decode(1, &bytes[..end], &mut sessions).is_err(), "{end}");
            }
        }
    }
}
