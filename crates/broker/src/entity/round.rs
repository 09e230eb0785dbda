use std::collections::BTreeSet;

use bytes::Bytes;
use millstream_core::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Operation, Timestamp};

use crate::entity::{Entity, SendOutcome};
use crate::log::{Encoded, Moment, Segment, encode_segment};
use crate::options::{SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX};
use crate::stored;

/// Bytes of messages after which the rest waits for the next round.
const ROUND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Segments whose ids are kept in one document when they go.
const SEGMENTS_PER_IDS: usize = 40;
/// Documents of ids that go with one round; there is always a next one.
const IDS_FORGOTTEN_MAX: usize = 50;
/// What every batch needs besides: the head of the entity.
const HEAD_OPERATIONS: usize = 1;
const HEAD_BYTES: usize = 4096;

/// Messages that wait for a commit.
#[derive(Debug)]
pub(super) struct PendingSend {
    pub(super) ticket: u64,
    pub(super) messages: Vec<Encoded>,
    pub(super) bytes: usize,
}

/// What is committed together, in one batch or a few, and what it means once it is.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// To be committed in this order.
    pub(crate) batches: Vec<Vec<Operation>>,
    /// The first number that no message of it has.
    pub(crate) next_sequence: u64,
    /// New messages, with their bytes.
    pub(crate) fresh: Vec<(Segment, Bytes)>,
    /// What is left of segments, by their first numbers.
    pub(crate) compacted: Vec<(u64, Bytes)>,
    pub(crate) sent: Vec<(u64, SendOutcome)>,
    pub(crate) waiting: Vec<u64>,
}

/// Operations that must be in one batch.
struct Group {
    operations: Vec<Operation>,
    bytes: usize,
}

impl Entity {
    /// Whether there is anything to commit or to answer.
    pub(crate) fn has_work(&self) -> bool {
        !(self.sends.is_empty()
            && self.waiting.is_empty()
            && self.log.dirty.is_empty()
            && self.log.finished.is_empty()
            && self.states.is_empty()
            && self.deletes.is_empty()
            && !self.compaction.has_work())
    }

    /// Everything that waits to be committed, except messages beyond a bound. `chosen` are the
    /// bytes of the segments of [`Entity::take_chosen`].
    pub(crate) fn plan(&mut self, chosen: &[(u64, Bytes)], now: Moment) -> Round {
        let mut groups = Vec::new();
        self.plan_finished(&mut groups, now.wall);
        let compacted = self.plan_compaction(&mut groups, chosen, now.wall);
        for (first, number) in std::mem::take(&mut self.log.dirty) {
            let Some(outlet) = self.outlets.get_mut(&number) else { continue };
            let Some(marks) = outlet.marks.get_mut(&first) else { continue };
            marks.is_stored = true;
            let document = stored::ack_document(&self.partition, number, first, marks);
            groups.push(Group::upsert(document));
        }
        for (id, state) in std::mem::take(&mut self.states) {
            if let Some(document) = state {
                self.states_stored.insert(id);
                groups.push(Group::upsert(document));
            } else if self.states_stored.remove(&id) {
                self.deletes.push(id);
            }
        }
        // After the segments they belong to: without them a segment would come back to life.
        self.deletes.extend(self.duplicates.forget(now.wall, IDS_FORGOTTEN_MAX));
        let deletes: BTreeSet<String> = std::mem::take(&mut self.deletes).into_iter().collect();
        for id in deletes {
            groups.push(Group { operations: vec![stored::delete(&id)], bytes: 0 });
        }

        let before = self.next_sequence;
        let waiting = std::mem::take(&mut self.waiting);
        let mut round = Round { waiting, compacted, ..Round::default() };
        self.plan_sends(&mut round, &mut groups, now);
        round.next_sequence = self.next_sequence;
        round.batches = pack(groups);
        if round.batches.is_empty() && before != self.next_sequence {
            round.batches.push(Vec::new());
        }
        round
    }

    /// Takes in the messages of a round that is committed.
    pub(crate) fn committed(&mut self, fresh: Vec<(Segment, Bytes)>, now: Moment) {
        for (segment, _) in fresh {
            self.pending_messages -= segment.len();
            self.add_segment(segment, now);
        }
    }

    /// Removes the segments that everybody is done with, and keeps their ids as long as they count.
    fn plan_finished(&mut self, groups: &mut Vec<Group>, now: Timestamp) {
        let finished: Vec<u64> = std::mem::take(&mut self.log.finished).into_iter().collect();
        for chunk in finished.chunks(SEGMENTS_PER_IDS) {
            let mut group = Group { operations: Vec::new(), bytes: 0 };
            let mut hashes = Vec::new();
            let mut newest = Timestamp::EPOCH;
            for first in chunk {
                let Some(segment) = self.log.remove(*first) else { continue };
                self.sessions.release(&segment);
                group.operations.push(stored::delete(&stored::segment_id(*first)));
                if self.duplicates.covers(segment.enqueued_at, now) {
                    hashes.extend_from_slice(&segment.hashes);
                    newest = newest.max(segment.enqueued_at);
                }
                for outlet in self.outlets.values_mut() {
                    let marks = outlet.marks.remove(first);
                    if marks.is_some_and(|it| it.is_stored) {
                        self.deletes.push(stored::ack_id(outlet.number, *first));
                    }
                    self.log.dirty.remove(&(*first, outlet.number));
                }
            }
            if !hashes.is_empty() {
                group.add(self.keep_ids(chunk[0], newest, &hashes));
            }
            groups.push(group);
        }
    }

