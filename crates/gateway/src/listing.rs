//! Pages of databases, containers and offers, in the order of their names.

use http::StatusCode;
use serde_json::{Map, Value};

use crate::headers;
use crate::listing_place::{Names, Place};
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;

/// A resource of a list.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// What the list is sorted by.
    pub(crate) names: Names,
    pub(crate) resource: Value,
}

/// A page of a list or query, and where the next one begins.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Value>,
    pub(crate) next: Option<Place>,
}

/// A page of `listed`: `{"_rid","<name>":[…],"_count"}`.
pub(crate) fn page(request: &Request, name: &str, rid: &str, mut listed: Vec<Listed>) -> Answer {
    let size = request.page_size()?.items_max;
    listed.sort_by(|left, right| left.names.cmp(&right.names));
    let rest = match Place::read(request)? {
        None => &listed[..],
        Some(Place::Behind(names)) => behind(&listed, &names),
        Some(Place::Within(..) | Place::Count(_)) => return Err(Place::of_another()),
    };
    let page = &rest[..size.min(rest.len())];
    let last = page.last().filter(|_| page.len() < rest.len());
    let next = last.map(|it| Place::Behind(it.names.clone()));
    reply(name, rid, Page { rows: page.iter().map(|it| it.resource.clone()).collect(), next })
}

/// What comes behind these names, in a list that is sorted.
pub(crate) fn behind<'a>(listed: &'a [Listed], names: &Names) -> &'a [Listed] {
    &listed[listed.partition_point(|it| it.names <= *names)..]
}

/// The reply with a page.
pub(crate) fn reply(name: &str, rid: &str, page: Page) -> Answer {
    let reply = values(name, rid, page.rows)?;
    Ok(match page.next {
        Some(next) => reply.header(&headers::CONTINUATION, &next.text()),
        None => reply,
    })
}

/// A reply with all of `resources`.
pub(crate) fn values(name: &str, rid: &str, resources: Vec<Value>) -> Answer {
    let count = resources.len();
    let mut body = Map::new();
    body.insert("_rid".to_owned(), rid.into());
    body.insert(name.to_owned(), resources.into());
    body.insert("_count".to_owned(), count.into());
    Ok(Reply::json(StatusCode::OK, &body)?.item_count(count))
}

/// The body of a request as a JSON object.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::bad_request("the body of the request has to be a JSON object")),
        Err(error) => Err(Refusal::bad_request(format!(
            "the input content is invalid because the body could not be read as JSON: {error}"
        ))),
    }
}

/// The `id` of a new resource.
pub(crate) fn id(body: &Map<String, Value>) -> Result<&str, Refusal> {
    let id = body.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| {
        Refusal::bad_request("the body of the request needs a property id that is a string")
    })?;
    if id.ends_with(' ') {
        return Err(Refusal::bad_request("the id must not end with a space"));
    }
    millstream_core::check_name(id)?;
    Ok(id)
}
