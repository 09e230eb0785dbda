//! Containers and ranges as they are known in memory.

use std::collections::{VecDeque, hash_map};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use event_listener::Event;
use fjall::Slice;
use millstream_core::refusals::no_container;
use millstream_core::{
    ContainerInfo, ContainerSettings, EffectiveKey, Error, ErrorKind, ItemId, KeyRange, Lsn,
    RangeId, RangeInfo, Result, TimeToLive, Timestamp,
};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::commit::claims::Claimed;
use crate::engine::{lock, read};
use crate::guards::Guards;
use crate::records::{Floor, ItemRecord, RangeRecord, Stamp};

/// An open container.
#[derive(Debug)]
pub(crate) struct ContainerState {
    pub(crate) id: u32,
    pub(crate) info: RwLock<Arc<ContainerInfo>>,
    pub(crate) ranges: RwLock<Arc<Vec<Arc<RangeState>>>>,
    pub(crate) next_range: AtomicUsize,
    pub(crate) guards: RwLock<Guards>,
    /// Default TTLs that counted before; what had expired by them stays expired.
    pub(crate) past_ttls: RwLock<Arc<Vec<PastTtl>>>,
    /// Wakes those who wait for ranges to have moved or for the container to be gone.
    pub(crate) topology: Event,
    is_dropped: AtomicBool,
}

/// A default TTL of a container that has been replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastTtl {
    pub(crate) ttl: Option<TimeToLive>,
    /// When it was replaced.
    pub(crate) until: Timestamp,
}

impl PastTtl {
    pub(crate) fn has_ended(&self, stamp: &Stamp) -> bool {
        stamp.expiry(self.ttl).is_some_and(|at| at <= self.until)
    }
}

/// A live range.
#[derive(Debug)]
pub(crate) struct RangeState {
    pub(crate) id: RangeId,
    pub(crate) keys: KeyRange,
    pub(crate) parents: Vec<RangeId>,
    /// The part of the feed it writes to.
    pub(crate) segment: u32,
    /// Parts of the feed of earlier ranges that may still hold items of this one.
    pub(crate) sources: RwLock<Arc<Vec<Source>>>,
    pub(crate) numbering: Mutex<Numbering>,
    visible: AtomicU64,
    pub(crate) waiting: AtomicUsize,
    pub(crate) committed: Event,
}

/// A part of the feed that an earlier range wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) segment: u32,
    /// The keys of the range that may have entries there.
    pub(crate) keys: KeyRange,
    /// What is no longer in its history.
    pub(crate) history_floor: Floor,
    /// Whether its feed entries have moved to the range's own segment; then only history may be
    /// left.
    pub(crate) is_settled: bool,
}

/// What the next commit of a range builds upon: also commits that are not durable yet.
#[derive(Debug)]
pub(crate) struct Numbering {
    pub(crate) record: RangeRecord,
    /// Items that were committed lately, by key. Those that are not visible yet must be found
    /// here; others may.
    latest: FxHashMap<Slice, Latest>,
    /// Their keys in commit order; one that was committed again stands here again.
    order: VecDeque<(u64, Slice)>,
    latest_bytes: usize,
    /// The newest commit some of whose items are no longer among them.
    forgotten: u64,
    /// Bytes that all ranges of the store remember.
    all_bytes: Arc<AtomicUsize>,
    /// The last event number of partitions that were given one lately, and the commit that gave
    /// it.
    sequences: FxHashMap<Slice, (u64, u64)>,
    /// Who holds the unique values that commits have touched lately, and the commit. Those that
    /// are not visible yet must be found here; others may.
    claims: FxHashMap<Slice, (Option<ItemId>, u64)>,
    /// Set when the range is being split or merged; commits wait for its successors.
    pub(crate) is_closed: bool,
}

/// The state of an item after a commit.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    /// The commit.
    pub(crate) lsn: u64,
    /// None if the item was removed.
    pub(crate) version: Option<(ItemRecord, Bytes)>,
}

impl ContainerState {
    pub(crate) fn new(info: ContainerInfo, ranges: Vec<Arc<RangeState>>, next_range: u32) -> Self {
        Self {
            id: info.resource_id.container,
            info: RwLock::new(Arc::new(info)),
            ranges: RwLock::new(Arc::new(ranges)),
            next_range: AtomicUsize::new(usize::try_from(next_range).unwrap_or(usize::MAX)),
            guards: RwLock::default(),
            past_ttls: RwLock::default(),
            topology: Event::new(),
            is_dropped: AtomicBool::new(false),
        }
    }

    pub(crate) fn info(&self) -> Arc<ContainerInfo> {
        Arc::clone(&read(&self.info))
    }

    pub(crate) fn settings(&self) -> ContainerSettings {
        read(&self.info).settings.clone()
    }

