//! Rows that are kept until the last one is known: sorted, grouped or told apart.

mod groups;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ast::Select;
use crate::compare;
use crate::error::Result;
use crate::evaluate::Evaluator;
use crate::gather::groups::Group;
pub(crate) use crate::gather::groups::GroupKey;
use crate::measure::MEASURE_STEP_BYTES;
use crate::value::Value;

/// What remembering a row costs that is to be told from others.
pub(crate) const SEEN_BYTES: usize = size_of::<u128>() * 2;

/// What a place by value takes up: the digits of a digest, and two counts of owners.
const DIGIT_BYTES: usize = size_of::<(String, String)>() + size_of::<u128>() * 2 + 16;

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
    /// Rows that do not lie behind all of these are left out.
    pub(crate) floors: Vec<Floor>,
    /// Groups up to this one are left out.
    pub(crate) groups_after: Option<GroupKey>,
    /// So many of the first groups behind it have passed already.
    pub(crate) groups_passed: usize,
    /// Only so many groups are kept, the first in the order of their keys; fewer, if these take up
    /// more than is allowed.
    pub(crate) groups_max: Option<usize>,
    /// Rows that have to be kept if those that come last in their order may be dropped.
    pub(crate) rows_min: Option<usize>,
    /// Only so many rows are kept, since more took up more than is allowed.
    pub(crate) rows_max: Option<usize>,
    /// Whether there were more groups.
    is_cut: bool,
    /// Whether some were left to the next page because they took up too much.
    is_shed: bool,
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
    /// What it was counted as, without its document: its keys alone before it is kept.
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

/// The rows of a query.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) rows: Vec<Row>,
    /// Bytes that a group took up on average, if there were any.
    group_bytes: Option<usize>,
    /// Whether there would be more if they took up less.
    pub(crate) is_shed: bool,
    /// The keys and the place of what was kept last, if there was more.
    pub(crate) cut_behind: Option<(Vec<Value>, Place)>,
}

impl Gathered {
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
            // What has a place by its value is forgotten with its row.
            if !self.is_by_value {
                evaluator.context.check_held(self.held)?;
            }
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
        !self.floors.iter().all(|it| it.is_before(keys, place, select))
    }

    /// Forgets what was seen of rows that are not kept any more, and counts anew what is held.
    pub(crate) fn settle(&mut self) {
        if self.is_by_value {
            self.seen = self.rows.iter().map(|it| it.digest).collect();
        }
        let rows: usize = self.rows.iter().map(|it| it.memory).sum();
        let documents: BTreeMap<_, usize> =
            self.rows.iter().map(|it| (Arc::as_ptr(&it.document), it.document_bytes())).collect();
        let documents: usize = documents.values().sum();
        self.held = rows + documents + self.seen.len() * SEEN_BYTES;
        self.kept = self.held;
    }

    fn hold(&mut self, select: &Select, evaluator: &mut Evaluator<'_>, row: Row) -> Result<()> {
        if self.is_passed(&row.keys, &row.place, select) {
            return Ok(());
        }
        let row = self.held_row(evaluator, row)?;
        self.rows.push(row);
        if evaluator.context.held_bytes_max < self.held {
            self.shed(select, evaluator.context.held_bytes_max);
        }
        evaluator.context.check_held(self.held)
    }

    /// Drops the last rows of those that take up too much, if the next page can bring them. At
    /// least a quarter of what is allowed is free after that, so that it is seldom done.
    fn shed(&mut self, select: &Select, bytes_max: usize) {
        let Some(rows_min) = self.rows_min else { return };
        self.rows.sort_by(|one, two| one.compare(two, select));
        let (mut kept, mut bytes) = (0, 0);
        for row in &self.rows {
            bytes += row.bytes();
            let bytes_max = if kept < rows_min { bytes_max / 4 * 3 } else { bytes_max / 2 };
            if bytes_max < bytes {
                break;
            }
            kept += 1;
        }
        if rows_min <= kept {
            let kept = self.rows_max.map_or(kept, |it| it.min(kept));
            self.rows.truncate(kept);
            self.rows_max = Some(kept);
            self.is_shed = true;
            self.settle();
        }
    }

    /// The row as it is kept, and counted.
    fn held_row(&mut self, evaluator: &mut Evaluator<'_>, row: Row) -> Result<Row> {
        let value = match self.is_last {
            true => row.value.compacted(|it| evaluator.text(it))?,
            false => row.value,
        };
        let measure = evaluator.context.measure(&value, MEASURE_STEP_BYTES)?;
        let place = if Arc::ptr_eq(&row.document, &row.place.document) { 0 } else { DIGIT_BYTES };
        let memory = row.memory + measure.memory + size_of::<Row>() + place;
        let row = Row { value, memory, ..row };
        // Rows of one document share what says so.
        let is_of_last =
            self.rows.last().is_some_and(|it| Arc::ptr_eq(&it.document, &row.document));
        self.held += memory + if is_of_last { 0 } else { row.document_bytes() };
        Ok(row)
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
        self.rows.truncate(self.rows_max.unwrap_or(usize::MAX));
        let last = self.rows.last().filter(|_| self.rows_max.is_some());
        let cut_behind = last.map(|it| (it.keys.clone(), it.place.clone()));
        Ok(Finished { rows: self.rows, group_bytes: None, is_shed: self.is_shed, cut_behind })
    }
}

impl Finished {
    /// What so many of the first rows, or groups, take up.
    pub(crate) fn bytes_of_first(&self, count: usize) -> usize {
        match self.group_bytes {
            Some(bytes) => count.saturating_mul(bytes),
            None => self.rows.iter().take(count).map(Row::bytes).sum(),
        }
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

    /// What it takes up to keep it, if it shares nothing with others.
    fn bytes(&self) -> usize {
        self.memory + self.document_bytes() + SEEN_BYTES
    }

    /// What it takes up to say which document it came from.
    fn document_bytes(&self) -> usize {
        let (partition, id) = &*self.document;
        size_of_val(&*self.document) + partition.len() + id.len()
    }
}

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
