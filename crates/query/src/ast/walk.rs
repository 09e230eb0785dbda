//! Going through the parts of expressions.

use std::sync::Arc;

use crate::ast::{Expression, Select, Step};

/// What an expression consists of.
pub(crate) enum Part<'a> {
    Expression(&'a mut Expression),
    Select(&'a mut Select),
}

impl Expression {
    /// Calls `visit` with each expression right below this one; queries within are not entered.
    pub(crate) fn each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match self {
            Self::Literal(_)
            | Self::Parameter(..)
            | Self::Name { .. }
            | Self::Scalar(_)
            | Self::Gathered(_)
            | Self::Exists(_) => (),
            Self::Path { base, steps } => {
                visit(base);
                for step in steps {
                    if let Step::Index(index) = step {
                        visit(index);
                    }
                }
            }
            Self::Not(operand)
            | Self::Unary(_, operand)
            | Self::Grouped { expression: operand, .. } => visit(operand),
            Self::Chain { first, rest } => {
                visit(first);
                rest.iter().for_each(|(_, operand)| visit(operand));
            }
            Self::And(list) | Self::Or(list) | Self::Array(list) => list.iter().for_each(visit),
            Self::Between { value, low, high, .. } => {
                [value, low, high].into_iter().for_each(|it| visit(it));
            }
            Self::In { value, list, .. } => {
                visit(value);
                list.iter().for_each(visit);
            }
            Self::Like { value, pattern, escape, .. } => {
                visit(value);
                visit(pattern);
                escape.iter().for_each(|it| visit(it));
            }
            Self::Conditional(one, two, three) => {
                [one, two, three].into_iter().for_each(|it| visit(it));
            }
            Self::Object(properties) => properties.iter().for_each(|(_, it)| visit(it)),
            Self::Call { arguments, .. } => arguments.iter().for_each(visit),
            Self::Aggregate { aggregate, .. } => visit(&aggregate.argument),
        }
    }

    /// As [`Expression::each_child`], with the queries within, to change them.
    pub(crate) fn each_child_mut<E>(
        &mut self,
        visit: &mut dyn FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Literal(_) | Self::Parameter(..) | Self::Name { .. } => Ok(()),
            Self::Scalar(select) | Self::Gathered(select) | Self::Exists(select) => {
                visit(Part::Select(select))
            }
            Self::Path { base, steps } => {
                visit(Part::Expression(base))?;
                for step in steps {
                    if let Step::Index(index) = step {
                        visit(Part::Expression(index))?;
                    }
                }
                Ok(())
            }
            Self::Not(operand)
            | Self::Unary(_, operand)
            | Self::Grouped { expression: operand, .. } => visit(Part::Expression(operand)),
            Self::Chain { first, rest } => {
                visit(Part::Expression(first))?;
                rest.iter_mut().try_for_each(|(_, it)| visit(Part::Expression(it)))
            }
            Self::And(list) | Self::Or(list) | Self::Array(list) => {
                list.iter_mut().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::Between { value, low, high, .. } => {
                [value, low, high].into_iter().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::In { value, list, .. } => {
                visit(Part::Expression(value))?;
                list.iter_mut().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::Like { value, pattern, escape, .. } => {
                let all = [Some(value), Some(pattern), escape.as_mut()];
                all.into_iter().flatten().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::Conditional(one, two, three) => {
                [one, two, three].into_iter().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::Object(properties) => {
                properties.iter_mut().try_for_each(|(_, it)| visit(Part::Expression(it)))
            }
            Self::Call { arguments, .. } => {
                arguments.iter_mut().try_for_each(|it| visit(Part::Expression(it)))
            }
            Self::Aggregate { aggregate, .. } => {
                visit(Part::Expression(&mut Arc::make_mut(aggregate).argument))
            }
        }
    }
}
