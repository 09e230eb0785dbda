//! Expired items: invisible already, now removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fjall::Slice;
use millstream_core::{
    ChangeKind, ContainerSettings, EffectiveKey, KeyRange, Lsn, Result, Timestamp,
};

use crate::buffer::Entry;
use crate::commit::claims::{self, Claimed};
use crate::commit::{decode_item, forget_version};
use crate::engine::{Engine, lock, read};
use crate::guards::Positions;
use crate::keys::{self, Place};
use crate::maintenance::{StepOutcome, enqueue_for_range, look, look_at, write_and_wait};
use crate::records::{FeedRecord, HistoryRecord, ItemRecord, Stamp};
use crate::state::{ContainerState, Latest, Numbering, RangeState};
use crate::store::{GuardLag, Inner};
use crate::tables::Table;
use crate::view::Section;

/// An item whose time may have come.
struct Due {
    expiry_key: Slice,
    item_key: Slice,
    record: ItemRecord,
    feed_value: Slice,
}

type DueInRange = (Arc<ContainerState>, Arc<RangeState>, Vec<Due>);

pub(crate) fn purge_step(inner: &Arc<Inner>) -> Result<StepOutcome> {
    let now = inner.now();
    let to = (now.as_millis() + 1).to_be_bytes().to_vec();
    let done = lock(&inner.progress.expiries_done).clone();
    let from = if done < to { done } else { now.as_millis().to_be_bytes().to_vec() };
    let looked = look_at(inner, Section { table: Table::Expiry, from, to }, PURGE_ENTRIES_MAX)?;
    let oldest = looked.entries.first().and_then(|it| keys::split_expiry(&it.0));
    let lag = oldest.map_or(0, |it| now.as_millis().saturating_sub(it.0.as_millis()));
    inner.progress.expiry_lag_ms.store(lag, Ordering::Relaxed);
    let mut stale = Vec::new();
    let mut by_range: BTreeMap<(u32, u32), DueInRange> = BTreeMap::new();
    for (expiry_key, _) in looked.entries {
        match find_due(inner, &expiry_key)? {
            None => stale.push(Entry::remove(Table::Expiry, expiry_key)),
            Some((container, due)) => {
                let range = container.range_of(&effective_of(&due)?);
                let place = (container.id, range.segment);
                by_range.entry(place).or_insert_with(|| (container, range, Vec::new())).2.push(due);
            }
        }
    }
    if !stale.is_empty() {
        write_and_wait(inner, stale)?;
    }
    for (container, range, due) in by_range.into_values() {
        if !purge(inner, &container, &range, due, now)? {
            // The range is being split or merged; its successors find the same expiries in the next
            // pass.
            return Ok(StepOutcome::Done);
        }
    }
    let outcome = if looked.next.is_some() { StepOutcome::More } else { StepOutcome::Done };
    let done = looked.next.unwrap_or_else(|| now.as_millis().to_be_bytes().to_vec());
    *lock(&inner.progress.expiries_done) = done;
    Ok(outcome)
}

fn find_due(inner: &Inner, expiry_key: &Slice) -> Result<Option<(Arc<ContainerState>, Due)>> {
    let Some((_, item_key)) = keys::split_expiry(expiry_key) else { return Ok(None) };
    let container = keys::container_of(item_key)
        .and_then(|id| read(&inner.catalog).container(id).cloned())
        .filter(|it| it.check_exists().is_ok());
    let Some(container) = container else { return Ok(None) };
    let Some(bytes) = inner.engine.get(Table::Items, item_key)? else { return Ok(None) };
    let record = decode_item(&bytes)?;
    // A version that was replaced right now takes care of its own expiry.
    let Some(feed_value) = inner.engine.get(Table::Feed, record.place().key())? else {
        return Ok(None);
    };
    let item_key = Slice::from(item_key);
    Ok(Some((container, Due { expiry_key: expiry_key.clone(), item_key, record, feed_value })))
}

