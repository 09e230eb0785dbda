use millstream_core::Settlement;

use crate::flaw::Flaw;
use crate::log::{Log, Moment, Place};
use crate::marks::DeadLetter;
use crate::outlet::{EXPIRED, FAILED_TOO_OFTEN, Held, Lock, LockLost, Outlet};

impl Outlet {
    /// Settles a message that somebody has.
    pub(crate) fn settle(
        &mut self,
        log: &mut Log,
        lock: u64,
        settlement: &Settlement,
        now: Moment,
    ) -> Result<(), LockLost> {
        self.advance(log, now);
        let held = self.unlock(lock)?;
        let (_, place) = log.find(held.sequence).expect("a locked message has its segment");
        let is_dead = matches!(held.held, Held::DeadLetter(_));
        match settlement {
            Settlement::Complete => {
                self.deferred_taken.remove(&held.sequence);
                self.finish(log, place);
            }
            Settlement::Abandon => {
                if self.flaw == Some(Flaw::AbandonedToEnd) {
                    self.put_last(log, held.sequence);
                }
                self.give_back(log, held, true);
            }
            // A dead letter cannot be put aside or become one again; it stays what it is.
            Settlement::Defer | Settlement::DeadLetter { .. } if is_dead => {
                self.give_back(log, held, false);
            }
            Settlement::Defer => {
                self.deferred_taken.remove(&held.sequence);
                self.marks.entry(place.first).or_default().defer(place.index);
                log.touch(place, self.number);
            }
            Settlement::DeadLetter { reason, description } => {
                self.deferred_taken.remove(&held.sequence);
                self.bury(log, place, DeadLetter::new(reason, description));
            }
        }
        Ok(())
    }

    /// Gives a message back as if it had not been given out.
    pub(crate) fn release(
        &mut self,
        log: &mut Log,
        lock: u64,
        now: Moment,
    ) -> Result<(), LockLost> {
        self.advance(log, now);
        let held = self.unlock(lock)?;
        self.give_back(log, held, false);
        Ok(())
    }

    /// Keeps a message for another lock duration. One of a session is kept as long as the session.
    pub(crate) fn renew(&mut self, log: &mut Log, lock: u64, now: Moment) -> Result<(), LockLost> {
        self.advance(log, now);
        let held = self.locks.get_mut(&lock).ok_or(LockLost)?;
        match &mut held.held {
            Held::Message(until) | Held::DeadLetter(until) => {
                self.timers.remove(&(*until, lock));
                *until = now.monotonic + self.settings.lock_duration;
                self.timers.insert((*until, lock));
                Ok(())
            }
            Held::Session(_, session) => {
                let session = *session;
                self.renew_session(log, session, now)
            }
        }
    }

    /// Makes a dead letter that nobody has a message again: in its old place, never delivered, and
    /// without expiry. Whether there was such a dead letter.
    pub(crate) fn revive(&mut self, log: &mut Log, sequence: u64) -> bool {
        if !self.dead.contains(&sequence) {
            return false;
        }
        if self.flaw == Some(Flaw::RevivedToEnd) {
            self.put_last(log, sequence);
        }
        let (segment, place) = log.find(sequence).expect("a dead letter has its segment");
        let key = segment.order_key(place.index);
        let session = segment.session(place.index).cloned();
        if self.settings.requires_session && session.is_none() {
            return false;
        }
        self.dead.remove(&sequence);
        self.dead_count -= 1;
        self.marks.entry(place.first).or_default().revive(place.index);
        log.touch(place, self.number);
        self.put(key, session.as_ref());
        true
    }

    /// The first dead letters that nobody has.
    pub(crate) fn dead_letters(&self, letters_max: usize) -> Vec<u64> {
        self.dead.iter().take(letters_max).copied().collect()
    }

    /// Ends a message for this outlet.
    pub(crate) fn finish(&mut self, log: &mut Log, place: Place) {
        let marks = self.marks.entry(place.first).or_default();
        assert!(!marks.is_done(place.index), "message {} ended twice", place.sequence());
        if marks.dead_letter(place.index).is_some() {
            self.dead_count -= 1;
        }
        marks.finish(place.index);
        log.close(place, self.number);
    }

    /// The numbers of the messages, or dead letters, that wait and that nobody has.
    pub(crate) fn waiting(&self, dead_letters: bool) -> impl Iterator<Item = u64> {
        let in_sessions = self.sessions.values().flat_map(|it| it.ready.iter());
        let messages = self.ready.iter().chain(in_sessions).map(|(_, sequence)| *sequence);
        let (dead, messages) = match dead_letters {
            true => (Some(self.dead.iter().copied()), None),
            false => (None, Some(messages)),
        };
        dead.into_iter().flatten().chain(messages.into_iter().flatten())
    }

    /// Ends a message or dead letter that waits.
    pub(crate) fn throw_away(&mut self, log: &mut Log, sequence: u64) {
        let (_, place) = log.find(sequence).expect("a waiting message has its segment");
        self.remove_waiting(log, place);
        self.finish(log, place);
    }

    /// Ends a waiting message whose time is over.
    pub(super) fn expire_waiting(&mut self, log: &mut Log, place: Place) {
        self.remove_waiting(log, place);
        if self.settings.dead_letter_on_expiration {
            let why = "the message expired before it was received";
            self.bury(log, place, DeadLetter::new(EXPIRED, why));
        } else {
            self.finish(log, place);
        }
    }

    pub(super) fn bury(&mut self, log: &mut Log, place: Place, dead_letter: DeadLetter) {
        self.marks.entry(place.first).or_default().bury(place.index, dead_letter);
        self.dead.insert(place.sequence());
        self.dead_count += 1;
        self.wakes.dead = true;
        log.touch(place, self.number);
    }

    /// Lets a message wait again after somebody had it.
    pub(super) fn give_back(&mut self, log: &mut Log, lock: Lock, failed: bool) {
        let (segment, place) = log.find(lock.sequence).expect("a locked message has its segment");
        let key = segment.order_key(place.index);
        self.deferred_taken.remove(&lock.sequence);
        if failed {
            let failures = self.marks.entry(place.first).or_default().fail(place.index);
            log.touch(place, self.number);
            let is_dead = matches!(lock.held, Held::DeadLetter(_));
            if !is_dead && self.settings.delivery_count_max <= failures {
                let why = format!("the message was delivered {failures} times without success");
                self.bury(log, place, DeadLetter::new(FAILED_TOO_OFTEN, &why));
                return;
            }
        }
        match lock.held {
            // It was not waiting before; it goes on being deferred.
            _ if lock.is_deferred => (),
            Held::Message(_) => {
                self.ready.insert(key);
                self.wakes.ready = true;
            }
            Held::DeadLetter(_) => {
                self.dead.insert(lock.sequence);
                self.wakes.dead = true;
            }
            Held::Session(id, _) => self.put_into_session(key, &id),
        }
    }

    /// Takes a lock away, with everything that points to it.
    fn unlock(&mut self, lock: u64) -> Result<Lock, LockLost> {
        let held = self.locks.remove(&lock).ok_or(LockLost)?;
        match &held.held {
            Held::Message(until) | Held::DeadLetter(until) => {
                self.timers.remove(&(*until, lock));
            }
            Held::Session(id, _) => {
                let session = self.sessions.get_mut(id).expect("a lock has its session");
                session.taken.remove(&lock);
            }
        }
        Ok(held)
    }
}
