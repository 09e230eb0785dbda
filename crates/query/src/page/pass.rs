//! Queries that need a look at every document before their first row.
//!
//! Without an index each page looks at every document again. What it keeps of them is bounded by
//! the page where the rows have an order that the next page can go on in: see [`Paging`].
//!
//! After a split a continuation goes on in each part. What sorts alone reads the documents of the
//! part. Values that are there once and groups may come from several parts, and rows up to a limit
//! are counted over all of them: there each part makes the pages of the whole, and returns what
//! comes first from its own documents. Together they return each row once, and no part keeps more
//! than before, but its pages may be empty.

use std::ops::ControlFlow;

use crate::aggregate::Accumulator;
use crate::ast::{Projection, Select};
use crate::continuation::{Position, State, TEXT_BYTES_MAX};
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::gather::{Finished, Floor, Gathered, GroupKey, Place, Row};
use crate::page::reader::{Pace, Reader};
use crate::page::{Run, rid_number};
use crate::select::{Stage, reads_documents, window};
use crate::value::Value;
use crate::{Page, ResumeFilter, json};

/// How rows come onto pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paging {
    /// By what they are sorted by: a page keeps what it can need, and the next one goes on behind
    /// its last row.
    Sorted,
    /// By what they are grouped by, likewise.
    Grouped,
    /// As they come, once each: a page ends as soon as it is full, and the next one counts those
    /// that have passed.
    Distinct,
    /// One row, whose making may take several pages.
    Summed,
    /// In no order that the next page could go on in: everything is kept, and what has passed is
    /// counted.
    Whole,
}

pub(crate) async fn page(
    run: &Run<'_>,
    mut evaluator: Evaluator<'_>,
    mut stages: Vec<Stage<'_>>,
    mut reader: Reader<'_>,
    state: Option<State>,
) -> Result<Page> {
    let (offset, limit) = window(run.select, run.parameters)?;
    let passed_max = limit.map_or(u64::MAX, |it| offset.saturating_add(it));
    let mut page = Page::default();
    if passed_max <= run.passed {
        return Ok(page);
    }
    let paging = Paging::of(run, stages.len());
    let keep = Keep::new(run, offset, passed_max, state.as_ref(), paging);
    prepare(run, &mut stages, &mut reader, state.as_ref(), paging, &keep)?;

    if !reads_documents(run.select) {
        let _ = evaluator.feed(&mut stages, &Value::Undefined, &Place::nowhere(), &mut nothing)?;
    }
    let mut pace = Pace::new(&run.limits);
    // How many documents have to be visited before it is tried to pause. No continuation has the
    // row that a query within an aggregate looks at.
    let can_pause = paging == Paging::Summed && !run.select.looks_at_rows;
    let mut pause_from = if can_pause { 1 } else { u64::MAX };
    'documents: while let Some(batch) = reader.next(usize::MAX).await? {
        for (index, item) in batch.items.iter().enumerate() {
            let is_spent = run.limits.documents_max <= page.documents_visited
                || evaluator.context.steps_left() < run.steps_soft();
            if is_spent && pause_from <= page.documents_visited {
                if let Some(text) = partial(run, &stages, batch.before(index)) {
                    page.continuation = Some(text);
                    return Ok(page);
                }
                // What is too long for a continuation may become shorter, but to write it before
                // each further document would take more time than these do.
                pause_from = page.documents_visited.saturating_mul(2);
            }
            if run.limits.pass_documents_max <= page.documents_visited {
                return Err(too_many(run));
            }
            pace.keep(evaluator.context.steps_left()).await;
            page.documents_visited += 1;
            if !keep.is_divided && !run.sees(item)? {
                continue;
            }
            let (document, size, place) = run.document(item)?;
            page.documents_read += run.bodies();
            page.bytes_visited += size;
            let flow = evaluator.feed(&mut stages, &document, &place, &mut nothing)?;
            if flow.is_break() {
                break 'documents;
            }
            let Some(gathered) = stages.last_mut().and_then(Stage::gathered_mut) else { continue };
            match paging {
                Paging::Sorted => keep.prune(run, gathered),
                Paging::Distinct if keep.is_filled(run, gathered) => break 'documents,
                Paging::Distinct | Paging::Grouped | Paging::Summed | Paging::Whole => (),
            }
        }
    }
    let finished = finish(run, &mut evaluator, &mut stages)?;
    answer(run, page, &finished, &keep, paging)
}

