//! The change feed of a container.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fjall::Slice;
use futures_util::future;
use millstream_core::{
    Change, ChangeFeed, ChangeKind, ContainerSettings, Continuation, Cursor, EffectiveKey, Error,
    ErrorKind, FeedMode, FeedPage, Item, KeyRange, Lsn, PageSize, RangeInfo, Result, StartFrom,
    Timestamp,
};

use crate::documents::item_of;
use crate::engine::{Engine, lock};
use crate::flaw::Flaw;
use crate::keys::Place;
use crate::records::{FeedRecord, Floor, HistoryRecord, Stamp};
use crate::state::{ContainerState, RangeState};
use crate::store::Store;
use crate::tables::Table;
use crate::view::Section;

#[derive(Debug)]
pub(crate) struct ContainerFeed {
    pub(crate) engine: Arc<Engine>,
    pub(crate) container: Arc<ContainerState>,
    /// Keeps the store open.
    pub(crate) _open: Store,
}

#[async_trait]
impl ChangeFeed for ContainerFeed {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        self.container.check_exists()?;
        Ok(self.container.ranges().iter().map(|it| it.info()).collect())
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        self.container.check_exists()?;
        self.check_mode(mode)?;
        let range = self.container.range_covering(keys)?;
        let (after, since) = match (from, mode) {
            (StartFrom::Now, _) => (range.newest(), None),
            (StartFrom::Beginning, FeedMode::LatestVersion) => (Lsn::ZERO, None),
            (StartFrom::Beginning, FeedMode::AllVersions) => oldest_version(&range, keys),
            (StartFrom::Time(time), FeedMode::LatestVersion) => {
                (self.before(&range, time)?, Some(time))
            }
            (StartFrom::Time(time), FeedMode::AllVersions) => (Lsn::ZERO, Some(time)),
        };
        Ok(self.cursor(mode, after, since).to_continuation())
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let cursor = self.parse(after)?;
        let items_max = size.clamped().items_max;
        let enough = items_max + items_max / 4 + RECENT_MIN;
        let mut recent = RecentMax { near: enough, far: RECENT_MIN };
        loop {
            let range = self.container.range_covering(keys)?;
            let page = Page::read(self, &range, keys, cursor, size.clamped(), recent)?;
            match page {
                Some(page) => return Ok(page),
                // The ranges moved meanwhile, or one commit has more recent entries than were
                // looked at.
                None => recent = RecentMax { near: recent.near * 2, far: recent.near * 2 },
            }
        }
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        let cursor = self.parse(after)?;
        loop {
            let range = self.container.range_covering(keys)?;
            let committed = range.committed.listen();
            let moved = self.container.topology.listen();
            let failed = self.engine.failed.listen();
            self.container.check_exists()?;
            let is_current = Arc::ptr_eq(&range, &self.container.range_covering(keys)?);
            if is_current && cursor.after < range.newest() {
                return Ok(());
            }
            if is_current {
                // A store that takes no writes has nothing more to wait for.
                self.engine.check_running()?;
                future::select(committed, future::select(moved, failed)).await;
            }
        }
    }
}

impl ContainerFeed {
    fn check_mode(&self, mode: FeedMode) -> Result<()> {
        let settings = &self.container.info().settings;
        if mode == FeedMode::AllVersions && settings.all_versions_retention.is_zero() {
            return Err(Error::new(ErrorKind::Unsupported, "read all versions and deletes")
                .because(
                    "the container does not keep them; set the retention of all versions first",
                ));
        }
        Ok(())
    }

    fn cursor(&self, mode: FeedMode, after: Lsn, since: Option<Timestamp>) -> Cursor {
        let container = self.container.info().resource_id.incarnation();
        Cursor { container, mode, after, since }
    }

    fn parse(&self, continuation: &Continuation) -> Result<Cursor> {
        self.container.check_exists()?;
        let cursor = Cursor::parse(continuation)?;
        if cursor.container != self.container.info().resource_id.incarnation() {
            return Err(Error::new(ErrorKind::ContainerRecreated, "read the feed").because(
                "the continuation belongs to another container, maybe an earlier one of this name",
            ));
        }
        self.check_mode(cursor.mode)?;
        Ok(cursor)
    }