/// Removes what has expired, as one queued step of commits, and moves the other expiries to when
/// they are worth a look. False if the range takes no commits any more.
fn purge(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    due: Vec<Due>,
    now: Timestamp,
) -> Result<bool> {
    let seen = range.newest();
    let item = |due: &Due| inner.engine.get(Table::Items, due.item_key.clone());
    let mut stored = due.iter().map(item).collect::<Result<Vec<_>>>()?;
    let mut numbering = lock(&range.numbering);
    if numbering.is_closed {
        return Ok(false);
    }
    // Commits of users wait while the tables are looked at now, so that is done only if it must.
    if !numbering.knows_all_after(seen) {
        stored = due.iter().map(item).collect::<Result<_>>()?;
    }
    let info = container.info();
    let mut purge = Purge {
        engine: &inner.engine,
        container,
        range,
        settings: &info.settings,
        now,
        entries: Vec::new(),
        removed: Vec::new(),
        given_up: Vec::new(),
    };
    let mut record = numbering.record;
    for (item, stored) in due.into_iter().zip(stored) {
        purge.look_at(&numbering, &mut record, item, stored)?;
    }
    let Purge { entries, removed, given_up, .. } = purge;
    if entries.is_empty() {
        return Ok(true);
    }
    let waiter = enqueue_for_range(inner, range, &mut numbering, entries, record, removed)?;
    numbering.note_claims(given_up, range.newest());
    drop(numbering);
    waiter.wait().map(|()| true)
}

struct Purge<'a> {
    engine: &'a Engine,
    container: &'a ContainerState,
    range: &'a RangeState,
    settings: &'a ContainerSettings,
    now: Timestamp,
    entries: Vec<Entry>,
    removed: Vec<(Slice, Latest)>,
    given_up: Vec<Claimed>,
}

impl Purge<'_> {
    fn look_at(
        &mut self,
        numbering: &Numbering,
        range: &mut crate::records::RangeRecord,
        due: Due,
        stored: Option<Slice>,
    ) -> Result<()> {
        // A commit on its way writes the expiry anew, and so did one that has come in between.
        let is_current = match numbering.latest(&due.item_key) {
            Some(latest) => latest.version.as_ref().is_some_and(|it| it.0 == due.record),
            None => stored.is_some_and(|it| decode_item(&it).is_ok_and(|it| it == due.record)),
        };
        if !is_current {
            return Ok(());
        }
        let stamp = due.record.stamp;
        let effective = effective_of(&due)?;
        self.entries.push(Entry::remove(Table::Expiry, due.expiry_key.clone()));
        if !self.container.is_expired(self.settings, &stamp, &effective, self.now) {
            if let Some(at) = stamp.expiry(self.settings.default_ttl) {
                // One that a reader holds is looked at again after a while.
                let again =
                    if self.now < at { at } else { self.now.plus(held_for(at, stamp.written_at)) };
                self.entries.push(Entry::put(
                    Table::Expiry,
                    keys::expiry(again, &due.item_key),
                    [],
                ));
            }
            return Ok(());
        }
        let lsn = Lsn::new(range.newest).next().as_u64();
        range.newest = lsn;
        range.committed_at = range.committed_at.max(self.now);
        if due.record.segment == self.range.segment {
            range.live_bytes = range.live_bytes.saturating_sub(due.record.body_bytes.into());
        }
        forget_version(&due.record, &due.item_key, self.settings, &mut self.entries);
        self.entries.push(Entry::remove(Table::Items, due.item_key.clone()));
        if !self.settings.all_versions_retention.is_zero() {
            self.remember(lsn, range.committed_at, &due)?;
        }
        if !self.settings.unique_keys.is_empty() {
            self.give_up_claims(numbering, &due)?;
        }
        self.removed.push((due.item_key, Latest { lsn, version: None }));
        Ok(())
    }

    fn give_up_claims(&mut self, numbering: &Numbering, due: &Due) -> Result<()> {
        let FeedRecord { id, body, .. } = decode_feed(due)?;
        let partition = &due.item_key[..due.item_key.len() - id.as_str().len()];
        let given_up =
            claims::given_up(self.engine, numbering, self.settings, partition, (&id, body))?;
        self.entries.extend(given_up.iter().map(claims::entry));
        self.given_up.extend(given_up);
        Ok(())
    }

    fn remember(&mut self, lsn: u64, committed_at: Timestamp, due: &Due) -> Result<()> {
        let feed = decode_feed(due)?;
        let record = HistoryRecord {
            kind: ChangeKind::Expired,
            committed_at,
            effective: feed.effective,
            partition_key: feed.partition_key,
            id: feed.id,
            current: None,
            previous: Some((due.record.stamp, feed.body)),
        };
        let segment = self.range.segment;
        let place = Place { segment, lsn, origin: segment, index: 0 };
        self.entries.push(Entry::put(Table::History, place.key(), record.encode()));
        Ok(())
    }
}

