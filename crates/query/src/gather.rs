//! Rows that are kept until the last one is known: sorted, grouped or told apart.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::aggregate::Accumulator;
use crate::ast::Select;
use crate::compare;
use crate::error::Result;
use crate::evaluate::Evaluator;
use crate::value::Value;

/// Rows that cannot go on before the last one is known.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) rows: Vec<Row>,
    seen: BTreeSet<u128>,
    groups: BTreeMap<u128, usize>,
    members: Vec<Group>,
    pub(crate) held: usize,
    /// What was held after the last time that rows were dropped.
    pub(crate) kept: usize,
    /// Rows that do not lie behind it are left out.
    pub(crate) floor: Option<Floor>,
    /// Whether nobody looks into rows any more.
    pub(crate) is_last: bool,
    next: u64,
}

/// Where sorted rows begin.
#[derive(Clone, Debug)]
pub(crate) enum Floor {
    /// Behind a row.
    Row { keys: Vec<Value>, place: Place },
    /// Behind, or at, rows with these keys; from a document with this number on, if there is one.
    Filter { keys: Vec<Value>, number: Option<u64>, is_exclusive: bool },
}

/// A row with what it is sorted by.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) keys: Vec<Value>,
    /// Decides between rows with the same keys.
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// Where a row came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number in the resource id of the document, by which SDKs order rows with equal keys.
    pub(crate) number: u64,
    /// The partition key and the id of the document.
    pub(crate) document: Arc<(String, String)>,
    /// The place among the rows of that document.
    pub(crate) row: u64,
}

#[derive(Debug)]
struct Group {
    bindings: Vec<Value>,
    accumulators: Vec<Accumulator>,
}

impl Gathered {
    /// Goes on with aggregates of no groups that were saved.
    pub(crate) fn with_accumulators(accumulators: Vec<Accumulator>) -> Self {
        let members = vec![Group { bindings: Vec::new(), accumulators }];
        Self { members, groups: BTreeMap::from([(group_digest(&[]), 0)]), ..Self::default() }
    }

    /// The state of the aggregates of a query without GROUP BY, if there is any yet.
    pub(crate) fn accumulators(&self) -> Option<&[Accumulator]> {
        self.members.first().map(|it| &*it.accumulators)
    }