    /// A commit of the range with nothing of that time or later up to it, found by bisection.
    ///
    /// Numbers are in order of time but for those of ranges that were merged; a reader who wants
    /// some of these starts at the beginning and passes over the rest.
    fn before(&self, range: &RangeState, time: Timestamp) -> Result<Lsn> {
        let unordered = lock(&range.numbering).record.unordered;
        if self.first_time_after(range, unordered)?.is_none_or(|first| time <= first) {
            return Ok(Lsn::ZERO);
        }
        // Everything up to `low` is earlier than `time`; nothing after `high` is.
        let (mut low, mut high) = (unordered, range.newest().as_u64());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.first_time_after(range, middle)? {
                Some(found) if found < time => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(Lsn::new(low))
    }

    /// The time of the first entry of the range after a commit, where numbers are in order of time.
    ///
    /// One that moves from a source meanwhile may be missed. Then a later one is found, and the
    /// reader begins earlier than it could.
    fn first_time_after(&self, range: &RangeState, lsn: u64) -> Result<Option<Timestamp>> {
        let sources = range.sources();
        let unsettled = sources.iter().filter(|it| !it.is_settled).map(|it| it.segment);
        let mut first = None;
        for segment in std::iter::once(range.segment).chain(unsettled) {
            let found = self.first_time_in(segment, lsn)?;
            first = first.into_iter().chain(found).min();
        }
        Ok(first)
    }

    /// The time of the first entry of a segment after a commit.
    fn first_time_in(&self, segment: u32, lsn: u64) -> Result<Option<Timestamp>> {
        let mut from = Place::first_after(segment, Lsn::new(lsn)).to_vec();
        let to = Place::end_of_segment(segment);
        loop {
            let section = Section { table: Table::Feed, from: from.clone(), to: to.clone() };
            let view = self.engine.view(vec![section], |_| RECENT_MIN);
            if let Some(entry) = view.entries(0).next() {
                let (_, value) = entry?;
                return Ok(FeedRecord::peek(&value).map(|it| it.0));
            }
            match view.cut_at(0) {
                None => return Ok(None),
                Some(cut) => from = cut.to_vec(),
            }
        }
    }
}

/// How many recent entries of a segment are copied for a page.
#[derive(Clone, Copy)]
struct RecentMax {
    near: usize,
    /// A reader that is far behind fills its page before it gets to what is recent; if it does
    /// not, its page is shorter than it could be.
    far: usize,
}

impl RecentMax {
    fn after(self, cursor: Cursor, first: &[u8]) -> usize {
        let reach = u64::try_from(self.near).unwrap_or(u64::MAX).saturating_mul(4);
        let end = cursor.after.as_u64().saturating_add(reach);
        let is_far = Place::from_key(first).is_some_and(|it| end < it.lsn);
        if is_far { self.far } else { self.near }
    }
}

/// A page of the feed in the making.
struct Page<'a> {
    feed: &'a ContainerFeed,
    settings: ContainerSettings,
    keys: &'a KeyRange,
    cursor: Cursor,
    size: PageSize,
    now: Timestamp,
    changes: Vec<Change>,
    bytes: usize,
    looked_at: usize,
    /// The last commit all of whose entries were looked at.
    passed: u64,
}

