//! Transactional batches, and bulk requests whose operations stand each on their own.
//!
//! Both come as JSON or HybridRow and are answered in the form they came in.

mod bulk;
mod meter;
mod room;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use millstream_core::{
    BATCH_OPERATIONS_MAX, Batch, Error, ITEM_BYTES_MAX, IfNoneMatch, ItemId, KeyRange, Lsn,
    Operation, OperationResult, PartitionKey, RangeId, RangeInfo,
};

use crate::batch_wire::{self, OperationType, OperationWire, ResultWire};
use crate::item_body::{self, TEXT_BYTES_MAX, home};
use crate::open_container::{OpenContainer, range_gone};
use crate::refusal::{RETRY_AFTER_DEFAULT, Refusal};
use crate::reply::{Answer, Reply, quoted, unquoted};
use crate::state::Call;
use crate::{binary_json, charge, headers, hybrid_row, items, patching, session};

/// What the binary bodies of a request may be as text: twice what a request may be.
const BINARY_TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An operation as it was sent, but for its body, which is text here; or why it cannot be.
struct Sent {
    wire: OperationWire,
    body: Result<Option<Bytes>, Refusal>,
}

/// An operation in the steps it means to the store, and its body for a closer look when it fails.
struct Ready {
    steps: Vec<Operation>,
    body: Option<Bytes>,
    is_minimal: bool,
}

/// `POST …/docs` with a batch.
pub(crate) async fn execute(call: Call<'_>) -> Answer {
    let body = &call.request.body;
    let is_hybrid_row = hybrid_row::is_hybrid_row(body);
    let operations = if is_hybrid_row {
        hybrid_row::decode_operations(body, BATCH_OPERATIONS_MAX)?
    } else {
        batch_wire::decode_json(body, BATCH_OPERATIONS_MAX)?
    };
    // The words are those of Cosmos DB, because clients compare them.
    if operations.is_empty() {
        return Err(Refusal::bad_request("Batch request has no operations."));
    }
    if BATCH_OPERATIONS_MAX < operations.len() {
        let message = "Batch request has more operations than what is supported.";
        return Err(Refusal::bad_request(message));
    }
    let operations = bodies_to_text(operations)?;
    if call.request.flag(&headers::BATCH_ATOMIC) {
        let (results, seen) = atomic(call, &operations).await?;
        return Ok(reply(&results, &seen, is_hybrid_row));
    }
    let (results, seen) = bulk::execute(call, &operations).await?;
    Ok(reply(&results, &seen, is_hybrid_row).paid())
}

/// Makes text of bodies in binary JSON, once and before anything is done. The limit of the request
/// is none for them: a few bytes can stand for a long text, a hundred times over.
fn bodies_to_text(operations: Vec<OperationWire>) -> Result<Vec<Sent>, Refusal> {
    let too_large = |message| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message);
    let mut bytes = 0;
    let mut sent = Vec::with_capacity(operations.len());
    for (index, mut wire) in operations.into_iter().enumerate() {
        let given = wire.body.take();
        let is_binary = given.as_ref().is_some_and(|it| binary_json::is_binary(it));
        let body = given.as_ref().map(item_body::text).transpose();
        bytes += match &body {
            Ok(Some(text)) if is_binary => text.len(),
            Err(refusal) if refusal.status == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(too_large(format!(
                    "the body of operation {index} has more than {TEXT_BYTES_MAX} bytes, written \
                     as text; an item may have {ITEM_BYTES_MAX}"
                )));
            }
            // What cannot be read is refused in its place.
            Ok(_) | Err(_) => 0,
        };
        if BINARY_TEXT_BYTES_MAX < bytes {
            return Err(too_large(format!(
                "the operations hold more than {BINARY_TEXT_BYTES_MAX} bytes of items, written as \
                 text; send them in several requests"
            )));
        }
        sent.push(Sent { wire, body });
    }
    Ok(sent)
}

/// What was seen of which range.
type Seen = BTreeMap<RangeId, Lsn>;

