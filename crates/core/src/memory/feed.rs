use std::time::Duration;

use crate::memory::ranges::Range;
use crate::memory::state::ContainerState;
use crate::{
    Change, ChangeKind, Continuation, Cursor, EffectiveKey, Error, ErrorKind, FeedMode, FeedPage,
    KeyRange, Lsn, PageSize, Result, StartFrom, Timestamp,
};

/// A version that the all-versions feed shows.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) key: EffectiveKey,
    pub(super) change: Change,
}

/// The newest version of a key that the all-versions feed no longer has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgotten {
    lsn: Lsn,
    committed_at: Timestamp,
}

impl ContainerState {
    /// Pins a place at the moment of the call (12).
    pub(super) fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        let range = self.range_of(keys)?;
        self.check_mode(mode)?;
        let (after, since) = match (from, mode) {
            (StartFrom::Now, _) => (range.newest, None),
            (StartFrom::Time(time), _) => (Lsn::ZERO, Some(time)),
            (StartFrom::Beginning, FeedMode::LatestVersion) => (Lsn::ZERO, None),
            (StartFrom::Beginning, FeedMode::AllVersions) => self.oldest(keys, range),
        };
        let container = self.info.resource_id.incarnation();
        Ok(Cursor { container, mode, after, since }.to_continuation())
    }

    pub(super) fn read_feed(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let cursor = self.cursor(after)?;
        let range = self.range_of(keys)?;
        self.check_mode(cursor.mode)?;
        let mut changes = match cursor.mode {
            FeedMode::LatestVersion => self.latest_versions(keys, cursor.after),
            FeedMode::AllVersions => self.all_versions(keys, &cursor)?,
        };
        changes.retain(|it| cursor.since <= Some(it.committed_at));
        let length = page_length(&changes, size.clamped());
        let at_end = length == changes.len();
        changes.truncate(length);
        let last = changes.last().map(|it| it.lsn).filter(|_| !at_end);
        let reached = Cursor { after: last.unwrap_or(range.newest.max(cursor.after)), ..cursor };
        Ok(FeedPage { changes, continuation: reached.to_continuation(), newest: range.newest })
    }

    /// Whether a waiting reader should look again (14).
    pub(super) fn has_more(&self, keys: &KeyRange, after: &Continuation) -> Result<bool> {
        let cursor = self.cursor(after)?;
        self.check_mode(cursor.mode)?;
        Ok(cursor.after < self.range_of(keys)?.newest)
    }

    pub(super) fn cursor(&self, continuation: &Continuation) -> Result<Cursor> {
        let cursor = Cursor::parse(continuation)?;
        if cursor.container != self.info.resource_id.incarnation() {
            let attempted = format!("use the continuation \"{continuation}\"");
            let error = Error::new(ErrorKind::ContainerRecreated, attempted);
            return Err(error.because("it comes from an earlier container of this name"));
        }
        Ok(cursor)
    }

    /// Each live item once, at its newest commit (11), in commit order.
    fn latest_versions(&self, keys: &KeyRange, after: Lsn) -> Vec<Change> {
        let items = self.items.iter();
        let mut found: Vec<_> = items
            .filter(|((key, _, _), stored)| keys.contains(key) && after < stored.item.lsn)
            .collect();
        // After a merge two batches may have the same number; each stays together (9).
        found.sort_by_key(|((key, partition, _), stored)| {
            (stored.item.lsn, key, partition, stored.operation)
        });
        let change = |item: crate::Item| Change {
            kind: ChangeKind::Written,
            lsn: item.lsn,
            committed_at: item.written_at,
            partition_key: item.partition_key.clone(),
            id: item.id.clone(),
            current: Some(item),
            previous: None,
        };
        found.into_iter().map(|(_, stored)| change(self.shown(stored))).collect()
    }

    /// Everything that happened (11), in commit order, or `PositionExpired` if part of it is
    /// forgotten (12).
    fn all_versions(&self, keys: &KeyRange, cursor: &Cursor) -> Result<Vec<Change>> {
        let missed =
            |it: &Forgotten| cursor.after < it.lsn && cursor.since <= Some(it.committed_at);
        if self.forgotten_in(keys).any(|it| missed(&it)) {
            let error = Error::new(ErrorKind::PositionExpired, format!("read changes of {keys}"));
            return Err(error.because("versions after the continuation are no longer kept"));
        }
        let kept = self.history.iter().filter(|it| keys.contains(&it.key));
        let mut found: Vec<_> = kept.filter(|it| cursor.after < it.change.lsn).collect();
        // The history is in the order of time; versions of one batch are next to each other and
        // stay so.
        found.sort_by_key(|it| (it.change.lsn, &it.key));
        Ok(found.into_iter().map(|it| it.change.clone()).collect())
    }

    /// Where all versions begin. After a merge one part may be forgotten up to a higher number than
    /// the other part begins at; there the time tells them apart.
    fn oldest(&self, keys: &KeyRange, range: &Range) -> (Lsn, Option<Timestamp>) {
        let kept = self.history.iter().filter(|it| keys.contains(&it.key)).map(|it| it.change.lsn);
        let after = kept.min().map_or(range.newest, |it| Lsn::new(it.as_u64() - 1));
        let later = self.forgotten_in(keys).filter(|it| after < it.lsn);
        let forgotten_at = later.map(|it| it.committed_at).max();
        (after, forgotten_at.map(|it| it.plus(Duration::from_millis(1))))
    }

    fn forgotten_in(&self, keys: &KeyRange) -> impl Iterator<Item = Forgotten> {
        self.forgotten.iter().filter(|(key, _)| keys.contains(key)).map(|(_, it)| *it)
    }

    /// Drops versions older than the retention, and remembers that they were there.
    pub(super) fn forget_history(&mut self, now: Timestamp) {
        let retention = self.info.settings.all_versions_retention;
        let forgotten = &mut self.forgotten;
        self.history.retain(|version| {
            let Change { lsn, committed_at, .. } = version.change;
            let keep = !retention.is_zero() && now < committed_at.plus(retention);
            if !keep {
                forgotten.insert(version.key.clone(), Forgotten { lsn, committed_at });
            }
            keep
        });
    }

    fn check_mode(&self, mode: FeedMode) -> Result<()> {
        if mode == FeedMode::AllVersions && self.info.settings.all_versions_retention.is_zero() {
            let error = Error::new(ErrorKind::Unsupported, "read all versions");
            return Err(error.because("the container keeps none; give it a retention"));
        }
        Ok(())
    }
}

/// How many changes fit into a page: at least one commit, and never part of one (9).
fn page_length(changes: &[Change], size: PageSize) -> usize {
    let (mut length, mut bytes) = (0, 0);
    for commit in changes.chunk_by(|one, next| one.lsn == next.lsn) {
        if size.items_max <= length || size.bytes_max <= bytes {
            break;
        }
        length += commit.len();
        let items = commit.iter().flat_map(|it| [&it.current, &it.previous]).flatten();
        bytes += items.map(|it| it.body.len()).sum::<usize>();
    }
    length
}
