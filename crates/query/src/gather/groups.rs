//! Groups: what they are found by, what is known of them, and their rows.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::aggregate::Accumulator;
use crate::ast::Select;
use crate::compare;
use crate::error::{ErrorKind, Result};
use crate::evaluate::Evaluator;
use crate::gather::{
    DIGEST_STEP_BYTES, Finished, Gathered, ORDER_STEP_BYTES, Place, Row, compare_keys,
};
use crate::measure::MEASURE_STEP_BYTES;
use crate::value::Value;

/// What a group is found by: the values of GROUP BY, in the order that ORDER BY would give them.
#[derive(Clone, Debug)]
pub(crate) struct GroupKey {
    keys: Vec<Value>,
    digest: u128,
}

#[derive(Debug)]
pub(super) struct Group {
    /// The values of the sources in its first row, if anything looks at them.
    row: Vec<Value>,
    /// That of its first row.
    document: Arc<(String, String)>,
    accumulators: Vec<Accumulator>,
    /// What it was counted as.
    memory: usize,
}

impl Gathered {
    /// Goes on with aggregates of no groups that were saved.
    pub(crate) fn resume(&mut self, accumulators: Vec<Accumulator>) {
        self.held = accumulators.iter().map(|it| it.held().memory).sum();
        let group = Group { accumulators, memory: self.held, ..Group::of_no_rows() };
        self.groups.insert(GroupKey::new(Vec::new()), group);
    }

    /// The state of the aggregates of a query without GROUP BY, if there is any yet.
    pub(crate) fn accumulators(&self) -> Option<&[Accumulator]> {
        self.groups.values().next().map(|it| &*it.accumulators)
    }

    /// Takes the row at hand into its group.
    pub(super) fn take_into_group(
        &mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        place: &Place,
    ) -> Result<()> {
        let mut keys = Vec::with_capacity(select.group_by.len());
        let mut memory = 0;
        for expression in &select.group_by {
            let key = evaluator.value(expression)?;
            memory += evaluator.context.measure(&key, DIGEST_STEP_BYTES)?.memory;
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
            let group = Group::of_row(select, evaluator, place, &key, memory)?;
            self.held += group.memory;
            self.groups.insert(key.clone(), group);
            self.cut();
            self.check_groups(evaluator)?;
        }
        let mut added = 0;
        while added < select.aggregates.len() {
            // Long keys take time to find, so that it is looked for again only if it may be gone.
            let Some(group) = self.groups.get_mut(&key) else { return Ok(()) };
            let pairs = group.accumulators.iter_mut().zip(&select.aggregates).skip(added);
            for (accumulator, aggregate) in pairs {
                let value = evaluator.value(&aggregate.argument)?;
                let before = accumulator.held().memory;
                accumulator.add(&value, &mut evaluator.context)?;
                let after = accumulator.held().memory;
                // It may be less: another value can be the greatest.
                group.memory = group.memory - before + after;
                self.held = self.held - before + after;
                added += 1;
                if evaluator.context.held_bytes_max < self.held {
                    break;
                }
            }
            self.check_groups(evaluator)?;
        }
        Ok(())
    }

    fn has_all_groups(&self) -> bool {
        self.groups_max.is_some_and(|it| it <= self.groups.len())
    }

    /// Drops the last group if there is one too many. It would be dropped again if it came again:
    /// those before it stay, so that the groups that are kept in the end have seen all their rows.
    fn cut(&mut self) {
        if self.groups_max.is_some_and(|it| it < self.groups.len()) {
            self.drop_last();
        }
    }

    fn drop_last(&mut self) {
        if let Some((_, dropped)) = self.groups.pop_last() {
            self.held -= dropped.memory;
            self.is_cut = true;
        }
    }

    /// Leaves groups that take up too much to the next page, or refuses them where all are kept.
    fn check_groups(&mut self, evaluator: &Evaluator<'_>) -> Result<()> {
        while self.groups_max.is_some()
            && evaluator.context.held_bytes_max < self.held
            && self.groups_passed.saturating_add(1) < self.groups.len()
        {
            self.drop_last();
            self.groups_max = Some(self.groups.len());
            self.is_shed = true;
        }
        evaluator.context.check_held(self.held)
    }

