//! Queries over items, and plans for clients that ask.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use millstream_core::Item;
use millstream_query::{Joining, Limits, Page, Plan, Scope as QueryScope, Specification};
use serde_json::{Value, json};

use crate::item_body::{self, home};
use crate::open_container::OpenContainer;
use crate::query_place::{CONTINUATION_BYTES_MAX, KEYS_BYTES_MAX, Place};
use crate::refusal::{Refusal, sub_status};
use crate::reply::{Answer, Milliseconds, Reply};
use crate::request::Request;
use crate::scope::Scope;
use crate::session::SessionToken;
use crate::state::Call;
use crate::{charge, headers};

/// `POST …/docs` with a query: one page of its rows.
///
/// Rows of several ranges that need no merging come range by range. Those that do are merged here,
/// unless the client is an SDK, which does that itself as it does with Cosmos DB.
pub(crate) async fn execute(call: Call<'_>) -> Answer {
    let Call { state, request, container, .. } = call;
    let started = state.clock.monotonic();
    let computed = state.computed(container).await?;
    let specification = Specification::from_json_with(&request.body, &computed)?;
    let scope = Scope::read(request, container).await?;
    check_crossing(request, container, &scope, &specification)?;
    let keys = scope.keys(container)?;
    container.check_session(request, &keys).await?;
    // Before the continuation is looked at: of a query that it merges an SDK has one of its own.
    check_merging(request, container, &scope, &specification)?;
    let place = match Place::read(request)? {
        Some(place) => place,
        None => Place::first(container, &scope, &specification)?,
    };
    let answered = place.keys.clone().unwrap_or_else(|| keys.clone());
    let (page, next) = page(call, &specification, &scope, place).await?;
    let work = Work {
        rows: u64::try_from(page.rows.len()).unwrap_or(u64::MAX),
        items: page.documents_read,
        bytes: page.bytes_visited,
        time: state.clock.monotonic().saturating_sub(started),
    };
    let rows: Vec<Bytes> = page.rows.into_iter().map(Bytes::from).collect();
    let body = item_body::page(&container.rid, &rows);
    let visited = usize::try_from(page.documents_visited).unwrap_or(usize::MAX);
    let charge = charge::query(visited, body.len());
    let mut reply = Reply::new(StatusCode::OK, body).item_count(rows.len()).charge(charge);
    if let Some(next) = next {
        reply = reply.header(&headers::CONTINUATION, &next.text());
    }
    reply = with_metrics(reply, request, container, &scope, &work);
    // The range that answered, or the first of them: an SDK that does not find it among those it
    // knows asks for the ranges again. Those for .NET and Java take a token of one range only.
    let ranges = container.ranges();
    if let Some(range) = ranges.iter().find(|it| it.info.keys.overlaps(&answered)) {
        // A range that was split meanwhile has told enough before.
        let _ = container.newest(&range.info.keys).await;
        let token = SessionToken(range.info.id, range.seen());
        reply = reply.header(&headers::RANGE_ID, &range.info.id.0.to_string());
        reply = reply.header(&headers::SESSION_TOKEN, &token.to_string());
    }
    Ok(reply)
}

/// The page that begins at `place`, and where the next one begins.
async fn page(
    call: Call<'_>,
    specification: &Specification,
    scope: &Scope,
    place: Place,
) -> Result<(Page, Option<Place>), Refusal> {
    let Call { state, request, container, .. } = call;
    let home = home(container);
    let present = |item: &Item| home.present_for(request, item);
    let definition = &container.settings().partition_key;
    let query_scope = query_scope(scope, &place)?;
    let mut asked = millstream_query::Request::new(definition, &*state.clock)
        .with_scope(&query_scope)
        .with_parameters(&specification.parameters)
        .with_limits(limits(request)?)
        .with_container(&container.rid)
        .with_presentation(&present);
    if let Some(resume) = &specification.resume {
        asked = asked.with_resume_filter(resume);
    }
    if let Some(continuation) = &place.continuation {
        asked = asked.with_continuation(continuation);
    }
    let mut page = specification.query.execute(container.documents(), &asked).await?;
    let next = place.after(container, specification, page.continuation.take())?;
    Ok((page, next))
}

