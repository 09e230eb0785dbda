//! The queries that SDKs send to each range.

use std::fmt::Write as _;

use crate::ast::{
    Aggregate, AggregateKind, Collection, Count, Expression, Projection, ROWS_MAX, Select, Source,
    Window,
};
use crate::error::{Error, Result};
use crate::json;
use crate::lexer::FILTER_PLACEHOLDER;
use crate::plan::inner::gives_items;

/// The name of the item where the query has none for it.
const ROOT: &str = "_root";

/// Rows with what they are sorted by beside them, and a place for the filter of resumption.
pub(crate) fn ordered(select: &Select, window: Option<(u64, u64)>) -> Result<String> {
    let (root, sources) = rooted(select)?;
    let mut text = "SELECT ".to_owned();
    // Rows that are dropped as duplicates later must not count yet.
    if let Some(top) = select.top.as_ref().filter(|_| !select.is_distinct) {
        add(&mut text, format_args!("TOP {top} "));
    }
    add(&mut text, format_args!("{root}._rid, {} AS orderByItems, ", items(select)));
    let (payload, is_optional) = match &select.projection {
        Projection::Star => (select.sources[0].alias.to_string(), false),
        Projection::Value(expression) => (expression.to_string(), true),
        Projection::List(_) => (object(select), false),
    };
    add(&mut text, format_args!("{payload} AS payload FROM {sources} WHERE "));
    if let Some(filter) = &select.filter {
        add(&mut text, format_args!("({filter}) AND "));
    }
    // A row that is undefined is no row.
    if is_optional {
        add(&mut text, format_args!("IS_DEFINED({payload}) AND "));
    }
    add(&mut text, format_args!("({FILTER_PLACEHOLDER})"));
    for (index, item) in select.order_by.iter().enumerate() {
        let direction = if item.is_descending { "DESC" } else { "ASC" };
        let before = if index == 0 { " ORDER BY " } else { ", " };
        add(&mut text, format_args!("{before}{} {direction}", item.expression));
    }
    if let Some((offset, limit)) = window.filter(|_| !select.is_distinct) {
        add(&mut text, format_args!(" OFFSET 0 LIMIT {}", rows_up_to(offset, limit)));
    }
    Ok(text)
}

/// Partial aggregates, and what they are grouped by.
pub(crate) fn grouped(select: &Select) -> String {
    let is_grouped_by = !select.group_by.is_empty();
    let (payload, is_optional) = match &select.projection {
        Projection::Value(expression) if is_grouped_by && expression.as_aggregate().is_none() => {
            (expression.to_string(), true)
        }
        Projection::Value(expression) => (format!("[{}]", partial(expression)), false),
        Projection::Star | Projection::List(_) => (object(select), false),
    };
    let mut text = match (&select.projection, is_grouped_by) {
        (Projection::Value(_), false) => format!("SELECT VALUE {payload}"),
        (Projection::Star | Projection::List(_), false) => format!("SELECT {payload} AS payload"),
        (_, true) => {
            let keys = select.group_by.iter().map(|it| format!("{{\"item\": {it}}}"));
            let keys: Vec<String> = keys.collect();
            format!("SELECT [{}] AS groupByItems, {payload} AS payload", keys.join(", "))
        }
    };
    for (index, source) in select.sources.iter().enumerate() {
        add(&mut text, format_args!("{}{source}", if index == 0 { " FROM " } else { " JOIN " }));
    }
    match &select.filter {
        // A row that is undefined is no row; of a group all rows are, or none.
        Some(filter) if is_optional => {
            add(&mut text, format_args!(" WHERE ({filter}) AND IS_DEFINED({payload})"));
        }
        None if is_optional => add(&mut text, format_args!(" WHERE IS_DEFINED({payload})")),
        Some(filter) => add(&mut text, format_args!(" WHERE {filter}")),
        None => (),
    }
    for (index, key) in select.group_by.iter().enumerate() {
        add(&mut text, format_args!("{}{key}", if index == 0 { " GROUP BY " } else { ", " }));
    }
    text
}

/// The query without TOP, OFFSET and LIMIT.
pub(crate) fn without_window(select: &Select) -> String {
    Select { top: None, window: None, ..select.clone() }.to_string()
}

/// The query with the rows of all windows up to this one.
pub(crate) fn with_window(select: &Select, offset: u64, limit: u64) -> String {
    let limit = Count::Literal(rows_up_to(offset, limit));
    let window = Some(Window { offset: Count::Literal(0), limit });
    Select { top: None, window, ..select.clone() }.to_string()
}