impl<'a> Page<'a> {
    /// None if it has to be read again, with a look at more recent entries.
    fn read(
        feed: &'a ContainerFeed,
        range: &Arc<RangeState>,
        keys: &'a KeyRange,
        cursor: Cursor,
        size: PageSize,
        recent: RecentMax,
    ) -> Result<Option<FeedPage>> {
        let newest = range.newest();
        let sections = sections(range, keys, cursor)?;
        let view = feed.engine.view(sections.clone(), |first| recent.after(cursor, first));
        // Entries move from the segments of predecessors once a range has successors, so the view
        // holds only if it had none.
        let is_current =
            feed.container.range_covering(keys).is_ok_and(|it| Arc::ptr_eq(&it, range));
        if !is_current {
            return Ok(None);
        }
        let bound = (0..sections.len())
            .filter_map(|it| Place::from_key(view.cut_at(it)?))
            .map(|it| it.lsn)
            .min();
        let mut page = Self {
            settings: feed.container.settings(),
            now: feed.engine.options().clock.now(),
            feed,
            keys,
            cursor,
            size,
            changes: Vec::new(),
            bytes: 0,
            looked_at: 0,
            passed: cursor.after.as_u64(),
        };
        let mut sources: Vec<_> =
            (0..sections.len()).map(|it| view.entries(it).peekable()).collect();
        let is_complete = if let [only] = sources.as_mut_slice() {
            page.fill(only, bound)?
        } else {
            page.fill(&mut std::iter::from_fn(|| next_of(&mut sources)).peekable(), bound)?
        };
        if is_complete {
            page.passed = page.passed.max(newest.as_u64());
        } else if page.passed == cursor.after.as_u64() {
            return Ok(None);
        }
        let after = Lsn::new(page.passed);
        let continuation = feed.cursor(cursor.mode, after, cursor.since).to_continuation();
        Ok(Some(FeedPage { changes: page.changes, continuation, newest: newest.max(after) }))
    }

    /// Takes entries until the page is full; true if there were no more.
    fn fill<I>(&mut self, entries: &mut std::iter::Peekable<I>, bound: Option<u64>) -> Result<bool>
    where
        I: Iterator<Item = Result<(Slice, Slice)>>,
    {
        let cuts = Flaw::BatchCut.is_planted(self.feed.engine.options().flaw);
        let mut commit = None;
        for entry in entries {
            let (key, value) = entry?;
            let place = Place::from_key(&key).ok_or_else(|| unreadable(&key))?;
            let is_next_commit = commit != Some(place.lsn);
            if is_next_commit {
                self.passed = commit.unwrap_or(self.passed);
            }
            if bound.is_some_and(|it| it <= place.lsn) {
                return Ok(false);
            }
            if (is_next_commit || cuts) && self.is_full() {
                self.passed = commit.unwrap_or(self.passed);
                return Ok(false);
            }
            commit = Some(place.lsn);
            self.looked_at += 1;
            self.take(place, &value)?;
        }
        self.passed = commit.unwrap_or(self.passed);
        Ok(bound.is_none())
    }

    fn is_full(&self) -> bool {
        self.size.items_max <= self.changes.len()
            || self.size.bytes_max <= self.bytes
            || LOOKED_AT_MAX <= self.looked_at
    }

    fn take(&mut self, place: Place, value: &Slice) -> Result<()> {
        let peeked = match self.cursor.mode {
            FeedMode::LatestVersion => FeedRecord::peek(value),
            FeedMode::AllVersions => HistoryRecord::peek(value),
        };
        let (time, effective) = peeked.ok_or_else(|| unreadable(&place.key()))?;
        let is_wanted = self.cursor.since.is_none_or(|since| since <= time)
            && self.keys.contains(&EffectiveKey::from_bytes(effective)?);
        if !is_wanted {
            return Ok(());
        }
        self.bytes += value.len();
        match self.cursor.mode {
            FeedMode::LatestVersion => {
                let item = item_of(&self.feed.container, &self.settings, place, value, self.now)?;
                self.changes.extend(item.map(written));
            }
            FeedMode::AllVersions => {
                let record =
                    HistoryRecord::decode(value).ok_or_else(|| unreadable(&place.key()))?;
                self.changes.push(self.version(place, record));
            }
        }
        Ok(())
    }

    fn version(&self, place: Place, record: HistoryRecord<'_>) -> Change {
        let HistoryRecord { kind, committed_at, partition_key, id, current, previous, .. } = record;
        let item = |version: (Stamp, &[u8])| -> Item {
            let body = Bytes::copy_from_slice(version.1);
            version.0.item(self.settings.default_ttl, partition_key.clone(), id.clone(), body)
        };
        Change {
            kind,
            lsn: Lsn::new(place.lsn),
            committed_at,
            current: current.map(item),
            previous: previous.map(item),
            partition_key,
            id,
        }
    }
}

