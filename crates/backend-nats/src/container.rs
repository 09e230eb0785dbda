//! An open container: its ranges, its settings, and what this process knows about it.

mod claims;
mod commit;
mod feed;
mod guards;
mod publish;
mod reading;
mod reads;
mod scan;
mod turns;
mod view;
mod wait;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::refusals::no_container;
use millstream_core::{
    Batch, BatchOutcome, ChangeFeed, Clock, ContainerName, ContainerSettings, Continuation, Cursor,
    Documents, EffectiveKey, Error, ErrorKind, FeedMode, FeedPage, Item, ItemId, KeyRange,
    PageSize, PartitionKey, RangeId, RangeInfo, ResourceId, Result, RetentionGuards,
    ScanContinuation, ScanPage, ScanScope, StartFrom, Timestamp,
};
use tokio::sync::Semaphore;

use crate::Connection;
use crate::cache::Cache;
use crate::catalog::{Catalog, ContainerRecord, Found, GuardRecord};
pub(crate) use crate::container::claims::{Partition, holder};
pub(crate) use crate::container::commit::effective_of;
pub(crate) use crate::container::publish::Stored;
use crate::container::reading::Pulls;
use crate::container::turns::Turns;
use crate::maintenance::Sweep;
use crate::plan::Known;
use crate::record::Mark;
use crate::store::Inner;
use crate::subject::{PartitionNames, RangeNames};
use crate::wire::{StoredMessage, Wire, pause};

/// How old the settings may be. Another process that changes them is heard after this at the
/// latest.
pub(crate) const SETTINGS_AGE_MAX: Duration = Duration::from_secs(1);
/// Batches of this process that are on their way to one stream. A server refuses more than 50 of
/// which it has some messages and not the last; a batch goes out in one piece, so nearly all of
/// these only wait for their answers.
const IN_FLIGHT_MAX: usize = 128;
/// How often a commit that is under way is waited for.
const NEWEST_ATTEMPTS_MAX: u32 = 20;

/// What all who have opened a container share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) catalog: Catalog,
    pub(crate) name: ContainerName,
    pub(crate) id: ResourceId,
    /// The subject of its record.
    subject: String,
    pub(crate) ranges: Vec<Range>,
    settings: Mutex<Learned>,
}

/// The record of the container, and how fresh it is.
#[derive(Clone, Debug)]
struct Learned {
    sequence: u64,
    settings: Arc<ContainerSettings>,
    record: Arc<ContainerRecord>,
    at: Duration,
}

impl Learned {
    fn new(sequence: u64, record: &ContainerRecord, at: Duration) -> Self {
        let (settings, record) = (Arc::new(record.settings()), Arc::new(record.clone()));
        Self { sequence, settings, record, at }
    }
}

/// A range and its stream.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) info: RangeInfo,
    pub(crate) names: RangeNames,
    pub(crate) wire: Wire,
    in_flight: Semaphore,
    turns: Turns,
    pulls: Pulls,
    cache: Mutex<Cache>,
    sweep: Mutex<Sweep>,
    /// The latest time of a commit that was seen, so that none of ours is earlier.
    newest_at: AtomicU64,
}

impl Range {
    fn new(connection: &Connection, record: &ContainerRecord, number: u32, keys: KeyRange) -> Self {
        let names = RangeNames::new(&connection.options().prefix, record.number, number);
        Self {
            info: RangeInfo { id: RangeId(number), keys, parents: Vec::new() },
            wire: Wire::new(connection, &names.stream, record.replicas),
            names,
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            turns: Turns::default(),
            pulls: Pulls::default(),
            cache: Mutex::default(),
            sweep: Mutex::default(),
            newest_at: AtomicU64::new(0),
        }
    }

    /// Its number within the container.
    pub(crate) fn number(&self) -> u32 {
        self.info.id.0
    }

    /// The number of the newest commit.
    pub(crate) async fn newest(&self) -> Result<u64> {
        Ok(self.newest_message().await?.map_or(0, |it| it.sequence))
    }

    /// The last message of the newest commit; its sequence is the number of the commit.
    ///
    /// What a stream says about itself is no use here: it may be asked in the middle of a commit.
    async fn newest_message(&self) -> Result<Option<StoredMessage>> {
        for attempt in 0..NEWEST_ATTEMPTS_MAX {
            let Some(message) = self.wire.newest().await? else { return Ok(None) };
            let mark = Mark::read(&message);
            if mark.is_none_or(|it| it.lsn(&message) == message.sequence) {
                return Ok(Some(message));
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Unavailable, "find the newest commit");
        Err(error.because("a commit of the stream does not come to its end"))
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("nothing panics while it holds the lock")
    }

    pub(crate) fn sweep(&self) -> MutexGuard<'_, Sweep> {
        self.sweep.lock().expect("nothing panics while it holds the lock")
    }

    /// Time in a range does not go back, as far as this process knows.
    fn time(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(self.newest_at.load(Ordering::Relaxed)).max(now)
    }

    fn saw_time(&self, at: Timestamp) {
        self.newest_at.fetch_max(at.as_millis(), Ordering::Relaxed);
    }
}

impl Shared {
    /// `at` is when the record was asked for.
    pub(crate) fn new(
        inner: &Inner,
        sequence: u64,
        record: &ContainerRecord,
        at: Duration,
    ) -> Result<Self> {
        let Inner { connection, catalog, .. } = inner;
        let info = record.info(sequence)?;
        let tiles = info.settings.partition_key.divide(record.streams)?;
        let ranges = (0..record.streams)
            .zip(tiles)
            .map(|(number, keys)| Range::new(connection, record, number, keys))
            .collect();
        Ok(Self {
            connection: connection.clone(),
            catalog: catalog.clone(),
            subject: catalog.container(record.resource_id().database, info.name.container()),
            name: info.name,
            id: info.resource_id,
            ranges,
            settings: Mutex::new(Learned::new(sequence, record, at)),
        })
    }