/// No range has more rows than a query can ask for.
fn rows_up_to(offset: u64, limit: u64) -> u64 {
    offset.saturating_add(limit).min(ROWS_MAX)
}

/// The name of the item, and FROM with the item in it.
fn rooted(select: &Select) -> Result<(String, String)> {
    let joined = |first: String, rest: &[Source]| {
        let rest = rest.iter().map(|it| format!(" JOIN {it}"));
        format!("{first}{}", rest.collect::<String>())
    };
    let Some((first, rest)) = select.sources.split_first() else {
        let reason = "a query without FROM needs no ORDER BY;";
        return Err(Error::unsupported(select.position, reason));
    };
    match &first.collection {
        Collection::Root { steps, .. } if steps.is_empty() && !first.is_iterated => {
            Ok((first.alias.to_string(), joined(first.to_string(), rest)))
        }
        Collection::Root { steps, .. } => {
            let within = Collection::Root { name: ROOT.into(), steps: steps.clone() };
            let is_alias_written = true;
            let within = Source { collection: within, is_alias_written, ..first.clone() };
            let first = format!("{ROOT} JOIN {within}");
            Ok((ROOT.to_owned(), joined(first, rest)))
        }
        Collection::Select(_) if first.alias.is_empty() => Err(indivisible(select)),
        Collection::Select(_) if gives_items(first) => {
            Ok((first.alias.to_string(), joined(first.to_string(), rest)))
        }
        Collection::Select(inner) if is_of_each_item(inner) => {
            let within = Source { collection: Collection::Select(of_root(inner)), ..first.clone() };
            let first = format!("{ROOT} JOIN {within}");
            Ok((ROOT.to_owned(), joined(first, rest)))
        }
        Collection::Expression(_) | Collection::Select(_) => Err(indivisible(select)),
    }
}

fn indivisible(select: &Select) -> Error {
    let reason = "ORDER BY over what is no item cannot be divided among ranges;";
    Error::unsupported(select.position, reason)
}

/// Whether each item gives its rows without regard to others.
fn is_of_each_item(select: &Select) -> bool {
    let is_of_items = match select.sources.first().map(|it| &it.collection) {
        Some(Collection::Root { .. }) => true,
        Some(Collection::Select(inner)) => is_of_each_item(inner),
        Some(Collection::Expression(_)) | None => false,
    };
    is_of_items && !select.is_blocking() && !select.is_limited()
}

/// The query over the item that is called `ROOT` outside of it.
fn of_root(select: &Select) -> Box<Select> {
    let mut select = select.clone();
    if let Some(first) = select.sources.first_mut() {
        match &mut first.collection {
            Collection::Root { name, .. } => {
                *name = ROOT.into();
                first.is_alias_written = true;
            }
            Collection::Select(inner) => *inner = of_root(inner),
            Collection::Expression(_) => (),
        }
    }
    Box::new(select)
}

fn items(select: &Select) -> String {
    let items = select.order_by.iter().map(|it| format!("{{\"item\": {}}}", it.expression));
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// The list of SELECT as an object, with partial aggregates.
fn object(select: &Select) -> String {
    let Projection::List(list) = &select.projection else { return "{}".to_owned() };
    let properties = list.iter().zip(&select.names).map(|(item, name)| {
        let mut property = String::new();
        json::write_string(name, &mut property);
        add(&mut property, format_args!(": {}", partial(&item.expression)));
        property
    });
    format!("{{{}}}", properties.collect::<Vec<_>>().join(", "))
}

/// An aggregate in a form that can be joined with those of other ranges; others as they are.
fn partial(expression: &Expression) -> String {
    let Expression::Aggregate { aggregate, .. } = expression else {
        return expression.to_string();
    };
    let Aggregate { kind, argument, .. } = &**aggregate;
    match kind {
        AggregateKind::Count
        | AggregateKind::CountIf
        | AggregateKind::MakeList
        | AggregateKind::MakeSet
        | AggregateKind::Sum => {
            format!("{{\"item\": {expression}}}")
        }
        AggregateKind::Average => {
            format!("{{\"item\": {{\"sum\": SUM({argument}), \"count\": COUNT({argument})}}}}")
        }
        AggregateKind::Min | AggregateKind::Max => {
            let name = kind.function().to_ascii_lowercase();
            format!(
                "{{\"item\": {expression}, \"item2\": {{\"{name}\": {expression}, \
                 \"count\": COUNT({argument})}}}}"
            )
        }
    }
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes any text");
}
