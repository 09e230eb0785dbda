//! Queries in FROM: whether the ranges can run them each for itself.

use std::collections::BTreeSet;

use millstream_core::PartitionKeyDefinition;

use crate::access;
use crate::ast::{Collection, Expression, Projection, Select, Source};

/// What becomes of queries in FROM when each range runs its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// They give the same rows.
    Divisible,
    /// Ranges can give equal rows of which only one is to be left.
    Repeating,
    /// Their rows depend on items of other ranges.
    Indivisible,
}

/// Looks at the queries in the FROM of this one.
pub(crate) fn inner(select: &Select, definition: &PartitionKeyDefinition) -> Inner {
    let mut found = Inner::Divisible;
    let mut are_rows_passed_on = true;
    let mut outer = select;
    while let Some(Collection::Select(inner)) = outer.sources.first().map(|it| &it.collection) {
        if inner.is_grouped() || !inner.order_by.is_empty() || inner.is_limited() {
            return Inner::Indivisible;
        }
        are_rows_passed_on = are_rows_passed_on && passes_rows_on(outer);
        if inner.is_distinct && !tells_ranges_apart(inner, definition) {
            if !are_rows_passed_on {
                return Inner::Indivisible;
            }
            found = Inner::Repeating;
        }
        outer = inner;
    }
    found
}

/// Whether its rows are items of the container as they are, also by way of queries in FROM.
pub(crate) fn gives_items(source: &Source) -> bool {
    match &source.collection {
        Collection::Root { .. } => source.is_item(),
        Collection::Select(inner) => {
            !source.is_iterated
                && passes_rows_on(inner)
                && inner.sources.first().is_some_and(gives_items)
        }
        Collection::Expression(_) => false,
    }
}

/// Whether its rows are those of the query in FROM, or some of them.
fn passes_rows_on(select: &Select) -> bool {
    let [source] = &select.sources[..] else { return false };
    let is_row = match &select.projection {
        Projection::Star => true,
        // There is no other name than that of the row.
        Projection::Value(expression) => matches!(expression, Expression::Name { .. }),
        Projection::List(_) => false,
    };
    is_row && !source.is_iterated && !select.is_grouped()
}

/// Whether equal rows are of one partition key, because they contain it or the whole item.
fn tells_ranges_apart(select: &Select, definition: &PartitionKeyDefinition) -> bool {
    if !select.sources.first().is_some_and(|it| it.is_item()) {
        return false;
    }
    // Of several properties with one name only one is left.
    let mut names = BTreeSet::new();
    let parts: Vec<&Expression> = match &select.projection {
        Projection::Star => return true,
        Projection::Value(Expression::Object(properties)) => {
            names.extend(properties.iter().map(|(name, _)| name));
            properties.iter().map(|(_, value)| value).collect()
        }
        Projection::Value(expression) => return is_told_apart(&[expression], definition),
        Projection::List(list) => {
            names.extend(&select.names);
            list.iter().map(|it| &it.expression).collect()
        }
    };
    names.len() == parts.len() && is_told_apart(&parts, definition)
}

/// Whether these are parts of an item that give its partition key.
fn is_told_apart(parts: &[&Expression], definition: &PartitionKeyDefinition) -> bool {
    let has_item = parts.iter().any(|it| matches!(it, Expression::Name { slot: 0, .. }));
    let has_path = |segments: &Vec<String>| {
        let mut paths = parts.iter().filter_map(|it| access::names(it));
        paths.any(|names| segments.iter().map(|it| &**it).eq(names.iter().copied()))
    };
    has_item || definition.segments().iter().all(has_path)
}
