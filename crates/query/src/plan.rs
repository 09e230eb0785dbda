//! How an SDK divides a query among ranges and joins the results.
//!
//! The shapes are those that the SDKs of Cosmos DB read. `rewrite` has the queries that they send
//! to each range instead of the one they were given.

mod inner;
mod rewrite;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_core::{EffectiveKey, HashKind, KeyRange, PartitionKeyDefinition};
use serde::Serialize;

use crate::ast::{AggregateKind, Collection, Expression, Projection, Select};
use crate::error::{Error, Result};
use crate::plan::inner::{Inner, inner};
use crate::select::{reads_documents, window};
use crate::{Parameters, access};

/// The answer to a query plan request; serialises to its JSON.
///
/// ```
/// use millstream_core::PartitionKeyDefinition;
/// use millstream_query::{Parameters, Query};
///
/// let query = Query::parse("SELECT VALUE COUNT(1) FROM c")?;
/// let definition = PartitionKeyDefinition::hash("/city").unwrap();
/// let plan = query.plan(&definition, &Parameters::default())?;
/// let json = serde_json::to_value(&plan).unwrap();
/// assert_eq!(json["queryInfo"]["aggregates"][0], "Count");
/// assert_eq!(json["queryInfo"]["rewrittenQuery"], r#"SELECT VALUE [{"item": COUNT(1)}] FROM c"#);
/// assert_eq!(json["queryRanges"][0]["max"], "FF");
/// # Ok::<(), millstream_query::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    partitioned_query_execution_info_version: u32,
    query_info: QueryInfo,
    query_ranges: Vec<QueryRange>,
}

/// How the rows of several ranges make up the rows of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Those of one range come after those of another.
    Appended,
    /// A client merges them, as the [`Plan`] of the query says.
    Merged,
    /// Not every client can merge them: only somebody who sees all items can answer.
    Whole,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueryInfo {
    distinct_type: &'static str,
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
    order_by: Vec<&'static str>,
    order_by_expressions: Vec<String>,
    group_by_expressions: Vec<String>,
    group_by_aliases: Vec<String>,
    aggregates: Vec<&'static str>,
    group_by_alias_to_aggregate_type: BTreeMap<String, Option<&'static str>>,
    rewritten_query: String,
    has_select_value: bool,
    has_non_streaming_order_by: bool,
    d_count_info: Option<DistinctCount>,
}

/// A count of distinct values: the SDK counts rows instead of adding counts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DistinctCount {
    d_count_alias: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueryRange {
    min: EffectiveKey,
    max: EffectiveKey,
    is_min_inclusive: bool,
    is_max_inclusive: bool,
}

impl Plan {
    /// What an SDK must be able to do to join the results of several ranges, by the names that SDKs
    /// list in their requests for plans.
    ///
    /// ```
    /// use millstream_core::PartitionKeyDefinition;
    /// use millstream_query::{Parameters, Query};
    ///
    /// let query = Query::parse("SELECT DISTINCT VALUE c.x FROM c ORDER BY c.x")?;
    /// let definition = PartitionKeyDefinition::hash("/city").unwrap();
    /// let plan = query.plan(&definition, &Parameters::default())?;
    /// assert_eq!(plan.features(), ["Distinct", "OrderBy"]);
    /// # Ok::<(), millstream_query::Error>(())
    /// ```
    pub fn features(&self) -> Vec<&'static str> {
        let info = &self.query_info;
        let is_grouped = !info.group_by_expressions.is_empty();
        let named = info.group_by_alias_to_aggregate_type.values().flatten().count();
        let aggregates = if is_grouped { 0 } else { info.aggregates.len() + named };
        let mut kinds =
            info.group_by_alias_to_aggregate_type.values().flatten().chain(&info.aggregates);
        let has_collections = kinds.any(|it| matches!(*it, "MakeList" | "MakeSet"));
        let needed = [
            ("Aggregate", 0 < aggregates),
            // The name for lists and sets is "ListAndSetAggregate", but the SDK for .NET does not
            // list it although it can merge them. It lists an aggregate that came later, "CountIf",
            // and this name, and so does the one for JavaScript. The one for Python lists only the
            // former, and would leave a list out without a word; the one for Java only the latter.
            ("NonValueAggregate", has_collections || (0 < aggregates && !info.has_select_value)),
            ("MultipleAggregates", 1 < aggregates),
            ("GroupBy", is_grouped),
            ("DCount", info.d_count_info.is_some()),
            ("CountIf", has_collections),
            ("Distinct", info.distinct_type != "None"),
            ("OrderBy", !info.order_by.is_empty()),
            ("MultipleOrderBy", 1 < info.order_by.len()),
            ("OffsetAndLimit", info.limit.is_some()),
            ("Top", info.top.is_some()),
        ];
        needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| name).collect()
    }
}

