//! The messages of a queue or topic, segment by segment, without their bodies.
//!
//! A segment holds what was committed together. Its bytes, version 1: the version, the time it was
//! made, the sets of subscriptions, then for each message the number of its set and its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Result, Timestamp};

use crate::codec::{
    MessageHead, Reader, corrupt, decode_head, id_hash, put_bytes, put_count, put_number,
};

const VERSION: u8 = 1;

/// What a queue is to itself, where a topic has numbered subscriptions.
pub(crate) const QUEUE_OUTLET: u16 = 0;

/// The place of a waiting message among the others: by the time it could first be delivered, then
/// by its number.
pub(crate) type OrderKey = (Timestamp, u64);

/// Times as a machine sees them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// For what people agreed on: expiry and schedules.
    pub(crate) wall: Timestamp,
    /// For locks.
    pub(crate) monotonic: Duration,
}

/// A message on its way into a segment.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) hash: u128,
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
    out.push(VERSION);
    put_number(&mut out, enqueued_at.as_millis());
    put_count(&mut out, listed.len());
    for set in listed {
        put_count(&mut out, set.len());
        for number in set {
            put_number(&mut out, u64::from(*number));
        }
    }
    put_count(&mut out, messages.len());
    for (message, set) in messages.iter().zip(numbers) {
        put_count(&mut out, set);
        put_bytes(&mut out, &message.bytes);
    }
    out
}

/// Sets of subscriptions; messages name theirs by its number.
type Sets = Vec<Box<[u16]>>;

/// The messages of one commit.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of its first message; the others follow without gap.
    pub(crate) first: u64,
    pub(crate) enqueued_at: Timestamp,
    sets: Sets,
    entries: Vec<Entry>,
    scheduled: BTreeMap<u16, Timestamp>,
    pub(crate) hashes: Arc<[u128]>,
    /// How many times somebody still has to be done with one of its messages.
    pub(crate) open: usize,
}

/// What is kept in memory of one message.
#[derive(Debug)]
struct Entry {
    session: Option<Arc<str>>,
    time_to_live: Option<Box<Duration>>,
    set: u16,
    offset: u32,
    length: u32,
}

/// Where a message is in the log, and where its bytes are in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) first: u64,
    pub(crate) index: u16,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl Place {
    pub(crate) fn sequence(&self) -> u64 {
        self.first + u64::from(self.index)
    }
}

impl Segment {
    /// Reads the bytes of a segment; sessions that are known already are shared.
    pub(crate) fn decode(first: u64, bytes: &[u8], sessions: &mut Sessions) -> Result<Self> {
        Self::read(first, bytes, sessions)?.ok_or_else(|| corrupt(format!("read segment {first}")))
    }

    fn read(first: u64, bytes: &[u8], sessions: &mut Sessions) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes);
        let Some((enqueued_at, sets, count)) = Self::read_start(&mut reader) else {
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(count);
        let mut scheduled = BTreeMap::new();
        let mut hashes = Vec::with_capacity(count);
        for index in 0..count {
            let Some((set, message)) = reader.number().zip(reader.bytes()) else {
                return Ok(None);
            };
            let end = u32::try_from(reader.at).ok();
            let length = u32::try_from(message.len()).ok();
            let set = u16::try_from(set).ok().filter(|it| usize::from(*it) < sets.len());
            let index = u16::try_from(index).ok();
            let (Some(end), Some(length), Some(set), Some(index)) = (end, length, set, index)
            else {
                return Ok(None);
            };
            let MessageHead { id, session_id, time_to_live, scheduled_at } = decode_head(message)?;
            if let Some(at) = scheduled_at.filter(|it| enqueued_at < *it) {
                scheduled.insert(index, at);
            }
            hashes.push(id_hash(id));
            let session = session_id.map(|it| sessions.hold(it));
            let time_to_live = time_to_live.map(Box::new);
            entries.push(Entry { session, time_to_live, set, offset: end - length, length });
        }
        let hashes = hashes.into();
        Ok(Some(Self { first, enqueued_at, sets, entries, scheduled, hashes, open: 0 }))
    }

    fn read_start(reader: &mut Reader<'_>) -> Option<(Timestamp, Sets, usize)> {
        if reader.byte()? != VERSION {
            return None;
        }
        let enqueued_at = Timestamp::from_millis(reader.number()?);
        let mut sets = Vec::new();
        for _ in 0..reader.count()? {
            let numbers = (0..reader.count()?).map(|_| u16::try_from(reader.number()?).ok());
            sets.push(numbers.collect::<Option<_>>()?);
        }
        Some((enqueued_at, sets, reader.count()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.entries.len()).filter_map(|it| self.place(u16::try_from(it).ok()?))
    }

    pub(crate) fn place(&self, index: u16) -> Option<Place> {
        let entry = self.entries.get(usize::from(index))?;
        let offset = usize::try_from(entry.offset).ok()?;
        let length = usize::try_from(entry.length).ok()?;
        Some(Place { first: self.first, index, offset, length })
    }

    pub(crate) fn session(&self, index: u16) -> Option<&Arc<str>> {
        self.entries[usize::from(index)].session.as_ref()
    }

    pub(crate) fn wanted_by(&self, index: u16) -> &[u16] {
        &self.sets[usize::from(self.entries[usize::from(index)].set)]
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
        let own = self.entries[usize::from(index)].time_to_live.as_deref().copied();
        let time_to_live = match (own, longest) {
            (Some(own), Some(longest)) => own.min(longest),
            (own, longest) => own.or(longest)?,
        };
        Some(self.starts_at(index).plus(time_to_live))
    }
}

