//! Reading the commits of a range in order.
//!
//! A stream keeps the newest message of each subject, so in its own order it is the latest-version
//! feed. The number of a commit is the sequence of its last message, and every message says how
//! many of its commit come after it: so a page knows where commits end without counting messages,
//! some of which may have been replaced since.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millstream_core::{
    Change, ChangeKind, ContainerSettings, Continuation, Cursor, Error, ErrorKind, FeedMode,
    FeedPage, KeyRange, Lsn, PageSize, Result, StartFrom, Timestamp,
};

use crate::catalog::{Floor, Found, GuardRecord};
use crate::container::reading::{Filters, Reading};
use crate::container::{Range, Shared, is_held};
use crate::record::{ItemRecord, Kind, Mark, VersionRecord, strange};
use crate::wire::StoredMessage;

/// Messages that are asked for at once.
const RUN_MESSAGES_MAX: usize = 1000;
/// Messages a page looks at, at most, before it says where to go on: those of other keys, and those
/// from before the time a reader began at, are passed over.
const LOOKED_AT_MAX: usize = 50_000;

impl Shared {
    pub(super) async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        let range = self.range_of(keys)?;
        let settings = self.fresh_settings().await?;
        self.check_mode(mode, &settings)?;
        let (after, since) = match (from, mode) {
            (StartFrom::Now, _) => (range.newest().await?, None),
            (StartFrom::Time(time), _) => (0, Some(time)),
            (StartFrom::Beginning, FeedMode::LatestVersion) => (0, None),
            (StartFrom::Beginning, FeedMode::AllVersions) => {
                let floor = self.floor(range).await?;
                (floor.lsn, self.kept_since(&settings))
            }
        };
        let container = self.id.incarnation();
        Ok(Cursor { container, mode, after: Lsn::new(after), since }.to_continuation())
    }

    pub(super) async fn read_feed(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let cursor = self.cursor(after)?;
        let range = self.range_of(keys)?;
        let settings = self.settings().await?;
        self.check_mode(cursor.mode, &settings)?;
        let newest_message = range.newest_message().await?;
        let newest = newest_message.as_ref().map_or(0, |it| it.sequence);
        if cursor.mode == FeedMode::AllVersions {
            self.check_floor(range, keys, &cursor).await?;
        }
        let mut page = Page {
            shared: self,
            range,
            keys,
            cursor,
            settings: &settings,
            size: size.clamped(),
            guards: None,
            changes: Vec::new(),
            bytes: 0,
            open: None,
        };
        let reached = page.fill(newest_message).await?;
        // What has been committed since the call began may have come in part.
        page.changes.retain(|it| it.lsn.as_u64() <= reached);
        let newest = newest.max(reached);
        let reached = Cursor { after: Lsn::new(reached.max(cursor.after.as_u64())), ..cursor };
        Ok(FeedPage {
            changes: page.changes,
            continuation: reached.to_continuation(),
            newest: Lsn::new(newest),
        })
    }

    pub(super) fn check_mode(&self, mode: FeedMode, settings: &ContainerSettings) -> Result<()> {
        if mode == FeedMode::AllVersions && settings.all_versions_retention.is_zero() {
            let error = Error::new(ErrorKind::Unsupported, "read all versions");
            return Err(error.because("the container keeps none; give it a retention"));
        }
        if mode == FeedMode::AllVersions && self.record().is_history_opening {
            let error = Error::new(ErrorKind::Unavailable, "read all versions");
            return Err(error.because(
                "the container begins to keep them, which takes some seconds; if that was broken \
                 off, maintenance goes on with it, or replace the settings once more",
            ));
        }
        Ok(())
    }

    /// What the history of a range does not have: it was not kept yet, or is no longer.
    pub(crate) async fn floor(&self, range: &Range) -> Result<Floor> {
        let subject = self.catalog.floor(self.id.container, range.info.id.0);
        let found: Found<Floor> = self.catalog.get(&subject).await?;
        let opening = self.record().opening(range.number());
        Ok(found.record.filter(|it| opening.lsn <= it.lsn).unwrap_or(opening))
    }

    /// Versions of this time and later are kept.
    pub(crate) fn kept_since(&self, settings: &ContainerSettings) -> Option<Timestamp> {
        let now = self.clock().now().as_millis();
        let retention = u64::try_from(settings.all_versions_retention.as_millis());
        let over = now.checked_sub(retention.unwrap_or(u64::MAX))?;
        Some(Timestamp::from_millis(over).plus(Duration::from_millis(1)))
    }

    async fn check_floor(&self, range: &Range, keys: &KeyRange, cursor: &Cursor) -> Result<()> {
        let floor = self.floor(range).await?;
        let at = Timestamp::from_millis(floor.at);
        if cursor.after.as_u64() < floor.lsn && cursor.since <= Some(at) {
            return Err(expired(keys));
        }
        Ok(())
    }
}

