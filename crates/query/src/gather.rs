//! Rows that are kept until the last one is known: sorted, grouped or told apart.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::aggregate::Accumulator;
use crate::ast::{Expression, Select};
use crate::compare;
use crate::error::Result;
use crate::evaluate::Evaluator;
use crate::measure::MEASURE_STEP_BYTES;
use crate::value::Value;

/// What remembering a row costs that is to be told from others.
pub(crate) const SEEN_BYTES: usize = size_of::<u128>() * 2;

/// Bytes of a value that are put into a digest in the time of one step of evaluation.
pub(crate) const DIGEST_STEP_BYTES: usize = 4;
/// Bytes of a key that are compared with those of other rows in that time.
const ORDER_STEP_BYTES: usize = 16;

/// Rows that cannot go on before the last one is known.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) rows: Vec<Row>,
    seen: BTreeSet<u128>,
    groups: BTreeMap<GroupKey, Group>,
    pub(crate) held: usize,
    /// What was held after the last time that rows were dropped.
    pub(crate) kept: usize,
    /// Rows that do not lie behind it are left out.
    pub(crate) floor: Option<Floor>,
    /// Groups up to this one are left out.
    pub(crate) groups_after: Option<GroupKey>,
    /// Only so many groups are kept, the first in the order of their keys.
    pub(crate) groups_max: Option<usize>,
    /// Whether there were more.
    is_cut: bool,
    /// Rows that are told apart from others, and counted, but not kept.
    pub(crate) left_out: usize,
    /// Rows that are told apart have their place by their value, so that some can be forgotten.
    pub(crate) is_by_value: bool,
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
    /// The partition key and the id of the document it came from; of the first one, in the order of
    /// the store, if there are several.
    pub(crate) document: Arc<(String, String)>,
    pub(crate) value: Value,
    /// What tells it from others, where that is asked for.
    digest: u128,
    /// What it was counted as: its keys alone before it is kept.
    memory: usize,
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

/// What a group is found by: the values of GROUP BY, in the order that ORDER BY would give them.
#[derive(Clone, Debug)]
pub(crate) struct GroupKey {
    pub(crate) keys: Vec<Value>,
    digest: u128,
}

#[derive(Debug)]
struct Group {
    bindings: Vec<Value>,
    /// That of its first row.
    document: Arc<(String, String)>,
    accumulators: Vec<Accumulator>,
    /// What it was counted as.
    memory: usize,
}

/// The rows of a query, and the last group of those that were kept if there were more.
pub(crate) struct Finished {
    pub(crate) rows: Vec<Row>,
    pub(crate) cut_behind: Option<GroupKey>,
}

impl Gathered {
    /// Goes on with aggregates of no groups that were saved.
    pub(crate) fn with_accumulators(accumulators: Vec<Accumulator>) -> Self {
        let document = Place::nowhere().document;
        let held = accumulators.iter().map(Accumulator::held).sum();
        let group = Group { bindings: Vec::new(), document, accumulators, memory: held };
        let groups = BTreeMap::from([(GroupKey::new(Vec::new()), group)]);
        Self { groups, held, ..Self::default() }
    }

    /// The state of the aggregates of a query without GROUP BY, if there is any yet.
    pub(crate) fn accumulators(&self) -> Option<&[Accumulator]> {
        self.groups.values().next().map(|it| &*it.accumulators)
    }

