//! Segments are written again without the messages that everybody is done with, so that one message
//! that nobody takes does not keep a thousand others.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use crate::entity::Entity;
use crate::log::{Log, Segment};

/// How often sparse segments are looked at. One that changed in between is left alone: it is being
/// consumed and will be gone soon.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Segments that one look chooses.
const CHOSEN_MAX: usize = 256;
/// Segments that are written again with one round.
const PER_ROUND: usize = 4;

/// What is to be written again.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    chosen: BTreeSet<u64>,
    next_look: Option<Duration>,
}

impl Compaction {
    pub(super) fn has_work(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// When to look at sparse segments, if there are any.
    pub(super) fn next_look(&self, log: &Log, now: Duration) -> Option<Duration> {
        if log.sparse.is_empty() {
            return None;
        }
        Some(self.next_look.unwrap_or(now + LOOK_INTERVAL))
    }

    /// Chooses segments that have not changed since the last look.
    pub(super) fn advance(&mut self, log: &mut Log, now: Duration) {
        if log.sparse.is_empty() {
            self.next_look = None;
            return;
        }
        if self.next_look.is_some_and(|it| now < it) {
            return;
        }
        let is_first = self.next_look.replace(now + LOOK_INTERVAL).is_none();
        if is_first {
            return;
        }
        for first in &log.sparse {
            let Some(segment) = log.segments.get_mut(first) else { continue };
            if segment.is_steady() && self.chosen.len() < CHOSEN_MAX {
                self.chosen.insert(*first);
            }
        }
    }
}

impl Entity {
    /// The segments whose bytes the next round needs, by their first numbers.
    pub(crate) fn take_chosen(&mut self) -> Vec<u64> {
        let chosen = &mut self.compaction.chosen;
        std::iter::from_fn(|| chosen.pop_first()).take(PER_ROUND).collect()
    }

    /// The bytes of a segment without what is done; none if it is not worth it any more.
    pub(super) fn compact(&self, first: u64, bytes: &Bytes, keeps_ids: bool) -> Option<Bytes> {
        let segment = self.log.segments.get(&first)?;
        let is_worth = 0 < segment.open && segment.is_sparse();
        let left = segment.compacted(bytes, keeps_ids).filter(|_| is_worth)?;
        (left.len() < bytes.len()).then(|| Bytes::from(left))
    }

    /// The segment is stored without what was done.
    pub(crate) fn compacted(&mut self, first: u64, bytes: &Bytes) {
        let Some(before) = self.log.remove(first) else { return };
        let after = Segment::decode(first, bytes, &mut self.sessions);
        let mut after = after.expect("what was just encoded can be read");
        after.follow(&before);
        self.sessions.release(&before);
        self.log.insert(after);
    }
}
