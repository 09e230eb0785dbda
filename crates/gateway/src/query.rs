//! Queries over items and over resources, and plans for clients that ask.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use millstream_core::{Item, KeyRange, Lsn, RangeId};
use millstream_query::{Limits, Scope as QueryScope, Specification};
use serde_json::{Value, json};

use crate::item_body::{self, home};
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::scope::Scope;
use crate::state::{Call, State};
use crate::{charge, headers, listing, session};

/// Longest continuation that is looked at.
const CONTINUATION_BYTES_MAX: usize = 64 * 1024;
/// Stands before continuations. The SDK for Python takes everything that is base64 for its own.
const MARK: &str = "q:";
/// Ranges up to which the newest commit of each is asked for; of more, what was told last is good
/// enough.
const ASKED_RANGES_MAX: usize = 16;

/// `POST …/docs` with a query: one page of its rows.
///
/// A query over several ranges is executed here, whole. Clients that divide it among ranges
/// themselves name the range they want.
pub(crate) async fn execute(call: Call<'_>) -> Answer {
    let Call { state, request, container, .. } = call;
    let specification = Specification::from_json(&request.body)?;
    let scope = Scope::read(request, container).await?;
    check_crossing(request, container, &scope, &specification)?;
    let keys = scope.keys(container)?;
    container.check_session(request, &keys).await?;
    let query_scope = match &scope {
        Scope::Partition(key) => QueryScope::partition(key.clone()),
        Scope::Keys(keys) => QueryScope::keys(keys.clone()),
        Scope::All => QueryScope::all(),
    };
    let continuation = continuation(request)?;
    let home = home(container);
    let present = |item: &Item| home.present_for(request, item);
    let definition = &container.settings().partition_key;
    let mut asked = millstream_query::Request::new(definition, &*state.clock)
        .with_scope(&query_scope)
        .with_parameters(&specification.parameters)
        .with_limits(limits(request)?)
        .with_presentation(&present);
    if let Some(resume) = &specification.resume {
        asked = asked.with_resume_filter(resume);
    }
    if let Some(continuation) = continuation {
        asked = asked.with_continuation(continuation);
    }
    let page = specification.query.execute(container.documents(), &asked).await?;
    let rows: Vec<Bytes> = page.rows.into_iter().map(Bytes::from).collect();
    let body = item_body::page(&container.rid, &rows);
    let visited = usize::try_from(page.documents_visited).unwrap_or(usize::MAX);
    let charge = charge::query(visited, body.len());
    let mut reply = Reply::new(StatusCode::OK, body).item_count(rows.len()).charge(charge);
    if let Some(continuation) = page.continuation {
        reply = reply.header(headers::CONTINUATION, &format!("{MARK}{continuation}"));
    }
    reply = with_metrics(reply, request, container, &scope, visited, page.bytes_visited);
    let seen = seen(container, &keys).await?;
    Ok(reply.header(headers::SESSION_TOKEN, &session::tokens(seen)))
}

/// Adds what a query did and how it found its items, if the client wants to know.
fn with_metrics(
    mut reply: Reply,
    request: &Request,
    container: &OpenContainer,
    scope: &Scope,
    visited: usize,
    visited_bytes: u64,
) -> Reply {
    if request.flag(&headers::POPULATE_QUERY_METRICS) {
        let (rows, bytes) = (reply.headers.get(headers::ITEM_COUNT), reply.body.len());
        let rows = rows.and_then(|it| it.to_str().ok()).unwrap_or("0");
        let metrics = format!(
            "retrievedDocumentCount={visited};retrievedDocumentSize={visited_bytes};\
             outputDocumentCount={rows};outputDocumentSize={bytes}"
        );
        reply = reply.header(headers::QUERY_METRICS, &metrics);
    }
    if request.flag(&headers::POPULATE_INDEX_METRICS) {
        // The partition key is all that items are found by.
        let is_pinned = matches!(scope, Scope::Partition(_));
        let paths = container.settings().partition_key.paths();
        let used: Vec<Value> = paths.iter().filter(|_| is_pinned).map(|path| used(path)).collect();
        let metrics = json!({
            "UtilizedSingleIndexes": used,
            "PotentialSingleIndexes": [],
            "UtilizedCompositeIndexes": [],
            "PotentialCompositeIndexes": [],
        });
        let metrics = STANDARD.encode(metrics.to_string());
        reply = reply.header(headers::INDEX_UTILIZATION, &metrics);
    }
    reply
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
    let specification = Specification::from_json(&call.request.body)?;
    let definition = &call.container.settings().partition_key;
    let plan = specification.query.plan(definition, &specification.parameters)?;
    Reply::json(StatusCode::OK, &plan)
}

/// A query over databases, containers or offers.
pub(crate) fn resources(
    state: &State,
    request: &Request,
    name: &str,
    rid: &str,
    resources: &[Value],
) -> Answer {
    let specification = Specification::from_json(&request.body)?;
    let documents: Vec<Bytes> = resources.iter().map(|it| it.to_string().into()).collect();
    let rows = specification.query.evaluate(&documents, &specification.parameters, &*state.clock);
    let rows = rows?;
    let rows = rows.iter().map(|row| serde_json::from_str(row));
    let rows = rows.collect::<Result<Vec<Value>, _>>().map_err(|error| {
        let message = format!("could not write the answer: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    listing::page(request, name, rid, rows)
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

fn continuation(request: &Request) -> Result<Option<&str>, Refusal> {
    let text = request.text(&headers::CONTINUATION)?.filter(|it| !it.is_empty());
    if text.is_some_and(|it| CONTINUATION_BYTES_MAX < it.len()) {
        return Err(Refusal::bad_request("the continuation of the request is too long"));
    }
    let Some(text) = text else { return Ok(None) };
    // Such a place lies in an index of Cosmos DB itself. Here it is none: the query begins anew.
    if text.starts_with("-RID:") || text.starts_with("+RID:") {
        return Ok(None);
    }
    let refused = || Refusal::bad_request("the continuation of the request is not one of ours");
    text.strip_prefix(MARK).map(Some).ok_or_else(refused)
}

fn limits(request: &Request) -> Result<Limits, Refusal> {
    let size = request.page_size()?;
    let mut limits = Limits::items(size.items_max);
    limits.bytes_max = size.bytes_max;
    let kibibytes: Option<usize> = request.number(&headers::CONTINUATION_LIMIT)?;
    if let Some(kibibytes) = kibibytes.filter(|it| 0 < *it) {
        limits.continuation_bytes_max = kibibytes.saturating_mul(1024).min(CONTINUATION_BYTES_MAX);
    }
    Ok(limits)
}

/// The newest commits of the ranges that `keys` lie in.
async fn seen(container: &OpenContainer, keys: &KeyRange) -> Result<Vec<(RangeId, Lsn)>, Refusal> {
    let ranges = container.ranges();
    let touched: Vec<_> = ranges.iter().filter(|it| it.info.keys.overlaps(keys)).collect();
    let mut seen = Vec::with_capacity(touched.len());
    for range in &touched {
        if touched.len() <= ASKED_RANGES_MAX {
            // A range that was split meanwhile has told enough before.
            let _ = container.newest(&range.info.keys).await;
        }
        seen.push((range.info.id, range.seen()));
    }
    Ok(seen)
}
