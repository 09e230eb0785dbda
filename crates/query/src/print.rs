//! From a tree back to the text of a query.

use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

use crate::ast::{
    Collection, Count, Expression, ListItem, Projection, Select, Source, Step, UnaryOperator,
};
use crate::json;

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        if self.is_distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {top} ")?;
        }
        self.projection.fmt(f)?;
        for (index, source) in self.sources.iter().enumerate() {
            f.write_str(if index == 0 { " FROM " } else { " JOIN " })?;
            source.fmt(f)?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            separated(&self.group_by, f)?;
        }
        for (index, item) in self.order_by.iter().enumerate() {
            f.write_str(if index == 0 { " ORDER BY " } else { ", " })?;
            write!(f, "{}{}", item.expression, if item.is_descending { " DESC" } else { " ASC" })?;
        }
        match &self.window {
            Some(window) => write!(f, " OFFSET {} LIMIT {}", window.offset, window.limit),
            None => Ok(()),
        }
    }
}

impl Display for Projection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Star => f.write_str("*"),
            Self::Value(expression) => write!(f, "VALUE {expression}"),
            Self::List(list) => separated(list, f),
        }
    }
}

impl Display for ListItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)?;
        match &self.alias {
            Some(alias) if is_word(alias) => write!(f, " AS {alias}"),
            Some(alias) => {
                f.write_str(" AS ")?;
                string(alias, f)
            }
            None => Ok(()),
        }
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(count) => count.fmt(f),
            Self::Parameter(name, _) => name.fmt(f),
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_iterated {
            return write!(f, "{} IN {}", self.alias, self.collection);
        }
        self.collection.fmt(f)?;
        match self.is_alias_written {
            true if is_word(&self.alias) => write!(f, " AS {}", self.alias),
            true => {
                f.write_str(" AS ")?;
                string(&self.alias, f)
            }
            false => Ok(()),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root { name, steps } => {
                f.write_str(name)?;
                path(steps, f)
            }
            Self::Expression(expression) => operand(expression, PRIMARY, f),
            Self::Select(select) => write!(f, "({select})"),
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) if value.is_undefined() => f.write_str("undefined"),
            Self::Literal(value) => f.write_str(&json::to_string(value)),
            Self::Parameter(name, _) | Self::Name { name, .. } => f.write_str(name),
            Self::Path { base, steps } => {
                operand(base, PRIMARY, f)?;
                path(steps, f)
            }
            Self::Not(inner) => prefixed("NOT ", inner, UNARY, f),
            Self::Unary(UnaryOperator::Minus, inner) => prefixed("-", inner, UNARY, f),
            Self::Unary(UnaryOperator::Plus, inner) => prefixed("+", inner, UNARY, f),
            Self::Unary(UnaryOperator::BitNot, inner) => prefixed("~", inner, UNARY, f),
            Self::Chain { first, rest } => {
                let own = strength(self);
                operand(first, own, f)?;
                rest.iter().try_for_each(|(operator, right)| {
                    write!(f, " {} ", operator.symbol())?;
                    operand(right, own + 1, f)
                })
            }
            Self::And(list) => operands(list, " AND ", NOT, f),
            Self::Or(list) => operands(list, " OR ", AND, f),
            Self::Conditional(condition, positive, negative) => {
                operand(condition, OR, f)?;
                write!(f, " ? {positive} : {negative}")
            }
            Self::Between { value, low, high, is_not } => {
                set_operator(value, *is_not, "BETWEEN", f)?;
                operand(low, COMPARISON + 1, f)?;
                f.write_str(" AND ")?;
                operand(high, COMPARISON + 1, f)
            }
            Self::In { value, list, is_not } => {
                set_operator(value, *is_not, "IN", f)?;
                enclosed("(", list, ")", f)
            }
            Self::Like { value, pattern, escape, is_not } => {
                set_operator(value, *is_not, "LIKE", f)?;
                operand(pattern, COMPARISON + 1, f)?;
                escape.iter().try_for_each(|escape| {
                    f.write_str(" ESCAPE ")?;
                    operand(escape, COMPARISON + 1, f)
                })
            }
            Self::Array(items) => enclosed("[", items, "]", f),
            Self::Object(properties) => object(properties, f),
            Self::Call { function, arguments } => {
                f.write_str(function.name)?;
                enclosed("(", arguments, ")", f)
            }
            Self::Aggregate { aggregate, .. } => {
                write!(f, "{}({})", aggregate.kind.function(), aggregate.argument)
            }
            Self::Grouped { expression, .. } => expression.fmt(f),
            Self::Scalar(select) => write!(f, "({select})"),
            Self::Gathered(select) => write!(f, "ARRAY({select})"),
            Self::Exists(select) => write!(f, "EXISTS({select})"),
        }
    }
}