pub(crate) fn plan(
    select: &Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
) -> Result<Plan> {
    let ranges = access::ranges(select, definition, parameters)?;
    let query_ranges = match ranges.is_empty() {
        // SDKs ask at least one range.
        true => vec![QueryRange::new(&KeyRange::all(), definition)],
        false => ranges.iter().map(|it| QueryRange::new(it, definition)).collect(),
    };
    let query_info = match distinct_count(select) {
        Some((counted, alias)) => {
            let counted = divided(counted, definition, parameters)?;
            QueryInfo {
                d_count_info: Some(DistinctCount { d_count_alias: alias.map(|it| it.to_string()) }),
                has_select_value: matches!(select.projection, Projection::Value(_)),
                rewritten_query: rewrite::without_window(&counted),
                ..info(&counted, parameters)?
            }
        }
        None => info(&*divided(select, definition, parameters)?, parameters)?,
    };
    Ok(Plan { partitioned_query_execution_info_version: 2, query_info, query_ranges })
}

/// The query whose rows of several ranges, joined by its own clauses, are those of this one.
fn divided<'s>(
    select: &'s Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
) -> Result<Cow<'s, Select>> {
    match inner(select, definition) {
        Inner::Divisible => Ok(Cow::Borrowed(select)),
        Inner::Repeating => Ok(Cow::Owned(Select { is_distinct: true, ..select.clone() })),
        // One range has all of it.
        Inner::Indivisible if access::is_within_one_partition(select, definition, parameters)? => {
            Ok(Cow::Borrowed(select))
        }
        Inner::Indivisible => {
            let reason = "a query in FROM that sorts, groups, limits or tells rows apart cannot be \
                          divided;";
            Err(Error::unsupported(select.position, reason))
        }
    }
}

/// How the rows of several ranges make up those of the query.
pub(crate) fn joining(select: &Select) -> Joining {
    if !reads_documents(select) {
        return Joining::Whole;
    }
    if !select.is_blocking() && !select.is_limited() {
        return Joining::Appended;
    }
    // Groups, counts of distinct values, lists and sets are beyond some SDKs.
    let is_of_items = match select.sources.first().map(|it| &it.collection) {
        Some(Collection::Select(_)) => false,
        Some(Collection::Root { .. } | Collection::Expression(_)) | None => true,
    };
    if !select.group_by.is_empty() || select.has_collections() || !is_of_items {
        return Joining::Whole;
    }
    Joining::Merged
}

fn info(select: &Select, parameters: &Parameters) -> Result<QueryInfo> {
    check_divisible(select)?;
    let (offset, limit) = window(select, parameters)?;
    let (top, window) = match (&select.top, &select.window) {
        (Some(_), _) => (limit, None),
        (None, Some(_)) => (None, Some((offset, limit.unwrap_or_default()))),
        (None, None) => (None, None),
    };
    let direction = |is_descending| if is_descending { "Descending" } else { "Ascending" };
    let mut info = QueryInfo {
        distinct_type: distinct_type(select),
        top,
        offset: window.map(|it| it.0),
        limit: window.map(|it| it.1),
        order_by: select.order_by.iter().map(|it| direction(it.is_descending)).collect(),
        order_by_expressions: select.order_by.iter().map(|it| it.expression.to_string()).collect(),
        group_by_expressions: select.group_by.iter().map(ToString::to_string).collect(),
        group_by_aliases: Vec::new(),
        aggregates: aggregates(select),
        group_by_alias_to_aggregate_type: BTreeMap::new(),
        rewritten_query: String::new(),
        has_select_value: matches!(select.projection, Projection::Value(_)),
        has_non_streaming_order_by: false,
        d_count_info: None,
    };
    if select.is_grouped() {
        if let Projection::List(list) = &select.projection {
            info.group_by_aliases = select.names.iter().map(ToString::to_string).collect();
            for (item, name) in list.iter().zip(&select.names) {
                let kind = item.expression.as_aggregate().map(|it| it.kind.plan_name());
                info.group_by_alias_to_aggregate_type.insert(name.to_string(), kind);
            }
        }
        info.rewritten_query = rewrite::grouped(select);
    } else if !select.order_by.is_empty() {
        info.rewritten_query = rewrite::ordered(select, window)?;
    } else if select.is_distinct {
        info.rewritten_query = rewrite::without_window(select);
    } else if let Some((offset, limit)) = window {
        info.rewritten_query = rewrite::with_window(select, offset, limit);
    }
    Ok(info)
}

