//! Pages of databases, containers and offers.

use http::StatusCode;
use serde_json::{Map, Value};

use crate::headers;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;

/// A page of `resources`, which are in the order of their ids: `{"_rid","<name>":[…],"_count"}`.
///
/// The continuation is the place of the first resource of the next page.
pub(crate) fn page(request: &Request, name: &str, rid: &str, resources: Vec<Value>) -> Answer {
    let size = request.page_size()?.items_max;
    let after = request.text(&headers::CONTINUATION)?.filter(|it| !it.is_empty());
    let refused = |_| Refusal::bad_request("the continuation of the request is not one of ours");
    let start: usize = after.map(str::parse).transpose().map_err(refused)?.unwrap_or(0);
    let total = resources.len();
    let page: Vec<Value> = resources.into_iter().skip(start).take(size).collect();
    let next = start.saturating_add(page.len());
    let reply = values(name, rid, page)?;
    if next < total {
        return Ok(reply.header(&headers::CONTINUATION, &next.to_string()));
    }
    Ok(reply)
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
