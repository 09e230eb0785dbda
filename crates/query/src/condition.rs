use std::sync::Arc;

use bytes::Bytes;
use millstream_core::Timestamp;

use crate::ast::Select;
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::usage::{Usage, usage};
use crate::{ComputedProperties, Limits, Parameters, json, parser, query, resolve};

/// The condition of a patch: `FROM c WHERE c.stock > 0`. Cheap to clone.
///
/// ```
/// use millstream_core::Timestamp;
/// use millstream_query::Condition;
///
/// let condition = Condition::parse("from c where c.stock > 0")?;
/// let mut steps_left = 1000;
/// assert!(condition.holds(br#"{"id": "1", "stock": 3}"#, Timestamp::EPOCH, &mut steps_left)?);
/// assert!(!condition.holds(br#"{"id": "1"}"#, Timestamp::EPOCH, &mut steps_left)?);
/// assert!(steps_left < 1000);
/// # Ok::<(), millstream_query::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    select: Arc<Select>,
    /// What has to be read of an item.
    usage: Arc<Usage>,
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
        let usage = Arc::new(usage(&select));
        Ok(Self { select: Arc::new(select), usage })
    }

    /// Whether it holds for a JSON object. `now` is what the functions of time return. The steps it
    /// takes are taken from `steps_left`, which conditions of one batch share.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not JSON, `TooLarge` if it takes more steps than are left.
    pub fn holds(&self, body: &[u8], now: Timestamp, steps_left: &mut u64) -> Result<bool> {
        let body = Bytes::copy_from_slice(body);
        let document = match &*self.usage {
            Usage::Nothing | Usage::Whole => json::read(&body),
            Usage::Properties(wanted) => json::read_properties(&body, wanted),
        };
        let document = document.map_err(|reason| Error::invalid("read the item", reason))?;
        let parameters = Parameters::default();
        let mut evaluator = Evaluator::new(&parameters, now, &Limits::default());
        evaluator.context.share_steps(*steps_left);
        let rows = evaluator.all_rows(&self.select, &[document]);
        *steps_left = evaluator.context.steps_left();
        Ok(!rows?.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_share_their_steps() {
        let array = vec!["1"; 20].join(",");
        let body = format!(r#"{{"id":"1","a":[{array}]}}"#);
        let joined = "FROM c WHERE NOT EXISTS(SELECT 1 FROM x IN c.a JOIN y IN c.a WHERE x < 0)";
        let condition = Condition::parse(joined).unwrap();
        let holds = |left: &mut u64| condition.holds(body.as_bytes(), Timestamp::EPOCH, left);
        let mut left = 5000;
        assert!(holds(&mut left).unwrap());
        let taken = 5000 - left;
        assert!((400..4000).contains(&taken), "{taken}");
        let error = holds(&mut (taken - 1)).unwrap_err();
        let expected = "could not run the query: it takes more steps than the conditions of a \
                        batch may take together; join less, or patch fewer items at a time";
        assert_eq!(error.report(), expected);
        let mut exactly = taken;
        assert!(holds(&mut exactly).unwrap());
        assert_eq!(exactly, 0);
    }

    #[test]
    fn a_large_item_can_be_looked_through() {
        let elements =
            vec![r#"{"sku":"4711-0815","count":1,"price":12.50,"vat":19}"#; 39_000].join(",");
        let body = format!(r#"{{"id":"1","text":"","lines":[{elements}]}}"#);
        let text = format!(r#"{{"id":"1","lines":[],"text":"{}"}}"#, "x".repeat(body.len()));
        for condition in [
            "FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM l IN c.lines WHERE l.count = 0)",
            r#"FROM c WHERE NOT ARRAY_CONTAINS(c.lines, {"sku": "4712", "count": 1})"#,
            "FROM c WHERE NOT CONTAINS(c.text, 'y') AND LENGTH(c.text) != 1",
        ] {
            let condition = Condition::parse(condition).unwrap();
            for body in [&body, &text] {
                let mut left = millstream_core::CONDITION_STEPS_MAX;
                let holds = condition.holds(body.as_bytes(), Timestamp::EPOCH, &mut left);
                assert!(holds.unwrap(), "{left}");
            }
        }
    }
}
