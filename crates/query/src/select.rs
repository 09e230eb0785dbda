//! The rows of queries: within one document, and of many documents in stages.

use std::ops::ControlFlow;

use crate::ast::{Collection, Projection, Select};
use crate::error::Result;
use crate::evaluate::Evaluator;
use crate::gather::{Gathered, Place};
use crate::measure::{self, Parts};
use crate::value::{Object, Value};

/// What is called with each row.
pub(crate) type Visit<'v, 'a> = dyn FnMut(&mut Evaluator<'a>) -> Result<ControlFlow<()>> + 'v;

/// One query of several that are nested in FROM; the innermost reads the documents.
#[derive(Debug)]
pub(crate) struct Stage<'s> {
    pub(crate) select: &'s Select,
    /// None if rows go on as they come.
    pub(crate) gathered: Option<Gathered>,
    /// Rows passed on yet, for TOP, OFFSET and LIMIT of inner queries.
    offset: u64,
    limit: Option<u64>,
}

impl<'a> Evaluator<'a> {
    /// All rows of a query within the document at hand. They are counted as what is held until the
    /// caller takes that back.
    pub(crate) fn rows(&mut self, select: &Select) -> Result<Vec<Value>> {
        let mut stage = Stage::new(select, self)?;
        let mut rows = Vec::new();
        // What is counted of it so far, with what is gathered.
        let (outer, mut counted) = (self.context.held, 0);
        let (mut held, mut parts) = (0, None);
        let _ = self.each_row(select, 0, &mut |evaluator| {
            let sources = evaluator.context.held - counted;
            let flow = stage.take(evaluator, &Place::nowhere(), &mut |evaluator, value| {
                let memory = evaluator.memory(&value)?;
                held += match &mut parts {
                    Some(parts) => evaluator.memory_besides(parts, &value)?,
                    None => memory,
                };
                rows.push(value);
                if evaluator.context.held_bytes_max < sources + held && parts.is_none() {
                    // Many rows can share what the item has; it is seldom worth while to look.
                    let (mut known, root) = (Parts::default(), evaluator.root.clone());
                    evaluator.memory_besides(&mut known, &root)?;
                    held = 0;
                    for row in &rows {
                        held += evaluator.memory_besides(&mut known, row)?;
                    }
                    parts = Some(known);
                }
                Ok(ControlFlow::Continue(()))
            });
            counted = held + stage.gathered.as_ref().map_or(0, |it| it.held);
            evaluator.context.held = sources + counted;
            evaluator.context.check_held(evaluator.context.held)?;
            flow
        })?;
        // Rows of groups are made of these, and are others.
        let makes_rows = select.is_grouped();
        self.context.held = outer + if makes_rows { held } else { counted };
        let _ = stage.finish(self, &mut |evaluator, value| {
            if makes_rows {
                evaluator.context.held += evaluator.memory(&value)?;
                evaluator.context.check_held(evaluator.context.held)?;
            }
            rows.push(value);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Whether a query within the document has rows; stops at the first.
    pub(crate) fn has_rows(&mut self, select: &Select) -> Result<bool> {
        let (mut is_found, outer) = (false, self.context.held);
        if select.is_blocking() || select.is_limited() {
            is_found = !self.rows(select)?.is_empty();
            self.context.held = outer;
            return Ok(is_found);
        }
        let _ = self.each_row(select, 0, &mut |evaluator| {
            let sources = evaluator.context.held;
            is_found = !evaluator.project(select)?.is_undefined();
            evaluator.context.held = sources;
            Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        self.context.held = outer;
        Ok(is_found)
    }

    /// All rows of a query over these documents.
    pub(crate) fn all_rows(&mut self, select: &Select, documents: &[Value]) -> Result<Vec<Value>> {
        let mut stages = stages(select, self)?;
        let mut rows = Vec::new();
        let mut held = 0;
        let mut out = |evaluator: &mut Self, value: Value| {
            held += evaluator.memory(&value)?;
            evaluator.context.check_held(held)?;
            rows.push(value);
            Ok(ControlFlow::Continue(()))
        };
        let is_independent = !reads_documents(select);
        let once = [Value::Undefined];
        for document in if is_independent { &once } else { documents } {
            let flow = self.feed(&mut stages, document, &Place::nowhere(), &mut out)?;
            if flow.is_break() {
                break;
            }
        }
        self.finish(&mut stages, &mut out)?;
        Ok(rows)
    }

    /// Passes a document through the stages; `out` gets what comes out at the end.
    pub(crate) fn feed(
        &mut self,
        stages: &mut [Stage<'_>],
        document: &Value,
        place: &Place,
        out: &mut dyn FnMut(&mut Self, Value) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        // A list of documents says of none which one it is.
        match &*place.document {
            (_, id) if id.is_empty() => self.context.begin(),
            (partition_key, id) => self.context.begin_with(partition_key, id),
        }
        self.root = document.clone();
        self.bindings.clear();
        self.context.held = 0;
        let Some((first, rest)) = stages.split_first_mut() else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut place = place.clone();
        self.each_row(first.select, 0, &mut |evaluator| {
            place.row += 1;
            let (at, sources) = (place.clone(), evaluator.context.held);
            let flow = if rest.is_empty() {
                first.take(evaluator, &at, out)
            } else {
                let outer = evaluator.bindings.clone();
                let flow = first.take(evaluator, &at, &mut |evaluator, value| {
                    evaluator.pass_on(rest, value, &at, out)
                });
                evaluator.bindings = outer;
                flow
            };
            // What becomes of the row is counted where it is kept.
            evaluator.context.held = sources;
            flow
        })
    }

    /// Ends the stages one after the other.
    pub(crate) fn finish(
        &mut self,
        stages: &mut [Stage<'_>],
        out: &mut dyn FnMut(&mut Self, Value) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.context.begin();
        let mut stages = stages;
        while let Some((first, rest)) = stages.split_first_mut() {
            self.bindings.clear();
            let mut place = Place::nowhere();
            let flow = first.finish(self, &mut |evaluator, value| {
                place.row += 1;
                evaluator.pass_on(rest, value, &place, out)
            })?;
            // Whoever has enough of the last stage needs no more of the others.
            if flow.is_break() && rest.is_empty() {
                break;
            }
            stages = rest;
        }
        Ok(())
    }

    /// Ends the inner stages; their rows are gathered by the last one.
    pub(crate) fn finish_into(
        &mut self,
        inner: &mut [Stage<'_>],
        last: &mut Stage<'_>,
    ) -> Result<()> {
        self.finish(inner, &mut |evaluator, value| {
            let last = std::slice::from_mut(last);
            let nowhere = Place::nowhere();
            evaluator.pass_on(last, value, &nowhere, &mut |_, _| Ok(ControlFlow::Continue(())))
        })
    }

    /// Gives a row of one stage to the next, or out.
    fn pass_on(
        &mut self,
        stages: &mut [Stage<'_>],
        value: Value,
        place: &Place,
        out: &mut dyn FnMut(&mut Self, Value) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let Some((first, rest)) = stages.split_first_mut() else {
            return out(self, value);
        };
        let select = first.select;
        let Some(source) = select.sources.first() else { return Ok(ControlFlow::Continue(())) };
        let mut place = place.clone();
        for element in source.elements(&value) {
            self.bindings.clear();
            self.bindings.push(element.clone());
            let flow = self.each_row(select, 1, &mut |evaluator| {
                place.row += 1;
                let (at, sources) = (place.clone(), evaluator.context.held);
                let outer = evaluator.bindings.clone();
                let flow = first.take(evaluator, &at, &mut |evaluator, value| {
                    evaluator.pass_on(rest, value, &at, out)
                });
                evaluator.bindings = outer;
                evaluator.context.held = sources;
                flow
            });
            self.bindings.clear();
            if flow?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `visit` with the sources from `index` on bound to each combination of their values
    /// that passes the filter.
    pub(crate) fn each_row(
        &mut self,
        select: &Select,
        index: usize,
        visit: &mut Visit<'_, 'a>,
    ) -> Result<ControlFlow<()>> {
        self.context.spend(1)?;
        let Some(source) = select.sources.get(index) else {
            let held = self.context.held;
            let is_kept = match &select.filter {
                Some(filter) => self.value(filter)?.is_true(),
                None => true,
            };
            self.context.held = held;
            return if is_kept { visit(self) } else { Ok(ControlFlow::Continue(())) };
        };
        let held = self.context.held;
        let values = match &source.collection {
            Collection::Root { steps, .. } => {
                let root = self.root.clone();
                vec![self.follow(root, steps)?]
            }
            Collection::Expression(expression) => vec![self.value(expression)?],
            Collection::Select(inner) => self.rows(inner)?,
        };
        let held = self.context.held - held;
        let depth = self.bindings.len();
        let mut bind = |evaluator: &mut Self, value: &Value| {
            evaluator.bindings.truncate(depth);
            evaluator.bindings.push(value.clone());
            let flow = evaluator.each_row(select, index + 1, visit);
            evaluator.bindings.truncate(depth);
            flow
        };
        let mut elements = values.iter().flat_map(|it| source.elements(it));
        let flow = loop {
            let Some(element) = elements.next() else { break ControlFlow::Continue(()) };
            if bind(self, element)?.is_break() {
                break ControlFlow::Break(());
            }
        };
        self.context.held -= held;
        Ok(flow)
    }

    /// What the group at hand is sorted by, and the value of SELECT.
    pub(crate) fn group_row(&mut self, select: &Select) -> Result<(Vec<Value>, Value)> {
        let held = self.context.held;
        let mut keys = Vec::with_capacity(select.order_by.len());
        for item in &select.order_by {
            keys.push(self.value(&item.expression)?);
        }
        let value = self.project(select)?;
        self.context.held = held;
        Ok((keys, value))
    }

    /// The value of SELECT for the row at hand.
    pub(crate) fn project(&mut self, select: &Select) -> Result<Value> {
        match &select.projection {
            Projection::Star => Ok(self.bindings.last().cloned().unwrap_or_default()),
            Projection::Value(expression) => self.value(expression),
            Projection::List(list) => {
                self.context.hold(measure::object_memory(list.len()))?;
                let mut entries = Vec::with_capacity(list.len());
                for (item, name) in list.iter().zip(&select.names) {
                    entries.push((name.clone(), self.value(&item.expression)?));
                }
                Ok(Value::object(Object::collect(entries)))
            }
        }
    }
}

impl<'s> Stage<'s> {
    pub(crate) fn new(select: &'s Select, evaluator: &Evaluator<'_>) -> Result<Self> {
        let parameters = evaluator.parameters;
        let (offset, limit) = window(select, parameters)?;
        let is_gathered = select.is_distinct || select.is_grouped() || !select.order_by.is_empty();
        let gathered = is_gathered.then(Gathered::default);
        Ok(Self { select, gathered, offset, limit })
    }

    /// A stage whose rows the caller counts.
    pub(crate) fn without_window(mut self) -> Self {
        (self.offset, self.limit) = (0, None);
        self
    }

    pub(crate) fn gathered_mut(&mut self) -> Option<&mut Gathered> {
        self.gathered.as_mut()
    }

    /// Takes the row at hand: keeps it, or projects it and passes it on.
    pub(crate) fn take<'a>(
        &mut self,
        evaluator: &mut Evaluator<'a>,
        place: &Place,
        out: &mut dyn FnMut(&mut Evaluator<'a>, Value) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        if let Some(gathered) = &mut self.gathered {
            gathered.take(self.select, evaluator, place)?;
            return Ok(ControlFlow::Continue(()));
        }
        let value = evaluator.project(self.select)?;
        self.count_out(evaluator, value, out)
    }

    /// Passes on what was kept.
    pub(crate) fn finish<'a>(
        &mut self,
        evaluator: &mut Evaluator<'a>,
        out: &mut dyn FnMut(&mut Evaluator<'a>, Value) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let Some(gathered) = self.gathered.take() else { return Ok(ControlFlow::Continue(())) };
        for row in gathered.finish(self.select, evaluator)?.rows {
            if self.count_out(evaluator, row.value, out)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn count_out<'a>(
        &mut self,
        evaluator: &mut Evaluator<'a>,
        value: Value,
        out: &mut dyn FnMut(&mut Evaluator<'a>, Value) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        if value.is_undefined() {
            return Ok(ControlFlow::Continue(()));
        }
        if self.limit == Some(0) {
            return Ok(ControlFlow::Break(()));
        }
        if 0 < self.offset {
            self.offset -= 1;
            return Ok(ControlFlow::Continue(()));
        }
        let flow = out(evaluator, value)?;
        if let Some(limit) = &mut self.limit {
            *limit -= 1;
            if *limit == 0 {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(flow)
    }
}

/// The queries nested in FROM, the innermost first.
pub(crate) fn stages<'s>(select: &'s Select, evaluator: &Evaluator<'_>) -> Result<Vec<Stage<'s>>> {
    let mut stages = vec![Stage::new(select, evaluator)?];
    let mut outer = select;
    while let Some(Collection::Select(inner)) = outer.sources.first().map(|it| &it.collection) {
        stages.push(Stage::new(inner, evaluator)?);
        outer = inner;
    }
    stages.reverse();
    Ok(stages)
}

/// Whether the query looks at the items of the container at all.
pub(crate) fn reads_documents(select: &Select) -> bool {
    match select.sources.first().map(|it| &it.collection) {
        Some(Collection::Root { .. }) => true,
        Some(Collection::Select(inner)) => reads_documents(inner),
        Some(Collection::Expression(_)) | None => false,
    }
}

/// The rows to leave out and those to return, by TOP or OFFSET and LIMIT.
pub(crate) fn window(
    select: &Select,
    parameters: &crate::Parameters,
) -> Result<(u64, Option<u64>)> {
    if let Some(top) = &select.top {
        return Ok((0, Some(parameters.count(top)?)));
    }
    let Some(window) = &select.window else { return Ok((0, None)) };
    Ok((parameters.count(&window.offset)?, Some(parameters.count(&window.limit)?)))
}
