//! The state of an aggregate over the rows of a group.

use std::cmp::Ordering;

use crate::ast::AggregateKind;
use crate::compare;
use crate::value::{Object, Value};

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
}

impl Accumulator {
    pub(crate) fn new(kind: AggregateKind) -> Self {
        Self { kind, count: 0, sum: 0.0, best: Value::Undefined, is_spoiled: false }
    }

    /// Takes the argument of one more row; what is undefined does not count.
    pub(crate) fn add(&mut self, value: &Value) {
        if value.is_undefined() {
            return;
        }
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
        }
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
        }
    }

    /// The state as JSON, to go on with later.
    pub(crate) fn save(&self) -> Value {
        let entries = vec![
            ("c".into(), Value::count(usize::try_from(self.count).unwrap_or(usize::MAX))),
            ("s".into(), Value::string(self.sum.to_bits().to_string())),
            ("b".into(), self.best.clone()),
            ("x".into(), Value::Bool(self.is_spoiled)),
        ];
        Value::object(Object::collect(entries))
    }

    /// Takes a saved state; none if it is not one.
    pub(crate) fn restore(kind: AggregateKind, saved: &Value) -> Option<Self> {
        Some(Self {
            kind,
            count: u64::try_from(saved.property("c").as_integer()?).ok()?,
            sum: f64::from_bits(saved.property("s").as_str()?.parse().ok()?),
            best: saved.property("b"),
            is_spoiled: saved.property("x").as_bool()?,
        })
    }

    fn rows(&self) -> f64 {
        crate::value::double(i64::try_from(self.count).unwrap_or(i64::MAX))
    }
}
