//! Functions of arrays, sets and objects.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::compare;
use crate::error::Result;
use crate::evaluate::truth;
use crate::functions::{Context, Function, all, any};
use crate::gather::SEEN_BYTES;
use crate::measure::{array_memory, object_memory};
use crate::value::{Object, Value, double};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("ARRAY_AVG", 1, 1, |context, it| numbers(context, it, average)),
    Function::new("ARRAY_CONCAT", 2, usize::MAX, concatenate),
    Function::new("ARRAY_CONTAINS", 2, 3, contains),
    Function::new("ARRAY_CONTAINS_ALL", 2, usize::MAX, |context, it| {
        contains_several(context, it, true)
    }),
    Function::new("ARRAY_CONTAINS_ANY", 2, usize::MAX, |context, it| {
        contains_several(context, it, false)
    }),
    Function::new("ARRAY_LENGTH", 1, 1, |_, it| {
        let length = it.first().and_then(Value::as_array).map(|it| Value::count(it.len()));
        Ok(length.unwrap_or_default())
    }),
    Function::new("ARRAY_MAX", 1, 1, |context, it| best(context, it, Ordering::Greater)),
    Function::new("ARRAY_MEDIAN", 1, 1, |context, it| numbers(context, it, median)),
    Function::new("ARRAY_MIN", 1, 1, |context, it| best(context, it, Ordering::Less)),
    Function::new("ARRAY_SLICE", 2, 3, slice),
    Function::new("ARRAY_SUM", 1, 1, |context, it| numbers(context, it, |it| it.iter().sum())),
    Function::new("ArrayToObject", 1, 1, array_to_object),
    Function::new("CHOOSE", 2, usize::MAX, choose),
    Function::new("ObjectToArray", 1, 3, object_to_array),
    Function::new("SetDifference", 2, 2, |context, it| {
        sets(context, it, |one, two| digests(two, |two| keep(one, |it| !two.contains(it))))
    }),
    Function::new("SetEqual", 2, 2, set_equal),
    Function::new("SetIntersect", 2, 2, |context, it| {
        sets(context, it, |one, two| digests(two, |two| keep(one, |it| two.contains(it))))
    }),
    Function::new("SetUnion", 2, 2, |context, it| {
        sets(context, it, |one, two| {
            let both: Vec<Value> = one.iter().chain(two).cloned().collect();
            keep(&both, |_| true)
        })
    }),
];

fn concatenate(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let mut length: usize = 0;
    for argument in arguments {
        let Some(items) = argument.as_array() else { return Ok(Value::Undefined) };
        length = length.saturating_add(items.len());
    }
    context.spend(length)?;
    context.hold(array_memory(length))?;
    let mut joined = Vec::with_capacity(length);
    for items in arguments.iter().filter_map(Value::as_array) {
        joined.extend(items.iter().cloned());
    }
    Ok(Value::array(joined))
}

fn contains(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [array, wanted, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let Some(items) = array.as_array() else { return Ok(Value::Undefined) };
    let is_partial = match rest.first() {
        None | Some(Value::Undefined) => false,
        Some(Value::Bool(is_partial)) => *is_partial,
        Some(_) => return Ok(Value::Undefined),
    };
    if wanted.is_undefined() {
        return Ok(Value::Undefined);
    }
    // Properties are looked up by their names if any part will do.
    context.measure(array, if is_partial { 2 } else { 8 })?;
    let fits = if is_partial { is_part } else { compare::equal };
    Ok(Value::Bool(items.iter().any(|it| fits(wanted, it))))
}

/// Whether all properties of `part` are in `whole`; other values must be equal.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(name, part)| whole.get(name).is_some_and(|whole| is_part(part, whole))),
        _ => compare::equal(part, whole),
    }
}

/// Whether all of the others are in an array, or any, by the rules of AND and OR.
fn contains_several(context: &mut Context, arguments: &[Value], is_all: bool) -> Result<Value> {
    let [array, wanted @ ..] = arguments else { return Ok(Value::Undefined) };
    let Some(items) = array.as_array() else { return Ok(Value::Undefined) };
    let measure = context.measure(array, 8)?;
    context.spend((measure.text / 8).saturating_mul(wanted.len()))?;
    let is_there = |wanted: &Value| {
        let is_defined = !wanted.is_undefined();
        is_defined.then(|| items.iter().any(|it| compare::equal(wanted, it)))
    };
    let found = wanted.iter().map(is_there);
    Ok(truth(if is_all { all(found) } else { any(found) }))
}

/// What an array of nothing but numbers comes to.
fn numbers(
    context: &mut Context,
    arguments: &[Value],
    operate: fn(&mut [f64]) -> f64,
) -> Result<Value> {
    let Some(items) = arguments.first().and_then(Value::as_array) else {
        return Ok(Value::Undefined);
    };
    context.spend(items.len())?;
    let doubles: Option<Vec<f64>> = items.iter().map(Value::as_double).collect();
    Ok(doubles.map_or(Value::Undefined, |mut it| Value::number(operate(&mut it))))
}

fn average(numbers: &mut [f64]) -> f64 {
    numbers.iter().sum::<f64>() / double(i64::try_from(numbers.len()).unwrap_or(i64::MAX))
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.get(middle), middle.checked_sub(1).and_then(|it| numbers.get(it))) {
        (Some(upper), Some(lower)) if numbers.len().is_multiple_of(2) => (lower + upper) / 2.0,
        (Some(only), _) => *only,
        (None, _) => f64::NAN,
    }
}

