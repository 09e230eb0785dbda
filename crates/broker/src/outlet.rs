//! What a queue or subscription gives out: who may have which message, and what became of it.
//!
//! A state machine without I/O and without a clock. It changes at once; what has to be written is
//! noted in the [`Log`], who has to be woken in [`Wakes`].

mod sessions;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::Timestamp;

use crate::flaw::Flaw;
use crate::log::{Log, Moment, OrderKey, Place, Segment};
use crate::marks::{DeadLetter, Marks};
use crate::outlet::sessions::Session;
pub(crate) use crate::outlet::sessions::Unavailable;
use crate::settings::ReceiveSettings;

/// Why a message whose time was over is a dead letter; the words of Service Bus.
pub(crate) const EXPIRED: &str = "TTLExpiredException";
/// Why a message that failed too often is a dead letter; the words of Service Bus.
pub(crate) const FAILED_TOO_OFTEN: &str = "MaxDeliveryCountExceeded";
/// Why a message without a session is a dead letter where sessions are required.
pub(crate) const NO_SESSION: &str = "Session ID is null";

/// The lock is not there, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockLost;

/// The messages of a queue or subscription.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) number: u16,
    pub(crate) settings: ReceiveSettings,
    /// Longest time to live, from here and from the topic.
    pub(crate) time_to_live_max: Option<Duration>,
    /// By the first number of their segment.
    pub(crate) marks: BTreeMap<u64, Marks>,
    /// Waiting messages, where there are no sessions.
    ready: BTreeSet<OrderKey>,
    sessions: BTreeMap<Arc<str>, Session>,
    /// Sessions with waiting messages and without receiver, by their first message.
    available: BTreeSet<(OrderKey, Arc<str>)>,
    /// Dead letters that nobody has.
    dead: BTreeSet<u64>,
    dead_count: usize,
    /// Messages that somebody has, by the number of the lock.
    locks: BTreeMap<u64, Lock>,
    /// Deferred messages that somebody has.
    deferred_taken: BTreeSet<u64>,
    /// The sessions that somebody has, by the number of the lock.
    receivers: BTreeMap<u64, Arc<str>>,
    timers: BTreeSet<(Duration, u64)>,
    last_lock: u64,
    wakes: Wakes,
    pub(crate) flaw: Option<Flaw>,
}

/// A message that somebody has.
#[derive(Debug)]
struct Lock {
    sequence: u64,
    held: Held,
    is_deferred: bool,
}

/// On what ground somebody has a message.
#[derive(Debug)]
enum Held {
    /// Until then.
    Message(Duration),
    /// A dead letter, until then.
    DeadLetter(Duration),
    /// As long as the session, which has this lock.
    Session(Arc<str>, u64),
}

/// Where messages are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Messages,
    DeadLetters,
    /// The session with this lock.
    Session(u64),
}

/// A message that was just given out.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) place: Place,
    pub(crate) lock: u64,
    /// Failed deliveries before this one.
    pub(crate) failures: u32,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) dead_letter: Option<DeadLetter>,
    pub(crate) is_deferred: bool,
}

/// Who has reason to look again.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// Somebody who waits for a message or for a session.
    pub(crate) ready: bool,
    /// Somebody who waits for a dead letter.
    pub(crate) dead: bool,
    /// The receivers of the sessions with these locks.
    pub(crate) sessions: BTreeSet<u64>,
    /// Session locks that are gone.
    pub(crate) ended: BTreeSet<u64>,
}

/// How many messages there are, by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for a receiver, or with one.
    pub active: usize,
    /// Of the active and deferred ones and the dead letters, those a receiver has.
    pub locked: usize,
    /// Waiting for their time.
    pub scheduled: usize,
    /// Put aside by a receiver.
    pub deferred: usize,
    /// Dead letters.
    pub dead_lettered: usize,
    /// Sessions with active messages or with a receiver.
    pub sessions: usize,
}

impl Outlet {
    pub(crate) fn new(
        number: u16,
        settings: ReceiveSettings,
        entity_time_to_live: Option<Duration>,
    ) -> Self {
        let time_to_live_max = shorter(settings.default_time_to_live, entity_time_to_live);
        Self {
            number,
            settings,
            time_to_live_max,
            marks: BTreeMap::new(),
            ready: BTreeSet::new(),
            sessions: BTreeMap::new(),
            available: BTreeSet::new(),
            dead: BTreeSet::new(),
            dead_count: 0,
            locks: BTreeMap::new(),
            deferred_taken: BTreeSet::new(),
            receivers: BTreeMap::new(),
            timers: BTreeSet::new(),
            last_lock: 0,
            wakes: Wakes::default(),
            flaw: None,
        }
    }