/// How long to wait before a held event is looked at again: a tenth of its life, so that many held
/// events cost little.
fn held_for(expired_at: Timestamp, written_at: Timestamp) -> Duration {
    (expired_at.since(written_at) / 10).max(Duration::from_secs(1))
}

fn decode_feed(due: &Due) -> Result<FeedRecord<'_>> {
    FeedRecord::decode(&due.feed_value).ok_or_else(|| {
        millstream_core::Error::new(
            millstream_core::ErrorKind::Corrupt,
            format!("read the expired item of commit {}", due.record.stamp.lsn),
        )
    })
}

fn effective_of(due: &Due) -> Result<EffectiveKey> {
    let peeked = FeedRecord::peek(&due.feed_value).map(|it| it.1);
    EffectiveKey::from_bytes(peeked.unwrap_or_default())
}

/// Warns when a reader is so far behind that events live on only because it holds them.
pub(crate) fn warn_about_lag(inner: &Inner, container: &ContainerState) -> Result<()> {
    for lag in lags(inner, container)? {
        if lag.time_to_live * LAG_WARNING_TENTHS / 10 < lag.oldest_age {
            tracing::warn!(
                container = %lag.container,
                reader = %lag.reader,
                oldest_age_s = lag.oldest_age.as_secs(),
                time_to_live_s = lag.time_to_live.as_secs(),
                "a reader is behind by most of the life of its events; they are kept for it"
            );
        }
    }
    Ok(())
}

/// For each reader that holds events, the age of the oldest event it has not passed.
pub(crate) fn lags(inner: &Inner, container: &ContainerState) -> Result<Vec<GuardLag>> {
    let guards = read(&container.guards).clone();
    let info = container.info();
    let mut lags = Vec::new();
    for (reader, positions) in guards.iter() {
        let mut oldest: Option<Stamp> = None;
        for range in container.ranges().iter() {
            let sources = range.sources();
            let unsettled = sources.iter().filter(|it| !it.is_settled).map(|it| it.segment);
            for segment in std::iter::once(range.segment).chain(unsettled) {
                let found = first_unpassed(inner, segment, positions, &range.keys)?;
                oldest = oldest.into_iter().chain(found).min_by_key(|it| it.written_at);
            }
        }
        let expiry =
            oldest.and_then(|it| Some((it.written_at, it.expiry(info.settings.default_ttl)?)));
        if let Some((written_at, expires_at)) = expiry {
            lags.push(GuardLag {
                container: info.name.clone(),
                reader: reader.clone(),
                oldest_age: inner.now().since(written_at),
                time_to_live: expires_at.since(written_at),
            });
        }
    }
    Ok(lags)
}

/// The first event of a segment that a reader has not passed.
fn first_unpassed(
    inner: &Inner,
    segment: u32,
    positions: &Positions,
    keys: &KeyRange,
) -> Result<Option<Stamp>> {
    let after = Lsn::new(positions.least_in(keys));
    let mut from = Place::first_after(segment, after).to_vec();
    loop {
        let to = Place::end_of_segment(segment);
        let looked = look(inner, Section { table: Table::Feed, from, to })?;
        for (key, value) in &looked.entries {
            let (Some(place), Some(record)) = (Place::from_key(key), FeedRecord::decode(value))
            else {
                continue;
            };
            let effective = EffectiveKey::from_bytes(record.effective)?;
            let is_theirs = record.sequence.is_some() && keys.contains(&effective);
            if is_theirs && !positions.have_passed(&effective, place.lsn) {
                return Ok(Some(record.stamp(place)));
            }
        }
        match looked.next {
            Some(next) if !inner.is_closing() => from = next,
            _ => return Ok(None),
        }
    }
}

/// Commits of users wait while a step is put together, so it is short.
const PURGE_ENTRIES_MAX: usize = 16;
const LAG_WARNING_TENTHS: u32 = 8;