/// The aggregates that are rows themselves. Those of a list are known by the names of their
/// properties instead.
fn aggregates(select: &Select) -> Vec<&'static str> {
    match &select.projection {
        Projection::Star | Projection::List(_) => Vec::new(),
        Projection::Value(_) => select.aggregates.iter().map(|it| it.kind.plan_name()).collect(),
    }
}

/// Refuses what the results of several ranges cannot be joined to.
fn check_divisible(select: &Select) -> Result<()> {
    let refused = |reason: &str| Err(Error::unsupported(select.position, reason));
    if select.is_grouped() && !select.order_by.is_empty() {
        return refused("groups in an order cannot be divided among ranges;");
    }
    let is_bare = |expression: &Expression| {
        matches!(expression, Expression::Aggregate { .. }) || !has_aggregate(expression)
    };
    let is_divisible = match &select.projection {
        Projection::Star => true,
        Projection::Value(expression) => is_bare(expression),
        Projection::List(list) => list.iter().all(|it| is_bare(&it.expression)),
    };
    if is_divisible {
        return Ok(());
    }
    refused("an aggregate within an expression cannot be divided among ranges;")
}

fn has_aggregate(expression: &Expression) -> bool {
    let mut is_found = matches!(expression, Expression::Aggregate { .. });
    expression.each_child(&mut |child| is_found = is_found || has_aggregate(child));
    is_found
}

/// `SELECT COUNT(1) FROM (SELECT DISTINCT …)`: the inner query, and the name of the count.
fn distinct_count(select: &Select) -> Option<(&Select, Option<Arc<str>>)> {
    let [source] = &select.sources[..] else { return None };
    let Collection::Select(inner) = &source.collection else { return None };
    let is_plain = !source.is_iterated
        && select.filter.is_none()
        && select.group_by.is_empty()
        && !select.is_distinct
        && !select.is_limited();
    let is_inner = inner.is_distinct
        && !inner.is_grouped()
        && inner.order_by.is_empty()
        && !inner.is_limited();
    // Every row of the inner query is defined, and there is no other name than that of the rows.
    let is_of_each = |argument: &Expression| {
        matches!(argument, Expression::Name { .. })
            || matches!(argument, Expression::Literal(it) if !it.is_undefined())
    };
    let is_count = |expression: &Expression| {
        expression
            .as_aggregate()
            .is_some_and(|it| it.kind == AggregateKind::Count && is_of_each(&it.argument))
    };
    let alias = match &select.projection {
        Projection::Value(expression) if is_count(expression) => None,
        Projection::List(list) => match &list[..] {
            [only] if is_count(&only.expression) => select.names.first().cloned(),
            _ => return None,
        },
        Projection::Star | Projection::Value(_) => return None,
    };
    (is_plain && is_inner).then_some((&**inner, alias))
}

/// Rows in order need to be compared with the one before only, if they are ordered by what they
/// are. Cosmos DB says so of single values only, and SDKs know it.
fn distinct_type(select: &Select) -> &'static str {
    if !select.is_distinct {
        return "None";
    }
    match (&select.projection, &select.order_by[..]) {
        (Projection::Value(value), [only]) if value.to_string() == only.expression.to_string() => {
            "Ordered"
        }
        (Projection::Star | Projection::Value(_) | Projection::List(_), _) => "Unordered",
    }
}

impl QueryRange {
    fn new(range: &KeyRange, definition: &PartitionKeyDefinition) -> Self {
        // A single key is written as a range from it to itself.
        let width = match definition.kind() {
            HashKind::V1 => None,
            HashKind::V2 => Some(16),
            HashKind::MultiHash => Some(16 * definition.paths().len()),
        };
        let is_point =
            Some(range.min().as_bytes().len()) == width || is_v1_point(range, definition);
        let max = if is_point { range.min() } else { range.max() };
        Self {
            min: range.min().clone(),
            max: max.clone(),
            is_min_inclusive: true,
            is_max_inclusive: is_point,
        }
    }
}

fn is_v1_point(range: &KeyRange, definition: &PartitionKeyDefinition) -> bool {
    definition.kind() == HashKind::V1 && *range != KeyRange::all()
}
