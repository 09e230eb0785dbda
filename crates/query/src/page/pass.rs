//! Queries that need a look at every document before their first row.

use std::ops::ControlFlow;

use crate::aggregate::Accumulator;
use crate::continuation::{Position, State};
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::gather::{Floor, Gathered, Place, Row};
use crate::page::reader::Reader;
use crate::page::{Run, rid_number};
use crate::select::{Stage, reads_documents, window};
use crate::value::Value;
use crate::{Page, json};

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
    let is_sorted = stages.len() == 1
        && !run.select.order_by.is_empty()
        && !run.select.is_distinct
        && !run.select.is_grouped();
    let keep = Keep::new(run, offset, passed_max, state.as_ref());
    prepare(run, &mut stages, &mut reader, state.as_ref(), is_sorted)?;
    let is_summed = stages.len() == 1 && run.select.is_grouped() && run.select.group_by.is_empty();

    if !reads_documents(run.select) {
        let _ = evaluator.feed(&mut stages, &Value::Undefined, &Place::nowhere(), &mut nothing)?;
    }
    'documents: while let Some(batch) = reader.next(usize::MAX).await? {
        for (index, item) in batch.items.iter().enumerate() {
            let is_spent = run.limits.documents_max <= page.documents_visited
                || evaluator.context.steps_left() < run.steps_soft();
            if is_summed
                && is_spent
                && 0 < page.documents_visited
                && let Some(text) = partial(run, &stages, batch.before(index))
            {
                page.continuation = Some(text);
                return Ok(page);
            }
            if run.limits.pass_documents_max <= page.documents_visited {
                return Err(too_many(run));
            }
            page.documents_visited += 1;
            if !run.sees(item)? {
                continue;
            }
            let (document, size, place) = run.document(item)?;
            page.bytes_visited += size;
            let flow = evaluator.feed(&mut stages, &document, &place, &mut nothing)?;
            if flow.is_break() {
                break 'documents;
            }
            if is_sorted && let Some(gathered) = stages.last_mut().and_then(Stage::gathered_mut) {
                keep.prune(run, gathered);
            }
        }
    }
    let rows = finish(run, &mut evaluator, &mut stages)?;
    Ok(answer(run, page, &rows, &keep, is_sorted))
}

/// What comes out of stages whose last one gathers.
fn nothing(_: &mut Evaluator<'_>, _: Value) -> Result<ControlFlow<()>> {
    Ok(ControlFlow::Continue(()))
}

