//! From a checked batch to table entries: the only place that gives out commit numbers.

mod build;
pub(crate) mod claims;

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use fjall::Slice;
use futures_channel::oneshot;
use futures_util::future;
use millstream_core::{
    Batch, BatchOutcome, CheckedBatch, Claim, ContainerInfo, ContainerSettings, CurrentItems,
    EffectiveKey, Error, ErrorKind, Etag, Item, ItemId, Lsn, OperationResult, Result, Step,
    Timestamp,
};

use crate::buffer::{Entry, Key};
use crate::commit::build::{Built, Commit};
use crate::engine::{Engine, lock, overloaded, stopped};
use crate::keys;
use crate::records::{FeedRecord, ItemRecord};
use crate::state::{ContainerState, Numbering, RangeState};
use crate::tables::Table;

/// Commits a batch and waits until it is durable and visible.
pub(crate) async fn commit(
    engine: &Arc<Engine>,
    container: &Arc<ContainerState>,
    batch: Batch,
) -> Result<BatchOutcome> {
    let info = container.info();
    let batch = batch.check(&info.settings)?;
    let effective = info.settings.partition_key.effective(&batch.partition_key)?;
    let mut request = Request::new(engine, container, info, batch, effective);
    let mut moved = None;
    loop {
        container.check_exists()?;
        let range = container.range_of(&request.effective);
        match request.submit(&range)? {
            Submitted::Done(outcome) => return outcome,
            Submitted::Queued(outcome, done) => {
                return match done.await {
                    Ok(Ok(())) => outcome,
                    Ok(Err(reason)) => Err(stopped(&reason).with_unknown_effect()),
                    Err(oneshot::Canceled) => Err(stopped("it was closed").with_unknown_effect()),
                };
            }
            // The range is being split or merged; its successors take commits in a moment. Nothing
            // falls between listening and another look, and few commits have to listen at all.
            Submitted::Moved => match moved.take() {
                None => {
                    let (topology, failed) = (&container.topology, &engine.failed);
                    moved = Some(future::select(topology.listen(), failed.listen()));
                    engine.check_running()?;
                }
                Some(moved) => drop(moved.await),
            },
        }
    }
}

/// A batch on its way, with what could be found out before taking the lock of the range.
struct Request<'a> {
    engine: &'a Arc<Engine>,
    container: &'a Arc<ContainerState>,
    /// The container as it is at the moment of the commit.
    info: Arc<ContainerInfo>,
    batch: CheckedBatch,
    effective: EffectiveKey,
    /// The keys of the distinct items it touches, and the first operation on each.
    keys: Vec<Key>,
    firsts: Vec<usize>,
    /// How much of the keys they have in common.
    partition_bytes: usize,
}

enum Submitted {
    /// It only read, or it was refused, because of what everybody sees.
    Done(Result<BatchOutcome>),
    /// The outcome counts once everything it rests on is durable.
    Queued(Result<BatchOutcome>, oneshot::Receiver<Result<(), Arc<str>>>),
    Moved,
}