    /// Writes segments again without the messages that everybody is done with.
    fn plan_compaction(
        &self,
        groups: &mut Vec<Group>,
        chosen: &[(u64, Bytes)],
        now: Timestamp,
    ) -> Vec<(u64, Bytes)> {
        let mut compacted = Vec::new();
        for (first, bytes) in chosen {
            let Some(segment) = self.log.segments.get(first) else { continue };
            let keeps_ids = self.duplicates.covers(segment.enqueued_at, now);
            let Some(left) = self.compact(*first, bytes, keeps_ids) else { continue };
            let document = stored::segment_document(&self.partition, *first, &left);
            groups.push(Group::upsert(document));
            compacted.push((*first, left));
        }
        compacted
    }

    /// The document that remembers ids without their messages.
    fn keep_ids(&mut self, first: u64, newest: Timestamp, hashes: &[u128]) -> Bytes {
        self.duplicates.stored(newest, stored::ids_id(first));
        stored::ids_document(&self.partition, first, newest, hashes)
    }

    fn plan_sends(&mut self, round: &mut Round, groups: &mut Vec<Group>, now: Moment) {
        let at = self.last_enqueued_at.max(now.wall);
        let (mut gathered, mut gathered_bytes, mut round_bytes) = (Vec::new(), 0, 0);
        while round_bytes < ROUND_BYTES_MAX {
            let Some(send) = self.sends.pop_front() else { break };
            self.pending_bytes -= send.bytes;
            round_bytes += send.bytes;
            let mut outcome = SendOutcome::default();
            for message in send.messages {
                let hash = message.hash;
                if hash.is_some_and(|it| self.duplicates.is_repeated(it, at)) {
                    self.pending_messages -= 1;
                    outcome.duplicates += 1;
                    outcome.sequence_numbers.push(None);
                    continue;
                }
                let bytes = message.bytes.len();
                if SEGMENT_MESSAGES_MAX <= gathered.len()
                    || SEGMENT_BYTES_MAX < gathered_bytes + bytes
                {
                    self.plan_segment(round, groups, at, &gathered);
                    gathered.clear();
                    gathered_bytes = 0;
                }
                outcome.sequence_numbers.push(Some(self.next_sequence));
                self.next_sequence += 1;
                gathered_bytes += bytes;
                gathered.push(message);
            }
            round.sent.push((send.ticket, outcome));
        }
        if !gathered.is_empty() {
            self.plan_segment(round, groups, at, &gathered);
        }
    }

    fn plan_segment(
        &mut self,
        round: &mut Round,
        groups: &mut Vec<Group>,
        at: Timestamp,
        messages: &[Encoded],
    ) {
        self.last_enqueued_at = at;
        let count = u64::try_from(messages.len()).expect("a segment has at most 1000 messages");
        let first = self.next_sequence - count;
        let bytes = Bytes::from(encode_segment(at, messages));
        let segment = Segment::decode(first, &bytes, &mut self.sessions);
        let segment = segment.expect("what was just encoded can be read");
        self.duplicates.arrived(&segment.hashes, at, at);
        if messages.iter().all(|it| it.wanted_by.is_empty()) {
            // Nobody wants them; only their ids count.
            self.sessions.release(&segment);
            self.pending_messages -= segment.len();
            if self.duplicates.covers(at, at) && !segment.hashes.is_empty() {
                let document = self.keep_ids(first, at, &segment.hashes);
                groups.push(Group::upsert(document));
            }
            return;
        }
        let document = stored::segment_document(&self.partition, first, &bytes);
        groups.push(Group { bytes: document.len(), operations: vec![Operation::create(document)] });
        round.fresh.push((segment, bytes));
    }
}

impl Group {
    fn upsert(document: Bytes) -> Self {
        Self { bytes: document.len(), operations: vec![Operation::upsert(document)] }
    }

    fn add(&mut self, document: Bytes) {
        self.bytes += document.len();
        self.operations.push(Operation::upsert(document));
    }
}

/// Puts groups into as few batches as their order allows.
fn pack(groups: Vec<Group>) -> Vec<Vec<Operation>> {
    let mut batches: Vec<Vec<Operation>> = Vec::new();
    let mut bytes = 0;
    for group in groups {
        let fits = batches.last().is_some_and(|batch| {
            batch.len() + group.operations.len() + HEAD_OPERATIONS <= BATCH_OPERATIONS_MAX
                && bytes + group.bytes + HEAD_BYTES <= BATCH_BYTES_MAX
        });
        if !fits {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += group.bytes;
        batches.last_mut().expect("one was just added").extend(group.operations);
    }
    batches
}
