use std::fmt;

use millstream_core::{Error, Message, Result};
use serde::{Deserialize, Serialize};

use crate::filter::evaluate::truth;
use crate::filter::expression::Expression;
use crate::filter::parser::parse;

/// Wants messages for which an expression is true: the SQL filter language of Service Bus.
///
/// ```text
/// condition  = condition OR condition | condition AND condition | NOT condition
///            | value (= | <> | != | < | <= | > | >=) value
///            | value [NOT] IN (value, ...)
///            | value [NOT] LIKE pattern [ESCAPE character]
///            | property IS [NOT] NULL | EXISTS(property) | (condition)
/// value      = 17 | 1.5 | 2.5E-3 | 'it''s text' | TRUE | FALSE | NULL | property
///            | p(name) | value (+ | - | * | / | %) value | -value | +value | (value)
/// property   = [sys. | user.] name | [sys. | user.] [any name] | [sys. | user.] "any name"
/// ```
///
/// - Words of the language and names of properties are compared without regard to case, text with.
///   A name without `sys.` is one of [`Message::properties`]; `p(name)`, also `property(name)`,
///   reads the one whose name is the value of an expression. A property or `TRUE` may also stand
///   where a condition is wanted.
/// - The properties of the system are `MessageId`, `CorrelationId`, `SessionId`,
///   `ReplyToSessionId`, `Label` (or `Subject`), `ContentType`, `To`, `ReplyTo`, `PartitionKey` and
///   `ScheduledEnqueueTimeUtc`. Another name is an error when the filter is read.
/// - An absent property is `NULL`, and `NULL` in an operation makes the result unknown. `AND`, `OR`
///   and `NOT` follow the three-valued logic of SQL: `FALSE AND unknown` is false, `TRUE OR
///   unknown` is true, `NOT unknown` is unknown. A message is wanted if the whole is true, not if
///   it is unknown.
/// - Two whole numbers are compared and computed exactly; if one is a double the other becomes one.
///   Values of different types compare as unknown, and so does the order of two booleans or two
///   binaries. Text is ordered by code point. `+` joins texts.
/// - Overflow of whole numbers, division by zero, comparison with NaN, a pattern over 1024
///   characters, and joined text over 64 KiB are unknown.
/// - `LIKE` knows `%` (any text) and `_` (any one character). The escape character takes the
///   meaning from the character after it.
///
/// Not here: `newid()` and parameters such as `@name`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct SqlFilter {
    text: String,
    expression: Expression,
}

/// What is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    expression: String,
}

impl SqlFilter {
    /// Longest expression, in characters, as in Service Bus.
    pub const CHARACTERS_MAX: usize = 1024;
    /// Deepest nesting of parentheses, signs, `NOT`, lists and functions.
    pub const DEPTH_MAX: usize = 32;
    /// Most values in the list of one `IN`.
    pub const LIST_VALUES_MAX: usize = 256;

    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// `Invalid` with the column if the text is not an expression, or larger than allowed.
    ///
    /// ```
    /// use millstream_broker::SqlFilter;
    ///
    /// let report = SqlFilter::new("color = 'red' AND").unwrap_err().report();
    /// assert_eq!(
    ///     report,
    ///     r#"could not read the filter "color = 'red' AND": "#.to_owned()
    ///         + "expected a value at column 18, found the end",
    /// );
    /// ```
    pub fn new(text: &str) -> Result<Self> {
        if text.chars().nth(Self::CHARACTERS_MAX).is_some() {
            let reason = format!("it has more than {} characters", Self::CHARACTERS_MAX);
            return Err(refused(text, reason));
        }
        let expression = parse(text).map_err(|reason| refused(text, reason))?;
        Ok(Self { text: text.to_owned(), expression })
    }

    /// The expression as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression is true for the message.
    #[must_use]
    pub fn matches(&self, message: &Message) -> bool {
        truth(&self.expression, message) == Some(true)
    }
}

/// Shows the expression as it was understood, in one spelling; it may be longer than the text.
impl fmt::Display for SqlFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(formatter)
    }
}

impl TryFrom<Form> for SqlFilter {
    type Error = String;

    fn try_from(form: Form) -> Result<Self, String> {
        // The report, since serde shows one line only.
        Self::new(&form.expression).map_err(|error| error.report())
    }
}

impl From<SqlFilter> for Form {
    fn from(filter: SqlFilter) -> Self {
        Self { expression: filter.text }
    }
}

fn refused(text: &str, reason: String) -> Error {
    /// How much of the text an error repeats.
    const SHOWN_CHARACTERS_MAX: usize = 64;
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Error::invalid(format!("read the filter \"{shown}\""), reason)
}