// How tightly expressions hold together; those of operators are in `ast`.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 5;
const UNARY: u8 = 13;
const PRIMARY: u8 = 14;

fn strength(expression: &Expression) -> u8 {
    match expression {
        Expression::Conditional(..) => 0,
        Expression::Or(_) => OR,
        Expression::And(_) => AND,
        Expression::Not(_) => NOT,
        // All operators of a chain are of one strength.
        Expression::Chain { rest, .. } => rest.first().map_or(0, |(it, _)| it.strength()),
        Expression::Between { .. } | Expression::In { .. } | Expression::Like { .. } => COMPARISON,
        Expression::Unary(..) => UNARY,
        Expression::Grouped { expression, .. } => strength(expression),
        Expression::Literal(_)
        | Expression::Parameter(..)
        | Expression::Name { .. }
        | Expression::Path { .. }
        | Expression::Array(_)
        | Expression::Object(_)
        | Expression::Call { .. }
        | Expression::Aggregate { .. }
        | Expression::Scalar(_)
        | Expression::Gathered(_)
        | Expression::Exists(_) => PRIMARY,
    }
}

/// An expression where only those of this strength can stand; others are put in parentheses. No
/// more than needed: each pair is a level of depth when the text is read again.
fn operand(expression: &Expression, strength_min: u8, f: &mut Formatter<'_>) -> fmt::Result {
    if strength_min <= strength(expression) {
        return expression.fmt(f);
    }
    write!(f, "({expression})")
}

fn prefixed(
    operator: &str,
    inner: &Expression,
    strength_min: u8,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    f.write_str(operator)?;
    // Two minus signs would begin a comment.
    if matches!(inner.written(), Expression::Unary(..)) {
        f.write_char(' ')?;
    }
    operand(inner, strength_min, f)
}

/// The left operand of IN and the like, and the operator.
fn set_operator(
    value: &Expression,
    is_not: bool,
    operator: &str,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    operand(value, COMPARISON, f)?;
    write!(f, "{} {operator} ", if is_not { " NOT" } else { "" })
}

fn object(properties: &[(Arc<str>, Expression)], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("{")?;
    for (index, (name, value)) in properties.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        string(name, f)?;
        write!(f, ": {value}")?;
    }
    f.write_str("}")
}

fn operands(
    list: &[Expression],
    between: &str,
    strength_min: u8,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    for (index, expression) in list.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { between })?;
        operand(expression, strength_min, f)?;
    }
    Ok(())
}

fn separated<T: Display>(list: &[T], f: &mut Formatter<'_>) -> fmt::Result {
    for (index, item) in list.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        item.fmt(f)?;
    }
    Ok(())
}

fn enclosed(open: &str, list: &[Expression], close: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(open)?;
    separated(list, f)?;
    f.write_str(close)
}

fn path(steps: &[Step], f: &mut Formatter<'_>) -> fmt::Result {
    steps.iter().try_for_each(|step| match step {
        Step::Property(name) if is_word(name) => write!(f, ".{name}"),
        Step::Property(name) => {
            f.write_char('[')?;
            string(name, f)?;
            f.write_char(']')
        }
        Step::Index(index) => write!(f, "[{index}]"),
    })
}

fn string(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let mut quoted = String::new();
    json::write_string(text, &mut quoted);
    f.write_str(&quoted)
}

/// Whether the text can be written without quotes.
fn is_word(text: &str) -> bool {
    let is_letter = |it: char| it == '_' || it == '$' || it.is_alphabetic();
    text.starts_with(is_letter) && text.chars().all(|it| is_letter(it) || it.is_alphanumeric())
}
