//! Operators with one or two operands.

use std::cmp::Ordering;

use crate::ast::{BinaryOperator, Expression, UnaryOperator};
use crate::compare;
use crate::error::Result;
use crate::evaluate::{Evaluator, truth};
use crate::value::{Value, whole};

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
        match operator {
            BinaryOperator::Equal => Ok(truth(self.equality(&left, &right)?)),
            BinaryOperator::NotEqual => Ok(truth(self.equality(&left, &right)?.map(|it| !it))),
            BinaryOperator::Less => self.compared(&left, &right, Ordering::is_lt),
            BinaryOperator::LessOrEqual => self.compared(&left, &right, Ordering::is_le),
            BinaryOperator::Greater => self.compared(&left, &right, Ordering::is_gt),
            BinaryOperator::GreaterOrEqual => self.compared(&left, &right, Ordering::is_ge),
            BinaryOperator::Coalesce
            | BinaryOperator::Concatenate
            | BinaryOperator::BitOr
            | BinaryOperator::BitXor
            | BinaryOperator::BitAnd
            | BinaryOperator::ShiftLeft
            | BinaryOperator::ShiftRight
            | BinaryOperator::ShiftRightUnsigned
            | BinaryOperator::Add
            | BinaryOperator::Subtract
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Remainder => Ok(calculated(operator, &left, &right)),
        }
    }

    /// The result of `=`. Large values take more than one step.
    pub(crate) fn equality(&mut self, left: &Value, right: &Value) -> Result<Option<bool>> {
        let steps_left = self.context.document_steps_left();
        let (is_equal, steps) = compare::equality(left, right, steps_left);
        self.context.spend(steps)?;
        Ok(is_equal)
    }

    /// The order that `<` asks for. Long strings take more than one step.
    pub(crate) fn relation(&mut self, left: &Value, right: &Value) -> Result<Option<Ordering>> {
        if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
            self.context.spend(left.len().min(right.len()) / compare::STEP_BYTES)?;
        }
        Ok(compare::relation(left, right))
    }

    fn compared(
        &mut self,
        left: &Value,
        right: &Value,
        holds: fn(Ordering) -> bool,
    ) -> Result<Value> {
        Ok(truth(self.relation(left, right)?.map(holds)))
    }
}

pub(crate) fn unary(operator: UnaryOperator, value: &Value) -> Value {
    match operator {
        UnaryOperator::Minus => match value {
            Value::Number(number) => Value::Number(number.negated()),
            Value::Undefined
            | Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Value::Undefined,
        },
        UnaryOperator::Plus if value.as_double().is_some() => value.clone(),
        UnaryOperator::Plus => Value::Undefined,
        UnaryOperator::BitNot => match integer(value) {
            Some(bits) => Value::number(f64::from(!bits)),
            None => Value::Undefined,
        },
    }
}

fn calculated(operator: BinaryOperator, left: &Value, right: &Value) -> Value {
    match operator {
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
        // The caller has dealt with those that are no calculation.
        BinaryOperator::Coalesce
        | BinaryOperator::Concatenate
        | BinaryOperator::Equal
        | BinaryOperator::NotEqual
        | BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual => Value::Undefined,
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

/// The number without its fraction, and of that the lower 32 bits, as JavaScript takes them.
fn integer(value: &Value) -> Option<i32> {
    /// 2^32.
    const END: f64 = 4_294_967_296.0;
    let double = value.as_double()?;
    let low = if double.is_finite() { double.trunc().rem_euclid(END) } else { 0.0 };
    whole(low).and_then(|it| u32::try_from(it).ok()).map(u32::cast_signed)
}
