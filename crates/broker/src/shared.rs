//! What the handles of a broker and its service share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{Clock, Documents, Error, ErrorKind, Message, PartitionKey, Result};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::codec::decode_message;
use crate::entity::{Entity, SendOutcome};
use crate::fill::Crowding;
use crate::ledger::{Ledger, LedgerSetup};
use crate::log::{Moment, Place};
use crate::options::BrokerOptions;
use crate::outlet::Wakes;
use crate::routes::Routes;
use crate::stored::{self, EntityDocument, item_id};

/// Everything a handle needs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: BrokerOptions,
    pub(crate) setup: LedgerSetup,
    /// Stands in front of lock tokens, so that those of an earlier broker mean nothing.
    pub(crate) token_prefix: u64,
    /// By lower-case name.
    pub(crate) entities: Mutex<BTreeMap<String, Arc<EntityCell>>>,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) agenda: Mutex<Agenda>,
    pub(crate) work: Notify,
    /// Cancelled when nothing new is taken.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the service has ended.
    pub(crate) closed: CancellationToken,
    /// The catalog; held while entities are created, changed or removed.
    pub(crate) catalog: tokio::sync::Mutex<Ledger>,
}

/// What the service has to look at.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pub(crate) busy: BTreeMap<u64, Arc<EntityCell>>,
    pub(crate) timers: BTreeSet<(Duration, u64)>,
    pub(crate) cells: BTreeMap<u64, Arc<EntityCell>>,
}

/// A queue or topic, and who waits for it.
#[derive(Debug)]
pub(crate) struct EntityCell {
    pub(crate) generation: u64,
    pub(crate) partition: PartitionKey,
    /// Held while a round is committed.
    pub(crate) ledger: tokio::sync::Mutex<Ledger>,
    pub(crate) state: Mutex<EntityState>,
}

#[derive(Debug)]
pub(crate) struct EntityState {
    pub(crate) document: EntityDocument,
    pub(crate) routes: Arc<Routes>,
    pub(crate) entity: Entity,
    /// Why nothing works any more.
    pub(crate) failed: Option<Arc<str>>,
    pub(crate) is_gone: bool,
    last_ticket: u64,
    pub(crate) sends: BTreeMap<u64, oneshot::Sender<Result<SendOutcome>>>,
    pub(crate) waits: BTreeMap<u64, oneshot::Sender<Result<()>>>,
    signals: BTreeMap<u16, Signals>,
    /// When the service will look at it anyway.
    pub(crate) timer: Option<Duration>,
    pub(crate) crowding: Crowding,
}

/// Who waits for an outlet.
#[derive(Debug, Default)]
struct Signals {
    ready: Arc<Notify>,
    dead: Arc<Notify>,
    sessions: BTreeMap<u64, Arc<Notify>>,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Ready,
    Dead,
    Session(u64),
}

impl Shared {
    pub(crate) fn now(&self) -> Moment {
        let clock = &self.setup.clock;
        Moment { wall: clock.now(), monotonic: clock.monotonic() }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.setup.clock
    }

    pub(crate) fn documents(&self) -> &Arc<dyn Documents> {
        &self.setup.documents
    }

