//! Operators with one or two operands.

use std::cmp::Ordering;

use crate::ast::{BinaryOperator, Expression, UnaryOperator};
use crate::compare;
use crate::error::Result;
use crate::evaluate::{Evaluator, truth};
use crate::value::Value;

impl Evaluator<'_> {
    pub(crate) fn binary(
        &mut self,
        operator: BinaryOperator,
        left: Value,
        right: &Expression,
    ) -> Result<Value> {
        if operator == BinaryOperator::Coalesce {
            return if left.is_undefined() { self.value(right) } else { Ok(left) };
        }
        let right = self.value(right)?;
        if operator == BinaryOperator::Concatenate {
            return self.context.concatenate(&[left, right]);
        }
        Ok(apply(operator, &left, &right))
    }
}

pub(crate) fn unary(operator: UnaryOperator, value: &Value) -> Value {
    match operator {
        UnaryOperator::Minus => value.as_double().map_or(Value::Undefined, |it| Value::number(-it)),
        UnaryOperator::Plus if value.as_double().is_some() => value.clone(),
        UnaryOperator::Plus => Value::Undefined,
        UnaryOperator::BitNot => match integer(value) {
            Some(bits) => Value::number(f64::from(!bits)),
            None => Value::Undefined,
        },
    }
}

fn apply(operator: BinaryOperator, left: &Value, right: &Value) -> Value {
    let compared = |holds: fn(Ordering) -> bool| truth(compare::relation(left, right).map(holds));
    match operator {
        BinaryOperator::Equal => truth(compare::equality(left, right)),
        BinaryOperator::NotEqual => truth(compare::equality(left, right).map(|it| !it)),
        BinaryOperator::Less => compared(Ordering::is_lt),
        BinaryOperator::LessOrEqual => compared(Ordering::is_le),
        BinaryOperator::Greater => compared(Ordering::is_gt),
        BinaryOperator::GreaterOrEqual => compared(Ordering::is_ge),
        BinaryOperator::Add => arithmetic(left, right, |left, right| left + right),
        BinaryOperator::Subtract => arithmetic(left, right, |left, right| left - right),
        BinaryOperator::Multiply => arithmetic(left, right, |left, right| left * right),
        BinaryOperator::Divide => arithmetic(left, right, |left, right| left / right),
        BinaryOperator::Remainder => arithmetic(left, right, |left, right| left % right),
        BinaryOperator::BitOr => bits(left, right, |left, right| left | right),
        BinaryOperator::BitXor => bits(left, right, |left, right| left ^ right),
        BinaryOperator::BitAnd => bits(left, right, |left, right| left & right),
        BinaryOperator::ShiftLeft => {
            bits(left, right, |left, right| left.wrapping_shl(right.cast_unsigned()))
        }
        BinaryOperator::ShiftRight => {
            bits(left, right, |left, right| left.wrapping_shr(right.cast_unsigned()))
        }
        BinaryOperator::ShiftRightUnsigned => match (integer(left), integer(right)) {
            (Some(left), Some(right)) => {
                let shifted = left.cast_unsigned().wrapping_shr(right.cast_unsigned());
                Value::number(f64::from(shifted))
            }
            (None, _) | (_, None) => Value::Undefined,
        },
        // Both need more than two values; the caller has dealt with them.
        BinaryOperator::Coalesce | BinaryOperator::Concatenate => Value::Undefined,
    }
}

/// Division by zero and the like have no result in JSON.
fn arithmetic(left: &Value, right: &Value, operate: fn(f64, f64) -> f64) -> Value {
    match (left.as_double(), right.as_double()) {
        (Some(left), Some(right)) => Value::number(operate(left, right)),
        (None, _) | (_, None) => Value::Undefined,
    }
}

fn bits(left: &Value, right: &Value, operate: fn(i32, i32) -> i32) -> Value {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Value::number(f64::from(operate(left, right))),
        (None, _) | (_, None) => Value::Undefined,
    }
}

/// The lower 32 bits of a whole number, as JavaScript and Cosmos DB take them.
fn integer(value: &Value) -> Option<i32> {
    let low = value.as_integer()? & i64::from(u32::MAX);
    u32::try_from(low).ok().map(u32::cast_signed)
}
