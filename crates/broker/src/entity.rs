//! A queue or topic: its log, its outlets, and what waits to be committed.
//!
//! Like its outlets a state machine without I/O and without a clock. Settlements change it at once
//! and are acknowledged when the next [`Round`] is committed; messages come into it only then.

mod compaction;
mod look;
#[cfg(test)]
mod model_tests;
mod round;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{Result, Timestamp};

use crate::duplicates::Duplicates;
use crate::entity::compaction::Compaction;
pub use crate::entity::look::MessageState;
pub(crate) use crate::entity::look::Peeked;
use crate::entity::round::PendingSend;
pub(crate) use crate::entity::round::Round;
use crate::flaw::Flaw;
use crate::log::{Encoded, Log, Moment, Place, Segment, Sessions};
use crate::marks::Marks;
use crate::outlet::Outlet;
use crate::stored;

/// What became of the messages of a `send`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOutcome {
    /// The number of each message in the order of the call; none for a duplicate, which was
    /// accepted and dropped.
    pub sequence_numbers: Vec<Option<u64>>,
    /// How many of them were duplicates.
    pub duplicates: usize,
}

/// A queue or topic.
#[derive(Debug)]
pub(crate) struct Entity {
    /// The partition key of its documents.
    pub(crate) partition: String,
    pub(crate) log: Log,
    pub(crate) outlets: BTreeMap<u16, Outlet>,
    pub(crate) duplicates: Duplicates,
    sessions: Sessions,
    /// Messages whose time has not come.
    scheduled: BTreeSet<(Timestamp, u64)>,
    /// Segments by the time their next message expires.
    expiring: BTreeSet<(Timestamp, u64)>,
    next_sequence: u64,
    /// Times in the log do not go back, even if the clock does.
    last_enqueued_at: Timestamp,
    sends: VecDeque<PendingSend>,
    pub(crate) pending_bytes: usize,
    pending_messages: usize,
    /// Whoever wants to know when everything until now is committed.
    waiting: Vec<u64>,
    /// Session states to write or to remove, by document, and those that are stored.
    states: BTreeMap<String, Option<Bytes>>,
    states_stored: BTreeSet<String>,
    /// Other documents to remove.
    deletes: Vec<String>,
    /// Which segments are written again without what is done, and when to look for more.
    compaction: Compaction,
    flaw: Option<Flaw>,
}

impl Entity {
    pub(crate) fn new(partition: String, next_sequence: u64, window: Option<Duration>) -> Self {
        Self {
            partition,
            log: Log::default(),
            outlets: BTreeMap::new(),
            duplicates: Duplicates::new(window),
            sessions: Sessions::default(),
            scheduled: BTreeSet::new(),
            expiring: BTreeSet::new(),
            next_sequence,
            last_enqueued_at: Timestamp::EPOCH,
            sends: VecDeque::new(),
            pending_bytes: 0,
            pending_messages: 0,
            waiting: Vec::new(),
            states: BTreeMap::new(),
            states_stored: BTreeSet::new(),
            deletes: Vec::new(),
            compaction: Compaction::default(),
            flaw: None,
        }
    }

    /// Makes a planted bug known to everything that may have it.
    pub(crate) fn plant(&mut self, flaw: Option<Flaw>) {
        self.flaw = flaw;
        self.duplicates.forgets = flaw == Some(Flaw::WindowForgotten);
        self.outlets.values_mut().for_each(|it| it.flaw = flaw);
    }

    /// Takes in a segment that is stored: as the store has it, or just committed.
    pub(crate) fn add_segment(&mut self, mut segment: Segment, now: Moment) {
        self.last_enqueued_at = self.last_enqueued_at.max(segment.enqueued_at);
        let mut expiry: Option<Timestamp> = None;
        let places: Vec<Place> = segment.places().collect();
        for place in places {
            let index = place.index;
            let key = segment.order_key(index);
            let scheduled_at = segment.scheduled_at(index).filter(|at| now.wall < *at);
            let scheduled_at = scheduled_at.filter(|_| self.flaw != Some(Flaw::ScheduleIgnored));
            let session = segment.session(index);
            let mut open = 0;
            for number in segment.wanted_by(index) {
                let Some(outlet) = self.outlets.get_mut(number) else { continue };
                let marks = outlet.marks.get(&place.first);
                if marks.is_some_and(|it| it.is_done(index)) {
                    continue;
                }
                open += 1;
                let at = outlet.expires_at(&segment, index);
                expiry = expiry.into_iter().chain(at).min();
                if scheduled_at.is_none() {
                    outlet.arrive(&mut self.log, place, key, session);
                }
            }
            if let Some(at) = scheduled_at.filter(|_| 0 < open) {
                self.scheduled.insert((at, place.sequence()));
            }
            segment.open(index, open);
        }
        if let Some(at) = expiry {
            self.expiring.insert((at, segment.first));
        }
        self.log.insert(segment);
    }

