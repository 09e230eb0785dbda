//! Versions that are older than the retention.

use std::sync::Arc;

use millstream_core::{Lsn, Result};

use crate::buffer::Entry;
use crate::containers::container_entry;
use crate::engine::{lock, write};
use crate::keys::Place;
use crate::maintenance::{StepOutcome, Waiter, look, write_and_wait};
use crate::records::{Floor, HistoryRecord, RangeRecord};
use crate::state::{ContainerState, RangeState, Source};
use crate::store::Inner;
use crate::tables::Table;
use crate::view::Section;

pub(crate) fn trim_step(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
) -> Result<StepOutcome> {
    let retention = container.info().settings.all_versions_retention;
    let now = inner.now();
    let mut outcome = StepOutcome::Done;
    let sources = range.sources();
    for segment in std::iter::once(range.segment).chain(sources.iter().map(|it| it.segment)) {
        let section = Section {
            table: Table::History,
            from: Place::first_after(segment, Lsn::ZERO).to_vec(),
            to: Place::end_of_segment(segment),
        };
        let looked = look(inner, section)?;
        let more = looked.next.is_some();
        let is_old = |value: &[u8]| {
            let time = HistoryRecord::peek(value).map(|it| it.0);
            time.is_none_or(|it| retention <= now.since(it))
        };
        let count = looked.entries.len();
        let old: Vec<_> = looked.entries.into_iter().take_while(|it| is_old(&it.1)).collect();
        let Some(floor) = old.last().and_then(|it| floor_at(&it.0, &it.1)) else { continue };
        let removed = old.iter().map(|it| Entry::remove(Table::History, it.0.clone())).collect();
        let is_live = if segment == range.segment {
            trim_own(inner, range, floor, removed)?
        } else {
            trim_source(inner, container, range, segment, floor, removed)?
        };
        if !is_live {
            return Ok(StepOutcome::Done);
        }
        if more && count == old.len() {
            outcome = StepOutcome::More;
        }
    }
    Ok(outcome)
}

fn floor_at(key: &[u8], value: &[u8]) -> Option<Floor> {
    let time_ms = HistoryRecord::peek(value)?.0.as_millis();
    Some(Floor { lsn: Place::from_key(key)?.lsn, time_ms })
}

/// The floor is raised in the same write that removes what lies below it. False if the range has
/// successors, whose floor it would have to be.
fn trim_own(
    inner: &Inner,
    range: &Arc<RangeState>,
    floor: Floor,
    entries: Vec<Entry>,
) -> Result<bool> {
    let mut numbering = lock(&range.numbering);
    if numbering.is_closed {
        return Ok(false);
    }
    let history_floor = numbering.record.history_floor.max(floor);
    let record = RangeRecord { history_floor, ..numbering.record };
    let (waiter, completion) = Waiter::new(|| {});
    inner.engine.enqueue(entries, [(range.segment, record)], completion)?;
    numbering.record = record;
    drop(numbering);
    waiter.wait().map(|()| true)
}

fn trim_source(
    inner: &Arc<Inner>,
    container: &Arc<ContainerState>,
    range: &Arc<RangeState>,
    segment: u32,
    floor: Floor,
    mut entries: Vec<Entry>,
) -> Result<bool> {
    let _guard = inner.changes.lock_blocking();
    if !container.has_live(range) {
        return Ok(false);
    }
    // A segment may be a source of several ranges; what is removed is removed for all of them.
    for sibling in container.ranges().iter() {
        let raised: Vec<Source> =
            sibling.sources().iter().cloned().map(|it| raise(it, segment, floor)).collect();
        *write(&sibling.sources) = Arc::new(raised);
    }
    entries.push(container_entry(
        container,
        &container.info(),
        &container.ranges(),
        &container.past_ttls(),
    ));
    write_and_wait(inner, entries).map(|()| true)
}

fn raise(source: Source, segment: u32, floor: Floor) -> Source {
    if source.segment != segment {
        return source;
    }
    Source { history_floor: source.history_floor.max(floor), ..source }
}
