use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::flaw::Flaw;
use crate::log::{Log, Moment, OrderKey};
use crate::outlet::{LockLost, Outlet};

/// The messages of a session, and who has it.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) ready: BTreeSet<OrderKey>,
    /// The first message under which it stands among the available ones.
    listed: Option<OrderKey>,
    pub(super) receiver: Option<Receiver>,
    /// Locks on its messages.
    pub(super) taken: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) lock: u64,
    until: Duration,
}

/// Why a session cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// Somebody has it.
    Taken,
    /// There is none that nobody has and that has messages.
    None,
}

impl Outlet {
    /// Gives a session to a receiver: this one, whether it has messages or not, or the one whose
    /// first message is the oldest. Returns its name and the number of its lock.
    pub(crate) fn accept(
        &mut self,
        log: &mut Log,
        id: Option<&str>,
        now: Moment,
    ) -> Result<(Arc<str>, u64), Unavailable> {
        self.advance(log, now);
        let id = match id {
            Some(id) => {
                let known = self.sessions.get_key_value(id);
                if known.is_some_and(|(_, session)| session.receiver.is_some()) {
                    return Err(Unavailable::Taken);
                }
                known.map_or_else(|| Arc::from(id), |(id, _)| Arc::clone(id))
            }
            None => self.first_available(log, now).ok_or(Unavailable::None)?,
        };
        self.last_lock += 1;
        let lock = self.last_lock;
        let until = now.monotonic + self.settings.lock_duration;
        let session = self.sessions.entry(Arc::clone(&id)).or_default();
        session.receiver = Some(Receiver { lock, until });
        self.receivers.insert(lock, Arc::clone(&id));
        self.timers.insert((until, lock));
        self.list(&id);
        self.wakes.ready |= !self.available.is_empty();
        Ok((id, lock))
    }

    /// Keeps a session for another lock duration.
    pub(crate) fn renew_session(
        &mut self,
        log: &mut Log,
        lock: u64,
        now: Moment,
    ) -> Result<(), LockLost> {
        self.advance(log, now);
        let id = self.receivers.get(&lock).ok_or(LockLost)?;
        let session = self.sessions.get_mut(id).expect("a receiver has its session");
        let receiver = session.receiver.as_mut().expect("a lock has its receiver");
        self.timers.remove(&(receiver.until, lock));
        receiver.until = now.monotonic + self.settings.lock_duration;
        self.timers.insert((receiver.until, lock));
        Ok(())
    }

    /// Gives a session up. What was not settled does not count as failed.
    pub(crate) fn close_session(
        &mut self,
        log: &mut Log,
        lock: u64,
        now: Moment,
    ) -> Result<(), LockLost> {
        self.advance(log, now);
        if !self.receivers.contains_key(&lock) {
            return Err(LockLost);
        }
        self.end_session(log, lock, false);
        Ok(())
    }

    /// The session with this lock.
    pub(crate) fn session_of(&self, lock: u64) -> Result<&Arc<str>, LockLost> {
        self.receivers.get(&lock).ok_or(LockLost)
    }

    /// Sessions with messages or a receiver, by name.
    pub(crate) fn session_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sessions.keys()
    }

    /// Takes a session from its receiver and lets its messages wait again.
    pub(super) fn end_session(&mut self, log: &mut Log, lock: u64, failed: bool) {
        let Some(id) = self.receivers.remove(&lock) else { return };
        let session = self.sessions.get_mut(&id).expect("a receiver has its session");
        let receiver = session.receiver.take().expect("a lock has its receiver");
        self.timers.remove(&(receiver.until, lock));
        for number in std::mem::take(&mut session.taken) {
            if self.flaw == Some(Flaw::ExpiredToEnd) && failed {
                self.put_last(log, self.locks[&number].sequence);
            }
            let held = self.locks.remove(&number).expect("a session knows its locks");
            self.give_back(log, held, failed);
        }
        self.list(&id);
        self.wakes.ended.insert(lock);
    }

    pub(super) fn put_into_session(&mut self, key: OrderKey, id: &Arc<str>) {
        let session = self.sessions.entry(Arc::clone(id)).or_default();
        session.ready.insert(key);
        match session.receiver {
            Some(receiver) => {
                self.wakes.sessions.insert(receiver.lock);
            }
            None => self.wakes.ready = true,
        }
        self.list(id);
    }

    pub(super) fn remove_from_session(&mut self, key: OrderKey, id: &Arc<str>) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.ready.remove(&key);
            self.list(id);
        }
    }

    /// Lets a session stand among the available ones, or not, as it is now; forgets it if there is
    /// nothing to know.
    fn list(&mut self, id: &Arc<str>) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let first = session.ready.first().copied();
        let is_shared = self.flaw == Some(Flaw::SessionsShared);
        let first = first.filter(|_| session.receiver.is_none() || is_shared);
        if session.listed != first {
            if let Some(key) = session.listed {
                self.available.remove(&(key, Arc::clone(id)));
            }
            if let Some(key) = first {
                self.available.insert((key, Arc::clone(id)));
            }
            session.listed = first;
        }
        if session.ready.is_empty() && session.receiver.is_none() {
            self.sessions.remove(id);
        }
    }

    /// The session whose first message is the oldest, expired ones put away.
    fn first_available(&mut self, log: &mut Log, now: Moment) -> Option<Arc<str>> {
        loop {
            let ((_, sequence), id) = self.available.first()?;
            let (sequence, id) = (*sequence, Arc::clone(id));
            let (segment, place) = log.find(sequence).expect("a waiting message has its segment");
            if !self.is_expired(segment, place.index, now) {
                return Some(id);
            }
            self.expire_waiting(log, place);
        }
    }
}