    pub(crate) fn ranges(&self) -> Arc<Vec<Arc<RangeState>>> {
        Arc::clone(&read(&self.ranges))
    }

    /// The range that holds a key now.
    pub(crate) fn range_of(&self, key: &EffectiveKey) -> Arc<RangeState> {
        let ranges = self.ranges();
        let index = ranges.partition_point(|it| it.keys.min().trimmed() <= key.trimmed());
        Arc::clone(
            &ranges[index.checked_sub(1).expect("the first range starts at the smallest key")],
        )
    }

    /// The range that holds all of `keys`.
    pub(crate) fn range_covering(&self, keys: &KeyRange) -> Result<Arc<RangeState>> {
        let ranges = self.ranges();
        ranges.iter().find(|it| it.keys.covers(keys)).cloned().ok_or_else(|| {
            Error::new(ErrorKind::RangeMoved, format!("use the keys {keys} as one range"))
                .because("they lie in several ranges now; ask for the ranges again")
        })
    }

    /// Whether the container exists and the range has no successors.
    pub(crate) fn has_live(&self, range: &Arc<RangeState>) -> bool {
        self.check_exists().is_ok() && self.ranges().iter().any(|it| Arc::ptr_eq(it, range))
    }

    pub(crate) fn past_ttls(&self) -> Arc<Vec<PastTtl>> {
        Arc::clone(&read(&self.past_ttls))
    }

    pub(crate) fn check_exists(&self) -> Result<()> {
        if !self.is_dropped.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(no_container(&self.info().name))
    }

    pub(crate) fn drop_it(&self) {
        self.is_dropped.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        self.topology.notify(usize::MAX);
        for range in self.ranges().iter() {
            range.committed.notify(usize::MAX);
        }
    }

    /// Whether an item is over: its time has come, and no reader waits for it.
    pub(crate) fn is_expired(
        &self,
        settings: &ContainerSettings,
        stamp: &Stamp,
        effective: &EffectiveKey,
        now: Timestamp,
    ) -> bool {
        let is_due = stamp.expiry(settings.default_ttl).is_some_and(|at| at <= now)
            || read(&self.past_ttls).iter().any(|it| it.has_ended(stamp));
        // Only events can be held, and only events have a number.
        is_due && (stamp.sequence.is_none() || read(&self.guards).have_passed(effective, stamp.lsn))
    }
}

impl RangeState {
    pub(crate) fn new(
        info: RangeInfo,
        segment: u32,
        sources: Vec<Source>,
        record: RangeRecord,
        all_bytes: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            id: info.id,
            keys: info.keys,
            parents: info.parents,
            segment,
            sources: RwLock::new(Arc::new(sources)),
            numbering: Mutex::new(Numbering {
                record,
                latest: FxHashMap::default(),
                order: VecDeque::new(),
                latest_bytes: 0,
                forgotten: 0,
                all_bytes,
                sequences: FxHashMap::default(),
                claims: FxHashMap::default(),
                is_closed: false,
            }),
            visible: AtomicU64::new(record.newest),
            waiting: AtomicUsize::new(0),
            committed: Event::new(),
        }
    }

    pub(crate) fn info(&self) -> RangeInfo {
        RangeInfo { id: self.id, keys: self.keys.clone(), parents: self.parents.clone() }
    }

    /// The newest commit every reader sees.
    pub(crate) fn newest(&self) -> Lsn {
        Lsn::new(self.visible.load(Ordering::Acquire))
    }

    /// Whether no commit behind this one has a number yet, let alone entries that anybody sees.
    pub(crate) fn has_nothing_after(&self, lsn: Lsn) -> bool {
        lock(&self.numbering).record.newest <= lsn.as_u64()
    }

    /// Called in commit order, after the entries have become visible.
    pub(crate) fn advance(&self, lsn: u64) {
        self.visible.fetch_max(lsn, Ordering::AcqRel);
        self.committed.notify(usize::MAX);
    }

    pub(crate) fn sources(&self) -> Arc<Vec<Source>> {
        Arc::clone(&read(&self.sources))
    }
}

impl Numbering {
    pub(crate) fn latest(&self, key: &Slice) -> Option<&Latest> {
        self.latest.get(key)
    }

    /// Whether [`Self::latest`] has every item that commits after this one have touched: then what
    /// was looked up when this one was visible still holds for all others.
    pub(crate) fn knows_all_after(&self, lsn: Lsn) -> bool {
        self.forgotten <= lsn.as_u64()
    }

    pub(crate) fn sequence(&self, partition: &Slice) -> Option<u64> {
        self.sequences.get(partition).map(|it| it.0)
    }