/// What a page is about that begins at `place`.
fn query_scope(scope: &Scope, place: &Place) -> Result<QueryScope, Refusal> {
    match (scope, &place.keys) {
        (Scope::Partition(key), None) => Ok(QueryScope::partition(key.clone())),
        (Scope::Keys(keys), None) | (Scope::All, Some(keys)) => Ok(QueryScope::keys(keys.clone())),
        (Scope::All, None) => Ok(QueryScope::all()),
        (Scope::Partition(_) | Scope::Keys(_), Some(_)) => Err(Refusal::bad_request(
            "the continuation of the request was given out for the whole container",
        )),
    }
}

/// What a page of a query took.
struct Work {
    /// Of the page.
    rows: u64,
    /// Items that had to be read, and their size.
    items: u64,
    bytes: u64,
    time: Duration,
}

/// Adds what a query did and how it found its items, if the client wants to know.
fn with_metrics(
    mut reply: Reply,
    request: &Request,
    container: &OpenContainer,
    scope: &Scope,
    work: &Work,
) -> Reply {
    if request.flag(&headers::POPULATE_QUERY_METRICS) {
        let bytes = reply.body.len();
        let Work { rows, items, bytes: size, time } = work;
        let (time, ratio) = (Milliseconds(*time), ratio(*rows, *items));
        let metrics = format!(
            "totalExecutionTimeInMs={time};retrievedDocumentCount={items};\
             retrievedDocumentSize={size};outputDocumentCount={rows};outputDocumentSize={bytes};\
             indexUtilizationRatio={ratio:.2}"
        );
        reply = reply.header(&headers::QUERY_METRICS, &metrics);
    }
    // The partition key is all that items are found by.
    let is_pinned = matches!(scope, Scope::Partition(_));
    let paths = container.settings().partition_key.paths().iter().filter(|_| is_pinned);
    if request.flag(&headers::POPULATE_INDEX_METRICS_SHORT) {
        let used: Vec<Value> = paths.map(|it| json!({ "IndexSpec": format!("{it}/?") })).collect();
        let metrics = json!({
            "UtilizedIndexes": { "SingleIndexes": used, "CompositeIndexes": [] },
            "PotentialIndexes": { "SingleIndexes": [], "CompositeIndexes": [] },
        });
        let metrics = headers::encoded(&metrics.to_string());
        reply = reply.header(&headers::INDEX_UTILIZATION, &metrics);
    } else if request.flag(&headers::POPULATE_INDEX_METRICS) {
        let used: Vec<Value> = paths.map(|path| used(path)).collect();
        let metrics = json!({
            "UtilizedSingleIndexes": used,
            "PotentialSingleIndexes": [],
            "UtilizedCompositeIndexes": [],
            "PotentialCompositeIndexes": [],
        });
        let metrics = STANDARD.encode(metrics.to_string());
        reply = reply.header(&headers::INDEX_UTILIZATION, &metrics);
    }
    reply
}

/// The share of the documents read that became rows, as SDKs show it.
fn ratio(rows: u64, read: u64) -> f64 {
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if read == 0 { 1.0 } else { number(rows) / number(read) }
}

fn used(path: &str) -> Value {
    json!({
        "FilterExpression": "",
        "IndexSpec": format!("{path}/?"),
        "FilterPreciseSet": true,
        "IndexPreciseSet": true,
        "IndexImpactScore": "High",
    })
}

/// `POST …/docs` for the plan of a query.
pub(crate) async fn plan(call: Call<'_>) -> Answer {
    let computed = call.state.computed(call.container).await?;
    let specification = Specification::from_json_with(&call.request.body, &computed)?;
    let definition = &call.container.settings().partition_key;
    let plan = specification.query.plan(definition, &specification.parameters)?;
    check_features(call.request, &plan.features())?;
    Reply::json(StatusCode::OK, &plan)
}