    /// Changes everything but whether sessions are required.
    pub(crate) fn update(&mut self, settings: ReceiveSettings, entity: Option<Duration>) {
        self.time_to_live_max = shorter(settings.default_time_to_live, entity);
        self.settings = settings;
    }

    /// A message has come, or a scheduled one's time has, or it is read from the store.
    pub(crate) fn arrive(
        &mut self,
        log: &mut Log,
        place: Place,
        key: OrderKey,
        session: Option<&Arc<str>>,
    ) {
        let marks = self.marks.get(&place.first);
        if marks.is_some_and(|it| it.is_done(place.index) || it.is_deferred(place.index)) {
            return;
        }
        if marks.is_some_and(|it| it.dead_letter(place.index).is_some()) {
            self.dead_count += 1;
            self.dead.insert(place.sequence());
            self.wakes.dead = true;
            return;
        }
        if self.settings.requires_session && session.is_none() {
            let why = "the subscription requires sessions and the message has none";
            self.bury(log, place, DeadLetter::new(NO_SESSION, why));
            return;
        }
        self.put(key, session);
    }

    /// Gives out up to `messages_max` waiting messages in order.
    pub(crate) fn take(
        &mut self,
        log: &mut Log,
        source: Source,
        messages_max: usize,
        now: Moment,
    ) -> Result<Vec<Taken>, LockLost> {
        self.advance(log, now);
        let mut taken = Vec::new();
        while taken.len() < messages_max {
            let Some(sequence) = self.next(source)? else { break };
            let (segment, place) = log.find(sequence).expect("a waiting message has its segment");
            let enqueued_at = segment.enqueued_at;
            if source != Source::DeadLetters && self.is_expired(segment, place.index, now) {
                self.expire_waiting(log, place);
                continue;
            }
            let held = match source {
                Source::Messages => Held::Message(now.monotonic + self.settings.lock_duration),
                Source::DeadLetters => {
                    Held::DeadLetter(now.monotonic + self.settings.lock_duration)
                }
                Source::Session(lock) => Held::Session(Arc::clone(&self.receivers[&lock]), lock),
            };
            self.remove_waiting(log, place);
            taken.push(self.lock(place, held, false, enqueued_at));
        }
        if self.next(source)?.is_some() {
            self.wake(source);
        }
        Ok(taken)
    }

