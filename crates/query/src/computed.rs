//! Properties that are not stored but computed when a query names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::walk::Part;
use crate::ast::{Expression, Projection, Select, Step};
use crate::error::{Error, Result};
use crate::{parser, resolve};

/// What the store says about an item; no computed property can be called so.
const RESERVED: [&str; 6] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments"];
/// Longest query of a computed property.
const TEXT_BYTES_MAX: usize = 4096;
/// Most levels of an expression; it may stand deep within the query that names it.
const LEVELS_MAX: u32 = 32;

/// The computed properties of a container: `SELECT VALUE LOWER(c.name) FROM c` under a name, which
/// queries then use like a property that is stored. They are not part of `SELECT *`.
///
/// ```
/// use millstream_query::{ComputedProperties, Query};
///
/// let computed = ComputedProperties::new([("lower", "SELECT VALUE LOWER(c.name) FROM c")])?;
/// let query = Query::parse_with("SELECT p.id FROM p WHERE p.lower = 'ada'", &computed)?;
/// # let _ = query;
/// # Ok::<(), millstream_query::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ComputedProperties {
    properties: BTreeMap<Arc<str>, Computed>,
}

#[derive(Clone, Debug)]
struct Computed {
    /// Of an item, which is the only name in it.
    expression: Expression,
    text_bytes: usize,
}

impl ComputedProperties {
    /// Most of them in a container, as in Azure Cosmos DB.
    pub const COUNT_MAX: usize = 20;

    /// Reads pairs of a name and a query.
    ///
    /// # Errors
    ///
    /// `Invalid` if there are more than [`ComputedProperties::COUNT_MAX`], if a name is empty,
    /// taken or one of the store's own, or if a query is not the computation of one value from one
    /// item; otherwise as for [`Query::parse`](crate::Query::parse).
    pub fn new<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut read: BTreeMap<Arc<str>, Computed> = BTreeMap::new();
        for (name, query) in properties {
            let refused = |reason: &str| Err(refusal(name, reason));
            if name.is_empty() || RESERVED.contains(&name) {
                return refused("this name cannot be used");
            }
            if TEXT_BYTES_MAX < query.len() {
                return refused("its query has more than 4096 bytes");
            }
            let mut select = parser::query(query)?;
            let named = resolve::query(&mut select, &Self::default())?;
            let Some(expression) = computation(select).filter(|_| named.all.is_empty()) else {
                return refused(
                    "its query has to be SELECT VALUE and an expression FROM c, without \
                     parameters, aggregates, inner queries, RAND and functions of the current time",
                );
            };
            if LEVELS_MAX < levels(&expression) {
                return refused("its query nests more than 32 levels");
            }
            let computed = Computed { expression, text_bytes: query.len() };
            if read.insert(name.into(), computed).is_some() {
                return refused("there is another one of this name");
            }
            if Self::COUNT_MAX < read.len() {
                return refused("a container has at most 20 of them");
            }
        }
        for (name, computed) in &read {
            // An SDK sends a query back with computed properties written out; what is within them
            // must not be taken for one again.
            if names_any(&computed.expression, &read) {
                return Err(refusal(name, "its query names a computed property"));
            }
        }
        Ok(Self { properties: read })
    }

    pub(crate) fn has(&self, property: &str) -> bool {
        self.properties.contains_key(property)
    }

    /// What stands for a property of the item called `item`, and how many bytes of text it takes.
    pub(crate) fn get(
        &self,
        property: &str,
        item: &Arc<str>,
        slot: usize,
    ) -> Option<(Expression, usize)> {
        let Computed { expression, text_bytes } = self.properties.get(property)?;
        let mut expression = expression.clone();
        rename(&mut expression, item, slot);
        Some((expression, *text_bytes))
    }
}

fn refusal(name: &str, reason: &str) -> Error {
    let shown: String = name.chars().take(64).collect();
    Error::invalid(format!("define the computed property {shown:?}"), reason)
}

fn names_any(expression: &Expression, properties: &BTreeMap<Arc<str>, Computed>) -> bool {
    let mut names_any = false;
    if let Expression::Path { base, steps } = expression
        && matches!(**base, Expression::Name { .. })
    {
        let first = steps.first().and_then(Step::constant);
        names_any = first.is_some_and(|it| properties.contains_key(it));
    }
    expression.each_child(&mut |child| names_any |= self::names_any(child, properties));
    names_any
}