/// The sessions that messages belong to, each kept once.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    names: BTreeMap<Arc<str>, usize>,
}

impl Sessions {
    fn hold(&mut self, name: &str) -> Arc<str> {
        if let Some((known, _)) = self.names.get_key_value(name) {
            let known = Arc::clone(known);
            *self.names.entry(Arc::clone(&known)).or_default() += 1;
            return known;
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), 1);
        name
    }

    pub(crate) fn release(&mut self, segment: &Segment) {
        for session in segment.entries.iter().filter_map(|it| it.session.as_ref()) {
            let Some(held) = self.names.get_mut(session) else { continue };
            *held -= 1;
            if *held == 0 {
                self.names.remove(session);
            }
        }
    }
}

/// All segments, and what has to be written about them.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// Segments and outlets whose marks differ from what is stored.
    pub(crate) dirty: BTreeSet<(u64, u16)>,
    /// Segments that everybody is done with.
    pub(crate) finished: BTreeSet<u64>,
    pub(crate) messages: usize,
}

impl Log {
    pub(crate) fn insert(&mut self, segment: Segment) {
        self.messages += segment.len();
        if segment.open == 0 {
            self.finished.insert(segment.first);
        }
        self.segments.insert(segment.first, segment);
    }

    pub(crate) fn remove(&mut self, first: u64) -> Option<Segment> {
        let segment = self.segments.remove(&first)?;
        self.messages -= segment.len();
        Some(segment)
    }

    /// The segment of a message, and its place there.
    pub(crate) fn find(&self, sequence: u64) -> Option<(&Segment, Place)> {
        let (first, segment) = self.segments.range(..=sequence).next_back()?;
        let index = u16::try_from(sequence - first).ok()?;
        Some((segment, segment.place(index)?))
    }

    pub(crate) fn touch(&mut self, place: Place, outlet: u16) {
        self.dirty.insert((place.first, outlet));
    }

    /// Somebody is done with a message of this segment.
    pub(crate) fn close(&mut self, place: Place, outlet: u16) {
        self.touch(place, outlet);
        let segment = self.segments.get_mut(&place.first).expect("a message has its segment");
        segment.open -= 1;
        if segment.open == 0 {
            self.finished.insert(place.first);
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
        encode_message(message, &mut bytes);
        Encoded { hash: id_hash(&message.id), bytes, wanted_by: wanted_by.into() }
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
        assert_eq!(bytes[place.offset..place.offset + place.length], messages[1].bytes);
        assert_eq!(sessions.names.values().copied().collect::<Vec<_>>(), [2]);
        sessions.release(&segment);
        assert!(sessions.names.is_empty());
    }

    #[test]
    fn other_bytes_are_refused() {
        let messages = [encoded(&Message::new("a", "1"), &[0])];
        let bytes = encode_segment(Timestamp::EPOCH, &messages);
        let mut sessions = Sessions::default();
        for end in 0..bytes.len() {
            assert!(Segment::decode(1, &bytes[..end], &mut sessions).is_err(), "{end}");
        }
    }
}
