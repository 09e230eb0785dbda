//! Which messages of a topic a subscription wants.
//!
//! Not here: rules with names, and what a broker does with a message nobody wants. A filter is a
//! pure function of one message: it keeps no state, never fails, and ends in bounded time.
//!
//! Read `sql` first (the language), then `parser` and `evaluate`; `lexer`, `expression`, `value`
//! and `like` serve them.

pub(crate) mod correlation;
mod evaluate;
mod expression;
mod lexer;
mod like;
mod parser;
pub(crate) mod sql;
mod value;

#[cfg(test)]
mod tests;

use millstream_core::{Message, Result};
use serde::{Deserialize, Serialize};

use crate::filter::correlation::CorrelationFilter;
use crate::filter::sql::SqlFilter;

/// Decides whether a subscription gets a message.
///
/// As JSON it is an object with a `kind`; this form is stored, so it does not change:
///
/// ```json
/// {"kind":"true"}
/// {"kind":"false"}
/// {"kind":"correlation","subject":"ContactCreated","properties":{"source":"contacts"}}
/// {"kind":"sql","expression":"sys.Label LIKE 'Contact%' AND priority >= 5"}
/// ```
///
/// ```
/// use millstream_broker::Filter;
/// use millstream_core::Message;
///
/// # fn main() -> millstream_core::Result<()> {
/// let filter = Filter::sql("sys.Label LIKE 'Contact%' AND priority >= 5")?;
/// let message = Message::new("event-1", "").subject("ContactCreated").property("priority", 7_i64);
/// assert!(filter.matches(&message));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Filter {
    /// Every message; what a new subscription has.
    #[default]
    True,
    /// No message.
    False,
    /// Messages with these very values.
    Correlation(CorrelationFilter),
    /// Messages for which an expression is true.
    Sql(SqlFilter),
}

impl Filter {
    /// Reads an expression in the language of [`SqlFilter`].
    ///
    /// # Errors
    ///
    /// `Invalid` with the column if the text is not such an expression, or larger than allowed.
    pub fn sql(text: &str) -> Result<Self> {
        SqlFilter::new(text).map(Self::Sql)
    }

    /// Whether the subscription gets the message.
    #[must_use]
    pub fn matches(&self, message: &Message) -> bool {
        match self {
            Self::True => true,
            Self::False => false,
            Self::Correlation(filter) => filter.matches(message),
            Self::Sql(filter) => filter.matches(message),
        }
    }

    /// Checks what a broker refuses when a rule is made.
    ///
    /// # Errors
    ///
    /// `Invalid` as for [`CorrelationFilter::check`]; the other kinds are always right.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Correlation(filter) => filter.check(),
            Self::True | Self::False | Self::Sql(_) => Ok(()),
        }
    }
}

impl From<CorrelationFilter> for Filter {
    fn from(filter: CorrelationFilter) -> Self {
        Self::Correlation(filter)
    }
}

impl From<SqlFilter> for Filter {
    fn from(filter: SqlFilter) -> Self {
        Self::Sql(filter)
    }
}