/// The expression of a query that computes a value from an item and does nothing else.
fn computation(select: Select) -> Option<Expression> {
    let is_plain = select.filter.is_none()
        && select.group_by.is_empty()
        && select.aggregates.is_empty()
        && select.order_by.is_empty()
        && !select.is_distinct
        && !select.is_limited();
    let [source] = &select.sources[..] else { return None };
    let is_of_item = is_plain && source.is_item();
    let Projection::Value(expression) = select.projection else { return None };
    // The item itself would have computed properties again.
    let is_item = matches!(expression, Expression::Name { .. });
    (is_of_item && !is_item && is_pure(&expression)).then_some(expression)
}

fn is_pure(expression: &Expression) -> bool {
    let has_query = matches!(
        expression,
        Expression::Scalar(_) | Expression::Gathered(_) | Expression::Exists(_)
    );
    let varies = matches!(expression, Expression::Call { function, .. }
        if function.name.starts_with("GetCurrent") || function.is_random());
    let mut is_pure = !has_query && !varies;
    expression.each_child(&mut |child| is_pure &= self::is_pure(child));
    is_pure
}

fn levels(expression: &Expression) -> u32 {
    let mut below = 0;
    expression.each_child(&mut |child| below = below.max(levels(child)));
    below + 1
}

/// Gives the item, which is the only name, the name and the place it has elsewhere.
fn rename(expression: &mut Expression, item: &Arc<str>, place: usize) {
    if let Expression::Name { name, slot, .. } = expression {
        (*name, *slot) = (Arc::clone(item), place);
    }
    let renamed = expression.each_child_mut(&mut |part| {
        if let Part::Expression(child) = part {
            rename(child, item, place);
        }
        Ok::<(), std::convert::Infallible>(())
    });
    match renamed {
        Ok(()) => (),
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(properties: &[(&str, &str)], expected: &str) {
        let error = ComputedProperties::new(properties.iter().copied()).unwrap_err();
        assert!(error.report().contains(expected), "{}", error.report());
    }

    #[test]
    fn only_a_value_of_one_item_can_be_computed() {
        let queries = [
            "SELECT * FROM c",
            "SELECT LOWER(c.a) FROM c",
            "SELECT VALUE 1",
            "SELECT VALUE c.a FROM c WHERE c.a = 1",
            "SELECT VALUE c.a FROM c ORDER BY c.a",
            "SELECT VALUE c.a FROM c GROUP BY c.a",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT TOP 1 VALUE c.a FROM c",
            "SELECT DISTINCT VALUE c.a FROM c",
            "SELECT VALUE c.a FROM c OFFSET 1 LIMIT 1",
            "SELECT VALUE t FROM t IN c.a",
            "SELECT VALUE t FROM c JOIN t IN c.a",
            "SELECT VALUE x FROM c.a x",
            "SELECT VALUE x.a FROM (SELECT VALUE c FROM c) x",
            "SELECT VALUE EXISTS(SELECT VALUE t FROM t IN c.a) FROM c",
            "SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.a) FROM c",
            "SELECT VALUE [(SELECT VALUE 1)] FROM c",
            "SELECT VALUE c.a + @x FROM c",
            "SELECT VALUE c FROM c",
            "SELECT VALUE [GetCurrentTicks()] FROM c",
        ];
        for query in queries {
            check_refused(&[("x", query)], "SELECT VALUE and an expression FROM c");
        }
        check_refused(&[("x", "SELECT VALUE")], "expected");
        check_refused(&[("x", "SELECT VALUE POWERR(c.a, 2) FROM c")], "POWERR");
        check_refused(&[("x", "SELECT VALUE d.a FROM c")], "\"d\" is not known");
    }

    #[test]
    fn names_and_sizes_are_limited() {
        let query = "SELECT VALUE c.a FROM c";
        for name in ["", "id", "_ts"] {
            check_refused(&[(name, query)], "cannot be used");
        }
        check_refused(&[("x", query), ("x", query)], "another one of this name");
        let names: Vec<String> = (0..21).map(|it| format!("x{it}")).collect();
        let many: Vec<_> = names.iter().map(|it| (it.as_str(), query)).collect();
        check_refused(&many, "at most 20");
        assert!(ComputedProperties::new(many[..20].iter().copied()).is_ok());
        let long = format!("SELECT VALUE c.a{} FROM c", " + 1".repeat(1024));
        check_refused(&[("x", &long)], "4096 bytes");
        let deep = format!("SELECT VALUE {}c.a{} FROM c", "[".repeat(40), "]".repeat(40));
        check_refused(&[("x", &deep)], "32 levels");
        for query in ["SELECT VALUE LOWER(c.x) FROM c", "SELECT VALUE c[\"y\"].z FROM c"] {
            check_refused(&[("x", query), ("y", "SELECT VALUE 1 FROM c")], "names a computed");
        }
    }
}