    /// Gives out deferred messages by their numbers: all of them, or none and the first number that
    /// is not there.
    pub(crate) fn take_deferred(
        &mut self,
        log: &mut Log,
        session: Option<u64>,
        sequences: &[u64],
        now: Moment,
    ) -> Result<Result<Vec<Taken>, u64>, LockLost> {
        self.advance(log, now);
        let id = match session {
            Some(lock) => Some(Arc::clone(self.receivers.get(&lock).ok_or(LockLost)?)),
            None => None,
        };
        let mut found = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let place = log.find(*sequence).filter(|(segment, place)| {
                let marks = self.marks.get(&place.first);
                marks.is_some_and(|it| it.is_deferred(place.index))
                    && !self.deferred_taken.contains(sequence)
                    && (id.is_none() || segment.session(place.index) == id.as_ref())
            });
            let Some((segment, place)) = place else { return Ok(Err(*sequence)) };
            found.push((place, segment.enqueued_at));
        }
        let mut taken = Vec::with_capacity(found.len());
        for (place, enqueued_at) in found {
            // A number that is given twice is given out once.
            if !self.deferred_taken.insert(place.sequence()) {
                continue;
            }
            let held = match (&id, session) {
                (Some(id), Some(lock)) => Held::Session(Arc::clone(id), lock),
                _ => Held::Message(now.monotonic + self.settings.lock_duration),
            };
            taken.push(self.lock(place, held, true, enqueued_at));
        }
        Ok(Ok(taken))
    }

    /// Ends the locks whose time is over.
    pub(crate) fn advance(&mut self, log: &mut Log, now: Moment) {
        while let Some((until, number)) = self.timers.first().copied() {
            if now.monotonic < until {
                return;
            }
            self.timers.pop_first();
            if self.receivers.contains_key(&number) {
                self.end_session(log, number, true);
            } else if let Some(lock) = self.locks.remove(&number) {
                self.give_back(log, lock, true);
            }
        }
    }

    /// When a lock ends next.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(until, _)| *until)
    }

    /// Ends a message that waits and whose time is over. When to look again at one that a receiver
    /// still has.
    pub(crate) fn sweep(&mut self, log: &mut Log, place: Place, now: Moment) -> Option<Timestamp> {
        let (segment, _) = log.find(place.sequence())?;
        if !self.is_expired(segment, place.index, now) {
            return None;
        }
        if self.is_waiting(segment, place) {
            self.expire_waiting(log, place);
            return None;
        }
        let marks = self.marks.get(&place.first);
        let is_dead = marks.is_some_and(|it| it.dead_letter(place.index).is_some());
        (!is_dead).then(|| now.wall.plus(self.settings.lock_duration))
    }

    /// When this outlet stops giving out the message; none if it does not, or has already.
    pub(crate) fn expires_at(&self, segment: &Segment, index: u16) -> Option<Timestamp> {
        let marks = self.marks.get(&segment.first);
        if marks
            .is_some_and(|it| it.is_done(index) || it.is_deferred(index) || it.is_revived(index))
        {
            return None;
        }
        segment.expires_at(index, self.time_to_live_max)
    }

    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// How many messages there are; scheduled ones are known elsewhere.
    pub(crate) fn counts(&self) -> Counts {
        let in_sessions: usize = self.sessions.values().map(|it| it.ready.len()).sum();
        let is_active = |lock: &&Lock| {
            !lock.is_deferred && matches!(lock.held, Held::Message(_) | Held::Session(..))
        };
        Counts {
            active: self.ready.len() + in_sessions + self.locks.values().filter(is_active).count(),
            locked: self.locks.len(),
            scheduled: 0,
            deferred: self.marks.values().map(Marks::deferred_count).sum(),
            dead_lettered: self.dead_count,
            sessions: self.sessions.len(),
        }
    }

    /// The next message of a source.
    fn next(&self, source: Source) -> Result<Option<u64>, LockLost> {
        Ok(match source {
            Source::Messages => self.ready.first().map(|(_, sequence)| *sequence),
            Source::DeadLetters => self.dead.first().copied(),
            Source::Session(lock) => {
                let id = self.receivers.get(&lock).ok_or(LockLost)?;
                self.sessions[id].ready.first().map(|(_, sequence)| *sequence)
            }
        })
    }

    fn wake(&mut self, source: Source) {
        match source {
            Source::Messages => self.wakes.ready = true,
            Source::DeadLetters => self.wakes.dead = true,
            Source::Session(lock) => {
                self.wakes.sessions.insert(lock);
            }
        }
    }

    fn lock(&mut self, place: Place, held: Held, deferred: bool, at: Timestamp) -> Taken {
        self.last_lock += 1;
        let number = self.last_lock;
        match &held {
            Held::Message(until) | Held::DeadLetter(until) => {
                self.timers.insert((*until, number));
            }
            Held::Session(id, _) => {
                let session = self.sessions.get_mut(id).expect("a receiver has its session");
                session.taken.insert(number);
            }
        }
        let sequence = place.sequence();
        self.locks.insert(number, Lock { sequence, held, is_deferred: deferred });
        let marks = self.marks.get(&place.first);
        Taken {
            place,
            lock: number,
            failures: marks.map_or(0, |it| it.failures(place.index)),
            enqueued_at: at,
            dead_letter: marks.and_then(|it| it.dead_letter(place.index)).cloned(),
            is_deferred: deferred,
        }
    }

    /// Lets a message wait.
    fn put(&mut self, key: OrderKey, session: Option<&Arc<str>>) {
        match session {
            Some(id) if self.settings.requires_session => self.put_into_session(key, id),
            Some(_) | None => {
                self.ready.insert(key);
                self.wakes.ready = true;
            }
        }
    }

    fn is_waiting(&self, segment: &Segment, place: Place) -> bool {
        let key = segment.order_key(place.index);
        match segment.session(place.index) {
            Some(id) if self.settings.requires_session => {
                self.sessions.get(id).is_some_and(|it| it.ready.contains(&key))
            }
            Some(_) | None => self.ready.contains(&key),
        }
    }

    /// Takes a message out of wherever it waits.
    fn remove_waiting(&mut self, log: &Log, place: Place) {
        let (segment, _) = log.find(place.sequence()).expect("a waiting message has its segment");
        let key = segment.order_key(place.index);
        self.dead.remove(&key.1);
        match segment.session(place.index) {
            Some(id) if self.settings.requires_session => self.remove_from_session(key, id),
            Some(_) | None => {
                self.ready.remove(&key);
            }
        }
    }

    /// A planted bug: lets a message wait behind all others of its session.
    fn put_last(&self, log: &mut Log, sequence: u64) {
        let Some((segment, place)) = log.find(sequence) else { return };
        let session = segment.session(place.index).and_then(|id| self.sessions.get(id));
        let last = session.and_then(|it| it.ready.last());
        if let Some((last, _)) = last {
            log.delay(place, last.plus(Duration::from_millis(1)));
        }
    }

    fn is_expired(&self, segment: &Segment, index: u16, now: Moment) -> bool {
        self.expires_at(segment, index).is_some_and(|it| it <= now.wall)
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