impl<'a> Request<'a> {
    fn new(
        engine: &'a Arc<Engine>,
        container: &'a Arc<ContainerState>,
        info: Arc<ContainerInfo>,
        batch: CheckedBatch,
        effective: EffectiveKey,
    ) -> Self {
        let operations = &batch.operations;
        let mut firsts = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            if !firsts.iter().any(|it: &usize| operations[*it].id == operation.id) {
                firsts.push(index);
            }
        }
        let mut scratch = keys::partition(container.id, &effective, &batch.partition_key);
        let partition_bytes = scratch.len();
        let mut item_key = |first: &usize| {
            scratch.truncate(partition_bytes);
            scratch.extend_from_slice(operations[*first].id.as_str().as_bytes());
            Key::from(&scratch[..])
        };
        let keys = firsts.iter().map(&mut item_key).collect();
        Self { engine, container, info, batch, effective, keys, firsts, partition_bytes }
    }

    /// The item that has this number among those of [`Self::keys`].
    fn id(&self, slot: usize) -> &ItemId {
        &self.batch.operations[self.firsts[slot]].id
    }

    /// What the keys of all items of the partition start with.
    fn partition(&self) -> &[u8] {
        &self.keys[0][..self.partition_bytes]
    }

    /// The key of any item of the partition.
    fn item_key(&self, id: &ItemId) -> Slice {
        Slice::from([self.partition(), id.as_str().as_bytes()].concat())
    }

    /// The key of the event number of the partition.
    fn sequence_key(&self) -> Slice {
        Slice::from(self.partition())
    }

    /// Looks the items up, then locks the numbering of the range: a look at the disk keeps no other
    /// commit waiting. What was found holds for every item that the numbering does not know of.
    fn look_and_lock<'r>(
        &self,
        range: &'r RangeState,
    ) -> Result<(MutexGuard<'r, Numbering>, Vec<Option<Slice>>)> {
        for _ in 0..LOOKS_MAX {
            let seen = range.newest();
            let stored = self.engine.get_all(Table::Items, &self.keys)?;
            let numbering = lock(&range.numbering);
            if numbering.knows_all_after(seen) {
                return Ok((numbering, stored));
            }
        }
        // The range forgets so fast that others wait for a look at the disk this once.
        let numbering = lock(&range.numbering);
        let stored = self.engine.get_all(Table::Items, &self.keys)?;
        Ok((numbering, stored))
    }

    fn submit(&mut self, range: &Arc<RangeState>) -> Result<Submitted> {
        // Before the look, which is work; and when nobody else can join the queue any more.
        self.check_queue(range)?;
        let (mut numbering, stored) = self.look_and_lock(range)?;
        self.check_queue(range)?;
        if numbering.is_closed {
            return Ok(Submitted::Moved);
        }
        self.info = self.container.info();
        let now = self.engine.options().clock.now().max(numbering.record.committed_at);
        let mut current = self.current(&numbering, stored, now)?;
        let rests_on = current.slots.iter().map(|it| it.lsn).max().unwrap_or(0);
        let steps = match self.batch.resolve(&self.info.settings, &mut current) {
            Ok(steps) => steps,
            Err(error) => {
                return self.answer(range, rests_on.max(current.rests_on), Err(error));
            }
        };
        let writes = steps.iter().any(|it| matches!(it, Step::Write { .. } | Step::Delete { .. }));
        if !writes {
            let results = steps.into_iter().map(read_result).collect();
            let lsn = range.newest().max(Lsn::new(rests_on));
            return self.answer(range, rests_on, Ok(BatchOutcome { lsn, results }));
        }
        let commit = Commit::new(self, range, &numbering, current, now);
        let built = commit.build(steps)?;
        self.enqueue(range, &mut numbering, built)
    }

    fn check_queue(&self, range: &RangeState) -> Result<()> {
        if self.engine.options().waiting_commits_max <= range.waiting.load(Ordering::Relaxed) {
            return Err(overloaded("the queue of the range is full"));
        }
        Ok(())
    }

    /// An answer without a write. If it rests on a commit that is not durable yet, it waits for it:
    /// what was said must still be true after a loss of power.
    fn answer(
        &self,
        range: &RangeState,
        rests_on: u64,
        outcome: Result<BatchOutcome>,
    ) -> Result<Submitted> {
        if Lsn::new(rests_on) <= range.newest() {
            return Ok(Submitted::Done(outcome));
        }
        let (reply, done) = oneshot::channel();
        let completion = Box::new(move |outcome: Result<(), Arc<str>>| {
            // Nobody listens when the caller has gone away.
            let _ = reply.send(outcome);
        });
        self.engine.enqueue(Vec::new(), [], completion)?;
        Ok(Submitted::Queued(outcome, done))
    }

    /// The items as the range has them.
    fn current<'r>(
        &'r self,
        numbering: &'r Numbering,
        stored: Vec<Option<Slice>>,
        now: Timestamp,
    ) -> Result<Current<'r>> {
        let mut slots = Vec::with_capacity(self.keys.len());
        for (key, stored) in self.keys.iter().zip(stored) {
            let latest = numbering.latest(key);
            let before = match (latest, stored) {
                (Some(latest), _) => {
                    latest.version.clone().map(|(record, body)| (record, Some(body)))
                }
                (None, None) => None,
                (None, Some(bytes)) => Some((decode_item(&bytes)?, None)),
            };
            let is_expired = before.as_ref().is_some_and(|(record, _)| {
                self.container.is_expired(&self.info.settings, &record.stamp, &self.effective, now)
            });
            slots.push(Slot { before, is_expired, lsn: latest.map_or(0, |it| it.lsn) });
        }
        Ok(Current { request: self, numbering, now, slots, rests_on: 0 })
    }

    fn enqueue(
        &self,
        range: &Arc<RangeState>,
        numbering: &mut Numbering,
        built: Built,
    ) -> Result<Submitted> {
        let Built { entries, record, results, latest, sequence, claimed } = built;
        let lsn = record.newest;
        let (reply, done) = oneshot::channel();
        let completed = Arc::clone(range);
        let completion = Box::new(move |outcome: Result<(), Arc<str>>| {
            if outcome.is_ok() {
                completed.advance(lsn);
            }
            completed.waiting.fetch_sub(1, Ordering::Relaxed);
            // Nobody listens when the caller has gone away.
            let _ = reply.send(outcome);
        });
        range.waiting.fetch_add(1, Ordering::Relaxed);
        let queued = self.engine.enqueue(entries, [(range.segment, record)], completion);
        if let Err(refused) = queued {
            range.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(refused.error);
        }
        numbering.note(record, latest, range.newest());
        if let Some(number) = sequence {
            numbering.note_sequence(self.sequence_key(), number, range.newest());
        }
        numbering.note_claims(claimed, range.newest());
        let outcome = BatchOutcome { lsn: Lsn::new(lsn), results };
        Ok(Submitted::Queued(Ok(outcome), done))
    }
}

