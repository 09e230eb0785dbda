//! The state of an aggregate over the rows of a group.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::ast::AggregateKind;
use crate::error::Result;
use crate::functions::Context;
use crate::gather::{DIGEST_STEP_BYTES, SEEN_BYTES};
use crate::measure::{MEASURE_STEP_BYTES, Measure};
use crate::value::{Object, Value};
use crate::{compare, json};

/// What is known after some rows.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    kind: AggregateKind,
    count: u64,
    sum: f64,
    /// The least or greatest value yet.
    best: Value,
    /// Whether a value was of a kind that the aggregate has no result for.
    is_spoiled: bool,
    collected: Option<Collected>,
}

/// The values of a list or a set, in the order in which they came.
#[derive(Clone, Debug, Default)]
struct Collected {
    items: Arc<Vec<Value>>,
    /// Those of a set are told apart.
    seen: BTreeSet<u128>,
    /// Bytes that are held for them.
    held: usize,
}

impl Accumulator {
    pub(crate) fn new(kind: AggregateKind) -> Self {
        let collected = kind.is_collection().then(Collected::default);
        Self { kind, count: 0, sum: 0.0, best: Value::Undefined, is_spoiled: false, collected }
    }

    /// Takes the argument of one more row; what is undefined does not count. Returns how many bytes
    /// are held for it, if it is kept beside others.
    pub(crate) fn add(&mut self, value: &Value, context: &mut Context) -> Result<usize> {
        if value.is_undefined() {
            return Ok(0);
        }
        if let Some(collected) = &mut self.collected {
            let is_set = self.kind == AggregateKind::MakeSet;
            let step_bytes = if is_set { DIGEST_STEP_BYTES } else { MEASURE_STEP_BYTES };
            let measure = context.measure(value, step_bytes)?;
            return Ok(collected.add(self.kind, value, measure.memory));
        }
        context.spend(value.as_str().map_or(0, str::len) / compare::STEP_BYTES)?;
        match self.kind {
            AggregateKind::Count => self.count += 1,
            AggregateKind::CountIf => self.count += u64::from(value.is_true()),
            AggregateKind::Sum | AggregateKind::Average => match value.as_double() {
                Some(double) => {
                    self.count += 1;
                    self.sum += double;
                }
                None => self.is_spoiled = true,
            },
            AggregateKind::Min => self.keep(value, Ordering::Less),
            AggregateKind::Max => self.keep(value, Ordering::Greater),
            AggregateKind::MakeList | AggregateKind::MakeSet => (),
        }
        Ok(0)
    }

    fn keep(&mut self, value: &Value, wanted: Ordering) {
        self.count += 1;
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            self.is_spoiled = true;
        } else if self.best.is_undefined() || compare::order(value, &self.best) == wanted {
            self.best = value.clone();
        }
    }

    /// The value of the aggregate.
    pub(crate) fn result(&self) -> Value {
        if self.is_spoiled {
            return Value::Undefined;
        }
        match self.kind {
            AggregateKind::Count | AggregateKind::CountIf => {
                Value::count(usize::try_from(self.count).unwrap_or(usize::MAX))
            }
            AggregateKind::Sum => Value::number(self.sum),
            AggregateKind::Average if self.count == 0 => Value::Undefined,
            AggregateKind::Average => Value::number(self.sum / self.rows()),
            AggregateKind::Min | AggregateKind::Max => self.best.clone(),
            AggregateKind::MakeList | AggregateKind::MakeSet => {
                Value::Array(self.collected.as_ref().map(|it| it.items.clone()).unwrap_or_default())
            }
        }
    }

    /// How many bytes are held for values that are kept beside others.
    pub(crate) fn size(&self) -> usize {
        self.collected.as_ref().map_or(0, |it| it.held)
    }

    /// The state as JSON, to go on with later.
    pub(crate) fn save(&self) -> Value {
        let mut entries: Vec<(Arc<str>, Value)> = vec![
            ("c".into(), Value::count(usize::try_from(self.count).unwrap_or(usize::MAX))),
            ("s".into(), Value::string(self.sum.to_bits().to_string())),
            ("b".into(), self.best.clone()),
            ("x".into(), Value::Bool(self.is_spoiled)),
        ];
        if let Some(collected) = &self.collected {
            // As text, so that they come back as they are spelled and however deep they nest.
            let items = collected.items.iter().map(|it| Value::string(json::to_string(it)));
            entries.push(("l".into(), Value::array(items.collect())));
        }
        Value::object(Object::collect(entries))
    }

    /// Takes a saved state; none if it is not one.
    pub(crate) fn restore(kind: AggregateKind, saved: &Value) -> Option<Self> {
        let collected = match kind.is_collection() {
            true => Some(Collected::restore(kind, &saved.property("l"))?),
            false => None,
        };
        Some(Self {
            kind,
            count: u64::try_from(saved.property("c").as_integer()?).ok()?,
            sum: f64::from_bits(saved.property("s").as_str()?.parse().ok()?),
            best: saved.property("b"),
            is_spoiled: saved.property("x").as_bool()?,
            collected,
        })
    }

    fn rows(&self) -> f64 {
        crate::value::double(i64::try_from(self.count).unwrap_or(i64::MAX))
    }
}

impl Collected {
    /// Returns how many bytes are held for a value that takes up so much memory.
    fn add(&mut self, kind: AggregateKind, value: &Value, memory: usize) -> usize {
        let is_set = kind == AggregateKind::MakeSet;
        if is_set && !self.seen.insert(compare::digest(value)) {
            return 0;
        }
        Arc::make_mut(&mut self.items).push(value.clone());
        let held = if is_set { memory + SEEN_BYTES } else { memory };
        self.held += held;
        held
    }

    fn restore(kind: AggregateKind, saved: &Value) -> Option<Self> {
        let mut collected = Self::default();
        for text in saved.as_array()?.iter() {
            let text = Bytes::copy_from_slice(text.as_str()?.as_bytes());
            let value = json::read(&text).ok()?;
            let memory = Measure::of(&value, usize::MAX)?.memory;
            collected.add(kind, &value, memory);
        }
        Some(collected)
    }
}
