//! What the owner of a lane knows: its messages that are not done, by session, who has them, and
//! what of that is stored already. Pure: time comes in, nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Delivery, Message, Settlement, Timestamp};

use crate::messages::options::SubscriptionOptions;
use crate::messages::record::{LaneRecord, RANGES_MAX};
use crate::messages::settled::Settled;

/// Why a message that failed too often is a dead letter, as Service Bus says it.
const TOO_OFTEN: &str = "MaxDeliveryCountExceeded";

/// A lane, as its owner sees it.
#[derive(Debug)]
pub(crate) struct Lane {
    options: SubscriptionOptions,
    settled: Settled,
    /// The last number that was read.
    read: u64,
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
    sessions: BTreeMap<Arc<str>, Session>,
    /// Sessions that can be accepted, by their first message.
    ready: BTreeMap<u64, Arc<str>>,
    locks: BTreeMap<u64, Arc<str>>,
    locks_given: u64,
    /// When a session needs a look because time has passed.
    timers: BTreeSet<(Duration, Arc<str>)>,
    /// Counts of an earlier owner for messages that were not read yet.
    earlier_tries: BTreeMap<u64, u32>,
    version: u64,
    stored: u64,
    urgent: u64,
    is_stopping: bool,
}

/// A message that is not done.
#[derive(Debug)]
struct Entry {
    session: Arc<str>,
    message: Message,
    enqueued_at: Timestamp,
    tries: u32,
    place: Place,
}

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Given,
    Leaving(Aside),
}

/// Where a message goes that is not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    Dead { reason: String, description: String },
    Deferred,
}

/// A message on its way aside.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    pub(crate) number: u64,
    pub(crate) message: Message,
    pub(crate) tries: u32,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) aside: Aside,
}

#[derive(Debug, Default)]
struct Session {
    /// Its messages that are not done.
    queue: BTreeSet<u64>,
    lock: Option<Lock>,
    rests_until: Option<Duration>,
    /// Under which number it is among the ready ones.
    ready_as: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    number: u64,
    until: Duration,
}

/// A session that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) session: Arc<str>,
    pub(crate) lock: u64,
}

/// The lock is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockLost;

impl Lane {
    /// The lane as its record says.
    pub(crate) fn new(record: &LaneRecord, options: SubscriptionOptions) -> Self {
        Self {
            options,
            settled: Settled::new(record.floor, &record.done),
            read: record.floor,
            entries: BTreeMap::new(),
            bytes: 0,
            sessions: BTreeMap::new(),
            ready: BTreeMap::new(),
            locks: BTreeMap::new(),
            locks_given: 0,
            timers: BTreeSet::new(),
            earlier_tries: record.tries.clone(),
            version: 0,
            stored: 0,
            urgent: 0,
            is_stopping: false,
        }
    }

    /// The number after which to read.
    pub(crate) fn read_to(&self) -> u64 {
        self.read
    }

    /// Everything up to here is done.
    pub(crate) fn floor(&self) -> u64 {
        self.settled.floor()
    }

    /// For how many more messages there is room in memory.
    pub(crate) fn room(&self) -> usize {
        if self.options.lane_bytes_max <= self.bytes || RANGES_MAX <= self.settled.len() {
            return 0;
        }
        self.options.lane_messages_max.saturating_sub(self.entries.len())
    }

    /// Adds a message that was read, unless it is done.
    pub(crate) fn push(&mut self, number: u64, message: Message, enqueued_at: Timestamp) {
        if number <= self.read {
            return;
        }
        self.read = number;
        let tries = self.earlier_tries.remove(&number).unwrap_or_default();
        if self.settled.contains(number) {
            self.raise();
            return;
        }
        let session: Arc<str> = message.session_id.as_deref().unwrap_or_default().into();
        self.bytes += message.size();
        let place = Place::Waiting;
        let entry = Entry { session: Arc::clone(&session), message, enqueued_at, tries, place };
        self.entries.insert(number, entry);
        self.raise();
        let known = self.sessions.entry(Arc::clone(&session)).or_default();
        known.queue.insert(number);
        self.refresh(&session);
    }

