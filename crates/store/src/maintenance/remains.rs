//! Remains of deleted containers, and items whose expiry changed with the settings of their container.

use std::sync::Arc;

use millstream_core::Result;

use crate::buffer::Entry;
use crate::commit::decode_item;
use crate::engine::{read, write};
use crate::keys::{self, Place};
use crate::maintenance::{StepOutcome, look, write_and_wait};
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
pub(crate) fn apply_changed_expiry(inner: &Arc<Inner>) -> Result<StepOutcome> {
    let container = {
        let catalog = read(&inner.catalog);
        let Some((id, ())) = catalog.expiry_changed.first_key_value() else {
            return Ok(StepOutcome::Done);
        };
        (*id, catalog.container(*id).cloned())
    };
    let (id, Some(container)) = container else {
        write(&inner.catalog).expiry_changed.remove(&container.0);
        return Ok(StepOutcome::More);
    };
    let ttl = container.info().settings.default_ttl;
    let mut from = id.to_be_bytes().to_vec();
    loop {
        let section = Section { table: Table::Items, from, to: keys::prefix_end(id) };
        let looked = look(inner, section)?;
        let mut entries = Vec::new();
        for (key, value) in &looked.entries {
            if let Some(at) = decode_item(value)?.stamp.expiry(ttl) {
                let at = at.max(inner.now());
                entries.push(Entry::put(Table::Expiry, keys::expiry(at, key), []));
            }
        }
        if !entries.is_empty() {
            write_and_wait(inner, entries)?;
        }
        match looked.next {
            Some(next) if !inner.is_closing() => from = next,
            Some(_) => return Ok(StepOutcome::Done),
            None => break,
        }
    }
    let _guard = inner.changes.lock_blocking();
    let is_unchanged = container.info().settings.default_ttl == ttl;
    if is_unchanged {
        write_and_wait(inner, vec![Entry::remove(Table::Meta, keys::expiry_changed(id))])?;
        write(&inner.catalog).expiry_changed.remove(&id);
    }
    Ok(StepOutcome::More)
}
