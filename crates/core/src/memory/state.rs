use std::collections::BTreeMap;

use crate::memory::feed::{Forgotten, Version};
use crate::memory::guards::Guard;
use crate::memory::ranges::Range;
use crate::refusals::settings_changed;
use crate::{
    Batch, BatchOutcome, Change, ChangeKind, Claim, ContainerInfo, ContainerName,
    ContainerSettings, CurrentItems, EffectiveKey, Etag, Item, ItemId, Lsn, NewBody,
    OperationResult, PartitionKey, ResourceId, Result, Step, TimeToLive, Timestamp,
};

/// Items in the order scans return them.
pub(super) type ItemKey = (EffectiveKey, PartitionKey, ItemId);

/// Everything there is to know about one container.
#[derive(Debug)]
pub(super) struct ContainerState {
    pub(super) info: ContainerInfo,
    /// The live ranges in key order.
    pub(super) ranges: Vec<Range>,
    pub(super) ranges_made: u32,
    pub(super) items: BTreeMap<ItemKey, Stored>,
    /// All versions within the retention, oldest first.
    pub(super) history: Vec<Version>,
    /// The newest version that was dropped from the history, by key.
    pub(super) forgotten: BTreeMap<EffectiveKey, Forgotten>,
    /// The last number given to an event, by partition key.
    pub(super) sequences: BTreeMap<PartitionKey, u64>,
    pub(super) guards: BTreeMap<String, Guard>,
    /// Counts etags.
    pub(super) writes: u64,
    /// Counts what waiting readers want to know.
    pub(super) moves: u64,
}

/// An item, and what the store remembers about it.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its `expires_at` is computed when it is shown, from the settings of that moment.
    pub(super) item: Item,
    ttl: Option<TimeToLive>,
    is_event: bool,
    /// Its place in the batch that wrote it.
    pub(super) operation: usize,
}

/// Where and when a step of a batch happens.
struct Moment<'a> {
    key: &'a EffectiveKey,
    partition_key: &'a PartitionKey,
    lsn: Lsn,
    at: Timestamp,
    operation: usize,
}

impl ContainerState {
    pub(super) fn new(
        name: ContainerName,
        resource_id: ResourceId,
        settings: ContainerSettings,
        now: Timestamp,
    ) -> Result<Self> {
        let etag = Etag::new("0");
        let info = ContainerInfo { name, resource_id, settings, etag, modified_at: now };
        let mut container = Self {
            info,
            ranges: Vec::new(),
            ranges_made: 0,
            items: BTreeMap::new(),
            history: Vec::new(),
            forgotten: BTreeMap::new(),
            sequences: BTreeMap::new(),
            guards: BTreeMap::new(),
            writes: 0,
            moves: 0,
        };
        container.divide(now)?;
        Ok(container)
    }

    /// Replaces the settings. A new TTL counts for the items that are there at once (5).
    pub(super) fn replace(
        &mut self,
        settings: ContainerSettings,
        if_match: Option<Etag>,
        now: Timestamp,
    ) -> Result<ContainerInfo> {
        if if_match.is_some_and(|etag| etag != self.info.etag) {
            return Err(settings_changed(&self.info.name));
        }
        settings.check_replacing(&self.info.settings)?;
        self.info.settings = settings;
        self.info.etag = self.new_etag();
        self.info.modified_at = now;
        self.moves += 1;
        Ok(self.info.clone())
    }

    pub(super) fn item(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let key = (self.effective(key)?, key.clone(), id.clone());
        Ok(self.items.get(&key).map(|it| self.shown(it)))
    }

    /// Commits whole or not at all (2): everything that can be refused is refused before the first
    /// step is taken.
    pub(super) fn commit(&mut self, batch: Batch, now: Timestamp) -> Result<BatchOutcome> {
        let key = self.effective(&batch.partition_key)?;
        let batch = batch.check(&self.info.settings)?;
        let settings = self.info.settings.clone();
        let mut current = Current { container: self, partition_key: &batch.partition_key };
        let steps = batch.resolve(&settings, &mut current)?;

        let only_reads = steps.iter().all(|it| match it {
            Step::Write { .. } | Step::Delete { .. } => false,
            Step::Read(_) | Step::ReadStep(_) | Step::NotModified => true,
        });
        if only_reads {
            let results = steps.into_iter().map(read_result).collect();
            return Ok(BatchOutcome { lsn: self.newest(&key), results });
        }
        // One number for all writes of the batch (9).
        let (lsn, at) = self.next_commit(&key, now);
        let mut results: Vec<OperationResult> = Vec::with_capacity(steps.len());
        for (operation, step) in steps.into_iter().enumerate() {
            let partition_key = &batch.partition_key;
            let moment = Moment { key: &key, partition_key, lsn, at, operation };
            let result = match step {
                Step::Write { id, body, .. } => self.write(&moment, id, body),
                Step::Delete { id } => self.remove(&moment, id, ChangeKind::Deleted),
                Step::ReadStep(earlier) => {
                    let written = results[earlier].item().cloned();
                    OperationResult::Read(written.expect("an earlier step wrote it"))
                }
                Step::Read(_) | Step::NotModified => read_result(step),
            };
            results.push(result);
        }
        Ok(BatchOutcome { lsn, results })
    }