    pub(crate) fn take(
        &mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        place: &Place,
    ) -> Result<()> {
        if select.is_grouped() {
            return self.take_into_group(select, evaluator, place);
        }
        let value = evaluator.project(select)?;
        if value.is_undefined() {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(select.order_by.len());
        let mut memory = 0;
        for item in &select.order_by {
            let key = evaluator.value(&item.expression)?;
            // It will be compared with others.
            memory += evaluator.context.measure(&key, ORDER_STEP_BYTES)?.memory;
            keys.push(key);
        }
        let mut digest = 0;
        if select.is_distinct {
            evaluator.context.measure(&value, DIGEST_STEP_BYTES)?;
            digest = compare::digest(&value);
            // What has passed already need not be remembered.
            if self.is_by_value && self.is_passed(&keys, &Place::of(digest), select) {
                return Ok(());
            }
            if !self.seen.insert(digest) {
                return Ok(());
            }
            self.held += SEEN_BYTES;
            evaluator.check_held(self.held)?;
        }
        self.next += 1;
        if 0 < self.left_out {
            self.left_out -= 1;
            return Ok(());
        }
        let row = match place.is_nowhere() {
            true => self.next,
            false => place.row,
        };
        let document = place.document.clone();
        let place = match self.is_by_value {
            true => Place::of(digest),
            false => Place { row, ..place.clone() },
        };
        let row = Row { keys, place, document, value, digest, memory };
        self.hold(select, evaluator, row)
    }

    /// Whether a row does not lie behind where rows begin.
    fn is_passed(&self, keys: &[Value], place: &Place, select: &Select) -> bool {
        self.floor.as_ref().is_some_and(|it| !it.is_before(keys, place, select))
    }

    /// Forgets what was seen of rows that are not kept any more, and counts anew what is held.
    pub(crate) fn settle(&mut self) {
        if self.is_by_value {
            self.seen = self.rows.iter().map(|it| it.digest).collect();
        }
        let rows: usize = self.rows.iter().map(|it| it.memory).sum();
        self.held = rows + self.seen.len() * SEEN_BYTES;
        self.kept = self.held;
    }

    fn hold(&mut self, select: &Select, evaluator: &mut Evaluator<'_>, row: Row) -> Result<()> {
        if self.is_passed(&row.keys, &row.place, select) {
            return Ok(());
        }
        let row = self.held_row(evaluator, row)?;
        self.rows.push(row);
        Ok(())
    }

    /// The row as it is kept, and counted.
    fn held_row(&mut self, evaluator: &mut Evaluator<'_>, row: Row) -> Result<Row> {
        let value = match self.is_last {
            true => row.value.compacted(|it| evaluator.text(it))?,
            false => row.value,
        };
        let measure = evaluator.context.measure(&value, MEASURE_STEP_BYTES)?;
        let (partition, id) = &*row.document;
        let origin = size_of_val(&*row.document) + partition.len() + id.len();
        let memory = row.memory + measure.memory + size_of::<Row>() + origin;
        self.held += memory;
        evaluator.check_held(self.held)?;
        Ok(Row { value, memory, ..row })
    }

    fn take_into_group(
        &mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        place: &Place,
    ) -> Result<()> {
        let mut keys = Vec::with_capacity(select.group_by.len());
        let mut memory = 0;
        for expression in &select.group_by {
            let key = evaluator.value(expression)?;
            let measure = evaluator.context.measure(&key, DIGEST_STEP_BYTES)?;
            // What lies within the bindings is counted with them.
            memory += if is_bound(expression) { 0 } else { measure.memory };
            keys.push(key);
        }
        let key = GroupKey::new(keys);
        if self.groups_after.as_ref().is_some_and(|it| key <= *it) {
            return Ok(());
        }
        if !self.groups.contains_key(&key) {
            if self.has_all_groups() && self.groups.last_key_value().is_some_and(|it| *it.0 < key) {
                self.is_cut = true;
                return Ok(());
            }
            let bindings = evaluator.bindings.clone();
            let (document, accumulators) = (place.document.clone(), accumulators(select));
            if !select.group_by.is_empty() {
                memory += document.0.len() + document.1.len();
                memory += size_of::<(GroupKey, Group)>() + size_of_val(&*key.keys);
                memory += size_of_val(&*accumulators);
                // Only what is grouped by is looked at again, but it lies within the whole.
                for binding in &bindings {
                    memory += evaluator.context.measure(binding, MEASURE_STEP_BYTES)?.memory;
                }
            }
            self.held += memory;
            self.groups.insert(key.clone(), Group { bindings, document, accumulators, memory });
            self.cut();
            evaluator.check_held(self.held)?;
        }
        for (number, aggregate) in select.aggregates.iter().enumerate() {
            let value = evaluator.value(&aggregate.argument)?;
            if let Some(group) = self.groups.get_mut(&key) {
                let accumulator = &mut group.accumulators[number];
                let before = accumulator.held();
                accumulator.add(&value, &mut evaluator.context)?;
                let after = accumulator.held();
                // It may be less: another value can be the greatest.
                group.memory = group.memory - before + after;
                self.held = self.held - before + after;
            }
            evaluator.check_held(self.held)?;
        }
        Ok(())
    }

    fn has_all_groups(&self) -> bool {
        self.groups_max.is_some_and(|it| it <= self.groups.len())
    }

    /// Drops the last group if there is one too many. It would be dropped again if it came again:
    /// those before it stay, so that the groups that are kept in the end have seen all their rows.
    fn cut(&mut self) {
        if self.groups_max.is_none_or(|it| self.groups.len() <= it) {
            return;
        }
        if let Some((_, dropped)) = self.groups.pop_last() {
            self.held -= dropped.memory;
            self.is_cut = true;
        }
    }

    /// The rows in their order.
    pub(crate) fn finish(
        mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<Finished> {
        if select.is_grouped() {
            return self.finish_groups(select, evaluator);
        }
        if !select.order_by.is_empty() {
            self.rows.sort_by(|one, two| one.compare(two, select));
        }
        Ok(Finished { rows: self.rows, cut_behind: None })
    }

    fn finish_groups(mut self, select: &Select, evaluator: &mut Evaluator<'_>) -> Result<Finished> {
        if select.group_by.is_empty() && self.groups.is_empty() {
            let (bindings, accumulators) = (evaluator.bindings.clone(), accumulators(select));
            let document = Place::nowhere().document;
            let group = Group { bindings, document, accumulators, memory: 0 };
            self.groups.insert(GroupKey::new(Vec::new()), group);
        }
        let last = self.groups.last_key_value().map(|it| it.0.clone());
        let cut_behind = last.filter(|_| self.is_cut);
        let mut rows = Vec::with_capacity(self.groups.len());
        let outer = std::mem::take(&mut evaluator.bindings);
        for (key, group) in std::mem::take(&mut self.groups) {
            evaluator.bindings = group.bindings;
            let results = group.accumulators.iter().map(Accumulator::result).collect();
            evaluator.aggregates.push(results);
            let row = evaluator.group_row(select);
            evaluator.aggregates.pop();
            let (keys, value) = row?;
            self.held -= group.memory;
            // Where nothing else is asked for, rows come by what they are grouped by.
            let keys = if select.order_by.is_empty() { key.keys.clone() } else { keys };
            let mut memory = 0;
            for key in &keys {
                // Lists can be much longer than what an item has.
                memory += evaluator.context.measure(key, ORDER_STEP_BYTES)?.memory;
            }
            if select.is_distinct {
                evaluator.context.measure(&value, DIGEST_STEP_BYTES)?;
            }
            let is_new = !select.is_distinct || self.seen.insert(compare::digest(&value));
            if is_new && !value.is_undefined() {
                let (place, document, digest) = (key.place(), group.document, key.digest);
                let row = Row { keys, place, document, value, digest, memory };
                rows.push(self.held_row(evaluator, row)?);
            }
        }
        rows.sort_by(|one, two| compare_keys(&one.keys, &two.keys, select));
        evaluator.bindings = outer;
        Ok(Finished { rows, cut_behind })
    }
}

impl Floor {
    fn is_before(&self, of_row: &[Value], at: &Place, select: &Select) -> bool {
        let by_place = |order| directed(order, select);
        let order = match self {
            Self::Row { keys, place } => {
                compare_keys(keys, of_row, select).then_with(|| by_place(place.cmp(at)))
            }
            Self::Filter { keys, number, is_exclusive } => {
                let order = compare_keys(keys, of_row, select);
                let order = match number {
                    Some(number) => order.then_with(|| by_place(number.cmp(&at.number))),
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
}

impl GroupKey {
    pub(crate) fn new(keys: Vec<Value>) -> Self {
        let digest = group_digest(&keys);
        Self { keys, digest }
    }

    /// Its place in a continuation.
    pub(crate) fn place(&self) -> Place {
        Place::of(self.digest)
    }
}

impl Ord for GroupKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.keys.iter().zip(&other.keys);
        let first = pairs.map(|(one, two)| compare::order(one, two)).find(|it| it.is_ne());
        first.unwrap_or(Ordering::Equal).then_with(|| self.digest.cmp(&other.digest))
    }
}

impl PartialOrd for GroupKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for GroupKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for GroupKey {}

impl Place {
    /// The place of a value that may come from several documents.
    fn of(digest: u128) -> Self {
        let document = (String::new(), format!("{digest:032x}"));
        Self { number: 0, document: Arc::new(document), row: 0 }
    }

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

/// Whether the value lies within one of the bindings.
fn is_bound(expression: &Expression) -> bool {
    let base = if let Expression::Path { base, .. } = expression { base } else { expression };
    matches!(base, Expression::Name { .. })
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