/// What comes out of stages whose last one gathers.
fn nothing(_: &mut Evaluator<'_>, _: Value) -> Result<ControlFlow<()>> {
    Ok(ControlFlow::Continue(()))
}

impl Paging {
    fn of(run: &Run<'_>, stages: usize) -> Self {
        let select = run.select;
        let (is_sorted, is_distinct) = (!select.order_by.is_empty(), select.is_distinct);
        if 1 < stages {
            return Self::Whole;
        }
        if select.is_grouped() {
            return match select.group_by.is_empty() {
                true => Self::Summed,
                false if is_sorted || is_distinct => Self::Whole,
                false => Self::Grouped,
            };
        }
        // A resume filter tells rows with equal keys apart by the document they come from.
        let is_by_value = is_sorted_by_value(select) && run.request.resume.is_none();
        match (is_sorted, is_distinct) {
            (true, false) => Self::Sorted,
            (true, true) if is_by_value => Self::Sorted,
            (true, true) | (false, false) => Self::Whole,
            (false, true) => Self::Distinct,
        }
    }
}

/// Whether rows that are equal are sorted by equal keys, so that all of them lie at one place.
fn is_sorted_by_value(select: &Select) -> bool {
    let texts: Vec<String> = match &select.projection {
        Projection::Star => return select.sources.len() == 1,
        Projection::Value(expression) => vec![expression.to_string()],
        Projection::List(list) => list.iter().map(|it| it.expression.to_string()).collect(),
    };
    select.order_by.iter().all(|it| texts.contains(&it.expression.to_string()))
}