    /// Reads the bytes of a segment that is stored.
    pub(crate) fn load_segment(&mut self, first: u64, bytes: &[u8], now: Moment) -> Result<()> {
        let segment = Segment::decode(first, bytes, &mut self.sessions)?;
        self.duplicates.load(&segment.hashes, segment.enqueued_at, now.wall);
        self.next_sequence = self.next_sequence.max(segment.end());
        self.add_segment(segment, now);
        Ok(())
    }

    /// Removes the state of a session that means nothing any more with the next commit.
    pub(crate) fn discard_state(&mut self, id: String) {
        self.states.insert(id, None);
    }

    /// Removes a document that means nothing any more with the next commit.
    pub(crate) fn discard(&mut self, id: String) {
        self.deletes.push(id);
    }

    /// Removes marks whose segment is gone; a crash came between.
    pub(crate) fn discard_orphans(&mut self) {
        for outlet in self.outlets.values_mut() {
            let number = outlet.number;
            outlet.marks.retain(|first, _| {
                let is_known = self.log.segments.contains_key(first);
                if !is_known {
                    self.deletes.push(stored::ack_id(number, *first));
                }
                is_known
            });
        }
    }

    /// Messages that are kept or on their way.
    pub(crate) fn messages(&self) -> usize {
        self.log.messages + self.pending_messages
    }

    /// The number of the newest message.
    pub(crate) fn newest(&self) -> u64 {
        self.next_sequence.saturating_sub(1)
    }

    /// Queues messages for the next rounds; `ticket` is answered when they are committed.
    pub(crate) fn send(&mut self, ticket: u64, messages: Vec<Encoded>) {
        let bytes: usize = messages.iter().map(|it| it.bytes.len()).sum();
        self.pending_bytes += bytes;
        self.pending_messages += messages.len();
        self.sends.push_back(PendingSend { ticket, messages, bytes });
    }

    /// Answers `ticket` when everything until now is committed.
    pub(crate) fn wait(&mut self, ticket: u64) {
        self.waiting.push(ticket);
    }

    /// Writes or removes the state of a session with the next commit.
    pub(crate) fn set_state(&mut self, outlet: u16, session: &str, state: Option<&[u8]>) {
        let document = state.map(|it| stored::state_document(&self.partition, outlet, session, it));
        self.states.insert(stored::state_id(outlet, session), document);
    }

    /// The state of a session is stored in this document.
    pub(crate) fn load_state(&mut self, id: String) {
        self.states_stored.insert(id);
    }

    /// Ends messages whose time has not come: all, or none and the first number that is not there.
    pub(crate) fn cancel_scheduled(
        &mut self,
        sequences: &[u64],
        now: Moment,
    ) -> std::result::Result<(), u64> {
        self.advance(now);
        let mut found = BTreeMap::new();
        for sequence in sequences {
            let Some((segment, place)) = self.log.find(*sequence) else { return Err(*sequence) };
            let key = segment.order_key(place.index);
            if !self.scheduled.contains(&key) {
                return Err(*sequence);
            }
            found.insert(key, (place, segment.wanted_by(place.index).to_vec()));
        }
        for (key, (place, wanted_by)) in found {
            self.scheduled.remove(&key);
            for number in wanted_by {
                if let Some(outlet) = self.outlets.get_mut(&number) {
                    outlet.finish(&mut self.log, place);
                }
            }
        }
        Ok(())
    }

