//! After a split or merge: moves what predecessors stored to the segments of their successors, and
//! splits what has grown.

use std::sync::Arc;

use bytes::Bytes;
use fjall::Slice;
use millstream_core::{EffectiveKey, Lsn, Result};

use crate::buffer::Entry;
use crate::commit::decode_item;
use crate::containers::container_entry;
use crate::engine::{lock, read, write};
use crate::keys::{self, Place};
use crate::maintenance::{StepOutcome, enqueue_for_range, look, write_and_wait};
use crate::records::{FeedRecord, ItemRecord, RangeRecord};
use crate::state::{ContainerState, Latest, RangeState, Source};
use crate::store::Inner;
use crate::tables::Table;
use crate::view::Section;

/// Moves some entries of one source of one range; their numbers, times and etags stay.
pub(crate) fn settle_step(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
) -> Result<StepOutcome> {
    for range in container.ranges().iter() {
        for source in range.sources().iter() {
            if !source.is_settled {
                return settle_source(inner, container, range, source);
            }
            if !is_needed(inner, container, source)? {
                finish_source(inner, container, range, source)?;
                return Ok(StepOutcome::More);
            }
        }
    }
    Ok(StepOutcome::Done)
}

/// Splits a range that has outgrown its limit, once what it holds has been counted.
pub(crate) fn split_large(inner: &Arc<Inner>, container: &Arc<ContainerState>) -> Result<()> {
    let limit = inner.engine.options().range_bytes_max;
    for range in container.ranges().iter() {
        let is_large = limit < lock(&range.numbering).record.live_bytes;
        let is_settled = range.sources().iter().all(|it| it.is_settled);
        if !is_large || !is_settled {
            continue;
        }
        let Some(at) = middle_of_stored(inner, container, range)? else { continue };
        let (left, right) = range.keys.split_at(&at)?;
        let guard = inner.changes.lock_arc_blocking();
        if container.has_live(range) {
            let (name, id) = (container.info().name.clone(), range.id);
            tracing::info!(container = %name, range = %id, "splitting a range that has grown");
            let parent = [Arc::clone(range)];
            let divided = inner.divide(guard, container, &parent, vec![left, right]);
            futures_lite::future::block_on(divided)?;
        }
        return Ok(());
    }
    Ok(())
}

/// Where a sweep through a source has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    /// None at the beginning.
    position: Option<Vec<u8>>,
    has_found: bool,
}

/// Looks at some entries of a source and moves those of the range. A source is settled when a whole
/// sweep has found none.
fn settle_source(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    source: &Source,
) -> Result<StepOutcome> {
    let place = (range.segment, source.segment);
    let sweep = lock(&inner.progress.sweeps).get(&place).cloned().unwrap_or_default();
    let start = || Place::first_after(source.segment, Lsn::ZERO).to_vec();
    let from = sweep.position.unwrap_or_else(start);
    let to = Place::end_of_segment(source.segment);
    let looked = look(inner, Section { table: Table::Feed, from, to })?;
    let mut ours = Vec::new();
    for (key, value) in looked.entries {
        let effective = FeedRecord::peek(&value).map(|it| it.1).unwrap_or_default();
        if source.keys.contains(&EffectiveKey::from_bytes(effective)?) {
            ours.push((key, value));
        }
    }
    let has_found = sweep.has_found || !ours.is_empty();
    if !ours.is_empty() && move_entries(inner, container, range, ours)? == StepOutcome::Done {
        return Ok(StepOutcome::Done);
    }
    match looked.next {
        Some(next) => {
            let sweep = Sweep { position: Some(next), has_found };
            lock(&inner.progress.sweeps).insert(place, sweep);
        }
        None => {
            lock(&inner.progress.sweeps).remove(&place);
            if !has_found {
                finish_source(inner, container, range, source)?;
            }
        }
    }
    Ok(StepOutcome::More)
}

