//! Equality and order of values.

use std::cmp::Ordering;

use crate::json;
use crate::value::{Object, Value};

/// Whether two values are the same: numbers by value, objects without regard to the order of their
/// properties.
pub(crate) fn equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Undefined, Value::Undefined) | (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(two)) => one == two,
        (Value::Number(one), Value::Number(two)) => one.as_double() == two.as_double(),
        (Value::String(one), Value::String(two)) => one == two,
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two.iter()).all(|(one, two)| equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let is_in_two =
                |(name, one): (&_, &_)| two.get(name).is_some_and(|two| equal(one, two));
            one.len() == two.len() && one.iter().all(|(name, value)| is_in_two((name, value)))
        }
        _ => false,
    }
}

/// The result of `=`: nothing is equal to what is undefined, nor different from it.
pub(crate) fn equality(one: &Value, two: &Value) -> Option<bool> {
    let is_defined = !one.is_undefined() && !two.is_undefined();
    is_defined.then(|| equal(one, two))
}

/// The order that `<` asks for: none between different kinds, arrays or objects.
pub(crate) fn relation(one: &Value, two: &Value) -> Option<Ordering> {
    match (one, two) {
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
        (Value::Number(one), Value::Number(two)) => one.as_double().partial_cmp(&two.as_double()),
        (Value::String(one), Value::String(two)) => Some(one.cmp(two)),
        _ => None,
    }
}

/// The order of ORDER BY: undefined, null, false, true, numbers, strings, arrays, objects.
pub(crate) fn order(one: &Value, two: &Value) -> Ordering {
    match (one, two) {
        (Value::Array(one), Value::Array(two)) => {
            let pairs = one.iter().zip(two.iter()).map(|(one, two)| order(one, two));
            let first = pairs.into_iter().find(|it| it.is_ne());
            first.unwrap_or_else(|| one.len().cmp(&two.len()))
        }
        (Value::Object(one), Value::Object(two)) => order_objects(one, two),
        _ => relation(one, two).unwrap_or_else(|| rank(one).cmp(&rank(two))),
    }
}

fn order_objects(one: &Object, two: &Object) -> Ordering {
    let sorted = |object: &Object| {
        let mut entries: Vec<(String, Value)> =
            object.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        entries.sort_by(|one, two| one.0.cmp(&two.0));
        entries
    };
    let (one, two) = (sorted(one), sorted(two));
    let pairs = one.iter().zip(&two);
    let first = pairs
        .map(|(one, two)| one.0.cmp(&two.0).then_with(|| order(&one.1, &two.1)))
        .find(|it| it.is_ne());
    first.unwrap_or_else(|| one.len().cmp(&two.len()))
}

/// The place of a kind among the others.
pub(crate) fn rank(value: &Value) -> u8 {
    match value {
        Value::Undefined => 0,
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

/// A text that two values share exactly when they are equal.
pub(crate) fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Undefined => out.push('?'),
        Value::Null | Value::Bool(_) | Value::String(_) => json::write(value, out),
        Value::Number(number) => crate::value::write_double(number.as_double(), out),
        Value::Array(items) => {
            out.push('[');
            for item in items.iter() {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by(|one, two| one.0.cmp(two.0));
            out.push('{');
            for (name, value) in entries {
                json::write_string(name, out);
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}

/// A number that two values share only if they are equal, but for collisions nobody will see.
pub(crate) fn digest(value: &Value) -> u128 {
    let mut text = String::new();
    canonical(value, &mut text);
    xxhash_rust::xxh3::xxh3_128(text.as_bytes())
}