    /// Notes what a queued commit leaves behind. Everything up to `visible` can be looked up
    /// elsewhere and may be forgotten.
    pub(crate) fn note(&mut self, record: RangeRecord, items: Vec<(Slice, Latest)>, visible: Lsn) {
        self.record = record;
        let before = self.latest_bytes;
        let all_bytes = self.all_bytes.load(Ordering::Relaxed);
        let kept = if LATEST_BYTES_MAX < all_bytes { 0 } else { LATEST_COMMITS };
        self.forget_through(visible.as_u64().saturating_sub(kept));
        for (key, latest) in items {
            self.latest_bytes += latest.bytes();
            self.order.push_back((latest.lsn, key.clone()));
            if let Some(old) = self.latest.insert(key, latest) {
                self.latest_bytes -= old.bytes();
            }
        }
        self.all_bytes.fetch_add(self.latest_bytes, Ordering::Relaxed);
        self.all_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// A little with every commit rather than much with some: others wait meanwhile.
    fn forget_through(&mut self, through: u64) {
        while let Some((lsn, key)) = self.order.front()
            && *lsn <= through
        {
            self.forgotten = *lsn;
            if let hash_map::Entry::Occupied(latest) = self.latest.entry(key.clone())
                && latest.get().lsn == *lsn
            {
                self.latest_bytes -= latest.remove().bytes();
            }
            self.order.pop_front();
        }
    }

    pub(crate) fn note_sequence(&mut self, partition: Slice, number: u64, visible: Lsn) {
        if SEQUENCES_MAX < self.sequences.len() {
            self.sequences.retain(|_, (_, lsn)| visible.as_u64() < *lsn);
        }
        self.sequences.insert(partition, (number, self.record.newest));
    }

    /// Who holds a unique value since which commit, if that changed lately.
    pub(crate) fn claimant(&self, claim: &Slice) -> Option<&(Option<ItemId>, u64)> {
        self.claims.get(claim)
    }

    pub(crate) fn note_claims(&mut self, claimed: Vec<Claimed>, visible: Lsn) {
        if CLAIMS_MAX < self.claims.len() {
            self.claims.retain(|_, (_, lsn)| visible.as_u64() < *lsn);
        }
        for (claim, holder) in claimed {
            self.claims.insert(claim, (holder, self.record.newest));
        }
    }
}

impl Drop for Numbering {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.latest_bytes, Ordering::Relaxed);
    }
}

impl Latest {
    /// Memory, roughly: the key and the place in the map count too.
    fn bytes(&self) -> usize {
        LATEST_OVERHEAD_BYTES + self.version.as_ref().map_or(0, |it| it.1.len())
    }
}

/// Commits whose items a range remembers although they can be looked up: more than come in while
/// one of them looks its items up.
const LATEST_COMMITS: u64 = 1024;
/// Partitions whose event number a range may remember although it can be looked up.
const SEQUENCES_MAX: usize = 8192;
/// Unique values whose holder a range may remember although it can be looked up.
const CLAIMS_MAX: usize = 8192;
/// Bytes all ranges together may remember although they can be looked up.
const LATEST_BYTES_MAX: usize = 16 * 1024 * 1024;
const LATEST_OVERHEAD_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// A numbering after `count` commits that took turns on ten items, each visible `behind`
    /// commits later.
    fn numbering(count: u64, behind: u64) -> Numbering {
        let info = RangeInfo { id: RangeId(1), keys: KeyRange::all(), parents: Vec::new() };
        let record = RangeRecord::default();
        let state = RangeState::new(info, 1, Vec::new(), record, Arc::default());
        let mut numbering = state.numbering.into_inner().expect("nobody panicked");
        for lsn in 1..=count {
            let record = RangeRecord { newest: lsn, ..RangeRecord::default() };
            let latest = Latest { lsn, version: None };
            let visible = Lsn::new(lsn.saturating_sub(behind));
            numbering.note(record, vec![(key(lsn), latest)], visible);
        }
        numbering
    }

    fn key(lsn: u64) -> Slice {
        Slice::from((lsn % 10).to_le_bytes())
    }

    #[test]
    fn what_is_not_visible_yet_is_remembered() {
        let numbering = numbering(5000, 7);
        for lsn in 4994..=5000 {
            assert_eq!(numbering.latest(&key(lsn)).map(|it| it.lsn), Some(lsn));
        }
    }

    #[test]
    fn it_says_from_where_on_it_remembers_all() {
        let numbering = numbering(5000, 7);
        let first = (0..5000).find(|it| numbering.knows_all_after(Lsn::new(*it)));
        // The commit noted last found everything up to 4993 visible.
        assert_eq!(first, Some(4993 - LATEST_COMMITS));
        assert!(numbering.order.iter().all(|it| 4993 - LATEST_COMMITS < it.0));
    }

    #[test]
    fn what_is_forgotten_costs_no_memory() {
        let numbering = numbering(5000, 0);
        assert_eq!(numbering.latest.len(), 10);
        assert_eq!(numbering.latest_bytes, 10 * LATEST_OVERHEAD_BYTES);
        assert!(numbering.order.len() <= 1025);
    }
}
