//! Equality and order of values.

use std::cmp::Ordering;

use crate::json;
use crate::value::{Object, Value};

/// Bytes of strings that are compared in the time of one step of evaluation.
pub(crate) const STEP_BYTES: usize = 256;

/// Whether two values are the same: numbers by value, objects without regard to the order of their
/// properties.
pub(crate) fn equal(one: &Value, two: &Value) -> bool {
    equal_within(one, two, &mut Steps { taken: 0, max: usize::MAX })
}

/// Steps of a comparison, but for those of single values.
struct Steps {
    taken: usize,
    max: usize,
}

impl Steps {
    /// Counts some; false if these are too many, and nobody looks further.
    fn take(&mut self, steps: usize) -> bool {
        self.taken = self.taken.saturating_add(steps);
        self.taken <= self.max
    }
}

/// As [`equal`], with the steps it takes.
fn equal_within(one: &Value, two: &Value, steps: &mut Steps) -> bool {
    match (one, two) {
        (Value::Undefined, Value::Undefined) | (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(two)) => one == two,
        (Value::Number(one), Value::Number(two)) => one.as_double() == two.as_double(),
        (Value::String(one), Value::String(two)) => {
            steps.take(one.len().min(two.len()) / STEP_BYTES) && one == two
        }
        (Value::Array(one), Value::Array(two)) => {
            let mut is_same = |(one, two): (&_, &_)| steps.take(1) && equal_within(one, two, steps);
            one.len() == two.len() && one.iter().zip(two.iter()).all(&mut is_same)
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len() && equal_objects(one, two, steps)
        }
        _ => false,
    }
}

/// Objects of the same length are gone through side by side in the order of their names.
fn equal_objects(one: &Object, two: &Object, steps: &mut Steps) -> bool {
    let (places, others) = (one.places(), two.places());
    // Sorting what is short is work as well.
    steps.take(1)
        && places.iter().zip(others.iter()).all(|(place, other)| {
            let ((name, value), (other_name, other)) = (one.at(*place), two.at(*other));
            steps.take(1) && name == other_name && equal_within(value, other, steps)
        })
}

/// The result of `=`, and the steps it took: nothing is equal to what is undefined, nor different
/// from it. After more steps than are left the result means nothing.
pub(crate) fn equality(one: &Value, two: &Value, steps_left: usize) -> (Option<bool>, usize) {
    let mut steps = Steps { taken: 0, max: steps_left };
    let is_defined = !one.is_undefined() && !two.is_undefined();
    (is_defined.then(|| equal_within(one, two, &mut steps)), steps.taken)
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
    let (places, others) = (one.places(), two.places());
    let pairs = places.iter().zip(others.iter());
    let first = pairs
        .map(|(place, other)| {
            let ((name, value), (other_name, other)) = (one.at(*place), two.at(*other));
            name.cmp(other_name).then_with(|| order(value, other))
        })
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
            out.push('{');
            for place in object.places().iter() {
                let (name, value) = object.at(*place);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        json::read(&text.to_owned().into()).unwrap()
    }

    /// Objects with so many properties, of which the first is written twice.
    fn objects(length: usize) -> (Value, Value) {
        let property = |number: usize| format!("\"k{number}\":{number}");
        let one: Vec<String> = (0..length).map(property).collect();
        let two: Vec<String> = (0..length).rev().map(property).collect();
        let repeated = format!("{{\"k0\":null,{}}}", one.join(","));
        (read(&repeated), read(&format!("{{{}}}", two.join(","))))
    }

    #[test]
    fn objects_of_any_size_are_equal_in_any_order() {
        for length in [1, 2, 23, 24, 25, 26, 1000] {
            let (one, two) = objects(length);
            assert!(equal(&one, &two) && equal(&two, &one), "{length}");
            assert!(order(&one, &two).is_eq(), "{length}");
            assert_eq!(digest(&one), digest(&two), "{length}");
            assert_eq!(one.as_object().unwrap().len(), length);
            let (_, longer) = objects(length + 1);
            assert!(!equal(&one, &longer), "{length}");
            assert!(order(&one, &longer).is_ne(), "{length}");
            for number in 0..length {
                let double = crate::value::double(i64::try_from(number).unwrap());
                assert_eq!(one.property(&format!("k{number}")).as_double(), Some(double));
            }
            assert!(one.property("k").is_undefined());
            assert!(one.property(&format!("k{length}")).is_undefined());
        }
    }
}
