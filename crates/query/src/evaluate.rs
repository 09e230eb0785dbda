//! The value of an expression for one row, by the three-valued rules of undefined.

mod like;
mod operators;

use std::cmp::Ordering;
use std::sync::Arc;

use millstream_core::Timestamp;

use crate::ast::{Expression, Select, Step};
use crate::error::{Error, Result};
use crate::functions::Context;
use crate::measure::{self, MEASURE_STEP_BYTES, Parts};
use crate::value::{Object, Value};
use crate::{Limits, Parameters, json};

/// Evaluates expressions, and queries within a document (see `select`).
pub(crate) struct Evaluator<'a> {
    pub(crate) parameters: &'a Parameters,
    pub(crate) context: Context,
    /// The item that FROM begins with.
    pub(crate) root: Value,
    /// The values of the sources in scope; names have their place in here.
    pub(crate) bindings: Vec<Value>,
    /// The values of the aggregates of the queries that are being projected, and of what they are
    /// grouped by, innermost last.
    pub(crate) aggregates: Vec<Vec<Value>>,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(parameters: &'a Parameters, now: Timestamp, limits: &Limits) -> Self {
        Self {
            parameters,
            context: Context::new(now, limits),
            root: Value::Undefined,
            bindings: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// The value of an expression. What it takes up, if it was made for that, is counted as what is
    /// held until the caller takes that back.
    pub(crate) fn value(&mut self, expression: &Expression) -> Result<Value> {
        let before = self.context.held;
        let value = self.evaluated(expression)?;
        self.keep(&value, before);
        Ok(value)
    }

    /// Takes back what was held for what a value was made of, if that is gone.
    fn keep(&mut self, value: &Value, before: usize) {
        let made = self.context.held.saturating_sub(before);
        if made == 0 {
            return;
        }
        let kept = match value {
            Value::Undefined | Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => made.min(measure::string_memory(text.len())),
            // They may share any part of what they were made of.
            Value::Array(_) | Value::Object(_) => made,
        };
        self.context.held = before + kept;
    }

    fn evaluated(&mut self, expression: &Expression) -> Result<Value> {
        self.context.spend(1)?;
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Parameter(name, _) => Ok(self.parameters.get(name).clone()),
            Expression::Name { slot, .. } => {
                // A group of no rows has no values.
                Ok(self.bindings.get(*slot).cloned().unwrap_or_default())
            }
            Expression::Path { base, steps } => {
                let value = self.value(base)?;
                self.follow(value, steps)
            }
            Expression::Not(operand) => {
                let value = self.value(operand)?.as_bool();
                Ok(truth(value.map(|it| !it)))
            }
            Expression::Unary(operator, operand) => {
                let value = self.value(operand)?;
                Ok(operators::unary(*operator, &value))
            }
            Expression::Chain { first, rest } => {
                let before = self.context.held;
                let mut value = self.value(first)?;
                for (operator, operand) in rest {
                    value = self.binary(*operator, value, operand)?;
                    self.keep(&value, before);
                }
                Ok(value)
            }
            Expression::And(operands) => self.logical(operands, false),
            Expression::Or(operands) => self.logical(operands, true),
            Expression::Between { value, low, high, is_not } => {
                let is_between = self.between(value, low, high)?;
                Ok(truth(is_between.map(|it| it != *is_not)))
            }
            Expression::In { value, list, is_not } => self.contained(value, list, *is_not),
            Expression::Like { value, pattern, escape, is_not } => {
                let (value, pattern) = (self.value(value)?, self.value(pattern)?);
                let escape = escape.as_ref().map(|it| self.value(it)).transpose()?;
                let is_like = like::matches(&mut self.context, &value, &pattern, escape.as_ref())?;
                Ok(truth(is_like.map(|it| it != *is_not)))
            }
            Expression::Conditional(condition, positive, negative) => {
                let holds = self.value(condition)?.is_true();
                self.value(if holds { positive } else { negative })
            }
            Expression::Array(items) => self.array(items),
            Expression::Object(properties) => self.object(properties),
            Expression::Call { function, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                (function.run)(&mut self.context, &values)
            }
            Expression::Aggregate { number, .. } | Expression::Grouped { number, .. } => {
                let values = self.aggregates.last();
                Ok(values.and_then(|it| it.get(*number)).cloned().unwrap_or_default())
            }
            Expression::Scalar(select) => self.scalar(select),
            Expression::Gathered(select) => Ok(Value::array(self.rows(select)?)),
            Expression::Exists(select) => Ok(Value::Bool(self.has_rows(select)?)),
        }
    }

    /// What lies at a path within a value.
    pub(crate) fn follow(&mut self, mut value: Value, steps: &[Step]) -> Result<Value> {
        for step in steps {
            self.context.spend(1)?;
            value = match step {
                Step::Property(name) => value.property(name),
                Step::Index(index) => {
                    let index = self.value(index)?;
                    match (index.as_str(), index.as_integer()) {
                        (Some(name), _) => value.property(name),
                        (None, Some(place)) => value.element(place),
                        (None, None) => Value::Undefined,
                    }
                }
            };
            if value.is_undefined() {
                break;
            }
        }
        Ok(value)
    }

    /// The only row of a query; undefined if there is none.
    fn scalar(&mut self, select: &Select) -> Result<Value> {
        let mut rows = self.rows(select)?.into_iter();
        let row = rows.next().unwrap_or_default();
        if rows.next().is_some() {
            let reason = format!(
                "the query in an expression at {} has more than one row; put it into ARRAY(…), or \
                 add TOP 1",
                select.position
            );
            return Err(Error::invalid("run the query", reason));
        }
        Ok(row)
    }

    /// AND (decided by a false operand) or OR (decided by a true one).
    fn logical(&mut self, operands: &[Expression], decisive: bool) -> Result<Value> {
        let mut result = Some(!decisive);
        for operand in operands {
            match self.value(operand)?.as_bool() {
                Some(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Some(_) => (),
                None => result = None,
            }
        }
        Ok(truth(result))
    }

    fn between(
        &mut self,
        value: &Expression,
        low: &Expression,
        high: &Expression,
    ) -> Result<Option<bool>> {
        let value = self.value(value)?;
        let (low, high) = (self.value(low)?, self.value(high)?);
        let is_above = self.relation(&low, &value)?.map(Ordering::is_le);
        let is_below = self.relation(&value, &high)?.map(Ordering::is_le);
        Ok(match (is_above, is_below) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            (None, _) | (_, None) => None,
        })
    }

    fn contained(
        &mut self,
        value: &Expression,
        list: &[Expression],
        is_not: bool,
    ) -> Result<Value> {
        let value = self.value(value)?;
        let mut result = Some(false);
        for item in list {
            let item = self.value(item)?;
            match self.equality(&value, &item)? {
                Some(true) => return Ok(Value::Bool(!is_not)),
                Some(false) => (),
                None => result = None,
            }
        }
        Ok(truth(result.map(|it| it != is_not)))
    }

    fn array(&mut self, items: &[Expression]) -> Result<Value> {
        self.context.hold(measure::array_memory(items.len()))?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.value(item)?;
            if !value.is_undefined() {
                values.push(value);
            }
        }
        Ok(Value::array(values))
    }

    fn object(&mut self, properties: &[(Arc<str>, Expression)]) -> Result<Value> {
        self.context.hold(measure::object_memory(properties.len()))?;
        let mut entries = Vec::with_capacity(properties.len());
        for (name, expression) in properties {
            entries.push((name.clone(), self.value(expression)?));
        }
        Ok(Value::object(Object::collect(entries)))
    }

    /// What a value takes up that is kept.
    pub(crate) fn memory(&mut self, value: &Value) -> Result<usize> {
        Ok(self.context.measure(value, MEASURE_STEP_BYTES)?.memory)
    }

    /// What a value takes up besides the parts that are known.
    pub(crate) fn memory_besides(&mut self, parts: &mut Parts, value: &Value) -> Result<usize> {
        // To look for a part among many takes about as long.
        const LOOK_STEPS: usize = 4;
        let before = parts.looks;
        let memory = parts.add(value);
        self.context.spend((parts.looks - before) * LOOK_STEPS)?;
        Ok(memory)
    }

    /// The value as JSON, unless that is longer than any row may be.
    pub(crate) fn text(&mut self, value: &Value) -> Result<String> {
        self.context.measure(value, MEASURE_STEP_BYTES)?;
        Ok(json::to_string(value))
    }
}

/// Unknown is undefined.
pub(crate) fn truth(value: Option<bool>) -> Value {
    value.map_or(Value::Undefined, Value::Bool)
}
