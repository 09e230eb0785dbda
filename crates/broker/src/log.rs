//! The messages of a queue or topic, segment by segment, without their bodies.

mod segment;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::Timestamp;

pub(crate) use crate::log::segment::{Encoded, Place, Segment, encode_segment};

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

/// The sessions that messages belong to, each kept once.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    names: BTreeMap<Arc<str>, usize>,
}

impl Sessions {
    /// The same name, kept once.
    pub(crate) fn hold(&mut self, name: &str) -> Arc<str> {
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
        for session in segment.sessions() {
            let Some(held) = self.names.get_mut(session) else { continue };
            *held -= 1;
            if *held == 0 {
                self.names.remove(session);
            }
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// How often each is held.
    fn held(&self) -> Vec<usize> {
        self.names.values().copied().collect()
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
    /// Segments most of whose messages everybody is done with.
    pub(crate) sparse: BTreeSet<u64>,
    pub(crate) messages: usize,
}

impl Log {
    pub(crate) fn insert(&mut self, segment: Segment) {
        self.messages += segment.len();
        let first = segment.first;
        self.segments.insert(first, segment);
        self.look(first);
    }

    pub(crate) fn remove(&mut self, first: u64) -> Option<Segment> {
        let segment = self.segments.remove(&first)?;
        self.messages -= segment.len();
        self.sparse.remove(&first);
        Some(segment)
    }

    /// The segment of a message, and its place there.
    pub(crate) fn find(&self, sequence: u64) -> Option<(&Segment, Place)> {
        let (first, segment) = self.segments.range(..=sequence).next_back()?;
        let index = u16::try_from(sequence - first).ok()?;
        Some((segment, segment.place(index)?))
    }

    /// A planted bug: changes the place of a message.
    pub(crate) fn delay(&mut self, place: Place, until: Timestamp) {
        if let Some(segment) = self.segments.get_mut(&place.first) {
            segment.delay(place.index, until);
        }
    }

    pub(crate) fn touch(&mut self, place: Place, outlet: u16) {
        self.dirty.insert((place.first, outlet));
    }

    /// Somebody is done with a message of this segment.
    pub(crate) fn close(&mut self, place: Place, outlet: u16) {
        self.touch(place, outlet);
        let segment = self.segments.get_mut(&place.first).expect("a message has its segment");
        segment.close(place.index);
        self.look(place.first);
    }

    /// Notes what is to be done about a segment.
    pub(crate) fn look(&mut self, first: u64) {
        let Some(segment) = self.segments.get(&first) else { return };
        if segment.open == 0 {
            self.finished.insert(first);
            self.sparse.remove(&first);
        } else if segment.is_sparse() {
            self.sparse.insert(first);
        }
    }
}