/// All operations or none.
async fn atomic(call: Call<'_>, operations: &[Sent]) -> Result<(Vec<ResultWire>, Seen), Refusal> {
    let container = call.container;
    let key = items::whole_key(call.request, container)?;
    let keys = container.settings().partition_key.range_of(&key)?;
    if operations.iter().any(|it| it.wire.kind == OperationType::Read) {
        container.check_session(call.request, &keys).await?;
    }
    let mut ready = Vec::with_capacity(operations.len());
    for (index, sent) in operations.iter().enumerate() {
        match check_key(call, &sent.wire, &key).and_then(|()| prepare(call, sent)) {
            Ok(one) => ready.push(one),
            Err(refusal) => {
                let results = failed(operations.len(), index, refused(&refusal));
                return Ok((results, newest(container, &key, &keys).await));
            }
        }
    }
    let batch = Batch {
        partition_key: key.clone(),
        operations: ready.iter().flat_map(|it| it.steps.clone()).collect(),
    };
    let outcome = match call.container.documents().commit(batch).await {
        Ok(outcome) => outcome,
        Err(error) => {
            let index = error.operation().and_then(|step| owner(&ready, step));
            let Some(index) = index else { return Err(error.into()) };
            let body = ready.get(index).and_then(|it| it.body.as_ref());
            let result = failure(call.container, &key, body, &error);
            let results = failed(operations.len(), index, result);
            return Ok((results, newest(container, &key, &keys).await));
        }
    };
    let mut done = outcome.results.as_slice();
    let results = ready.iter().map(|one| {
        let (own, rest) = done.split_at(one.steps.len().min(done.len()));
        done = rest;
        success(call, own, one.is_minimal)
    });
    let results: Vec<ResultWire> = results.collect();
    let seen = Seen::from([call.container.position(&key, outcome.lsn)?]);
    Ok((results, seen))
}

/// Refuses an operation of a batch that names another partition key than the batch. The words are
/// those of Cosmos DB.
fn check_key(call: Call<'_>, wire: &OperationWire, key: &PartitionKey) -> Result<(), Refusal> {
    if wire.partition_key.is_none() || own_key(call, None, wire)? == *key {
        return Ok(());
    }
    Err(Refusal::bad_request(
        "One or more operations within the batch request have a different partition key value than \
         the request.",
    ))
}

/// The partition key of an operation of a bulk request; it must lie in the range the request names.
fn own_key(
    call: Call<'_>,
    range: Option<&RangeInfo>,
    wire: &OperationWire,
) -> Result<PartitionKey, Refusal> {
    let container = call.container;
    let is_empty = |text: &str| {
        let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        inner.is_some_and(|it| it.trim().is_empty())
    };
    let key = match wire.partition_key.as_deref().map(str::trim) {
        None => items::whole_key(call.request, container)?,
        Some(text) if is_empty(text) => items::none_key(container)?,
        Some(text) => items::check_whole(text.parse()?, container)?,
    };
    let Some(range) = range else { return Ok(key) };
    if range.keys.contains(&container.settings().partition_key.effective(&key)?) {
        return Ok(key);
    }
    Err(range_gone(range.id))
}

fn prepare(call: Call<'_>, sent: &Sent) -> Result<Ready, Refusal> {
    let wire = &sent.wire;
    let refused =
        |reason: &str| Refusal::from(Error::invalid("use an operation of the batch", reason));
    let id = || match &wire.id {
        Some(id) => Ok(ItemId::new(id)?),
        None => Err(refused("it has no id")),
    };
    let body = sent.body.clone()?;
    let needed = || body.clone().ok_or_else(|| refused("it has no resourceBody"));
    let mut steps = match wire.kind {
        OperationType::Create => vec![Operation::create(needed()?)],
        OperationType::Upsert => vec![Operation::upsert(needed()?)],
        OperationType::Replace => items::replacing(id()?, needed()?),
        OperationType::Patch => vec![Operation::patch(id()?, patching::read(&needed()?, call)?)],
        OperationType::Delete => vec![Operation::delete(id()?)],
        OperationType::Read => vec![Operation::read(id()?)],
    };
    if let Some(first) = steps.first_mut() {
        first.if_match = wire.if_match.as_deref().filter(|it| *it != "*").map(unquoted);
        first.if_none_match = wire.if_none_match.as_deref().map(|text| match text {
            "*" => IfNoneMatch::Any,
            etag => IfNoneMatch::Etag(unquoted(etag)),
        });
    }
    let body = body.filter(|_| wire.kind != OperationType::Patch);
    Ok(Ready { steps, body, is_minimal: wire.is_minimal || call.request.wants_minimal() })
}