/// Goes on where the continuation or the resume filter says.
fn prepare(
    run: &Run<'_>,
    stages: &mut [Stage<'_>],
    reader: &mut Reader<'_>,
    state: Option<&State>,
    paging: Paging,
    keep: &Keep,
) -> Result<()> {
    let wrong = || Error::continuation("the continuation is of another kind of query");
    // A sum would be in every part, and rows of nested queries are of no document.
    let has_documents =
        stages.len() == 1 && paging != Paging::Summed && reads_documents(run.select);
    if keep.is_divided && !has_documents {
        let reason = "the keys of the query have been divided since; start it again";
        return Err(Error::continuation(reason));
    }
    let Some(last) = stages.last_mut() else { return Ok(()) };
    // Rows are kept to the end even if the last query alone would pass them on.
    let gathered = last.gathered.get_or_insert_default();
    gathered.is_last = true;
    match paging {
        Paging::Sorted => {
            gathered.is_by_value = run.select.is_distinct;
            gathered.rows_min = Some(keep.rows_min(run));
        }
        Paging::Grouped => {
            gathered.groups_passed = keep.groups_passed;
            let wanted = keep.skipped.saturating_add(keep.wanted);
            gathered.groups_max = Some(keep.groups_passed.saturating_add(wanted));
            gathered.groups_after = keep.groups_after.clone().map(GroupKey::new);
        }
        Paging::Distinct => gathered.left_out = keep.skipped,
        Paging::Summed | Paging::Whole => (),
    }
    if let Some(filter) = run.request.resume {
        gathered.floors.push(floor(run.select, filter)?);
    }
    match state {
        Some(State::Counted) if paging == Paging::Grouped => Err(wrong()),
        None | Some(State::Counted) => Ok(()),
        Some(State::Behind(keys, place, count)) => match paging {
            Paging::Sorted if run.select.order_by.len() == keys.len() => {
                gathered.floors.push(Floor::Row { keys: keys.clone(), place: place.clone() });
                Ok(())
            }
            Paging::Grouped if run.select.group_by.len() == keys.len() && *count == 0 => Ok(()),
            Paging::Sorted
            | Paging::Grouped
            | Paging::Distinct
            | Paging::Summed
            | Paging::Whole => Err(wrong()),
        },
        Some(State::Groups(after, _)) => {
            let is_ours = after.as_ref().is_none_or(|it| it.len() == run.select.group_by.len());
            if is_ours && paging == Paging::Grouped { Ok(()) } else { Err(wrong()) }
        }
        Some(State::Partial(position, states)) => {
            let kinds = run.select.aggregates.iter().map(|it| it.kind);
            if states.len() != run.select.aggregates.len() || paging != Paging::Summed {
                return Err(wrong());
            }
            let restored: Option<Vec<Accumulator>> =
                kinds.zip(states).map(|(kind, it)| Accumulator::restore(kind, it)).collect();
            gathered.resume(restored.ok_or_else(wrong)?);
            reader.seek(position)
        }
        Some(State::Documents(_)) => Err(wrong()),
    }
}

fn floor(select: &Select, filter: &ResumeFilter) -> Result<Floor> {
    if select.order_by.len() != filter.values.len() {
        let reason = "the resume filter has another number of values than ORDER BY";
        return Err(Error::invalid("resume the query", reason));
    }
    let number = filter.rid.as_deref().map(|it| rid_number(it).unwrap_or_default());
    let (keys, is_exclusive) = (filter.values.clone(), filter.is_exclusive);
    Ok(Floor::Filter { keys, number, is_exclusive })
}

/// The continuation of aggregates in the middle of the documents, if their state is short enough.
fn partial(run: &Run<'_>, stages: &[Stage<'_>], position: Option<Position>) -> Option<String> {
    let gathered = stages.first()?.gathered.as_ref()?;
    let states = match gathered.accumulators() {
        Some(accumulators) => {
            // What would be too long is not even written.
            let bytes: usize = accumulators.iter().map(|it| it.held().text).sum();
            if run.limits.continuation_bytes_max < bytes {
                return None;
            }
            accumulators.iter().map(Accumulator::save).collect()
        }
        // No row has passed the filter yet.
        None => run.select.aggregates.iter().map(|it| Accumulator::new(it.kind).save()).collect(),
    };
    let text = run.token(run.passed, State::Partial(position?, states)).write();
    (text.len() <= run.limits.continuation_bytes_max).then_some(text)
}

