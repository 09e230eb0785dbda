//! After a split or merge: moves what predecessors stored to the segments of their successors, and splits what has grown.

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
            if source.is_settled && has_history(inner, source)? {
                continue;
            }
            return settle_source(inner, container, range, source);
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
        if container.ranges().iter().any(|it| Arc::ptr_eq(it, range)) {
            tracing::info!(container = %container.info().name, range = %range.id, "splitting a range that has grown large");
            let parent = [Arc::clone(range)];
            let divided = inner.divide(guard, container, &parent, vec![left, right]);
            futures_lite::future::block_on(divided)?;
        }
        return Ok(());
    }
    Ok(())
}

fn settle_source(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    source: &Source,
) -> Result<StepOutcome> {
    let mut from = Place::first_after(source.segment, Lsn::ZERO).to_vec();
    loop {
        let to = Place::end_of_segment(source.segment);
        let looked = look(inner, Section { table: Table::Feed, from, to })?;
        let mut ours = Vec::new();
        for (key, value) in looked.entries {
            let effective = FeedRecord::peek(&value).map(|it| it.1).unwrap_or_default();
            if source.keys.contains(&EffectiveKey::from_bytes(effective)?) {
                ours.push((key, value));
            }
        }
        if !ours.is_empty() {
            return move_entries(inner, container, range, ours);
        }
        match looked.next {
            Some(next) => from = next,
            None => {
                finish_source(inner, container, range, source)?;
                return Ok(StepOutcome::More);
            }
        }
    }
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
    // The move takes a number of its own, although no reader sees it: until then commits must know where the items go.
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
        // A commit on its way, or one that came in between, has replaced it and removes it from where it was.
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

/// Nothing of the range is left in the feed of the source. It is forgotten once its history is gone too.
fn finish_source(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    source: &Source,
) -> Result<()> {
    let _guard = inner.changes.lock_blocking();
    if !container.ranges().iter().any(|it| Arc::ptr_eq(it, range)) {
        return Ok(());
    }
    let keeps = has_history(inner, source)?;
    let mut sources = read(&range.sources).to_vec();
    sources.retain_mut(|it| {
        let is_it = it.segment == source.segment && it.keys == source.keys;
        it.is_settled |= is_it;
        !is_it || keeps
    });
    if !keeps {
        // What the source no longer has in its history the range does not have either.
        let mut numbering = lock(&range.numbering);
        let floor = numbering.record.history_floor.max(source.history_floor);
        numbering.record.history_floor = floor;
    }
    *write(&range.sources) = Arc::new(sources);
    let record = lock(&range.numbering).record;
    let entries = vec![
        container_entry(container, &container.info(), &container.ranges(), &container.past_ttls()),
        crate::catalog::range_entry(range.segment, &record),
    ];
    write_and_wait(inner, entries)
}

fn has_history(inner: &Inner, source: &Source) -> Result<bool> {
    let section = Section {
        table: Table::History,
        from: Place::first_after(source.segment, Lsn::ZERO).to_vec(),
        to: Place::end_of_segment(source.segment),
    };
    let looked = look(inner, section)?;
    Ok(!looked.entries.is_empty() || looked.next.is_some())
}

/// A key that divides what a range holds, by looking at where its numeric middle falls among the stored items.
fn middle_of_stored(
    inner: &Inner,
    container: &ContainerState,
    range: &RangeState,
) -> Result<Option<EffectiveKey>> {
    let Some(middle) = range.keys.middle() else { return Ok(None) };
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