/// A page while it is filled.
struct Page<'a> {
    shared: &'a Shared,
    range: &'a Range,
    keys: &'a KeyRange,
    cursor: Cursor,
    settings: &'a ContainerSettings,
    size: PageSize,
    /// Asked for when the first expired event appears.
    guards: Option<Vec<GuardRecord>>,
    changes: Vec<Change>,
    bytes: usize,
    /// Parts of a version whose last part has not come yet.
    open: Option<BytesMut>,
}

impl Page<'_> {
    /// Reads until the page is full enough, or everything up to `newest` was looked at, or so much
    /// that the reader had better come again. Returns the last commit all of whose messages were
    /// looked at.
    async fn fill(&mut self, newest_message: Option<StoredMessage>) -> Result<u64> {
        let newest = newest_message.as_ref().map_or(0, |it| it.sequence);
        let items = self.range.names.items();
        let has_history = !self.settings.all_versions_retention.is_zero();
        let (few, many) = match self.cursor.mode {
            FeedMode::AllVersions => (None, None),
            FeedMode::LatestVersion if has_history => (Some(items.as_str()), Some(items.as_str())),
            // Without a history nearly everything is an item, and a filter only costs time.
            FeedMode::LatestVersion => (Some(items.as_str()), None),
        };
        let filters = Filters { few, many };
        let start = self.cursor.after.as_u64();
        let mut reading = Reading::new(self.shared, self.range, start + 1, filters, newest_message);
        let reached = self.fill_from(&mut reading, newest, few).await?;
        reading.end().await;
        Ok(reached)
    }

    async fn fill_from(
        &mut self,
        reading: &mut Reading<'_>,
        newest: u64,
        filter: Option<&str>,
    ) -> Result<u64> {
        let start = self.cursor.after.as_u64();
        let mut reached = start;
        // Everything before this was looked at.
        let mut next = reached + 1;
        let mut looked_at = 0;
        while next <= newest {
            let count = self.size.items_max - self.changes.len().min(self.size.items_max);
            // Who passes over much asks for more at once, however few changes he wants.
            let count = count.max(looked_at).clamp(1, RUN_MESSAGES_MAX);
            let run = reading.run(next, count).await?;
            let mut messages = run.messages;
            if messages.is_empty() || !run.has_more {
                let seen = messages.last().map_or(next, |it| it.sequence + 1);
                messages.extend(self.missing(seen, newest, filter).await?);
                if messages.is_empty() {
                    return Ok(newest.max(reached));
                }
            }
            looked_at += messages.len();
            for message in messages {
                let mark = Mark::read(&message).ok_or_else(|| strange(&message))?;
                let lsn = mark.lsn(&message);
                if reached < lsn && self.is_full() && self.last_lsn() != Some(lsn) {
                    // The commits before this one are complete.
                    return Ok(lsn - u64::try_from(mark.count).unwrap_or(1));
                }
                next = message.sequence + 1;
                self.range.saw_time(mark.at);
                self.take(&message, mark, lsn).await?;
                if message.sequence == lsn {
                    reached = lsn;
                }
            }
            // Filling up the rest would cost as much as another page.
            let is_enough = self.is_full_enough() || LOOKED_AT_MAX <= looked_at;
            if start < reached && is_enough {
                return Ok(reached);
            }
        }
        Ok(reached.max(newest))
    }

    /// What a replica that is behind does not have yet: the next message, from the leader.
    async fn missing(
        &self,
        from: u64,
        newest: u64,
        filter: Option<&str>,
    ) -> Result<Option<StoredMessage>> {
        if newest < from || self.range.wire.is_single() {
            return Ok(None);
        }
        let all = self.range.names.all();
        self.range.wire.next(from, filter.unwrap_or(&all)).await
    }

    fn is_full(&self) -> bool {
        self.size.items_max <= self.changes.len() || self.size.bytes_max <= self.bytes
    }

    fn is_full_enough(&self) -> bool {
        self.size.items_max <= 2 * self.changes.len() || self.size.bytes_max <= 2 * self.bytes
    }

    fn last_lsn(&self) -> Option<u64> {
        self.changes.last().map(|it| it.lsn.as_u64())
    }

    async fn take(&mut self, message: &StoredMessage, mark: Mark, lsn: u64) -> Result<()> {
        let change = match (self.cursor.mode, mark.kind) {
            (FeedMode::LatestVersion, Kind::Written) => self.written(message, mark, lsn).await?,
            (FeedMode::AllVersions, Kind::Version) => self.version(message, &mark, lsn)?,
            (FeedMode::LatestVersion, Kind::Version)
            | (FeedMode::AllVersions, Kind::Written)
            | (_, Kind::Deleted | Kind::Expired | Kind::Sequence | Kind::Look | Kind::Claim) => {
                None
            }
        };
        let Some(change) = change.filter(|it| self.cursor.since <= Some(it.committed_at)) else {
            return Ok(());
        };
        let items = [&change.current, &change.previous];
        self.bytes += items.into_iter().flatten().map(|it| it.body.len()).sum::<usize>();
        self.changes.push(change);
        Ok(())
    }

    /// An item at its newest commit, unless its time is over.
    async fn written(
        &mut self,
        message: &StoredMessage,
        mark: Mark,
        lsn: u64,
    ) -> Result<Option<Change>> {
        let record = ItemRecord::read_marked(message, mark)?;
        let effective = self.settings.partition_key.effective(&record.partition_key)?;
        let Some(version) = &record.version else { return Ok(None) };
        if !self.keys.contains(&effective) {
            return Ok(None);
        }
        let now = self.shared.clock().now();
        let is_due = version.stamp.expiry(self.settings.default_ttl).is_some_and(|it| it <= now);
        if is_due {
            if version.stamp.sequence.is_none() {
                return Ok(None);
            }
            if self.guards.is_none() {
                self.guards = Some(self.shared.guards().await?);
            }
            let guards = self.guards.as_deref().unwrap_or_default();
            if !is_held(guards, &effective, lsn) {
                return Ok(None);
            }
        }
        let ItemRecord { partition_key, id, .. } = &record;
        Ok(Some(Change {
            kind: ChangeKind::Written,
            lsn: Lsn::new(lsn),
            committed_at: record.mark.at,
            current: Some(version.item(
                self.range.number(),
                lsn,
                partition_key,
                id,
                self.settings.default_ttl,
            )),
            partition_key: partition_key.clone(),
            id: id.clone(),
            previous: None,
        }))
    }

    /// A change of the history, once its last part is there.
    fn version(
        &mut self,
        message: &StoredMessage,
        mark: &Mark,
        lsn: u64,
    ) -> Result<Option<Change>> {
        let part = message.header("Millstream-Part").unwrap_or("1 1");
        let (part, parts) = part.split_once(' ').ok_or_else(|| strange(message))?;
        let payload: Bytes = if parts == "1" {
            message.payload.clone()
        } else {
            let open = self.open.get_or_insert_with(BytesMut::new);
            open.extend_from_slice(&message.payload);
            if part != parts {
                return Ok(None);
            }
            self.open.take().unwrap_or_default().freeze()
        };
        let record = VersionRecord::decode(&payload).ok_or_else(|| strange(message))?;
        let effective = self.settings.partition_key.effective(&record.partition_key)?;
        if !self.keys.contains(&effective) {
            return Ok(None);
        }
        let is_wanted = self.cursor.since <= Some(mark.at);
        if is_wanted && Some(mark.at) < self.shared.kept_since(self.settings) {
            return Err(expired(self.keys));
        }
        Ok(Some(record.change(self.range.number(), lsn, mark.at, self.settings.default_ttl)))
    }
}

fn expired(keys: &KeyRange) -> Error {
    let error = Error::new(ErrorKind::PositionExpired, format!("read changes of {keys}"));
    error.because("versions after the continuation are no longer kept")
}
