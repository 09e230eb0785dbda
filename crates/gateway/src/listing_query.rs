//! Queries over databases, containers and offers. They are evaluated in memory, page by page.

use bytes::Bytes;
use http::StatusCode;
use millstream_query::{Joining, Specification};
use serde_json::Value;

use crate::listing::{self, Listed};
use crate::listing_place::Place;
use crate::refusal::Refusal;
use crate::reply::Answer;
use crate::request::Request;
use crate::state::State;

/// A page of the query of a request over `listed`.
pub(crate) fn answer(
    state: &State,
    request: &Request,
    name: &str,
    rid: &str,
    mut listed: Vec<Listed>,
) -> Answer {
    let specification = Specification::from_json(&request.body)?;
    let evaluate = |listed: &[Listed]| {
        let documents: Vec<Bytes> =
            listed.iter().map(|it| it.resource.to_string().into()).collect();
        let (query, parameters) = (&specification.query, &specification.parameters);
        let rows = query.evaluate(&documents, parameters, &*state.clock)?;
        let rows = rows.iter().map(|row| serde_json::from_str(row));
        rows.collect::<Result<Vec<Value>, _>>().map_err(|error| {
            let message = format!("could not write the answer: {error}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        })
    };
    let (size, place) = (request.page_size()?.items_max, Place::read(request)?);
    listed.sort_by(|left, right| left.names.cmp(&right.names));
    let page = match specification.query.joining() {
        Joining::Appended => one_by_one(&listed, place, size, evaluate)?,
        Joining::Merged | Joining::Whole => counted(evaluate(&listed)?, place.as_ref(), size)?,
    };
    listing::reply(name, rid, page)
}

/// A page of rows each of which comes from one resource.
fn one_by_one(
    listed: &[Listed],
    place: Option<Place>,
    size: usize,
    evaluate: impl Fn(&[Listed]) -> Result<Vec<Value>, Refusal>,
) -> Result<listing::Page, Refusal> {
    let (rest, mut returned) = match place {
        None => (listed, 0),
        Some(Place::Behind(names)) => (listing::behind(listed, &names), 0),
        Some(Place::Within(names, rows)) => {
            let rest = &listed[listed.partition_point(|it| it.names < names)..];
            let is_there = rest.first().is_some_and(|it| it.names == names);
            (rest, if is_there { rows } else { 0 })
        }
        Some(Place::Count(_)) => return Err(Place::of_another()),
    };
    // All at once, which bounds what it takes to do the same again one by one.
    let rows = evaluate(rest)?;
    if returned == 0 && rows.len() <= size {
        return Ok(listing::Page { rows, next: None });
    }
    let mut page = Vec::new();
    for (at, one) in rest.iter().enumerate() {
        let rows = evaluate(std::slice::from_ref(one))?;
        for (number, row) in rows.into_iter().enumerate().skip(std::mem::take(&mut returned)) {
            if page.len() < size {
                page.push(row);
                continue;
            }
            let next = match (number, at.checked_sub(1)) {
                (0, Some(before)) => Place::Behind(rest[before].names.clone()),
                _ => Place::Within(one.names.clone(), number),
            };
            return Ok(listing::Page { rows: page, next: Some(next) });
        }
    }
    Ok(listing::Page { rows: page, next: None })
}

/// A page of rows that depend on many resources: nothing but their number tells where it ends.
fn counted(
    mut rows: Vec<Value>,
    place: Option<&Place>,
    size: usize,
) -> Result<listing::Page, Refusal> {
    let start = match place {
        None => 0,
        Some(Place::Count(count)) => *count,
        Some(Place::Behind(_) | Place::Within(..)) => return Err(Place::of_another()),
    };
    let mut rows = rows.split_off(start.min(rows.len()));
    let is_last = rows.len() <= size;
    rows.truncate(size);
    let next = (!is_last).then(|| Place::Count(start.saturating_add(size)));
    Ok(listing::Page { rows, next })
}