/// The result of an operation by what its steps came to; the last one counts.
fn success(call: Call<'_>, steps: &[OperationResult], is_minimal: bool) -> ResultWire {
    let Some(result) = steps.last() else {
        return ResultWire::status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let (status, item, is_read) = match result {
        OperationResult::Created(item) if steps.len() == 1 => (StatusCode::CREATED, item, false),
        OperationResult::Created(item) | OperationResult::Replaced(item) => {
            (StatusCode::OK, item, false)
        }
        OperationResult::Read(item) => (StatusCode::OK, item, true),
        OperationResult::Deleted => {
            let deleted = ResultWire::status(StatusCode::NO_CONTENT);
            return ResultWire { charge: charge::delete(), ..deleted };
        }
        OperationResult::NotModified => {
            return ResultWire { charge: 1.0, ..ResultWire::status(StatusCode::NOT_MODIFIED) };
        }
    };
    let (bytes, home) = (item.body.len(), home(call.container));
    ResultWire {
        etag: Some(quoted(&item.etag)),
        body: (is_read || !is_minimal).then(|| home.present_for(call.request, item)),
        charge: if is_read { charge::read(bytes) } else { charge::write(bytes) },
        ..ResultWire::status(status)
    }
}

/// The operation that a step belongs to.
fn owner(ready: &[Ready], step: usize) -> Option<usize> {
    let mut end = 0;
    ready.iter().position(|one| {
        end += one.steps.len();
        step < end
    })
}

/// The results of a batch that came to nothing because of one operation.
fn failed(count: usize, index: usize, result: ResultWire) -> Vec<ResultWire> {
    let mut results = vec![ResultWire::status(StatusCode::FAILED_DEPENDENCY); count];
    results[index] = result;
    results
}

fn failure(
    container: &OpenContainer,
    key: &PartitionKey,
    body: Option<&Bytes>,
    error: &Error,
) -> ResultWire {
    let refusal = items::refusal_of(error, container, key, body);
    let is_to_wait = refusal.status == StatusCode::TOO_MANY_REQUESTS;
    let retry_after = error.retry_after().or(is_to_wait.then_some(RETRY_AFTER_DEFAULT));
    ResultWire { retry_after, ..refused(&refusal) }
}

fn refused(refusal: &Refusal) -> ResultWire {
    ResultWire {
        sub_status: refusal.sub_status,
        refusal: Some(refusal.body().into()),
        charge: 1.0,
        ..ResultWire::status(refusal.status)
    }
}

/// What a client that was refused has seen all the same.
async fn newest(container: &OpenContainer, key: &PartitionKey, keys: &KeyRange) -> Seen {
    // Without it the client merely learns nothing new.
    let Ok(newest) = container.newest(keys).await else { return Seen::new() };
    container.position(key, newest).into_iter().collect()
}

fn note(seen: &mut Seen, position: Option<(RangeId, Lsn)>) {
    if let Some((range, lsn)) = position {
        let newest = seen.entry(range).or_insert(lsn);
        *newest = lsn.max(*newest);
    }
}

fn is_failure(result: &ResultWire) -> bool {
    result.status.is_client_error() || result.status.is_server_error()
}

fn reply(results: &[ResultWire], seen: &Seen, is_hybrid_row: bool) -> Reply {
    let is_success = results.iter().all(|it| it.status.is_success());
    let status = if is_success { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    let charge = results.iter().map(|it| it.charge).sum();
    let mut reply = if is_hybrid_row {
        let reply = Reply::new(status, hybrid_row::encode_results(results));
        reply.content_type("application/octet-stream")
    } else {
        Reply::new(status, batch_wire::encode_json(results))
    };
    // The SDKs for .NET and Java take a token of one range only; they ask ranges one by one.
    let mut one_by_one = seen.iter();
    if let (Some((range, lsn)), None) = (one_by_one.next(), one_by_one.next()) {
        reply = reply.session(*range, *lsn);
    } else if let Some(lsn) = seen.values().max() {
        let tokens = session::tokens(seen.iter().map(|(range, lsn)| (*range, *lsn)));
        reply = reply.header(&headers::SESSION_TOKEN, &tokens);
        reply = reply.header(&headers::LSN, &lsn.to_string());
    }
    reply.charge(charge)
}