    /// Forgets a subscription; nobody waits for what it was not done with.
    pub(crate) fn remove_outlet(&mut self, number: u16) {
        let Some(outlet) = self.outlets.remove(&number) else { return };
        let firsts: Vec<u64> = self.log.segments.keys().copied().collect();
        for first in firsts {
            let Some(segment) = self.log.segments.get_mut(&first) else { continue };
            let nothing = Marks::default();
            let marks = outlet.marks.get(&first).unwrap_or(&nothing);
            let is_open = |place: &Place| {
                segment.wanted_by(place.index).contains(&number) && !marks.is_done(place.index)
            };
            let open: Vec<Place> = segment.places().filter(is_open).collect();
            open.into_iter().for_each(|it| segment.close(it.index));
            self.log.look(first);
        }
        for (first, marks) in outlet.marks {
            if marks.is_stored {
                self.deletes.push(stored::ack_id(number, first));
            }
        }
        let is_mine = |id: &&String| stored::kind_of(id) == stored::DocumentKind::State(number);
        self.states.retain(|id, _| !is_mine(&id));
        for id in self.states_stored.iter().filter(is_mine) {
            self.states.insert(id.clone(), None);
        }
    }

    /// Does what time brings: schedules, ends of locks, expiry.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let Some((at, sequence)) = self.scheduled.first().copied() {
            if now.wall < at {
                break;
            }
            self.scheduled.pop_first();
            self.activate(sequence);
        }
        for outlet in self.outlets.values_mut() {
            outlet.advance(&mut self.log, now);
        }
        while let Some((at, first)) = self.expiring.first().copied() {
            if now.wall < at {
                break;
            }
            self.expiring.pop_first();
            self.sweep(first, now);
        }
        self.compaction.advance(&mut self.log, now.monotonic);
    }

    /// When [`Entity::advance`] has something to do again, by the monotonic clock.
    pub(crate) fn next_deadline(&self, now: Moment) -> Option<Duration> {
        let wall = [self.scheduled.first(), self.expiring.first()];
        let wall = wall.into_iter().flatten().map(|(at, _)| now.monotonic + at.since(now.wall));
        let locks = self.outlets.values().filter_map(Outlet::next_timer);
        let compaction = self.compaction.next_look(&self.log, now.monotonic);
        wall.chain(locks).chain(compaction).min()
    }

    fn activate(&mut self, sequence: u64) {
        let Some((segment, place)) = self.log.find(sequence) else { return };
        let key = segment.order_key(place.index);
        let session = segment.session(place.index).cloned();
        for number in segment.wanted_by(place.index).to_vec() {
            if let Some(outlet) = self.outlets.get_mut(&number) {
                outlet.arrive(&mut self.log, place, key, session.as_ref());
            }
        }
    }

    /// Finds out anew when messages expire; how long they live has changed.
    pub(crate) fn expect_expiry(&mut self) {
        self.expiring.clear();
        for segment in self.log.segments.values() {
            let places = segment.places().flat_map(|place| {
                let outlets = segment.wanted_by(place.index).iter();
                let outlets = outlets.filter_map(|it| self.outlets.get(it));
                outlets.filter_map(move |it| it.expires_at(segment, place.index))
            });
            if let Some(at) = places.min() {
                self.expiring.insert((at, segment.first));
            }
        }
    }

    /// Ends the waiting messages of a segment whose time is over. One that a receiver has is looked
    /// at again when its lock may be over, because nobody else may ever ask for it.
    fn sweep(&mut self, first: u64, now: Moment) {
        let Some(segment) = self.log.segments.get(&first) else { return };
        let due: Vec<(Place, Vec<u16>)> =
            segment.places().map(|it| (it, segment.wanted_by(it.index).to_vec())).collect();
        let mut next: Option<Timestamp> = None;
        for (place, wanted_by) in due {
            for number in wanted_by {
                let Some(outlet) = self.outlets.get_mut(&number) else { continue };
                let held_until = outlet.sweep(&mut self.log, place, now);
                let segment = self.log.segments.get(&first).expect("rounds remove segments");
                let at = outlet.expires_at(segment, place.index).filter(|it| now.wall < *it);
                next = next.into_iter().chain(at).chain(held_until).min();
            }
        }
        if let Some(at) = next {
            self.expiring.insert((at, first));
        }
    }
}
