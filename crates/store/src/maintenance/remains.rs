//! Remains of deleted containers, and items whose expiry changed with the settings of their
//! container.

use std::sync::Arc;

use millstream_core::{Result, TimeToLive};

use crate::buffer::Entry;
use crate::commit::decode_item;
use crate::containers::container_entry;
use crate::engine::{lock, read, write};
use crate::keys::{self, Place};
use crate::maintenance::{StepOutcome, look, write_and_wait};
use crate::state::{ContainerState, PastTtl};
use crate::store::Inner;
use crate::tables::Table;
use crate::view::Section;

/// Removes some entries of a deleted container.
pub(crate) fn remove_dropped(inner: &Arc<Inner>) -> Result<StepOutcome> {
    let first = read(&inner.catalog).dropped.first_key_value().map(|it| (*it.0, it.1.clone()));
    let Some((container, dropped)) = first else { return Ok(StepOutcome::Done) };
    let prefix = container.to_be_bytes().to_vec();
    let mut sections = Vec::new();
    for table in [Table::Items, Table::Sequences] {
        sections.push(Section { table, from: prefix.clone(), to: keys::prefix_end(container) });
    }
    for segment in &dropped.segments {
        for table in [Table::Feed, Table::History] {
            let from = segment.to_be_bytes().to_vec();
            sections.push(Section { table, from, to: Place::end_of_segment(*segment) });
        }
    }
    for section in sections {
        let table = section.table;
        let looked = look(inner, section)?;
        if looked.entries.is_empty() && looked.next.is_none() {
            continue;
        }
        // Expiries of these items are found to be stale when their time comes.
        let removed = looked.entries.into_iter().map(|it| Entry::remove(table, it.0)).collect();
        write_and_wait(inner, removed)?;
        return Ok(StepOutcome::More);
    }
    let mut entries = vec![Entry::remove(Table::Meta, keys::dropped(container))];
    entries.extend(dropped.segments.iter().map(|it| Entry::remove(Table::Meta, keys::range(*it))));
    write_and_wait(inner, entries)?;
    write(&inner.catalog).dropped.remove(&container);
    Ok(StepOutcome::More)
}

/// Gives every item of a container whose default TTL changed an expiry to be looked at.
///
/// An expiry that was there before and no longer holds is found to be stale when its time comes.
/// What had expired before the change is purged in the same pass; once nothing of that kind is
/// found, the earlier TTLs are forgotten.
pub(crate) fn apply_changed_expiry(inner: &Arc<Inner>) -> Result<StepOutcome> {
    let changed: Vec<u32> = read(&inner.catalog).expiry_changed.keys().copied().collect();
    for id in changed {
        let Some(container) = read(&inner.catalog).container(id).cloned() else { continue };
        let (ttl, past_ttls) = (container.info().settings.default_ttl, container.past_ttls());
        wait_for_commits(inner, &container)?;
        let Some(ended) = schedule_expiries(inner, &container, ttl, &past_ttls)? else {
            return Ok(StepOutcome::Done);
        };
        if 0 < ended {
            continue;
        }
        let _guard = inner.changes.lock_blocking();
        let (info, ranges) = (container.info(), container.ranges());
        let is_same = info.settings.default_ttl == ttl && container.past_ttls() == past_ttls;
        if !is_same || container.check_exists().is_err() {
            continue;
        }
        let entries = vec![
            Entry::remove(Table::Meta, keys::expiry_changed(id)),
            container_entry(&container, &info, &ranges, &[]),
        ];
        write_and_wait(inner, entries)?;
        *write(&container.past_ttls) = Arc::default();
        write(&inner.catalog).expiry_changed.remove(&id);
    }
    Ok(StepOutcome::Done)
}

/// Returns when every commit that knew the settings before is visible.
fn wait_for_commits(inner: &Inner, container: &ContainerState) -> Result<()> {
    for range in container.ranges().iter() {
        drop(lock(&range.numbering));
    }
    write_and_wait(inner, Vec::new())
}

/// Returns how many items had expired by an earlier TTL; none if the store is being closed.
fn schedule_expiries(
    inner: &Inner,
    container: &ContainerState,
    ttl: Option<TimeToLive>,
    past_ttls: &[PastTtl],
) -> Result<Option<usize>> {
    let is_guarded = !read(&container.guards).names().is_empty();
    let container = container.id;
    let mut ended = 0;
    let mut from = container.to_be_bytes().to_vec();
    loop {
        let section = Section { table: Table::Items, from, to: keys::prefix_end(container) };
        let looked = look(inner, section)?;
        let mut entries = Vec::new();
        for (key, value) in &looked.entries {
            let stamp = decode_item(value)?.stamp;
            let has_ended = past_ttls.iter().any(|it| it.has_ended(&stamp));
            // An event that a reader may hold lives on by the new TTL, as long as it is held
            // anyway.
            ended += usize::from(has_ended && !(is_guarded && stamp.sequence.is_some()));
            let at = if has_ended { Some(inner.now()) } else { stamp.expiry(ttl) };
            if let Some(at) = at {
                let key = keys::expiry(at.max(inner.now()), key);
                entries.push(Entry::put(Table::Expiry, key, []));
            }
        }
        if !entries.is_empty() {
            write_and_wait(inner, entries)?;
        }
        match looked.next {
            None => return Ok(Some(ended)),
            Some(_) if inner.is_closing() => return Ok(None),
            Some(next) => from = next,
        }
    }
}