    pub(crate) fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().expect("nothing panics while it holds the lock")
    }

    pub(crate) fn entities(&self) -> MutexGuard<'_, BTreeMap<String, Arc<EntityCell>>> {
        self.entities.lock().expect("nothing panics while it holds the lock")
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("nothing panics while it holds the lock")
    }

    /// Finds a queue or topic.
    pub(crate) fn cell(&self, name: &str) -> Result<Arc<EntityCell>> {
        let found = self.entities().get(name).cloned();
        found.ok_or_else(|| {
            let error = Error::new(ErrorKind::NotFound, format!("find {name:?}"));
            error.because("there is no queue or topic of this name")
        })
    }

    /// Does something with an entity, then wakes whoever has reason to look again.
    pub(crate) fn with<T>(
        &self,
        cell: &Arc<EntityCell>,
        act: impl FnOnce(&mut EntityState, Moment) -> Result<T>,
    ) -> Result<T> {
        if self.stopping.is_cancelled() {
            return Err(closed());
        }
        cell.state().check()?;
        self.with_any(cell, act)
    }

    /// The same, whatever has happened to the entity or the broker.
    pub(crate) fn with_any<T>(
        &self,
        cell: &Arc<EntityCell>,
        act: impl FnOnce(&mut EntityState, Moment) -> T,
    ) -> T {
        let now = self.now();
        let mut state = cell.state();
        let outcome = act(&mut state, now);
        state.signal();
        let deadline = state.entity.next_deadline(now);
        let is_earlier = deadline.is_some_and(|it| state.timer.is_none_or(|timer| it < timer));
        let has_work = state.entity.has_work();
        if !is_earlier && !has_work {
            return outcome;
        }
        let mut agenda = self.agenda();
        if let Some(deadline) = deadline.filter(|_| is_earlier) {
            agenda.timers.insert((deadline, cell.generation));
            state.timer = Some(deadline);
        }
        if has_work {
            agenda.busy.insert(cell.generation, Arc::clone(cell));
        }
        drop(agenda);
        drop(state);
        self.work.notify_one();
        outcome
    }

    /// Waits for the answer to a ticket.
    pub(crate) async fn answer<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| Err(closed().with_unknown_effect())),
            () = self.closed.cancelled() => Err(closed().with_unknown_effect()),
        }
    }

    /// Tries until there is something, `wait` is over, or the broker ends.
    pub(crate) async fn until<T>(
        &self,
        wake: &Notify,
        wait: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let started = self.clock().monotonic();
        loop {
            let notified = wake.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(found) = attempt()? {
                return Ok(Some(found));
            }
            let passed = self.clock().monotonic().saturating_sub(started);
            let Some(left) = wait.checked_sub(passed).filter(|it| !it.is_zero()) else {
                return Ok(None);
            };
            tokio::select! {
                biased;
                () = &mut notified => (),
                () = self.stopping.cancelled() => return Err(closed()),
                () = self.clock().sleep(left) => (),
            }
        }
    }

    /// Keeps the bytes of a segment for those who receive soon.
    pub(crate) fn remember(&self, cell: &EntityCell, first: u64, bytes: Bytes) {
        self.cache().put((cell.generation, first), bytes);
    }

    /// Reads messages; none in place of one whose segment is gone.
    pub(crate) async fn messages(
        &self,
        cell: &EntityCell,
        places: impl Iterator<Item = Place>,
    ) -> Result<Vec<Option<Message>>> {
        let mut messages = Vec::new();
        let mut last: Option<(u64, Option<Bytes>)> = None;
        for place in places {
            let bytes = match last {
                Some((first, bytes)) if first == place.first => bytes,
                _ => self.segment(cell, place.first).await?,
            };
            let found = bytes.as_ref().map(|it| place.find(it)).transpose()?.flatten();
            messages.push(found.map(|it| decode_message(&it)).transpose()?);
            last = Some((place.first, bytes));
        }
        Ok(messages)
    }

    /// The bytes of a segment, if there is one.
    pub(crate) async fn segment(&self, cell: &EntityCell, first: u64) -> Result<Option<Bytes>> {
        let known = self.cache().get((cell.generation, first));
        if known.is_some() {
            return Ok(known);
        }
        let id = item_id(&stored::segment_id(first));
        let Some(item) = self.documents().read(&cell.partition, &id).await? else {
            return Ok(None);
        };
        let bytes = Bytes::from(stored::unpack(&item.body)?.0);
        self.remember(cell, first, bytes.clone());
        Ok(Some(bytes))
    }
}

impl EntityCell {
    pub(crate) fn state(&self) -> MutexGuard<'_, EntityState> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl EntityState {
    pub(crate) fn new(document: EntityDocument, entity: Entity) -> Self {
        Self {
            routes: Arc::new(Routes::of(&document.definition)),
            document,
            entity,
            failed: None,
            is_gone: false,
            last_ticket: 0,
            sends: BTreeMap::new(),
            waits: BTreeMap::new(),
            signals: BTreeMap::new(),
            timer: None,
            crowding: Crowding::default(),
        }
    }

