//! What kind of value something is.

use crate::error::Result;
use crate::functions::{Context, Function};
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("IS_ARRAY", 1, 1, |_, it| is(matches!(it, [Value::Array(_)]))),
    Function::new("IS_BOOL", 1, 1, |_, it| is(matches!(it, [Value::Bool(_)]))),
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
];

fn is(holds: bool) -> Result<Value> {
    Ok(Value::Bool(holds))
}

fn choose_one(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [condition, positive, negative] = arguments else { return Ok(Value::Undefined) };
    Ok(if condition.is_true() { positive.clone() } else { negative.clone() })
}
