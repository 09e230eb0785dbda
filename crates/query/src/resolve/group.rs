//! What SELECT and ORDER BY say of a group: aggregates, and what it is grouped by.

use std::collections::BTreeMap;

use crate::ast::walk::Part;
use crate::ast::{Expression, Projection, Select};
use crate::error::{Error, Result};
use crate::value::Value;

/// Says of every part of a grouped query which value of the group it is; `outer` is the number of
/// names that come from queries around this one.
pub(crate) fn resolve(select: &mut Select, outer: usize) -> Result<()> {
    if !select.is_grouped() {
        return Ok(());
    }
    let mut keys = BTreeMap::new();
    for (key, number) in select.group_by.iter().zip(select.aggregates.len()..) {
        keys.entry(key.to_string()).or_insert(number);
    }
    let mut grouped = Grouped { keys, outer, looks_at_rows: false };
    for item in &mut select.order_by {
        grouped.expression(&mut item.expression)?;
    }
    match &mut select.projection {
        Projection::Star => (),
        Projection::Value(expression) => grouped.expression(expression)?,
        Projection::List(list) => {
            list.iter_mut().try_for_each(|item| grouped.expression(&mut item.expression))?;
        }
    }
    select.looks_at_rows = grouped.looks_at_rows;
    Ok(())
}

struct Grouped {
    /// What is grouped by, as text, and its number among the values of a group.
    keys: BTreeMap<String, usize>,
    outer: usize,
    looks_at_rows: bool,
}

impl Grouped {
    /// A group has one value of what it is grouped by and of aggregates, and of nothing else.
    fn expression(&mut self, expression: &mut Expression) -> Result<()> {
        if matches!(expression, Expression::Aggregate { .. }) {
            return Ok(());
        }
        if let Some(number) = self.keys.get(&expression.to_string()) {
            let key = std::mem::replace(expression, Expression::Literal(Value::Undefined));
            *expression = Expression::Grouped { expression: Box::new(key), number: *number };
            return Ok(());
        }
        if let Expression::Name { position, slot, .. } = expression
            && self.outer <= *slot
        {
            let reason = "what stands beside an aggregate must be in GROUP BY; it is not";
            return Err(Error::meaningless(*position, reason));
        }
        expression.each_child_mut(&mut |part| match part {
            Part::Expression(child) => self.expression(child),
            Part::Select(_) => {
                self.looks_at_rows = true;
                Ok(())
            }
        })
    }
}
