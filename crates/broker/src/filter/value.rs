use std::borrow::Cow;
use std::cmp::Ordering;

use millstream_core::{Message, PropertyValue, Timestamp};

use crate::filter::expression::{ArithmeticOperator, SystemProperty};

/// What an expression evaluates to; `None` beside it stands for NULL and unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'a, str>),
    Timestamp(Timestamp),
    Binary(&'a [u8]),
}

/// Longest text that `+` makes: the most that the properties of a message of Service Bus take.
const JOINED_BYTES_MAX: usize = 64 * 1024;

impl Value<'_> {
    /// Whether both are equal; unknown if they cannot be compared.
    pub(crate) fn equal(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left == right),
            (Self::Binary(left), Self::Binary(right)) => Some(left == right),
            _ => self.order(other).map(Ordering::is_eq),
        }
    }

    /// Which one is larger; unknown if they cannot be compared.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Timestamp(left), Self::Timestamp(right)) => Some(left.cmp(right)),
            _ => self.double()?.partial_cmp(&other.double()?),
        }
    }

    /// The result of an operator; unknown if it has none.
    pub(crate) fn calculate(self, operator: ArithmeticOperator, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => {
                integers(operator, left, right).map(Self::Integer)
            }
            (Self::Text(left), Self::Text(right)) => {
                join(operator, &left, &right).map(|text| Self::Text(Cow::Owned(text)))
            }
            (left, right) => doubles(operator, left.double()?, right.double()?).map(Self::Double),
        }
    }

    /// The number with the other sign; unknown if it is no number or there is none.
    pub(crate) fn negate(&self) -> Option<Self> {
        if let Self::Integer(number) = self {
            return number.checked_neg().map(Self::Integer);
        }
        self.double().map(|number| Self::Double(-number))
    }

    fn double(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(integer_to_double(*number)),
            Self::Double(number) => Some(*number),
            Self::Bool(_) | Self::Text(_) | Self::Timestamp(_) | Self::Binary(_) => None,
        }
    }
}

impl<'a> From<&'a PropertyValue> for Value<'a> {
    fn from(value: &'a PropertyValue) -> Self {
        match value {
            PropertyValue::Bool(value) => Self::Bool(*value),
            PropertyValue::Integer(number) => Self::Integer(*number),
            PropertyValue::Double(number) => Self::Double(*number),
            PropertyValue::String(text) => Self::Text(Cow::Borrowed(text)),
            PropertyValue::Timestamp(time) => Self::Timestamp(*time),
            PropertyValue::Binary(bytes) => Self::Binary(bytes),
        }
    }
}

/// The property with this name; if there is none, the first one whose name differs only in case.
pub(crate) fn user_property<'a>(message: &'a Message, name: &str) -> Option<Value<'a>> {
    let exact = message.properties.get(name);
    let similar =
        || message.properties.iter().find(|(other, _)| same_name(other, name)).map(|(_, it)| it);
    exact.or_else(similar).map(Value::from)
}

/// The value of a property of the system.
pub(crate) fn system_property(message: &Message, property: SystemProperty) -> Option<Value<'_>> {
    let text = match property {
        SystemProperty::MessageId => Some(&message.id),
        SystemProperty::CorrelationId => message.correlation_id.as_ref(),
        SystemProperty::SessionId => message.session_id.as_ref(),
        SystemProperty::ReplyToSessionId => message.reply_to_session_id.as_ref(),
        SystemProperty::Label => message.subject.as_ref(),
        SystemProperty::ContentType => message.content_type.as_ref(),
        SystemProperty::To => message.to.as_ref(),
        SystemProperty::ReplyTo => message.reply_to.as_ref(),
        SystemProperty::PartitionKey => message.partition_key.as_ref(),
        SystemProperty::ScheduledEnqueueTimeUtc => {
            return message.scheduled_at.map(Value::Timestamp);
        }
    };
    text.map(|text| Value::Text(Cow::Borrowed(text)))
}

/// Whether two names of properties mean the same.
pub(crate) fn same_name(left: &str, right: &str) -> bool {
    let lower = |name: &str| name.chars().flat_map(char::to_lowercase).collect::<String>();
    if left.is_ascii() && right.is_ascii() {
        return left.eq_ignore_ascii_case(right);
    }
    lower(left) == lower(right)
}

fn integers(operator: ArithmeticOperator, left: i64, right: i64) -> Option<i64> {
    match operator {
        ArithmeticOperator::Add => left.checked_add(right),
        ArithmeticOperator::Subtract => left.checked_sub(right),
        ArithmeticOperator::Multiply => left.checked_mul(right),
        ArithmeticOperator::Divide => left.checked_div(right),
        ArithmeticOperator::Remainder => left.checked_rem(right),
    }
}

fn doubles(operator: ArithmeticOperator, left: f64, right: f64) -> Option<f64> {
    match operator {
        ArithmeticOperator::Add => Some(left + right),
        ArithmeticOperator::Subtract => Some(left - right),
        ArithmeticOperator::Multiply => Some(left * right),
        ArithmeticOperator::Divide => (right != 0.0).then(|| left / right),
        ArithmeticOperator::Remainder => (right != 0.0).then(|| left % right),
    }
}

fn join(operator: ArithmeticOperator, left: &str, right: &str) -> Option<String> {
    let fits = left.len().saturating_add(right.len()) <= JOINED_BYTES_MAX;
    (operator == ArithmeticOperator::Add && fits).then(|| format!("{left}{right}"))
}

/// The nearest double.
fn integer_to_double(number: i64) -> f64 {
    const HALF: f64 = 4_294_967_296.0;
    let high = i32::try_from(number >> 32).expect("the upper half of 64 bits has 32");
    let low = u32::try_from(number & 0xffff_ffff).expect("the lower half of 64 bits has 32");
    // Both halves are exact, so that only the sum is rounded.
    f64::from(high) * HALF + f64::from(low)
}
