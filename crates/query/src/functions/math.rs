//! Functions of numbers.

use crate::error::Result;
use crate::functions::{Context, Function};
use crate::value::{Number, Value};

/// The one function whose value nothing determines.
pub(super) const RANDOM: &str = "RAND";

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("ABS", 1, 1, |_, it| one(it, f64::abs)),
    Function::new("ACOS", 1, 1, |_, it| one(it, f64::acos)),
    Function::new("ASIN", 1, 1, |_, it| one(it, f64::asin)),
    Function::new("ATAN", 1, 1, |_, it| one(it, f64::atan)),
    Function::new("ATN2", 2, 2, |_, it| two(it, f64::atan2)),
    Function::new("CEILING", 1, 1, |_, it| one(it, f64::ceil)),
    Function::new("COS", 1, 1, |_, it| one(it, f64::cos)),
    Function::new("COT", 1, 1, |_, it| one(it, |it| 1.0 / it.tan())),
    Function::new("DEGREES", 1, 1, |_, it| one(it, f64::to_degrees)),
    Function::new("EXP", 1, 1, |_, it| one(it, f64::exp)),
    Function::new("FLOOR", 1, 1, |_, it| one(it, f64::floor)),
    Function::new("IntAdd", 2, 2, |_, it| integers(it, |one, two| Some(one.wrapping_add(two)))),
    Function::new("IntBitAnd", 2, 2, |_, it| integers(it, |one, two| Some(one & two))),
    Function::new("IntBitLeftShift", 2, 2, |_, it| {
        integers(it, |one, two| Some(one.wrapping_shl(bits(two))))
    }),
    Function::new("IntBitNot", 1, 1, |_, it| {
        Ok(it.first().and_then(Value::as_long).map_or(Value::Undefined, |it| integer(!it)))
    }),
    Function::new("IntBitOr", 2, 2, |_, it| integers(it, |one, two| Some(one | two))),
    Function::new("IntBitRightShift", 2, 2, |_, it| {
        integers(it, |one, two| Some(one.wrapping_shr(bits(two))))
    }),
    Function::new("IntBitXor", 2, 2, |_, it| integers(it, |one, two| Some(one ^ two))),
    Function::new("IntDiv", 2, 2, |_, it| {
        integers(it, |one, two| (two != 0).then(|| one.wrapping_div(two)))
    }),
    Function::new("IntMod", 2, 2, |_, it| {
        integers(it, |one, two| (two != 0).then(|| one.wrapping_rem(two)))
    }),
    Function::new("IntMul", 2, 2, |_, it| integers(it, |one, two| Some(one.wrapping_mul(two)))),
    Function::new("IntSub", 2, 2, |_, it| integers(it, |one, two| Some(one.wrapping_sub(two)))),
    Function::new("LOG", 1, 2, logarithm),
    Function::new("LOG10", 1, 1, |_, it| one(it, f64::log10)),
    Function::new("NumberBin", 1, 2, bin),
    Function::new("PI", 0, 0, |_, _| Ok(Value::number(std::f64::consts::PI))),
    Function::new("POWER", 2, 2, |_, it| two(it, f64::powf)),
    Function::new("RADIANS", 1, 1, |_, it| one(it, f64::to_radians)),
    Function::new(RANDOM, 0, 0, |context, _| Ok(Value::number(context.random()))),
    Function::new("ROUND", 1, 2, round),
    Function::new("SIGN", 1, 1, |_, it| one(it, |it| if it == 0.0 { 0.0 } else { it.signum() })),
    Function::new("SIN", 1, 1, |_, it| one(it, f64::sin)),
    Function::new("SQRT", 1, 1, |_, it| one(it, f64::sqrt)),
    Function::new("SQUARE", 1, 1, |_, it| one(it, |it| it * it)),
    Function::new("TAN", 1, 1, |_, it| one(it, f64::tan)),
    Function::new("TRUNC", 1, 1, |_, it| one(it, f64::trunc)),
];

fn one(arguments: &[Value], operate: fn(f64) -> f64) -> Result<Value> {
    let number = arguments.first().and_then(Value::as_double);
    Ok(number.map_or(Value::Undefined, |it| Value::number(operate(it))))
}

fn two(arguments: &[Value], operate: fn(f64, f64) -> f64) -> Result<Value> {
    let [one, two] = arguments else { return Ok(Value::Undefined) };
    Ok(match (one.as_double(), two.as_double()) {
        (Some(one), Some(two)) => Value::number(operate(one, two)),
        (None, _) | (_, None) => Value::Undefined,
    })
}

/// Integers have 64 bits and wrap around, as in Cosmos DB.
fn integers(arguments: &[Value], operate: fn(i64, i64) -> Option<i64>) -> Result<Value> {
    let [one, two] = arguments else { return Ok(Value::Undefined) };
    let result = match (one.as_long(), two.as_long()) {
        (Some(one), Some(two)) => operate(one, two),
        (None, _) | (_, None) => None,
    };
    Ok(result.map_or(Value::Undefined, integer))
}

/// How far to shift; a processor looks at the lower six bits only.
fn bits(count: i64) -> u32 {
    u32::try_from(count & 63).unwrap_or_default()
}

fn integer(integer: i64) -> Value {
    Value::Number(Number::from(integer))
}

fn logarithm(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    if arguments.len() == 1 {
        return one(arguments, f64::ln);
    }
    // The quotient of two logarithms is rounded more than once.
    two(arguments, |number, base| match base {
        2.0 => number.log2(),
        10.0 => number.log10(),
        _ => number.log(base),
    })
}

fn round(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    if arguments.len() == 1 {
        return one(arguments, f64::round);
    }
    two(arguments, |number, digits| {
        const DIGITS_MAX: f64 = 15.0;
        let scale = 10_f64.powf(digits.clamp(-DIGITS_MAX, DIGITS_MAX).trunc());
        (number * scale).round() / scale
    })
}

fn bin(_: &mut Context, arguments: &[Value]) -> Result<Value> {
    if arguments.len() == 1 {
        return one(arguments, f64::floor);
    }
    // Without a size there is no result: a number divided by zero is none.
    two(arguments, |number, size| (number / size).floor() * size)
}