    /// The rows of the groups in their order.
    pub(super) fn finish_groups(
        mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<Finished> {
        if select.group_by.is_empty() && self.groups.is_empty() {
            let accumulators = accumulators(select);
            let group = Group { accumulators, ..Group::of_no_rows() };
            self.groups.insert(GroupKey::new(Vec::new()), group);
        }
        let group_bytes = Some(self.held / self.groups.len().max(1));
        let outer = evaluator.bindings.clone();
        let mut cut_behind = None;
        for ((key, group), count) in std::mem::take(&mut self.groups).into_iter().zip(1..) {
            self.held -= group.memory;
            if count <= self.groups_passed {
                continue;
            }
            evaluator.bindings.clone_from(&outer);
            let place = key.place(count);
            let row = group.row(select, evaluator, &key, place.clone());
            // A group that would be too much comes with the next page.
            match row.and_then(|row| self.hold_group(select, evaluator, row)) {
                Err(error)
                    if error.kind() == ErrorKind::TooLarge
                        && self.groups_max.is_some()
                        && cut_behind.is_some() =>
                {
                    (self.is_cut, self.is_shed) = (true, true);
                    break;
                }
                result => result?,
            }
            cut_behind = Some((key.keys, place));
        }
        evaluator.bindings = outer;
        self.rows.sort_by(|one, two| compare_keys(&one.keys, &two.keys, select));
        let cut_behind = cut_behind.filter(|_| self.is_cut);
        Ok(Finished { rows: self.rows, group_bytes, is_shed: self.is_shed, cut_behind })
    }

    fn hold_group(
        &mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        row: Row,
    ) -> Result<()> {
        let mut memory = 0;
        for key in &row.keys {
            // Lists can be much longer than what an item has.
            memory += evaluator.context.measure(key, ORDER_STEP_BYTES)?.memory;
        }
        if select.is_distinct {
            evaluator.context.measure(&row.value, DIGEST_STEP_BYTES)?;
        }
        let is_new = !select.is_distinct || self.seen.insert(compare::digest(&row.value));
        if is_new && !row.value.is_undefined() {
            let row = self.held_row(evaluator, Row { memory, ..row })?;
            evaluator.context.check_held(self.held)?;
            self.rows.push(row);
        }
        Ok(())
    }
}

impl Group {
    /// Of no rows yet.
    fn of_no_rows() -> Self {
        let document = Place::nowhere().document;
        Self { row: Vec::new(), document, accumulators: Vec::new(), memory: 0 }
    }

    /// The group that the row at hand is the first of; `memory` is that of what it is found by.
    fn of_row(
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        place: &Place,
        key: &GroupKey,
        mut memory: usize,
    ) -> Result<Self> {
        let mut row = Vec::new();
        if select.looks_at_rows {
            let outer = evaluator.bindings.len().saturating_sub(select.sources.len());
            row.extend_from_slice(&evaluator.bindings[outer..]);
        }
        let (document, accumulators) = (place.document.clone(), accumulators(select));
        // What there is once needs no limit.
        if select.group_by.is_empty() {
            return Ok(Self { row, document, accumulators, memory: 0 });
        }
        for value in &row {
            memory += evaluator.context.measure(value, MEASURE_STEP_BYTES)?.memory;
        }
        memory += document.0.len() + document.1.len();
        memory += size_of::<(GroupKey, Self)>() + size_of_val(&*key.keys);
        memory += size_of_val(&*accumulators);
        Ok(Self { row, document, accumulators, memory })
    }

    /// Its row, with the bindings around the query at hand.
    fn row(
        mut self,
        select: &Select,
        evaluator: &mut Evaluator<'_>,
        key: &GroupKey,
        place: Place,
    ) -> Result<Row> {
        // Queries within find their own names behind those of the sources.
        self.row.resize(select.sources.len(), Value::Undefined);
        evaluator.bindings.append(&mut self.row);
        let results = self.accumulators.iter().map(Accumulator::result);
        evaluator.aggregates.push(results.chain(key.keys.iter().cloned()).collect());
        let row = evaluator.group_row(select);
        evaluator.aggregates.pop();
        let (keys, value) = row?;
        // Where nothing else is asked for, rows come by what they are grouped by.
        let keys = if select.order_by.is_empty() { key.keys.clone() } else { keys };
        Ok(Row { keys, place, document: self.document, value, digest: key.digest, memory: 0 })
    }
}

impl GroupKey {
    pub(crate) fn new(keys: Vec<Value>) -> Self {
        let mut text = String::new();
        for key in &keys {
            compare::canonical(key, &mut text);
            text.push('\n');
        }
        let digest = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        Self { keys, digest }
    }

    /// Its place in a continuation, with its number among the groups.
    fn place(&self, count: usize) -> Place {
        let row = u64::try_from(count).unwrap_or(u64::MAX);
        Place { row, ..Place::of(self.digest) }
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

fn accumulators(select: &Select) -> Vec<Accumulator> {
    select.aggregates.iter().map(|it| Accumulator::new(it.kind)).collect()
}