    /// Whether the entity still works.
    pub(crate) fn check(&self) -> Result<()> {
        let name = &self.document.name;
        if self.is_gone {
            let error = Error::new(ErrorKind::NotFound, format!("use {name:?}"));
            return Err(error.because("it was removed"));
        }
        if let Some(reason) = &self.failed {
            let error = Error::new(ErrorKind::Unavailable, format!("use {name:?}"));
            let reason = format!("its documents could not be written, open again: {reason}");
            return Err(error.because(reason));
        }
        Ok(())
    }

    /// Answers when everything until now is committed.
    pub(crate) fn when_committed(&mut self) -> oneshot::Receiver<Result<()>> {
        let (sender, receiver) = oneshot::channel();
        self.last_ticket += 1;
        self.entity.wait(self.last_ticket);
        self.waits.insert(self.last_ticket, sender);
        receiver
    }

    /// Answers when the messages are committed.
    pub(crate) fn send(
        &mut self,
        messages: Vec<crate::log::Encoded>,
    ) -> oneshot::Receiver<Result<SendOutcome>> {
        let (sender, receiver) = oneshot::channel();
        self.last_ticket += 1;
        self.entity.send(self.last_ticket, messages);
        self.sends.insert(self.last_ticket, sender);
        receiver
    }

    /// Tells those who wait for these tickets that all went well.
    pub(crate) fn answer(&mut self, sent: &mut Vec<(u64, SendOutcome)>, waiting: &mut Vec<u64>) {
        // Whoever does not wait any more does not want to know.
        for (ticket, outcome) in sent.drain(..) {
            let _ = self.sends.remove(&ticket).map(|it| it.send(Ok(outcome)));
        }
        for ticket in waiting.drain(..) {
            let _ = self.waits.remove(&ticket).map(|it| it.send(Ok(())));
        }
    }

    /// What to wait for.
    pub(crate) fn waker(&mut self, outlet: u16, signal: Signal) -> Arc<Notify> {
        let signals = self.signals.entry(outlet).or_default();
        Arc::clone(match signal {
            Signal::Ready => &signals.ready,
            Signal::Dead => &signals.dead,
            Signal::Session(lock) => signals.sessions.entry(lock).or_default(),
        })
    }

    /// Gives up: everybody who waits gets an error, and nothing works any more.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failed = Some(error.report().into());
        let failure = || {
            let failed = Error::new(ErrorKind::Unavailable, "write to the broker's store");
            failed.because(error.report()).with_unknown_effect()
        };
        for (_, sender) in std::mem::take(&mut self.sends) {
            let _ = sender.send(Err(failure()));
        }
        for (_, sender) in std::mem::take(&mut self.waits) {
            let _ = sender.send(Err(failure()));
        }
        self.wake_all();
    }

    /// Lets everybody who waits look again.
    pub(crate) fn wake_all(&self) {
        for signals in self.signals.values() {
            signals.ready.notify_waiters();
            signals.dead.notify_waiters();
            signals.sessions.values().for_each(|it| it.notify_waiters());
        }
    }

    /// Wakes whoever the outlets say.
    pub(crate) fn signal(&mut self) {
        for (number, outlet) in &mut self.entity.outlets {
            let Wakes { ready, dead, sessions, ended } = outlet.take_wakes();
            let Some(signals) = self.signals.get_mut(number) else { continue };
            // One is enough: whoever finds more than it takes wakes the next.
            if ready {
                signals.ready.notify_one();
            }
            if dead {
                signals.dead.notify_one();
            }
            for lock in sessions {
                if let Some(wake) = signals.sessions.get(&lock) {
                    wake.notify_waiters();
                }
            }
            for lock in ended {
                if let Some(wake) = signals.sessions.remove(&lock) {
                    wake.notify_waiters();
                }
            }
        }
    }
}

/// The broker has ended.
pub(crate) fn closed() -> Error {
    let error = Error::new(ErrorKind::Unavailable, "use the broker");
    error.because("its service has ended")
}
