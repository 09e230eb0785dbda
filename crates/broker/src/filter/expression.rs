use std::fmt;

use crate::filter::like::LikePattern;
use crate::filter::value::same_name;

/// What was read. Lists instead of pairs where an operator is repeated, so that the depth is that
/// of the nesting and not that of the length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Or(Vec<Expression>),
    And(Vec<Expression>),
    Not(Box<Expression>),
    Compare {
        operator: Comparison,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    IsNull {
        operand: Box<Expression>,
        negated: bool,
    },
    In {
        operand: Box<Expression>,
        values: Vec<Expression>,
        negated: bool,
    },
    Like(Box<Like>),
    Exists(Property),
    /// All operators are `+` and `-`, or all are `*`, `/` and `%`.
    Arithmetic {
        first: Box<Expression>,
        rest: Vec<(ArithmeticOperator, Expression)>,
    },
    Negate(Box<Expression>),
    Property(Property),
    /// `p(name)`.
    Lookup(Box<Expression>),
    Literal(Literal),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Like {
    pub(crate) operand: Expression,
    pub(crate) pattern: Expression,
    pub(crate) escape: Option<Expression>,
    pub(crate) negated: bool,
    /// The pattern, if it is the same for every message.
    pub(crate) compiled: Option<LikePattern>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Property {
    User(String),
    System(SystemProperty),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SystemProperty {
    MessageId,
    CorrelationId,
    SessionId,
    ReplyToSessionId,
    Label,
    ContentType,
    To,
    ReplyTo,
    PartitionKey,
    ScheduledEnqueueTimeUtc,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How tightly the parts of an expression hold together; larger is tighter.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Or,
    And,
    Not,
    Predicate,
    Sum,
    Product,
    Sign,
    Primary,
}

/// Words that name a property only within brackets.
const RESERVED: [&str; 11] =
    ["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"];

impl Expression {
    /// Whether it can only be true, false or unknown.
    pub(crate) fn is_condition(&self) -> bool {
        let level = self.level();
        level < Level::Sum || matches!(self, Self::Exists(_))
    }

    /// Whether it can be neither true nor false.
    pub(crate) fn is_value(&self) -> bool {
        use Literal::{Double, Integer, Text};
        matches!(
            self,
            Self::Arithmetic { .. }
                | Self::Negate(_)
                | Self::Literal(Integer(_) | Double(_) | Text(_))
        )
    }

    fn level(&self) -> Level {
        use ArithmeticOperator::{Add, Subtract};
        match self {
            Self::Or(_) => Level::Or,
            Self::And(_) => Level::And,
            Self::Not(_) => Level::Not,
            Self::Compare { .. } | Self::IsNull { .. } | Self::In { .. } | Self::Like(_) => {
                Level::Predicate
            }
            Self::Arithmetic { rest, .. } => match rest.first() {
                Some((Add | Subtract, _)) => Level::Sum,
                _ => Level::Product,
            },
            Self::Negate(_) => Level::Sign,
            Self::Literal(Literal::Integer(number)) if *number < 0 => Level::Sign,
            Self::Literal(Literal::Double(number)) if number.is_sign_negative() => Level::Sign,
            Self::Exists(_) | Self::Property(_) | Self::Lookup(_) | Self::Literal(_) => {
                Level::Primary
            }
        }
    }
}

impl SystemProperty {
    /// The names; the first one is shown if there are two.
    const NAMES: [(&str, Self); 11] = [
        ("MessageId", Self::MessageId),
        ("CorrelationId", Self::CorrelationId),
        ("SessionId", Self::SessionId),
        ("ReplyToSessionId", Self::ReplyToSessionId),
        ("Label", Self::Label),
        ("Subject", Self::Label),
        ("ContentType", Self::ContentType),
        ("To", Self::To),
        ("ReplyTo", Self::ReplyTo),
        ("PartitionKey", Self::PartitionKey),
        ("ScheduledEnqueueTimeUtc", Self::ScheduledEnqueueTimeUtc),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(other, _)| same_name(other, name)).map(|(_, property)| *property)
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, property)| *property == self).map_or("", |(name, _)| name)
    }
}

