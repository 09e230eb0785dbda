use std::sync::Arc;

use bytes::Bytes;
use millstream_core::Timestamp;

use crate::ast::Select;
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::{ComputedProperties, Limits, Parameters, json, parser, query, resolve};

/// The condition of a patch: `FROM c WHERE c.stock > 0`. Cheap to clone.
///
/// ```
/// use millstream_core::Timestamp;
/// use millstream_query::Condition;
///
/// let condition = Condition::parse("from c where c.stock > 0")?;
/// assert!(condition.holds(br#"{"id": "1", "stock": 3}"#, Timestamp::EPOCH)?);
/// assert!(!condition.holds(br#"{"id": "1"}"#, Timestamp::EPOCH)?);
/// # Ok::<(), millstream_query::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    select: Arc<Select>,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    ///
    /// As for [`Query::parse`](crate::Query::parse); ORDER BY and its like are refused.
    pub fn parse(text: &str) -> Result<Self> {
        query::check_size(text)?;
        let mut select = parser::condition(text)?;
        Parameters::default()
            .check(&resolve::query(&mut select, &ComputedProperties::default())?.all)?;
        if select.is_blocking() || select.is_limited() {
            return Err(Error::meaningless(
                select.position,
                "a condition has FROM and WHERE and nothing else; it begins",
            ));
        }
        Ok(Self { select: Arc::new(select) })
    }

    /// Whether it holds for a JSON object. `now` is what the functions of time return.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not JSON, `TooLarge` if it takes too many steps.
    pub fn holds(&self, body: &[u8], now: Timestamp) -> Result<bool> {
        let document = json::read(&Bytes::copy_from_slice(body))
            .map_err(|reason| Error::invalid("read the item", reason))?;
        let parameters = Parameters::default();
        let mut evaluator = Evaluator::new(&parameters, now, &Limits::default());
        let rows = evaluator.all_rows(&self.select, &[document])?;
        Ok(!rows.is_empty())
    }
}
