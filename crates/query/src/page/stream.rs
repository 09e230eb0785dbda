//! Queries whose rows go on as the documents come.
//!
//! After a split a continuation goes on in each part with the documents of the part. Where rows
//! are counted, because there is an OFFSET, a LIMIT or a TOP, each part counts those of all parts,
//! so that together they return as many as the whole would have.

use std::ops::ControlFlow;

use crate::Page;
use crate::continuation::{Position, State};
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::page::reader::{Batch, Pace, Reader};
use crate::page::{Run, identity};
use crate::select::{Stage, window};

/// How a page ended within a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// LIMIT or TOP is reached.
    Complete,
    /// The page is full; so many rows of the document have passed.
    Full(u64),
}

/// A page in the making.
struct Making {
    page: Page,
    bytes: usize,
    /// Rows that have passed since the first page.
    passed: u64,
    offset: u64,
    /// Rows after which there are no more.
    passed_max: u64,
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
    let mut making =
        Making { page: Page::default(), bytes: 0, passed: run.passed, offset, passed_max };
    let mut begun = seek(&mut reader, state)?;
    if making.passed_max <= making.passed {
        return Ok(making.page);
    }
    let mut pace = Pace::new(&run.limits);
    while let Some(batch) = reader.next(making.wanted(run)).await? {
        for (index, item) in batch.items.iter().enumerate() {
            let is_spent = run.limits.documents_max <= making.page.documents_visited
                || evaluator.context.steps_left() < run.steps_soft();
            if is_spent && 0 < making.page.documents_visited {
                return Ok(making.suspend(run, batch.before(index)));
            }
            pace.keep(evaluator.context.steps_left()).await;
            making.page.documents_visited += 1;
            let is_seen = run.sees(item)?;
            if !is_seen && limit.is_none() {
                continue;
            }
            let (document, size, place) = run.document(item)?;
            making.page.documents_read += run.bodies();
            making.page.bytes_visited += size;
            let skipped =
                begun.take().map_or(
                    0,
                    |(partition, id, rows)| {
                        if (partition, id) == identity(item) { rows } else { 0 }
                    },
                );
            let mut rows = 0;
            let mut end = None;
            let _ = evaluator.feed(&mut stages, &document, &place, &mut |evaluator, value| {
                rows += 1;
                if rows <= skipped {
                    return Ok(ControlFlow::Continue(()));
                }
                end = match is_seen {
                    true => making.take(run, rows, || evaluator.text(&value))?,
                    false => making.pass(),
                };
                Ok(if end.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            match end {
                None => (),
                Some(End::Complete) => return Ok(making.page),
                Some(End::Full(rows)) => {
                    return Ok(making.suspend(run, within(&batch, index, rows)));
                }
            }
        }
        // A page that is full looks no further than what it has read already.
        let is_spent = run.limits.documents_max <= making.page.documents_visited;
        if making.is_full(run) || is_spent {
            return Ok(making.suspend(run, batch.before(batch.items.len())));
        }
    }
    Ok(making.page)
}

/// Goes on where the page before ended; the document that is not done yet.
fn seek(reader: &mut Reader<'_>, state: Option<State>) -> Result<Option<(String, String, u64)>> {
    match state {
        None => Ok(None),
        Some(State::Documents(position)) => {
            reader.seek(&position)?;
            Ok(position.begun)
        }
        Some(State::Behind(..) | State::Counted | State::Groups(..) | State::Partial(..)) => {
            Err(Error::continuation("the continuation is of another kind of query"))
        }
    }
}

/// The place within a document, after some of its rows.
fn within(batch: &Batch, index: usize, rows: u64) -> Option<Position> {
    let position = batch.before(index)?;
    if rows == 0 {
        return Some(position);
    }
    let (partition, id) = identity(&batch.items[index]);
    Some(Position { begun: Some((partition, id, rows)), ..position })
}

impl Making {
    /// How many documents the rest of the page will need, and one to see whether there are more.
    fn wanted(&self, run: &Run<'_>) -> usize {
        if run.select.filter.is_some() {
            return usize::MAX;
        }
        let offset = self.offset.saturating_sub(self.passed);
        let rest = run.limits.items_max.saturating_sub(self.page.rows.len()).saturating_add(1);
        // Nobody has to see whether there is more after the last row of LIMIT.
        let rest = u64::try_from(rest).unwrap_or(u64::MAX).saturating_add(offset);
        let rest = rest.min(self.passed_max.saturating_sub(self.passed));
        usize::try_from(rest).unwrap_or(usize::MAX)
    }

    fn is_full(&self, run: &Run<'_>) -> bool {
        run.limits.items_max <= self.page.rows.len()
            || (!self.page.rows.is_empty() && run.limits.bytes_max <= self.bytes)
    }

    /// Takes a row; `rows` counts those of its document with this one.
    fn take(
        &mut self,
        run: &Run<'_>,
        rows: u64,
        text: impl FnOnce() -> Result<String>,
    ) -> Result<Option<End>> {
        if self.passed < self.offset {
            // Of LIMIT 0 the last row that OFFSET leaves out is the end.
            return Ok(self.pass());
        }
        if self.is_full(run) {
            return Ok(Some(End::Full(rows - 1)));
        }
        let text = text()?;
        // A row that does not fit waits for the next page, unless it would fit no page.
        let is_too_large = run.limits.bytes_max < self.bytes.saturating_add(text.len());
        if is_too_large && !self.page.rows.is_empty() {
            return Ok(Some(End::Full(rows - 1)));
        }
        self.bytes += text.len();
        self.page.rows.push(text);
        Ok(self.pass())
    }

    /// Counts a row.
    fn pass(&mut self) -> Option<End> {
        self.passed += 1;
        (self.passed_max <= self.passed).then_some(End::Complete)
    }

    fn suspend(mut self, run: &Run<'_>, position: Option<Position>) -> Page {
        self.page.continuation =
            position.map(|it| run.token(self.passed, State::Documents(it)).write());
        self.page
    }
}