/// The parts of the tables that hold what a reader has not seen, own segment first.
fn sections(range: &RangeState, keys: &KeyRange, cursor: Cursor) -> Result<Vec<Section>> {
    let table = match cursor.mode {
        FeedMode::LatestVersion => Table::Feed,
        FeedMode::AllVersions => Table::History,
    };
    let section = |segment: u32| Section {
        table,
        from: Place::first_after(segment, cursor.after).to_vec(),
        to: Place::end_of_segment(segment),
    };
    let sources = range.sources();
    let sources = sources.iter().filter(|it| it.keys.overlaps(keys));
    let mut sections = vec![section(range.segment)];
    let mut segments: Vec<u32> = sources
        .filter(|it| table == Table::History || !it.is_settled)
        .map(|it| it.segment)
        .collect();
    // Parts of a segment that were split off and merged again are two sources, but one place to
    // look at.
    segments.sort_unstable();
    segments.dedup();
    sections.extend(segments.into_iter().map(section));
    if table == Table::History && floors(range, keys).into_iter().any(|it| is_missed(cursor, it)) {
        let attempted = format!("read the feed after commit {}", cursor.after);
        return Err(Error::new(ErrorKind::PositionExpired, attempted)
            .because("older versions are no longer kept; choose a new start"));
    }
    Ok(sections)
}

/// What is no longer in the histories that a range reads.
fn floors(range: &RangeState, keys: &KeyRange) -> Vec<Floor> {
    let mut floors = vec![lock(&range.numbering).record.history_floor];
    let sources = range.sources();
    floors.extend(sources.iter().filter(|it| it.keys.overlaps(keys)).map(|it| it.history_floor));
    floors
}

/// Whether a reader wanted something that is gone. One that began at a time wants nothing older.
fn is_missed(cursor: Cursor, floor: Floor) -> bool {
    let is_wanted = cursor.since.is_none_or(|since| since.as_millis() <= floor.time_ms);
    cursor.after.as_u64() < floor.lsn && is_wanted
}

/// Where the oldest version stands: after the floor, or where floors differ after the time of the
/// latest.
fn oldest_version(range: &RangeState, keys: &KeyRange) -> (Lsn, Option<Timestamp>) {
    let floors = floors(range, keys);
    let highest = floors.iter().copied().fold(Floor::default(), Floor::max);
    if floors.iter().all(|it| it.lsn == highest.lsn) {
        return (Lsn::new(highest.lsn), None);
    }
    (Lsn::ZERO, Some(Timestamp::from_millis(highest.time_ms + 1)))
}

fn next_of<I>(sources: &mut [std::iter::Peekable<I>]) -> Option<Result<(Slice, Slice)>>
where
    I: Iterator<Item = Result<(Slice, Slice)>>,
{
    let mut least: Option<(usize, (u64, u32, u16))> = None;
    for (index, source) in sources.iter_mut().enumerate() {
        match source.peek() {
            None => {}
            Some(Err(_)) => return source.next(),
            Some(Ok((key, _))) => {
                let Some(place) = Place::from_key(key) else { return source.next() };
                let order = (place.lsn, place.origin, place.index);
                if least.is_none_or(|(_, it)| order < it) {
                    least = Some((index, order));
                }
            }
        }
    }
    sources[least?.0].next()
}

fn written(item: Item) -> Change {
    Change {
        kind: ChangeKind::Written,
        lsn: item.lsn,
        committed_at: item.written_at,
        partition_key: item.partition_key.clone(),
        id: item.id.clone(),
        current: Some(item),
        previous: None,
    }
}

fn unreadable(key: &[u8]) -> Error {
    Error::new(ErrorKind::Corrupt, format!("read the entry {key:02x?} of the feed"))
}

/// Recent entries of a segment that are copied for a page, at least.
const RECENT_MIN: usize = 64;
/// Entries a page looks at, at most, before it says where to go on: those of other ranges are
/// passed over.
const LOOKED_AT_MAX: usize = 50_000;