/// The least or greatest of numbers, strings, booleans and null.
fn best(context: &mut Context, arguments: &[Value], wanted: Ordering) -> Result<Value> {
    let Some(items) = arguments.first().and_then(Value::as_array) else {
        return Ok(Value::Undefined);
    };
    context.spend(items.iter().map(|it| 1 + it.as_str().map_or(0, str::len) / 16).sum())?;
    let mut best = &Value::Undefined;
    for item in items.iter() {
        if matches!(item, Value::Array(_) | Value::Object(_)) {
            return Ok(Value::Undefined);
        }
        if best.is_undefined() || compare::order(item, best) == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}

fn slice(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [array, start, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let (Some(items), Some(start)) = (array.as_array(), start.as_integer()) else {
        return Ok(Value::Undefined);
    };
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    // A negative start counts from the end.
    let start = if start < 0 { (length + start).max(0) } else { start.min(length) };
    let count = match rest.first() {
        None => length,
        Some(count) => match count.as_integer() {
            Some(count) => count.clamp(0, length),
            None => return Ok(Value::Undefined),
        },
    };
    let range = |it: i64| usize::try_from(it).unwrap_or_default();
    let end = (start + count).min(length);
    let kept = &items[range(start)..range(end)];
    context.spend(items.len())?;
    context.hold(array_memory(kept.len()))?;
    Ok(Value::array(kept.to_vec()))
}

fn choose(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [index, choices @ ..] = arguments else { return Ok(Value::Undefined) };
    let index = index.as_integer().and_then(|it| usize::try_from(it).ok());
    let chosen = index.and_then(|it| it.checked_sub(1)).and_then(|it| choices.get(it));
    Ok(chosen.cloned().unwrap_or_default())
}

fn object_to_array(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let name = |place: usize, default: &str| match arguments.get(place) {
        None => Some(Arc::from(default)),
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => None,
    };
    let object = arguments.first().and_then(Value::as_object);
    let (Some(object), Some(key), Some(value)) = (object, name(1, "k"), name(2, "v")) else {
        return Ok(Value::Undefined);
    };
    context.spend(object.len().saturating_mul(4))?;
    let pairs_memory = object.len().saturating_mul(object_memory(2));
    context.hold(array_memory(object.len()).saturating_add(pairs_memory))?;
    let pair = |(name, it): (&Arc<str>, &Value)| {
        let entries = vec![(key.clone(), Value::String(name.clone())), (value.clone(), it.clone())];
        Value::object(Object::collect(entries))
    };
    Ok(Value::array(object.iter().map(pair).collect()))
}

fn array_to_object(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let Some(items) = arguments.first().and_then(Value::as_array) else {
        return Ok(Value::Undefined);
    };
    context.spend(items.len())?;
    // Where names repeat, there is a second list for a while.
    let room = object_memory(items.len()).saturating_mul(2);
    context.hold(room)?;
    let mut entries = Vec::with_capacity(items.len());
    for item in items.iter() {
        let Value::String(name) = item.property("k") else { return Ok(Value::Undefined) };
        entries.push((name, item.property("v")));
    }
    let object = Object::collect(entries);
    context.release(room);
    context.hold(object_memory(object.len()))?;
    Ok(Value::object(object))
}

fn set_equal(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [one, two] = arguments else { return Ok(Value::Undefined) };
    let (Some(one), Some(two)) = (one.as_array(), two.as_array()) else {
        return Ok(Value::Undefined);
    };
    for argument in arguments {
        context.measure(argument, 1)?;
    }
    context.hold(seen_memory(one, two))?;
    let set = |items: &[Value]| items.iter().map(compare::digest).collect::<BTreeSet<_>>();
    Ok(Value::Bool(set(one) == set(two)))
}

fn sets(
    context: &mut Context,
    arguments: &[Value],
    operate: fn(&[Value], &[Value]) -> Vec<Value>,
) -> Result<Value> {
    let [one, two] = arguments else { return Ok(Value::Undefined) };
    let (Some(one), Some(two)) = (one.as_array(), two.as_array()) else {
        return Ok(Value::Undefined);
    };
    for argument in arguments {
        context.measure(argument, 1)?;
    }
    // There may be a copy of both beside the result.
    let room = seen_memory(one, two).saturating_add(array_memory(one.len() + two.len()) * 2);
    context.hold(room)?;
    let kept = operate(one, two);
    context.release(room);
    context.hold(array_memory(kept.capacity()))?;
    Ok(Value::array(kept))
}

/// What it takes to remember the values of two sets.
fn seen_memory(one: &[Value], two: &[Value]) -> usize {
    (one.len() + two.len()).saturating_mul(SEEN_BYTES)
}

fn digests<T>(items: &[Value], then: impl FnOnce(&BTreeSet<u128>) -> T) -> T {
    then(&items.iter().map(compare::digest).collect())
}

/// The wanted items, each value once.
fn keep(items: &[Value], is_wanted: impl Fn(&u128) -> bool) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut is_kept = |item: &&Value| {
        let digest = compare::digest(item);
        is_wanted(&digest) && seen.insert(digest)
    };
    items.iter().filter(&mut is_kept).cloned().collect()
}
