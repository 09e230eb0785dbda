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
pub(crate) enum Accumulator {
    /// All values, or those that are true.
    Counted {
        count: u64,
        is_conditional: bool,
    },
    /// The sum of numbers, or their average.
    Added {
        count: u64,
        sum: f64,
        is_average: bool,
        is_spoiled: bool,
    },
    /// The least or greatest value yet, and what it takes up.
    Best {
        best: Value,
        held: Measure,
        wanted: Ordering,
        is_spoiled: bool,
    },
    Collected(Collected),
}

/// The values of a list or a set, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    items: Arc<Vec<Value>>,
    /// Those of a set are told apart.
    seen: Option<BTreeSet<u128>>,
    /// What they take up.
    held: Measure,
}

impl Accumulator {
    pub(crate) fn new(kind: AggregateKind) -> Self {
        let counted = |is_conditional| Self::Counted { count: 0, is_conditional };
        let added = |is_average| Self::Added { count: 0, sum: 0.0, is_average, is_spoiled: false };
        let best = |wanted| Self::Best {
            best: Value::Undefined,
            held: Measure::default(),
            wanted,
            is_spoiled: false,
        };
        let collected = |seen| Self::Collected(Collected { seen, ..Collected::default() });
        match kind {
            AggregateKind::Count => counted(false),
            AggregateKind::CountIf => counted(true),
            AggregateKind::Sum => added(false),
            AggregateKind::Average => added(true),
            AggregateKind::Min => best(Ordering::Less),
            AggregateKind::Max => best(Ordering::Greater),
            AggregateKind::MakeList => collected(None),
            AggregateKind::MakeSet => collected(Some(BTreeSet::new())),
        }
    }

    /// Takes the argument of one more row; what is undefined does not count.
    pub(crate) fn add(&mut self, value: &Value, context: &mut Context) -> Result<()> {
        if value.is_undefined() {
            return Ok(());
        }
        match self {
            Self::Counted { count, is_conditional } => {
                *count += u64::from(!*is_conditional || value.is_true());
            }
            Self::Added { count, sum, is_spoiled, .. } => match value.as_double() {
                Some(double) => {
                    *count += 1;
                    *sum += double;
                }
                None => *is_spoiled = true,
            },
            // These have no order.
            Self::Best { is_spoiled, .. }
                if matches!(value, Value::Array(_) | Value::Object(_)) =>
            {
                *is_spoiled = true;
            }
            Self::Best { best, held, wanted, .. } => {
                context.spend(value.as_str().map_or(0, str::len) / compare::STEP_BYTES)?;
                if best.is_undefined() || compare::order(value, best) == *wanted {
                    *held = context.measure(value, MEASURE_STEP_BYTES)?;
                    *best = value.clone();
                }
            }
            Self::Collected(collected) => {
                let is_set = collected.seen.is_some();
                let step_bytes = if is_set { DIGEST_STEP_BYTES } else { MEASURE_STEP_BYTES };
                let measure = context.measure(value, step_bytes)?;
                collected.add(value, measure);
            }
        }
        Ok(())
    }

    /// The value of the aggregate.
    pub(crate) fn result(&self) -> Value {
        match self {
            Self::Added { is_spoiled: true, .. } | Self::Best { is_spoiled: true, .. } => {
                Value::Undefined
            }
            Self::Counted { count, .. } => counted(*count),
            Self::Added { sum, is_average: false, .. } => Value::number(*sum),
            Self::Added { count: 0, .. } => Value::Undefined,
            Self::Added { count, sum, .. } => {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                Value::number(sum / crate::value::double(count))
            }
            Self::Best { best, .. } => best.clone(),
            Self::Collected(collected) => Value::Array(collected.items.clone()),
        }
    }

    /// What is held for values.
    pub(crate) fn held(&self) -> Measure {
        match self {
            Self::Counted { .. } | Self::Added { .. } => Measure::default(),
            Self::Best { held, .. } | Self::Collected(Collected { held, .. }) => *held,
        }
    }

    /// The state as JSON, to go on with later.
    pub(crate) fn save(&self) -> Value {
        let (count, sum, best, is_spoiled) = match self {
            Self::Counted { count, .. } => (*count, 0.0, Value::Undefined, false),
            Self::Added { count, sum, is_spoiled, .. } => {
                (*count, *sum, Value::Undefined, *is_spoiled)
            }
            Self::Best { best, is_spoiled, .. } => (0, 0.0, best.clone(), *is_spoiled),
            Self::Collected(collected) => {
                // As text, so that they come back as they are spelled and however deep they nest.
                let items = collected.items.iter().map(|it| Value::string(json::to_string(it)));
                let entries = vec![("l".into(), Value::array(items.collect()))];
                return Value::object(Object::collect(entries));
            }
        };
        Value::object(Object::collect(vec![
            ("c".into(), counted(count)),
            ("s".into(), Value::string(sum.to_bits().to_string())),
            ("b".into(), best),
            ("x".into(), Value::Bool(is_spoiled)),
        ]))
    }

    /// Takes a saved state; none if it is not one.
    pub(crate) fn restore(kind: AggregateKind, saved: &Value) -> Option<Self> {
        let mut restored = Self::new(kind);
        let saved_count = || u64::try_from(saved.property("c").as_integer()?).ok();
        match &mut restored {
            Self::Counted { count, .. } => *count = saved_count()?,
            Self::Added { count, sum, is_spoiled, .. } => {
                *count = saved_count()?;
                *sum = f64::from_bits(saved.property("s").as_str()?.parse().ok()?);
                *is_spoiled = saved.property("x").as_bool()?;
            }
            Self::Best { best, held, is_spoiled, .. } => {
                *best = saved.property("b");
                *held = Measure::of(best, usize::MAX)?;
                *is_spoiled = saved.property("x").as_bool()?;
            }
            Self::Collected(collected) => {
                for text in saved.property("l").as_array()?.iter() {
                    let text = Bytes::copy_from_slice(text.as_str()?.as_bytes());
                    let value = json::read_made(&text).ok()?;
                    collected.add(&value, Measure::of(&value, usize::MAX)?);
                }
            }
        }
        Some(restored)
    }
}

impl Collected {
    fn add(&mut self, value: &Value, measure: Measure) {
        if let Some(seen) = &mut self.seen {
            if !seen.insert(compare::digest(value)) {
                return;
            }
            self.held.memory += SEEN_BYTES;
        }
        Arc::make_mut(&mut self.items).push(value.clone());
        self.held.memory += measure.memory;
        self.held.text += measure.text;
    }
}

fn counted(count: u64) -> Value {
    Value::count(usize::try_from(count).unwrap_or(usize::MAX))
}