    /// Takes note that time has passed; returns whether a session became available or lost its
    /// receiver.
    pub(crate) fn advance(&mut self, now: Duration) -> bool {
        let mut changed = false;
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, name)) = self.timers.pop_first() else { break };
            let Some(session) = self.sessions.get_mut(&name) else { continue };
            changed = true;
            if session.rests_until.is_some_and(|it| it <= now) {
                session.rests_until = None;
            }
            if session.lock.is_some_and(|it| it.until <= now) {
                self.give_up(&name, now);
            }
            self.refresh(&name);
        }
        changed
    }

    /// When to call `advance` next.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The first message of the session that has waited longest.
    pub(crate) fn first_ready(&self) -> Option<u64> {
        if self.is_stopping {
            return None;
        }
        self.ready.first_key_value().map(|(number, _)| *number)
    }

    /// Takes that session.
    pub(crate) fn accept(&mut self, now: Duration) -> Option<Accepted> {
        self.first_ready()?;
        let (_, name) = self.ready.first_key_value()?;
        let name = Arc::clone(name);
        self.locks_given += 1;
        let lock = Lock { number: self.locks_given, until: now + self.options.lock_duration };
        self.sessions.get_mut(&name)?.lock = Some(lock);
        self.locks.insert(lock.number, Arc::clone(&name));
        self.refresh(&name);
        Some(Accepted { session: name, lock: lock.number })
    }

    /// Gives out messages of a session, in order.
    pub(crate) fn take(
        &mut self,
        lock: u64,
        messages_max: usize,
        now: Duration,
    ) -> Result<Vec<Delivery>, LockLost> {
        self.advance(now);
        let name = self.locks.get(&lock).cloned().ok_or(LockLost)?;
        let session = self.sessions.get(&name).ok_or(LockLost)?;
        if session.rests_until.is_some() || self.is_stopping {
            return Ok(Vec::new());
        }
        let mut deliveries = Vec::new();
        for number in &session.queue {
            if messages_max <= deliveries.len() {
                break;
            }
            let Some(entry) = self.entries.get_mut(number) else { continue };
            match entry.place {
                Place::Given => continue,
                // Whatever comes after it has to wait for it.
                Place::Leaving(_) => break,
                Place::Waiting => (),
            }
            entry.place = Place::Given;
            entry.tries += 1;
            deliveries.push(Delivery {
                message: entry.message.clone(),
                sequence_number: *number,
                delivery_count: entry.tries,
                enqueued_at: entry.enqueued_at,
                lock_token: token(lock, *number, entry.tries),
            });
        }
        if !deliveries.is_empty() {
            self.version += 1;
        }
        Ok(deliveries)
    }

    /// Settles deliveries; those whose lock is gone are left out, and make it an error.
    pub(crate) fn settle(
        &mut self,
        lock: u64,
        deliveries: &[Delivery],
        settlement: &Settlement,
        now: Duration,
    ) -> Result<(), LockLost> {
        self.advance(now);
        let name = self.locks.get(&lock).cloned().ok_or(LockLost)?;
        let mut outcome = Ok(());
        let mut rest = None;
        for delivery in deliveries {
            let number = delivery.sequence_number;
            let entry = self.entries.get_mut(&number).filter(|it| {
                it.place == Place::Given && delivery.lock_token == token(lock, number, it.tries)
            });
            let Some(entry) = entry else {
                outcome = Err(LockLost);
                continue;
            };
            match settlement {
                Settlement::Complete => self.finish(number),
                Settlement::Abandon => {
                    rest = rest.max(Some(abandon(entry, &self.options)));
                }
                Settlement::Defer => entry.place = Place::Leaving(Aside::Deferred),
                Settlement::DeadLetter { reason, description } => {
                    let (reason, description) = (reason.clone(), description.clone());
                    entry.place = Place::Leaving(Aside::Dead { reason, description });
                }
            }
        }
        self.rest(&name, rest, now);
        self.changed();
        self.refresh(&name);
        outcome
    }

    /// Keeps a session for another lock duration.
    pub(crate) fn renew(&mut self, lock: u64, now: Duration) -> Result<(), LockLost> {
        self.advance(now);
        let name = self.locks.get(&lock).cloned().ok_or(LockLost)?;
        let session = self.sessions.get_mut(&name).ok_or(LockLost)?;
        session.lock = Some(Lock { number: lock, until: now + self.options.lock_duration });
        self.refresh(&name);
        Ok(())
    }

    /// Gives a session up.
    pub(crate) fn close(&mut self, lock: u64, now: Duration) -> Result<(), LockLost> {
        self.advance(now);
        let name = self.locks.get(&lock).cloned().ok_or(LockLost)?;
        self.give_up(&name, now);
        self.refresh(&name);
        Ok(())
    }

    /// The messages that are on their way aside.
    pub(crate) fn leaving(&self) -> Vec<Leaving> {
        let all = self.entries.iter().filter_map(|(number, entry)| {
            let Place::Leaving(aside) = &entry.place else { return None };
            Some(Leaving {
                number: *number,
                message: entry.message.clone(),
                tries: entry.tries,
                enqueued_at: entry.enqueued_at,
                aside: aside.clone(),
            })
        });
        all.collect()
    }

    /// A message is where it should go.
    pub(crate) fn left(&mut self, number: u64) {
        let Some(entry) = self.entries.get(&number) else { return };
        let name = Arc::clone(&entry.session);
        self.finish(number);
        self.changed();
        self.refresh(&name);
    }

    /// Whether a message is on its way aside.
    pub(crate) fn is_leaving(&self, number: u64) -> bool {
        self.entries.get(&number).is_some_and(|it| matches!(it.place, Place::Leaving(_)))
    }

    /// From now on sessions that are open may end, and none is given out.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(crate) fn has_open_sessions(&self) -> bool {
        !self.locks.is_empty()
    }

    /// What is to be stored: the record's changes and the version they bring it to.
    pub(crate) fn snapshot(&self, record: &LaneRecord) -> (LaneRecord, u64) {
        let mut record = record.clone();
        record.beat += 1;
        record.floor = self.settled.floor();
        record.done = self.settled.ranges();
        record.tries = self.earlier_tries.clone();
        let tried = self.entries.iter().filter(|(_, it)| 0 < it.tries);
        record.tries.extend(tried.map(|(number, it)| (*number, it.tries)));
        (record, self.version)
    }

    /// How many changes there were.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Up to which change all is stored.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Whether somebody waits for a change to be stored.
    pub(crate) fn is_urgent(&self) -> bool {
        self.stored < self.urgent
    }

    /// Whether something is not stored.
    pub(crate) fn is_dirty(&self) -> bool {
        self.stored < self.version
    }

    /// Takes note that everything up to `version` is stored.
    pub(crate) fn store(&mut self, version: u64) {
        self.stored = self.stored.max(version);
    }

    fn changed(&mut self) {
        self.version += 1;
        self.urgent = self.version;
    }

    /// The message is done.
    fn finish(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        self.bytes = self.bytes.saturating_sub(entry.message.size());
        if let Some(session) = self.sessions.get_mut(&entry.session) {
            session.queue.remove(&number);
        }
        let entries = &self.entries;
        self.settled
            .insert(number, |after, before| entries.range(after + 1..before).next().is_some());
        self.raise();
    }

    fn raise(&mut self) {
        self.settled.raise(self.entries.keys().next().copied(), self.read);
    }

    /// Ends the lock of a session; what its receiver had counts as failed.
    fn give_up(&mut self, name: &Arc<str>, now: Duration) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        if let Some(lock) = session.lock.take() {
            self.locks.remove(&lock.number);
        }
        let mut rest = None;
        for number in &session.queue {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            if entry.place == Place::Given {
                rest = rest.max(Some(abandon(entry, &self.options)));
            }
        }
        if rest.is_some() {
            self.version += 1;
        }
        self.rest(name, rest, now);
    }

    fn rest(&mut self, name: &Arc<str>, rest: Option<Duration>, now: Duration) {
        let Some(rest) = rest.filter(|it| !it.is_zero()) else { return };
        if let Some(session) = self.sessions.get_mut(name) {
            session.rests_until = session.rests_until.max(Some(now + rest));
        }
    }

    /// Puts a session where it belongs after something about it has changed.
    fn refresh(&mut self, name: &Arc<str>) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        if let Some(number) = session.ready_as.take() {
            self.ready.remove(&number);
        }
        if session.queue.is_empty() && session.lock.is_none() {
            self.sessions.remove(name);
            return;
        }
        let times = [session.lock.map(|it| it.until), session.rests_until];
        self.timers.extend(times.into_iter().flatten().map(|at| (at, Arc::clone(name))));
        let Some(first) = session.queue.first().copied() else { return };
        let waits = self.entries.get(&first).is_some_and(|it| it.place == Place::Waiting);
        if waits && session.lock.is_none() && session.rests_until.is_none() {
            session.ready_as = Some(first);
            self.ready.insert(first, Arc::clone(name));
        }
    }
}

/// A delivery failed; returns how long its session rests.
fn abandon(entry: &mut Entry, options: &SubscriptionOptions) -> Duration {
    if options.delivery_count_max <= entry.tries {
        let description = format!("it was delivered {} times", entry.tries);
        entry.place = Place::Leaving(Aside::Dead { reason: TOO_OFTEN.to_owned(), description });
        return Duration::ZERO;
    }
    entry.place = Place::Waiting;
    options.backoff(entry.tries)
}

fn token(lock: u64, number: u64, tries: u32) -> String {
    format!("{lock}-{number}-{tries}")
}

#[cfg(test)]
mod tests;
