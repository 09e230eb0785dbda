use std::borrow::Cow;
use std::cmp::Ordering;

use millstream_core::Message;

use crate::filter::expression::{Comparison, Expression, Like, Literal, Property};
use crate::filter::like::LikePattern;
use crate::filter::value::{Value, system_property, user_property};

/// Whether the expression is true for the message, or `None` if that is unknown.
///
/// The depth of the expression, which the parser bounds, is the depth of the calls.
pub(crate) fn truth(expression: &Expression, message: &Message) -> Option<bool> {
    match expression {
        Expression::Or(parts) => any(parts.iter().map(|part| truth(part, message))),
        Expression::And(parts) => {
            // Both are the same but for the sign, by the law of De Morgan.
            any(parts.iter().map(|part| negated_if(true, truth(part, message)))).map(|it| !it)
        }
        Expression::Not(operand) => negated_if(true, truth(operand, message)),
        Expression::Compare { operator, left, right } => {
            compare(*operator, &value(left, message)?, &value(right, message)?)
        }
        Expression::IsNull { operand, negated } => {
            Some(value(operand, message).is_none() != *negated)
        }
        Expression::In { operand, values, negated } => {
            let operand = value(operand, message)?;
            let equal = |other: &Expression| operand.equal(&value(other, message)?);
            negated_if(*negated, any(values.iter().map(equal)))
        }
        Expression::Like(like) => negated_if(like.negated, is_like(like, message)),
        Expression::Exists(property) => Some(property_value(property, message).is_some()),
        Expression::Arithmetic { .. }
        | Expression::Negate(_)
        | Expression::Property(_)
        | Expression::Lookup(_)
        | Expression::Literal(_) => {
            if let Value::Bool(value) = value(expression, message)? {
                Some(value)
            } else {
                None
            }
        }
    }
}

fn value<'a>(expression: &'a Expression, message: &'a Message) -> Option<Value<'a>> {
    match expression {
        Expression::Arithmetic { first, rest } => {
            let first = value(first, message)?;
            rest.iter().try_fold(first, |result, (operator, operand)| {
                result.calculate(*operator, value(operand, message)?)
            })
        }
        Expression::Negate(operand) => value(operand, message)?.negate(),
        Expression::Property(property) => property_value(property, message),
        Expression::Lookup(name) => user_property(message, &text(name, message)?),
        Expression::Literal(literal) => literal_value(literal),
        Expression::Or(_)
        | Expression::And(_)
        | Expression::Not(_)
        | Expression::Compare { .. }
        | Expression::IsNull { .. }
        | Expression::In { .. }
        | Expression::Like(_)
        | Expression::Exists(_) => truth(expression, message).map(Value::Bool),
    }
}

fn text<'a>(expression: &'a Expression, message: &'a Message) -> Option<Cow<'a, str>> {
    if let Value::Text(text) = value(expression, message)? { Some(text) } else { None }
}

fn property_value<'a>(property: &Property, message: &'a Message) -> Option<Value<'a>> {
    match property {
        Property::User(name) => user_property(message, name),
        Property::System(property) => system_property(message, *property),
    }
}

fn literal_value(literal: &Literal) -> Option<Value<'_>> {
    match literal {
        Literal::Null => None,
        Literal::Bool(value) => Some(Value::Bool(*value)),
        Literal::Integer(number) => Some(Value::Integer(*number)),
        Literal::Double(number) => Some(Value::Double(*number)),
        Literal::Text(text) => Some(Value::Text(Cow::Borrowed(text))),
    }
}

fn compare(operator: Comparison, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    match operator {
        Comparison::Equal => left.equal(right),
        Comparison::NotEqual => negated_if(true, left.equal(right)),
        Comparison::Less => left.order(right).map(Ordering::is_lt),
        Comparison::LessOrEqual => left.order(right).map(Ordering::is_le),
        Comparison::Greater => left.order(right).map(Ordering::is_gt),
        Comparison::GreaterOrEqual => left.order(right).map(Ordering::is_ge),
    }
}

fn is_like(like: &Like, message: &Message) -> Option<bool> {
    let operand = text(&like.operand, message)?;
    if let Some(pattern) = &like.compiled {
        return Some(pattern.matches(&operand));
    }
    let mut escape = None;
    if let Some(expression) = &like.escape {
        let text = text(expression, message)?;
        let mut characters = text.chars();
        escape = Some(characters.next()?);
        if characters.next().is_some() {
            return None;
        }
    }
    let pattern = LikePattern::new(&text(&like.pattern, message)?, escape).ok()?;
    Some(pattern.matches(&operand))
}

/// True if one is true, else unknown if one is unknown, else false.
fn any(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(false);
    for truth in truths {
        match truth {
            Some(true) => return Some(true),
            Some(false) => (),
            None => result = None,
        }
    }
    result
}

fn negated_if(negated: bool, truth: Option<bool>) -> Option<bool> {
    truth.map(|truth| truth != negated)
}