/// A client that says what it can do gets no plan that needs more.
fn check_features(request: &Request, needed: &[&str]) -> Result<(), Refusal> {
    let listed = request.text(&headers::SUPPORTED_QUERY_FEATURES)?.unwrap_or_default();
    let listed: Vec<&str> = listed.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    let is_known = |it: &&str| listed.iter().any(|name| name.eq_ignore_ascii_case(it));
    let missing: Vec<&str> = needed.iter().copied().filter(|it| !is_known(it)).collect();
    if listed.is_empty() || missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the client cannot merge the results of several ranges of this query: it does not list {} \
         in {}",
        missing.join(", "),
        headers::SUPPORTED_QUERY_FEATURES
    );
    Err(Refusal::bad_request(message).sub_status(sub_status::MERGED_BY_CLIENT))
}

/// A client has to say that it knows that a query crosses partitions.
fn check_crossing(
    request: &Request,
    container: &OpenContainer,
    scope: &Scope,
    specification: &Specification,
) -> Result<(), Refusal> {
    if *scope != Scope::All || request.flag(&headers::ENABLE_CROSS_PARTITION) {
        return Ok(());
    }
    let (query, parameters) = (&specification.query, &specification.parameters);
    if query.is_within_one_partition(&container.settings().partition_key, parameters)? {
        return Ok(());
    }
    Err(Refusal::bad_request(
        "Cross partition query is required but disabled. Please set \
         x-ms-documentdb-query-enablecrosspartition to true, specify \
         x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
    ))
}

/// An SDK gets the plan of what it has to merge, however many ranges there are, as in Cosmos DB.
fn check_merging(
    request: &Request,
    container: &OpenContainer,
    scope: &Scope,
    specification: &Specification,
) -> Result<(), Refusal> {
    let is_divided = *scope == Scope::All
        && request.headers.contains(&headers::CAPABILITIES)
        && request.flag(&headers::ENABLE_CROSS_PARTITION);
    let (query, parameters) = (&specification.query, &specification.parameters);
    let definition = &container.settings().partition_key;
    if !is_divided || query.joining() != Joining::Merged {
        return Ok(());
    }
    let plan = query.plan(definition, parameters);
    // Of one partition nothing needs merging. Aggregates in a list are planned even then in Cosmos
    // DB, and the tests of the SDK for Python know it.
    let is_in_list = |it: &Plan| it.features().contains(&"NonValueAggregate");
    if query.is_within_one_partition(definition, parameters)?
        && !plan.as_ref().is_ok_and(is_in_list)
    {
        return Ok(());
    }
    let plan = plan?;
    let plan = serde_json::to_string(&plan).map_err(|error| {
        let message = format!("could not write the plan of the query: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    // Clients look for these words, which are those of Cosmos DB.
    let message = "The provided cross partition query can not be directly served by the gateway: \
                   it may look at several ranges, and the client has to merge their results as its \
                   plan says";
    let refusal = Refusal::bad_request(message).sub_status(sub_status::MERGED_BY_CLIENT);
    Err(refusal.additional(&plan))
}

fn limits(request: &Request) -> Result<Limits, Refusal> {
    let size = request.page_size()?;
    let mut limits = Limits::items(size.items_max);
    limits.bytes_max = size.bytes_max;
    let kibibytes: Option<usize> = request.number(&headers::CONTINUATION_LIMIT)?;
    if kibibytes == Some(0) {
        let message = format!("{} has to be positive", headers::CONTINUATION_LIMIT);
        return Err(Refusal::bad_request(message));
    }
    if let Some(kibibytes) = kibibytes {
        let bytes = kibibytes.saturating_mul(1024).min(CONTINUATION_BYTES_MAX);
        limits.continuation_bytes_max = bytes.saturating_sub(KEYS_BYTES_MAX);
    }
    Ok(limits)
}