fn move_entries(
    inner: &Inner,
    container: &ContainerState,
    range: &Arc<RangeState>,
    moving: Vec<(Slice, Slice)>,
) -> Result<StepOutcome> {
    let mut numbering = lock(&range.numbering);
    if numbering.is_closed {
        return Ok(StepOutcome::Done);
    }
    let mut scratch = Vec::new();
    let mut moved_items = Vec::with_capacity(moving.len());
    let mut entries = Vec::with_capacity(moving.len() * 3);
    // The move takes a number of its own, although no reader sees it: until then commits must know
    // where the items go.
    let lsn = Lsn::new(numbering.record.newest).next().as_u64();
    let mut record = RangeRecord { newest: lsn, ..numbering.record };
    for (key, value) in moving {
        let (Some(place), Some(feed)) = (Place::from_key(&key), FeedRecord::decode(&value)) else {
            continue;
        };
        let effective = EffectiveKey::from_bytes(feed.effective)?;
        let item_key = keys::item(container.id, &effective, &feed.partition_key, &feed.id);
        let item_key = Slice::from(item_key);
        let known = match numbering.latest(&item_key) {
            Some(latest) => latest.version.as_ref().map(|it| it.0),
            None => {
                let stored = inner.engine.get(Table::Items, item_key.clone())?;
                stored.map(|it| decode_item(&it)).transpose()?
            }
        };
        // A commit on its way, or one that came in between, has replaced it and removes it from
        // where it was.
        if known.is_none_or(|it| it.place() != place) {
            continue;
        }
        let moved = Place { segment: range.segment, ..place };
        let body_bytes = u32::try_from(feed.body.len()).expect("an item has at most 2 MiB");
        let index = ItemRecord { segment: range.segment, stamp: feed.stamp(place), body_bytes };
        record.live_bytes += u64::from(body_bytes);
        entries.push(Entry::remove(Table::Feed, key));
        let body = Bytes::copy_from_slice(feed.body);
        entries.push(Entry::put(Table::Feed, moved.key(), value));
        index.encode(&mut scratch);
        entries.push(Entry::put(Table::Items, item_key.clone(), &scratch[..]));
        moved_items.push((item_key, Latest { lsn, version: Some((index, body)) }));
    }
    if entries.is_empty() {
        // What is on its way settles itself; the next pass looks again.
        return Ok(StepOutcome::Done);
    }
    let waiter = enqueue_for_range(inner, range, &mut numbering, entries, record, moved_items)?;
    drop(numbering);
    waiter.wait()?;
    Ok(StepOutcome::More)
}

/// Nothing of the range is left in the feed of the source. It is forgotten once its history is not
/// needed either.
fn finish_source(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    source: &Source,
) -> Result<()> {
    let _guard = inner.changes.lock_blocking();
    if !container.has_live(range) {
        return Ok(());
    }
    let is_needed = is_needed(inner, container, source)?;
    let mut sources = read(&range.sources).to_vec();
    sources.retain_mut(|it| {
        let is_it = it.segment == source.segment && it.keys == source.keys;
        it.is_settled |= is_it;
        !is_it || is_needed
    });
    *write(&range.sources) = Arc::new(sources);
    let (info, ranges) = (container.info(), container.ranges());
    let entry = container_entry(container, &info, &ranges, &container.past_ttls());
    write_and_wait(inner, vec![entry])
}

/// Whether readers of versions need a settled source: for what its history holds, or to know what
/// it no longer holds.
fn is_needed(inner: &Inner, container: &ContainerState, source: &Source) -> Result<bool> {
    if container.info().settings.all_versions_retention.is_zero() {
        return Ok(false);
    }
    let section = Section {
        table: Table::History,
        from: Place::first_after(source.segment, Lsn::ZERO).to_vec(),
        to: Place::end_of_segment(source.segment),
    };
    let looked = look(inner, section)?;
    Ok(0 < source.history_floor.lsn || !looked.entries.is_empty() || looked.next.is_some())
}

/// A key that divides what a range holds, by looking at where its numeric middle falls among the
/// stored items.
fn middle_of_stored(
    inner: &Inner,
    container: &ContainerState,
    range: &RangeState,
) -> Result<Option<EffectiveKey>> {
    let definition = &container.info().settings.partition_key;
    let Some(middle) = definition.middle(&range.keys) else { return Ok(None) };
    let Ok((left, right)) = range.keys.split_at(&middle) else { return Ok(None) };
    // Splitting off a half that holds nothing would not make the other one smaller.
    for half in [left, right] {
        let (from, to) = keys::items_in(container.id, &half);
        if look(inner, Section { table: Table::Items, from, to })?.entries.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(middle))
}