fn finish(
    run: &Run<'_>,
    evaluator: &mut Evaluator<'_>,
    stages: &mut [Stage<'_>],
) -> Result<Finished> {
    let Some((last, inner)) = stages.split_last_mut() else {
        return Ok(Finished::default());
    };
    if !inner.is_empty() {
        evaluator.finish_into(inner, last)?;
    }
    let gathered = last.gathered.take().unwrap_or_default();
    evaluator.context.begin();
    evaluator.bindings.clear();
    gathered.finish(run.select, evaluator)
}

/// Which of the rows this page can need.
struct Keep {
    /// Rows that have passed and do not come again: those up to `behind`.
    before: u64,
    behind: Option<(Vec<Value>, Place)>,
    /// Rows that come before those of the page.
    skipped: usize,
    /// Rows of the page at most, and one to see whether there are more.
    wanted: usize,
    passed_max: u64,
    /// What groups come after, and how many of those have passed.
    groups_after: Option<Vec<Value>>,
    groups_passed: usize,
    /// Whether the page is that of the whole, of which a part returns what its documents gave.
    is_divided: bool,
}

impl Keep {
    fn new(
        run: &Run<'_>,
        offset: u64,
        passed_max: u64,
        state: Option<&State>,
        paging: Paging,
    ) -> Self {
        // Rows behind the last one of a page before do not come again; others do.
        let (mut before, mut behind, mut is_counted) = (0, None, true);
        let (groups_after, groups_passed) = match state {
            Some(State::Behind(keys, place, count)) => {
                (before, is_counted) = (run.passed.saturating_sub(*count), 0 < *count);
                behind = Some((keys.clone(), place.clone()));
                (Some(keys.clone()), 0)
            }
            Some(State::Groups(after, count)) => {
                before = run.passed;
                (after.clone(), *count)
            }
            None | Some(State::Documents(_) | State::Counted | State::Partial(..)) => (None, 0),
        };
        let skipped = offset.max(run.passed).saturating_sub(before);
        let left = passed_max.saturating_sub(offset.max(run.passed));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // Rows that are of one document each go on behind a row in each part by itself, unless
        // they are counted.
        let is_sorted_alone = paging == Paging::Sorted && !run.select.is_distinct;
        let is_of_part = !is_counted && is_sorted_alone && passed_max == u64::MAX;
        Self {
            before,
            behind,
            skipped: usize::try_from(skipped).unwrap_or(usize::MAX),
            wanted: run.limits.items_max.min(left).saturating_add(1),
            passed_max,
            groups_after,
            groups_passed: usize::try_from(groups_passed).unwrap_or(usize::MAX),
            is_divided: run.part != run.scope && !is_of_part,
        }
    }

    /// Rows that have passed before the first of this page.
    fn start(&self) -> u64 {
        self.before.saturating_add(u64::try_from(self.skipped).unwrap_or(u64::MAX))
    }

    /// Rows without which the page could not go on behind the one before: one more than those that
    /// are counted again.
    fn rows_min(&self, run: &Run<'_>) -> usize {
        let counted = run.passed.saturating_sub(self.before);
        usize::try_from(counted).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Whether so many of the first rows or groups of this page can be counted again by the next
    /// one, which has to keep all of them to do so. What a part of a range has counted means
    /// nothing to the whole.
    fn can_count(&self, run: &Run<'_>, finished: &Finished, count: u64) -> bool {
        let is_alone = run.part != run.scope && !self.is_divided;
        let needed = usize::try_from(count).map_or(usize::MAX, |it| finished.bytes_of_first(it));
        let is_little = needed < run.limits.held_bytes_max / 2;
        !is_alone && !finished.is_shed && is_little
    }

    /// Drops rows that cannot come onto the page, now and then.
    fn prune(&self, run: &Run<'_>, gathered: &mut Gathered) {
        const ROWS_MIN: usize = 256;
        let rows_max = self.skipped.saturating_add(self.wanted);
        let rows_max = gathered.rows_max.map_or(rows_max, |it| it.min(rows_max));
        let is_long = rows_max.saturating_mul(2).max(ROWS_MIN) < gathered.rows.len();
        let is_large = run.limits.bytes_max.saturating_mul(2) < gathered.held - gathered.kept;
        if !is_long && !is_large {
            return;
        }
        gathered.rows.sort_by(|one, two| one.compare(two, run.select));
        gathered.rows.truncate(rows_max);
        let mut bytes: usize = 0;
        let mut fitting = self.skipped.min(gathered.rows.len());
        for row in &gathered.rows[fitting..] {
            if run.limits.bytes_max < bytes {
                break;
            }
            // What counts is the text of the page; an estimate could drop the row after it.
            bytes = bytes.saturating_add(json::to_string(&row.value).len());
            fitting += 1;
        }
        // One more, so that it shows whether there is a next page.
        gathered.rows.truncate(fitting.saturating_add(1));
        gathered.settle();
    }

    /// Whether rows that come as they are fill the page, and whether there are more is known.
    fn is_filled(&self, run: &Run<'_>, gathered: &mut Gathered) -> bool {
        let is_end = u64::try_from(gathered.rows.len())
            .is_ok_and(|it| self.passed_max <= self.start().saturating_add(it));
        if is_end || self.wanted <= gathered.rows.len() {
            return true;
        }
        if gathered.held - gathered.kept <= run.limits.bytes_max {
            return false;
        }
        gathered.kept = gathered.held;
        let bytes: usize = gathered.rows.iter().map(|it| json::to_string(&it.value).len()).sum();
        1 < gathered.rows.len() && run.limits.bytes_max < bytes
    }
}

/// Cuts the page out of the rows.
fn answer(
    run: &Run<'_>,
    mut page: Page,
    finished: &Finished,
    keep: &Keep,
    paging: Paging,
) -> Result<Page> {
    let mut bytes: usize = 0;
    let mut last: Option<&Row> = None;
    // Those that were told apart and have passed were not kept.
    let skipped = if paging == Paging::Distinct { 0 } else { keep.skipped };
    let rows = finished.rows.iter().skip(skipped);
    for ((passed, row), before) in (keep.start()..keep.passed_max).zip(rows).zip(0..) {
        let text = json::to_string(&row.value);
        let is_too_large = run.limits.bytes_max < bytes.saturating_add(text.len());
        let is_full = run.limits.items_max <= before || (is_too_large && 0 < before);
        if is_full {
            let behind = last.map(|it| (it.keys.clone(), it.place.clone()));
            page.continuation = Some(next(run, passed, behind, paging, keep, finished)?);
            return Ok(page);
        }
        bytes += text.len();
        last = Some(row);
        // Rows of other parts count, as only so many are kept.
        if !keep.is_divided || run.holds(row)? {
            page.rows.push(text);
        }
    }
    // Where some were left to the next page there is room on this one, and where groups have no
    // row.
    let rows = u64::try_from(finished.rows.len()).unwrap_or(u64::MAX);
    let passed = keep.before.saturating_add(rows);
    if finished.cut_behind.is_some() && passed < keep.passed_max {
        let behind = finished.cut_behind.clone();
        page.continuation = Some(next(run, passed, behind, paging, keep, finished)?);
    }
    Ok(page)
}

/// The continuation behind the row with these keys at this place.
fn next(
    run: &Run<'_>,
    passed: u64,
    behind: Option<(Vec<Value>, Place)>,
    paging: Paging,
    keep: &Keep,
    finished: &Finished,
) -> Result<String> {
    let text = |state| run.token(passed, state).write();
    let Some((keys, place)) = behind else { return Ok(text(State::Counted)) };
    // What is shorter, since it says how many rows or groups come before instead of which.
    let (counted, count) = match paging {
        Paging::Sorted => {
            let count = passed.saturating_sub(keep.before);
            let counted = match &keep.behind {
                Some((keys, place)) => State::Behind(keys.clone(), place.clone(), count),
                None => State::Counted,
            };
            (counted, count)
        }
        Paging::Grouped => (State::Groups(keep.groups_after.clone(), place.row), place.row),
        Paging::Distinct | Paging::Summed | Paging::Whole => return Ok(text(State::Counted)),
    };
    let can_count = keep.can_count(run, finished, count);
    let behind = text(State::Behind(keys, place, 0));
    if behind.len() <= run.limits.continuation_bytes_max {
        return Ok(behind);
    }
    let counted = text(counted);
    if can_count && counted.len() < behind.len().min(TEXT_BYTES_MAX) {
        return Ok(counted);
    }
    // Where there is no other way it may be longer than it should.
    if behind.len() <= TEXT_BYTES_MAX {
        return Ok(behind);
    }
    Err(Error::too_large("the values of ORDER BY or GROUP BY are too long for a continuation"))
}

fn too_many(run: &Run<'_>) -> Error {
    Error::too_large(format!(
        "it would have to look at more than {} documents before its first row; filter more",
        run.limits.pass_documents_max
    ))
}