    pub(crate) fn take(
        &mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        place: &Place,
    ) -> Result<()> {
        if select.is_grouped() {
            return self.take_into_group(select, evaluator);
        }
        let value = evaluator.project(select)?;
        if value.is_undefined() {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(select.order_by.len());
        for item in &select.order_by {
            keys.push(evaluator.value(&item.expression)?);
        }
        if select.is_distinct {
            evaluator.context.spend(value.size())?;
            if !self.seen.insert(compare::digest(&value)) {
                return Ok(());
            }
            self.held += size_of::<u128>() * 2;
        }
        self.next += 1;
        let row = match place.is_nowhere() {
            true => self.next,
            false => place.row,
        };
        let place = Place { row, ..place.clone() };
        self.hold(select, evaluator, Row { keys, place, value })
    }

    fn hold(&mut self, select: &Select, evaluator: &Evaluator<'_>, row: Row) -> Result<()> {
        if self.floor.as_ref().is_some_and(|it| !it.is_before(&row, select)) {
            return Ok(());
        }
        let row = match self.is_last {
            true => Row { value: row.value.compacted(), ..row },
            false => row,
        };
        self.held += row.size();
        evaluator.check_held(self.held)?;
        self.rows.push(row);
        Ok(())
    }

    fn take_into_group(&mut self, select: &Select, evaluator: &mut Evaluator<'_>) -> Result<()> {
        let mut keys = Vec::with_capacity(select.group_by.len());
        for expression in &select.group_by {
            keys.push(evaluator.value(expression)?);
        }
        let digest = group_digest(&keys);
        let index = match self.groups.get(&digest) {
            Some(index) => *index,
            None => {
                let bindings = evaluator.bindings.clone();
                // Only what is grouped by is looked at again, but it lies within the whole.
                let size: usize = bindings.iter().map(Value::size).sum();
                self.held += if select.group_by.is_empty() { 0 } else { size + 64 };
                evaluator.check_held(self.held)?;
                self.groups.insert(digest, self.members.len());
                self.members.push(Group { bindings, accumulators: accumulators(select) });
                self.members.len() - 1
            }
        };
        for (number, aggregate) in select.aggregates.iter().enumerate() {
            let value = evaluator.value(&aggregate.argument)?;
            self.members[index].accumulators[number].add(&value);
        }
        Ok(())
    }

    /// The rows in their order.
    pub(crate) fn finish(
        mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<Vec<Row>> {
        if select.is_grouped() {
            return self.finish_groups(select, evaluator);
        }
        if !select.order_by.is_empty() {
            self.rows.sort_by(|one, two| one.compare(two, select));
        }
        Ok(self.rows)
    }

    fn finish_groups(mut self, select: &Select, evaluator: &mut Evaluator<'_>) -> Result<Vec<Row>> {
        if select.group_by.is_empty() && self.members.is_empty() {
            let bindings = evaluator.bindings.clone();
            self.members.push(Group { bindings, accumulators: accumulators(select) });
        }
        let mut rows = Vec::with_capacity(self.members.len());
        let outer = std::mem::take(&mut evaluator.bindings);
        for group in std::mem::take(&mut self.members) {
            evaluator.bindings = group.bindings;
            let results = group.accumulators.iter().map(Accumulator::result).collect();
            evaluator.aggregates.push(results);
            let row = evaluator.group_row(select);
            evaluator.aggregates.pop();
            let (keys, value) = row?;
            let is_new = !select.is_distinct || self.seen.insert(compare::digest(&value));
            if is_new && !value.is_undefined() {
                rows.push(Row { keys, place: Place::nowhere(), value });
            }
        }
        rows.sort_by(|one, two| compare_keys(&one.keys, &two.keys, select));
        evaluator.bindings = outer;
        Ok(rows)
    }
}

impl Floor {
    fn is_before(&self, row: &Row, select: &Select) -> bool {
        let by_place = |order| directed(order, select);
        let order = match self {
            Self::Row { keys, place } => {
                compare_keys(keys, &row.keys, select).then_with(|| by_place(place.cmp(&row.place)))
            }
            Self::Filter { keys, number, is_exclusive } => {
                let order = compare_keys(keys, &row.keys, select);
                let order = match number {
                    Some(number) => order.then_with(|| by_place(number.cmp(&row.place.number))),
                    None => order,
                };
                return order.is_lt() || (order.is_eq() && !is_exclusive);
            }
        };
        order.is_lt()
    }
}

impl Row {
    /// The order of ORDER BY, then that of places, in the direction of the first key.
    pub(crate) fn compare(&self, other: &Self, select: &Select) -> Ordering {
        compare_keys(&self.keys, &other.keys, select)
            .then_with(|| directed(self.place.cmp(&other.place), select))
    }

    pub(crate) fn size(&self) -> usize {
        self.value.size() + self.keys.iter().map(Value::size).sum::<usize>() + size_of::<Self>()
    }
}

impl Place {
    pub(crate) fn nowhere() -> Self {
        Self { number: 0, document: Arc::new((String::new(), String::new())), row: 0 }
    }

    fn is_nowhere(&self) -> bool {
        self.document.1.is_empty()
    }
}

/// The order of two rows by their keys alone.
pub(crate) fn compare_keys(one: &[Value], two: &[Value], select: &Select) -> Ordering {
    for (item, (one, two)) in select.order_by.iter().zip(one.iter().zip(two)) {
        let order = compare::order(one, two);
        if order.is_ne() {
            return if item.is_descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

/// Rows with equal keys come in the direction of the first key, as SDKs expect.
pub(crate) fn directed(order: Ordering, select: &Select) -> Ordering {
    let is_descending = select.order_by.first().is_some_and(|it| it.is_descending);
    if is_descending { order.reverse() } else { order }
}

fn accumulators(select: &Select) -> Vec<Accumulator> {
    select.aggregates.iter().map(|it| Accumulator::new(it.kind)).collect()
}

fn group_digest(keys: &[Value]) -> u128 {
    let mut text = String::new();
    for key in keys {
        compare::canonical(key, &mut text);
        text.push('\n');
    }
    xxhash_rust::xxh3::xxh3_128(text.as_bytes())
}
