//! What kind of value something is.

use crate::datetime::Moment;
use crate::error::Result;
use crate::functions::{Context, Function};
use crate::page::rid_number;
use crate::value::{Number, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("IS_ARRAY", 1, 1, |_, it| is(matches!(it, [Value::Array(_)]))),
    Function::new("IS_BOOL", 1, 1, |_, it| is(matches!(it, [Value::Bool(_)]))),
    // As SDKs for Java and .NET write it into the filter by which they resume ORDER BY.
    Function::new("IS_BOOLEAN", 1, 1, |_, it| is(matches!(it, [Value::Bool(_)]))),
    Function::new("IS_DATETIME", 1, 1, |_, it| {
        is(it.first().and_then(Value::as_str).is_some_and(Moment::is_complete))
    }),
    Function::new("IS_DEFINED", 1, 1, |_, it| is(!matches!(it, [Value::Undefined]))),
    Function::new("IS_FINITE_NUMBER", 1, 1, |_, it| {
        is(it.iter().all(|it| it.as_double().is_some_and(f64::is_finite)))
    }),
    Function::new("IS_INTEGER", 1, 1, |_, it| is(it.iter().all(|it| it.as_long().is_some()))),
    Function::new("IS_NULL", 1, 1, |_, it| is(matches!(it, [Value::Null]))),
    Function::new("IS_NUMBER", 1, 1, |_, it| is(matches!(it, [Value::Number(_)]))),
    Function::new("IS_OBJECT", 1, 1, |_, it| is(matches!(it, [Value::Object(_)]))),
    Function::new("IS_PRIMITIVE", 1, 1, |_, it| {
        is(matches!(it, [Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)]))
    }),
    Function::new("IS_STRING", 1, 1, |_, it| is(matches!(it, [Value::String(_)]))),
    Function::new("IIF", 3, 3, choose_one),
    Function::new("DocumentId", 1, 1, document_id),
];

fn is(holds: bool) -> Result<Value> {
    Ok(Value::Bool(holds))
}

fn choose_one(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [condition, positive, negative] = arguments else { return Ok(Value::Undefined) };
    Ok(if condition.is_true() { positive.clone() } else { negative.clone() })
}

/// The number of an item within its range, which its resource id contains.
fn document_id(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    let rid = arguments.first().map(|it| it.property("_rid")).unwrap_or_default();
    let number = rid.as_str().and_then(rid_number).and_then(|it| i64::try_from(it).ok());
    Ok(number.map_or(Value::Undefined, |it| Value::Number(Number::from(it))))
}