    /// Removes every expired item with a commit of its own, unless it is an event that a reader
    /// waits for (5, 15).
    ///
    /// This runs before and after every call, so nobody sees an expired item.
    pub(super) fn expire_due(&mut self, now: Timestamp) {
        let is_due = |key: &EffectiveKey, stored: &Stored| {
            self.expires_at(stored).is_some_and(|it| it <= now)
                && !(stored.is_event && self.is_held(key, stored.item.lsn))
        };
        let due = self.items.iter().filter(|((key, _, _), stored)| is_due(key, stored));
        let due: Vec<ItemKey> = due.map(|(key, _)| key.clone()).collect();
        for (key, partition_key, id) in due {
            let (lsn, at) = self.next_commit(&key, now);
            let partition_key = &partition_key;
            let moment = Moment { key: &key, partition_key, lsn, at, operation: 0 };
            self.remove(&moment, id, ChangeKind::Expired);
        }
    }

    pub(super) fn effective(&self, key: &PartitionKey) -> Result<EffectiveKey> {
        self.info.settings.partition_key.effective(key)
    }

    /// The item as a reader sees it.
    pub(super) fn shown(&self, stored: &Stored) -> Item {
        Item { expires_at: self.expires_at(stored), ..stored.item.clone() }
    }

    /// Follows from the settings of now (5).
    fn expires_at(&self, stored: &Stored) -> Option<Timestamp> {
        let default = self.info.settings.default_ttl;
        TimeToLive::expiry(default, stored.ttl, stored.item.written_at)
    }

    fn write(&mut self, moment: &Moment<'_>, id: ItemId, body: NewBody) -> OperationResult {
        let key = (moment.key.clone(), moment.partition_key.clone(), id.clone());
        let previous = self.items.get(&key).map(|it| self.shown(it));
        // An event keeps its number when it is replaced (16).
        let sequence = match previous.as_ref().and_then(|it| it.sequence) {
            _ if !body.is_event => None,
            Some(number) => Some(number),
            None => Some(self.next_sequence(moment.partition_key)),
        };
        let item = Item {
            id,
            partition_key: moment.partition_key.clone(),
            body: body.bytes,
            etag: self.new_etag(),
            lsn: moment.lsn,
            written_at: moment.at,
            expires_at: None,
            sequence,
        };
        let (ttl, is_event, operation) = (body.ttl, body.is_event, moment.operation);
        let stored = Stored { item, ttl, is_event, operation };
        let item = self.shown(&stored);
        self.items.insert(key, stored);
        let existed = previous.is_some();
        let kind = if existed { ChangeKind::Replaced } else { ChangeKind::Created };
        self.remember(moment, kind, item.id.clone(), Some(item.clone()), previous);
        if existed { OperationResult::Replaced(item) } else { OperationResult::Created(item) }
    }

    fn remove(&mut self, moment: &Moment<'_>, id: ItemId, kind: ChangeKind) -> OperationResult {
        let key = (moment.key.clone(), moment.partition_key.clone(), id.clone());
        let stored = self.items.remove(&key).expect("only items that exist are removed");
        let previous = self.shown(&stored);
        self.remember(moment, kind, id, None, Some(previous));
        OperationResult::Deleted
    }

    fn remember(
        &mut self,
        moment: &Moment<'_>,
        kind: ChangeKind,
        id: ItemId,
        current: Option<Item>,
        previous: Option<Item>,
    ) {
        let Moment { key, partition_key, lsn, at: committed_at, .. } = *moment;
        let partition_key = partition_key.clone();
        let change = Change { kind, lsn, committed_at, partition_key, id, current, previous };
        self.history.push(Version { key: key.clone(), change });
    }

    /// New with every write of the container, so that two versions of an item never share one (3).
    fn new_etag(&mut self) -> Etag {
        self.writes += 1;
        Etag::new(format!("{:x}", self.writes))
    }

    /// Counts on only when a batch commits, so there are no gaps (16).
    fn next_sequence(&mut self, key: &PartitionKey) -> u64 {
        let last = self.sequences.entry(key.clone()).or_default();
        *last += 1;
        *last
    }
}

fn read_result(step: Step) -> OperationResult {
    match step {
        Step::Read(item) => OperationResult::Read(item),
        Step::NotModified => OperationResult::NotModified,
        Step::ReadStep(_) | Step::Write { .. } | Step::Delete { .. } => {
            unreachable!("a batch that only reads has no such step")
        }
    }
}

/// The items a batch may look at.
struct Current<'a> {
    container: &'a ContainerState,
    partition_key: &'a PartitionKey,
}

impl CurrentItems for Current<'_> {
    fn exists(&mut self, id: &ItemId) -> Result<bool> {
        Ok(self.item(id)?.is_some())
    }

    fn item(&mut self, id: &ItemId) -> Result<Option<Item>> {
        self.container.item(self.partition_key, id)
    }

    fn etag(&mut self, id: &ItemId) -> Result<Option<Etag>> {
        Ok(self.item(id)?.map(|it| it.etag))
    }

    fn holder(&mut self, claim: &Claim) -> Result<Option<ItemId>> {
        for ((_, key, id), stored) in &self.container.items {
            let settings = &self.container.info.settings;
            if key == self.partition_key && settings.claims(&stored.item.body)?.contains(claim) {
                return Ok(Some(id.clone()));
            }
        }
        Ok(None)
    }
}