/// The items of a batch as its range has them now.
struct Current<'a> {
    request: &'a Request<'a>,
    numbering: &'a Numbering,
    now: Timestamp,
    slots: Vec<Slot>,
    /// The newest commit that says who holds a unique value, among those that were looked at.
    rests_on: u64,
}

#[derive(Clone)]
struct Slot {
    /// The stored version; its body only if it is not visible yet.
    before: Option<(ItemRecord, Option<Bytes>)>,
    is_expired: bool,
    /// The commit that left it so, if that was lately.
    lsn: u64,
}

impl Current<'_> {
    fn slot(&self, id: &ItemId) -> usize {
        let mut slots = 0..self.slots.len();
        slots.find(|it| self.request.id(*it) == id).expect("every operation has a slot")
    }

    fn visible(&self, id: &ItemId) -> Option<&(ItemRecord, Option<Bytes>)> {
        let slot = &self.slots[self.slot(id)];
        slot.before.as_ref().filter(|_| !slot.is_expired)
    }

    fn body(&self, before: &(ItemRecord, Option<Bytes>)) -> Result<Bytes> {
        match before {
            (_, Some(body)) => Ok(body.clone()),
            (record, None) => stored_body(self.request.engine, record),
        }
    }
}

impl CurrentItems for Current<'_> {
    fn exists(&mut self, id: &ItemId) -> Result<bool> {
        Ok(self.visible(id).is_some())
    }

    fn item(&mut self, id: &ItemId) -> Result<Option<Item>> {
        let Some(before) = self.visible(id) else { return Ok(None) };
        let body = self.body(before)?;
        let key = self.request.batch.partition_key.clone();
        let ttl = self.request.info.settings.default_ttl;
        Ok(Some(before.0.stamp.item(ttl, key, id.clone(), body)))
    }

    fn etag(&mut self, id: &ItemId) -> Result<Option<Etag>> {
        Ok(self.visible(id).map(|(record, _)| record.stamp.etag()))
    }

    fn holder(&mut self, claim: &Claim) -> Result<Option<ItemId>> {
        self.holder_of(claim)
    }
}

/// The entries that go when a version is no longer the newest.
pub(crate) fn forget_version(
    before: &ItemRecord,
    key: &[u8],
    settings: &ContainerSettings,
    entries: &mut Vec<Entry>,
) {
    entries.push(Entry::remove(Table::Feed, before.place().key()));
    if let Some(at) = before.stamp.expiry(settings.default_ttl) {
        entries.push(Entry::remove(Table::Expiry, keys::expiry(at, key)));
    }
}

pub(crate) fn decode_item(bytes: &[u8]) -> Result<ItemRecord> {
    ItemRecord::decode(bytes)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "read an entry of the items"))
}

/// The body of a version that is the newest and visible.
pub(crate) fn stored_body(engine: &Engine, record: &ItemRecord) -> Result<Bytes> {
    let missing = || Error::new(ErrorKind::Corrupt, "read the body of an item from the feed");
    let bytes = engine.get(Table::Feed, record.place().key())?.ok_or_else(missing)?;
    let feed = FeedRecord::decode(&bytes).ok_or_else(missing)?;
    Ok(Bytes::copy_from_slice(feed.body))
}

fn read_result(step: Step) -> OperationResult {
    match step {
        Step::Read(item) => OperationResult::Read(item),
        Step::NotModified => OperationResult::NotModified,
        Step::Write { .. } | Step::Delete { .. } | Step::ReadStep(_) => {
            unreachable!("a batch with such steps writes")
        }
    }
}

/// How often a batch looks its items up again because too much has been committed since.
const LOOKS_MAX: usize = 4;