impl Comparison {
    pub(crate) const ALL: [Self; 6] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
    ];

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl ArithmeticOperator {
    pub(crate) const SUM: [Self; 2] = [Self::Add, Self::Subtract];
    pub(crate) const PRODUCT: [Self; 3] = [Self::Multiply, Self::Divide, Self::Remainder];

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// Whether the word is part of the language.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// Whether a name without brackets can begin like this.
pub(crate) fn begins_name(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// Whether a name without brackets can go on like this.
pub(crate) fn continues_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Shows an expression that reads as this one.
impl fmt::Display for Expression {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(parts) => show_list(to, parts, " OR ", Level::And),
            Self::And(parts) => show_list(to, parts, " AND ", Level::Not),
            Self::Not(operand) => {
                to.write_str("NOT ")?;
                show(to, operand, Level::Not)
            }
            Self::Compare { operator, left, right } => {
                show(to, left, Level::Sum)?;
                write!(to, " {} ", operator.symbol())?;
                show(to, right, Level::Sum)
            }
            Self::IsNull { operand, negated } => {
                show(to, operand, Level::Sum)?;
                to.write_str(if *negated { " IS NOT NULL" } else { " IS NULL" })
            }
            Self::In { operand, values, negated } => {
                show(to, operand, Level::Sum)?;
                to.write_str(if *negated { " NOT IN (" } else { " IN (" })?;
                show_list(to, values, ", ", Level::Sum)?;
                to.write_str(")")
            }
            Self::Like(like) => like.fmt(to),
            Self::Exists(property) => write!(to, "EXISTS({property})"),
            Self::Arithmetic { first, rest } => {
                let part = if self.level() == Level::Sum { Level::Product } else { Level::Sign };
                show(to, first, part)?;
                for (operator, operand) in rest {
                    write!(to, " {} ", operator.symbol())?;
                    show(to, operand, part)?;
                }
                Ok(())
            }
            Self::Negate(operand) => {
                to.write_str("-")?;
                show(to, operand, Level::Sign)
            }
            Self::Property(property) => property.fmt(to),
            Self::Lookup(name) => write!(to, "p({name})"),
            Self::Literal(literal) => literal.fmt(to),
        }
    }
}

impl fmt::Display for Like {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(to, &self.operand, Level::Sum)?;
        to.write_str(if self.negated { " NOT LIKE " } else { " LIKE " })?;
        show(to, &self.pattern, Level::Sum)?;
        let Some(escape) = &self.escape else { return Ok(()) };
        to.write_str(" ESCAPE ")?;
        show(to, escape, Level::Sum)
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => to.write_str("NULL"),
            Self::Bool(true) => to.write_str("TRUE"),
            Self::Bool(false) => to.write_str("FALSE"),
            Self::Integer(number) => write!(to, "{number}"),
            Self::Double(number) => write!(to, "{number:?}"),
            Self::Text(text) => write!(to, "'{}'", text.replace('\'', "''")),
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(property) => write!(to, "sys.{}", property.name()),
            Self::User(name) if is_plain(name) => to.write_str(name),
            Self::User(name) => write!(to, "[{}]", name.replace(']', "]]")),
        }
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(begins_name) && name.chars().all(continues_name) && !is_reserved(name)
}

/// In parentheses if it would fall apart without.
fn show(to: &mut fmt::Formatter<'_>, part: &Expression, level: Level) -> fmt::Result {
    if part.level() < level { write!(to, "({part})") } else { write!(to, "{part}") }
}

fn show_list(
    to: &mut fmt::Formatter<'_>,
    parts: &[Expression],
    between: &str,
    level: Level,
) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if 0 < index {
            to.write_str(between)?;
        }
        show(to, part, level)?;
    }
    Ok(())
}