/// Goes on where the continuation or the resume filter says.
fn prepare(
    run: &Run<'_>,
    stages: &mut [Stage<'_>],
    reader: &mut Reader<'_>,
    state: Option<&State>,
    is_sorted: bool,
) -> Result<()> {
    let wrong = || Error::continuation("the continuation is of another kind of query");
    let Some(last) = stages.last_mut() else { return Ok(()) };
    // Rows are kept to the end even if the last query alone would pass them on.
    let gathered = last.gathered.get_or_insert_default();
    gathered.is_last = true;
    if let Some(filter) = run.request.resume {
        if run.select.order_by.len() != filter.values.len() {
            let reason = "the resume filter has another number of values than ORDER BY";
            return Err(Error::invalid("resume the query", reason));
        }
        let number = filter.rid.as_deref().map(|it| rid_number(it).unwrap_or_default());
        let (keys, is_exclusive) = (filter.values.clone(), filter.is_exclusive);
        gathered.floor = Some(Floor::Filter { keys, number, is_exclusive });
    }
    match state {
        None => Ok(()),
        Some(State::Behind(keys, place)) => {
            if !is_sorted || run.select.order_by.len() != keys.len() {
                return Err(wrong());
            }
            gathered.floor = Some(Floor::Row { keys: keys.clone(), place: place.clone() });
            Ok(())
        }
        // As many rows would be others elsewhere, and a sum would be counted in every part.
        Some(State::Counted | State::Partial(..)) if run.part != run.scope => {
            let reason = "the keys of the query have been divided since; start it again";
            Err(Error::continuation(reason))
        }
        Some(State::Counted) => Ok(()),
        Some(State::Partial(position, states)) => {
            let kinds = run.select.aggregates.iter().map(|it| it.kind);
            if states.len() != run.select.aggregates.len() || !run.select.group_by.is_empty() {
                return Err(wrong());
            }
            let restored: Option<Vec<Accumulator>> =
                kinds.zip(states).map(|(kind, it)| Accumulator::restore(kind, it)).collect();
            last.gathered = Some(Gathered::with_accumulators(restored.ok_or_else(wrong)?));
            reader.seek(position)
        }
        Some(State::Documents(_)) => Err(wrong()),
    }
}

/// The continuation of aggregates in the middle of the documents, if their state is short enough.
fn partial(run: &Run<'_>, stages: &[Stage<'_>], position: Option<Position>) -> Option<String> {
    let gathered = stages.first()?.gathered.as_ref()?;
    let states = match gathered.accumulators() {
        Some(accumulators) => accumulators.iter().map(Accumulator::save).collect(),
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
) -> Result<Vec<Row>> {
    let Some((last, inner)) = stages.split_last_mut() else { return Ok(Vec::new()) };
    if !inner.is_empty() {
        evaluator.finish_into(inner, last)?;
    }
    let gathered = last.gathered.take().unwrap_or_default();
    evaluator.bindings.clear();
    gathered.finish(run.select, evaluator)
}

/// Which of the sorted rows this page can need.
struct Keep {
    /// Rows that come before those of the page.
    skipped: usize,
    /// Rows of the page at most, and one to see whether there are more.
    wanted: usize,
    passed_max: u64,
}

impl Keep {
    fn new(run: &Run<'_>, offset: u64, passed_max: u64, state: Option<&State>) -> Self {
        // Rows behind the last one of the page before do not come again; others do.
        let is_behind = matches!(state, Some(State::Behind(..)));
        let before = if is_behind { run.passed } else { 0 };
        let skipped = offset.max(run.passed).saturating_sub(before);
        let left = passed_max.saturating_sub(offset.max(run.passed));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Self {
            skipped: usize::try_from(skipped).unwrap_or(usize::MAX),
            wanted: run.limits.items_max.min(left).saturating_add(1),
            passed_max,
        }
    }

    /// Drops rows that cannot come onto the page, now and then.
    fn prune(&self, run: &Run<'_>, gathered: &mut Gathered) {
        const ROWS_MIN: usize = 256;
        let rows_max = self.skipped.saturating_add(self.wanted);
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
        gathered.held = gathered.rows.iter().map(Row::size).sum();
        gathered.kept = gathered.held;
    }
}

/// Cuts the page out of all rows.
fn answer(run: &Run<'_>, mut page: Page, rows: &[Row], keep: &Keep, is_sorted: bool) -> Page {
    let mut bytes: usize = 0;
    let mut last: Option<&Row> = None;
    for (passed, row) in (keep.start(run)..keep.passed_max).zip(rows.iter().skip(keep.skipped)) {
        let text = json::to_string(&row.value);
        let is_too_large = run.limits.bytes_max < bytes.saturating_add(text.len());
        let is_full =
            run.limits.items_max <= page.rows.len() || (is_too_large && !page.rows.is_empty());
        if is_full {
            page.continuation = Some(next(run, passed, last, is_sorted));
            return page;
        }
        bytes += text.len();
        page.rows.push(text);
        last = Some(row);
    }
    page
}

impl Keep {
    /// Rows that have passed before the first of this page.
    fn start(&self, run: &Run<'_>) -> u64 {
        let skipped = u64::try_from(self.skipped).unwrap_or(u64::MAX);
        run.passed.max(skipped)
    }
}

fn next(run: &Run<'_>, passed: u64, last: Option<&Row>, is_sorted: bool) -> String {
    if is_sorted && let Some(row) = last {
        let state = State::Behind(row.keys.clone(), row.place.clone());
        let text = run.token(passed, state).write();
        if text.len() <= run.limits.continuation_bytes_max {
            return text;
        }
    }
    run.token(passed, State::Counted).write()
}

fn too_many(run: &Run<'_>) -> Error {
    Error::too_large(format!(
        "it would have to look at more than {} documents before its first row; filter more",
        run.limits.pass_documents_max
    ))
}
