use millstream_core::Timestamp;

use crate::entity::Entity;
use crate::log::{Moment, Place};
use crate::marks::DeadLetter;
use crate::outlet::Counts;

/// What a message that somebody peeks at waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// A receiver, or it is with one.
    Active,
    /// Somebody who asks for it by its number.
    Deferred,
    /// Its time.
    Scheduled,
}

/// What there is to know about a message without its body.
#[derive(Clone, Debug)]
pub(crate) struct Peeked {
    pub(crate) place: Place,
    pub(crate) state: MessageState,
    pub(crate) failures: u32,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) dead_letter: Option<DeadLetter>,
}

impl Entity {
    /// Up to `messages_max` messages of an outlet from number `from` on, in the order of their
    /// numbers.
    pub(crate) fn peek(
        &self,
        outlet: u16,
        dead_letters: bool,
        from: u64,
        messages_max: usize,
        session: Option<&str>,
        now: Moment,
    ) -> Vec<Peeked> {
        let Some(outlet) = self.outlets.get(&outlet) else { return Vec::new() };
        let start = self.log.segments.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let mut found = Vec::new();
        for segment in self.log.segments.range(start..).map(|(_, segment)| segment) {
            let marks = outlet.marks.get(&segment.first);
            for place in segment.places().filter(|it| from <= it.sequence()) {
                if messages_max <= found.len() {
                    return found;
                }
                let index = place.index;
                let is_other = session.is_some_and(|id| {
                    segment.session(index).is_none_or(|session| **session != *id)
                });
                let is_done = marks.is_some_and(|it| it.is_done(index));
                if is_other || is_done || !segment.wanted_by(index).contains(&outlet.number) {
                    continue;
                }
                let dead_letter = marks.and_then(|it| it.dead_letter(index));
                let expired = outlet.expires_at(segment, index).is_some_and(|it| it <= now.wall);
                if dead_letter.is_some() != dead_letters || (expired && !dead_letters) {
                    continue;
                }
                let state = if marks.is_some_and(|it| it.is_deferred(index)) {
                    MessageState::Deferred
                } else if self.scheduled.contains(&segment.order_key(index)) {
                    MessageState::Scheduled
                } else {
                    MessageState::Active
                };
                found.push(Peeked {
                    place,
                    state,
                    failures: marks.map_or(0, |it| it.failures(index)),
                    enqueued_at: segment.enqueued_at,
                    dead_letter: dead_letter.cloned(),
                });
            }
        }
        found
    }

    /// How many messages an outlet has.
    pub(crate) fn counts(&self, outlet: u16) -> Counts {
        let Some(outlet) = self.outlets.get(&outlet) else { return Counts::default() };
        let is_wanted = |sequence: u64| {
            let found = self.log.find(sequence);
            found.is_some_and(|(segment, it)| segment.wanted_by(it.index).contains(&outlet.number))
        };
        let scheduled = self.scheduled.iter().filter(|(_, sequence)| is_wanted(*sequence));
        Counts { scheduled: scheduled.count(), ..outlet.counts() }
    }
}