    /// Takes note of settings that were asked for `at` this time, unless newer ones are known.
    pub(crate) fn learn(&self, sequence: u64, record: &ContainerRecord, at: Duration) {
        let mut learned = self.settings.lock().expect("nothing panics while it holds the lock");
        if sequence < learned.sequence {
            return;
        }
        *learned = Learned::new(sequence, record, at);
    }

    /// The record that the settings are from.
    pub(crate) fn record(&self) -> Arc<ContainerRecord> {
        let learned = self.settings.lock().expect("nothing panics while it holds the lock");
        Arc::clone(&learned.record)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.connection.options().clock
    }

    /// The settings, at most a second old.
    pub(crate) async fn settings(&self) -> Result<Arc<ContainerSettings>> {
        let now = self.clock().monotonic();
        {
            let learned = self.settings.lock().expect("nothing panics while it holds the lock");
            if now.saturating_sub(learned.at) < SETTINGS_AGE_MAX {
                return Ok(Arc::clone(&learned.settings));
            }
        }
        self.fresh_settings().await
    }

    /// The settings of now, or `NotFound` if this container is gone.
    pub(crate) async fn fresh_settings(&self) -> Result<Arc<ContainerSettings>> {
        let at = self.clock().monotonic();
        let Found { sequence, record } = self.catalog.get(&self.subject).await?;
        let record = record.filter(|it: &ContainerRecord| it.resource_id() == self.id);
        let record = record.ok_or_else(|| self.gone())?;
        self.learn(sequence, &record, at);
        Ok(Arc::new(record.settings()))
    }

    pub(crate) fn gone(&self) -> Error {
        no_container(&self.name)
    }

    /// The range a key lies in.
    pub(crate) fn range_at(&self, key: &EffectiveKey) -> &Range {
        let range = self.ranges.iter().find(|it| it.info.keys.contains(key));
        range.expect("ranges have no gaps")
    }

    /// The one range that `keys` lie in.
    fn range_of(&self, keys: &KeyRange) -> Result<&Range> {
        self.ranges.iter().find(|it| it.info.keys.covers(keys)).ok_or_else(|| {
            Error::new(ErrorKind::RangeMoved, format!("read the changes of {keys}"))
                .because("the keys lie in several ranges; ask for the ranges again")
        })
    }

    fn cursor(&self, continuation: &Continuation) -> Result<Cursor> {
        let cursor = Cursor::parse(continuation)?;
        if cursor.container != self.id.incarnation() {
            let attempted = format!("use the continuation \"{continuation}\"");
            let error = Error::new(ErrorKind::ContainerRecreated, attempted);
            return Err(error.because("it comes from an earlier container of this name"));
        }
        Ok(cursor)
    }

    pub(crate) async fn guards(&self) -> Result<Vec<GuardRecord>> {
        self.catalog.guards(self.id.container).await
    }

    /// Whether the time of an item is over. That depends on the settings of now, and for an
    /// event on the readers that have not passed it.
    pub(crate) async fn is_over(
        &self,
        known: &Known,
        effective: &EffectiveKey,
        settings: &ContainerSettings,
    ) -> Result<bool> {
        let Some(version) = &known.version else { return Ok(false) };
        let now = self.clock().now();
        if version.stamp.expiry(settings.default_ttl).is_none_or(|it| now < it) {
            return Ok(false);
        }
        if version.stamp.sequence.is_none() {
            return Ok(true);
        }
        let lsn = version.stamp.lsn.unwrap_or(known.sequence);
        Ok(!is_held(&self.guards().await?, effective, lsn))
    }
}

/// Whether some reader has not passed the commit `lsn` of this key.
pub(crate) fn is_held(guards: &[GuardRecord], key: &EffectiveKey, lsn: u64) -> bool {
    guards.iter().any(|it| it.passed(key) < lsn)
}

/// What `open` gives out.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
}

#[async_trait]
impl Documents for Handle {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let shared = &self.shared;
        let settings = shared.settings().await?;
        let effective = settings.partition_key.effective(key)?;
        let range = shared.range_at(&effective);
        let names = PartitionNames::new(&range.names, &effective, key);
        let known = shared.look(range, &names, key, id).await?;
        if shared.is_over(&known, &effective, &settings).await? {
            return Ok(None);
        }
        let lsn = known.sequence;
        Ok(known.version.map(|it| it.item(range.number(), lsn, key, id, settings.default_ttl)))
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        self.shared.commit(batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.shared.scan(scope, after, size).await
    }
}

#[async_trait]
impl ChangeFeed for Handle {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        self.shared.fresh_settings().await?;
        Ok(self.shared.ranges.iter().map(|it| it.info.clone()).collect())
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        self.shared.start(keys, from, mode).await
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        self.shared.read_feed(keys, after, size).await
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        self.shared.wait(keys, after).await
    }
}

#[async_trait]
impl RetentionGuards for Handle {
    async fn hold(&self, name: &str, keys: &KeyRange, passed: &Continuation) -> Result<()> {
        self.shared.hold(name, keys, passed).await
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.shared.release(name).await
    }

    async fn holders(&self) -> Result<Vec<String>> {
        self.shared.holders().await
    }
}
