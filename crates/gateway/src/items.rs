//! Requests about one item: create, upsert, read, replace, patch, delete.

use bytes::Bytes;
use http::StatusCode;
use millstream_core::{
    Batch, Envelope, Error, ErrorKind, Item, ItemId, KeyRange, Operation, OperationResult,
    PageSize, PartitionKey, PartitionKeyComponent, ScanScope,
};

use crate::item_body::{self, home};
use crate::open_container::OpenContainer;
use crate::refusal::{Refusal, sub_status};
use crate::reply::{Answer, Reply};
use crate::request::{KeyHeader, Request};
use crate::rid::{self, Rid};
use crate::session::SessionToken;
use crate::state::Call;
use crate::{charge, headers, patching};

/// Items that are looked at in one step to find one by its resource id.
const LOOK_UP_PAGE: usize = 1000;

/// `POST …/docs`.
pub(crate) async fn create(call: Call<'_>) -> Answer {
    let body = item_body::text(&call.request.body)?;
    let key = whole_key(call.request, call.container)?;
    write(call, key, vec![Operation::create(body.clone())], Some(&body)).await
}

/// `POST …/docs` that replaces the item if there is one.
pub(crate) async fn upsert(call: Call<'_>) -> Answer {
    let body = item_body::text(&call.request.body)?;
    let key = whole_key(call.request, call.container)?;
    write(call, key, vec![Operation::upsert(body.clone())], Some(&body)).await
}

/// `GET …/docs/{id}`.
pub(crate) async fn read(call: Call<'_>, id: &str) -> Answer {
    let Call { request, container, .. } = call;
    let key = whole_key(request, container)?;
    let keys = container.settings().partition_key.range_of(&key)?;
    container.check_session(request, &keys).await?;
    let found = match number(call, id) {
        Some(number) => by_number(container, &key, number).await?,
        None => container.documents().read(&key, &ItemId::new(id)?).await?,
    };
    let Some(item) = found else { return Err(not_found(container, &key, &keys).await) };
    let (range, lsn) = container.position(&key, item.lsn)?;
    if request.knows(&item.etag)? {
        let reply = Reply::empty(StatusCode::NOT_MODIFIED).etag(&item.etag);
        return Ok(reply.session(range, lsn));
    }
    let body = home(container).present(&item);
    let charge = charge::read(body.len());
    let reply = Reply::new(StatusCode::OK, body).etag(&item.etag).session(range, lsn);
    Ok(reply.number(&headers::ITEM_LSN, item.lsn.as_u64()).charge(charge))
}

/// `PUT …/docs/{id}`.
pub(crate) async fn replace(call: Call<'_>, id: &str) -> Answer {
    let key = whole_key(call.request, call.container)?;
    let id = item_id(call, &key, id).await?;
    // Whatever is wrong with these is no matter of the item.
    call.request.if_match()?;
    call.request.if_none_match()?;
    let answer = match item_body::text(&call.request.body) {
        Ok(body) => {
            write(call, key.clone(), replacing(id.clone(), body.clone()), Some(&body)).await
        }
        Err(refusal) => Err(refusal),
    };
    match answer {
        // What is not there cannot be replaced, whatever is wrong with the body. Also if its
        // partition key is not that of the request: `ReplaceItemStreamTest` of Microsoft's own
        // tests for .NET (`CosmosItemSessionTokenTests`) expects 404 then, not 400 with 1001.
        Err(refusal)
            if matches!(
                refusal.status,
                StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE
            ) =>
        {
            let is_there = call.container.documents().read(&key, &id).await?.is_some();
            let keys = call.container.settings().partition_key.range_of(&key)?;
            Err(if is_there { refusal } else { not_found(call.container, &key, &keys).await })
        }
        answer => answer,
    }
}

/// `PATCH …/docs/{id}`.
pub(crate) async fn patch(call: Call<'_>, id: &str) -> Answer {
    let key = whole_key(call.request, call.container)?;
    let id = item_id(call, &key, id).await?;
    let patch = patching::read(&item_body::text(&call.request.body)?, call)?;
    write(call, key, vec![Operation::patch(id, patch)], None).await
}

/// `DELETE …/docs/{id}`.
pub(crate) async fn delete(call: Call<'_>, id: &str) -> Answer {
    let key = whole_key(call.request, call.container)?;
    let id = item_id(call, &key, id).await?;
    write(call, key, vec![Operation::delete(id)], None).await
}

/// The whole partition key that a request about one item names.
///
/// # Errors
///
/// 400 if the header is missing or has fewer or more components than the container has paths.
pub(crate) fn whole_key(
    request: &Request,
    container: &OpenContainer,
) -> Result<PartitionKey, Refusal> {
    match request.partition_key()? {
        KeyHeader::Key(key) => check_whole(key, container),
        KeyHeader::Empty => none_key(container),
        KeyHeader::Missing => {
            let message = format!(
                "the partition key must be supplied for this operation, in the header {}",
                headers::PARTITION_KEY
            );
            Err(Refusal::bad_request(message))
        }
    }
}

/// A key with one component for each path of the container.
pub(crate) fn check_whole(
    key: PartitionKey,
    container: &OpenContainer,
) -> Result<PartitionKey, Refusal> {
    let (given, wanted) =
        (key.components().len(), container.settings().partition_key.paths().len());
    if given != wanted {
        let detail = format!("it has {given} components where the container has {wanted} paths");
        return Err(mismatch(&detail));
    }
    Ok(key)
}

/// What `[]` stands for: none of the properties is there.
pub(crate) fn none_key(container: &OpenContainer) -> Result<PartitionKey, Refusal> {
    let paths = container.settings().partition_key.paths();
    Ok(PartitionKey::of(paths.iter().map(|_| PartitionKeyComponent::Undefined))?)
}

/// The steps of a replace. A body with another id renames the item in Cosmos DB; to the store that
/// is a delete and a create.
pub(crate) fn replacing(id: ItemId, body: Bytes) -> Vec<Operation> {
    match Envelope::scan(&body) {
        Ok(envelope) if envelope.id != id => vec![Operation::delete(id), Operation::create(body)],
        Ok(_) | Err(_) => vec![Operation::replace(id, body)],
    }
}

/// The refusal of a failed operation: one that comes from a partition key which is not that of the
/// body has its own.
pub(crate) fn refusal_of(
    error: &Error,
    container: &OpenContainer,
    key: &PartitionKey,
    body: Option<&Bytes>,
) -> Refusal {
    let refusal = Refusal::from(error);
    let body = body.filter(|_| error.kind() == ErrorKind::Invalid);
    let found = body.and_then(|it| container.settings().partition_key.extract(it).ok());
    if found.is_some_and(|it| it != *key) { mismatch(&refusal.message) } else { refusal }
}

async fn write(
    call: Call<'_>,
    key: PartitionKey,
    mut operations: Vec<Operation>,
    body: Option<&Bytes>,
) -> Answer {
    let Call { request, container, .. } = call;
    if let Some(first) = operations.first_mut() {
        first.if_match = request.if_match()?;
        first.if_none_match = request.if_none_match()?;
    }
    let is_renamed = 1 < operations.len();
    let batch = Batch { partition_key: key.clone(), operations };
    let outcome = match container.documents().commit(batch).await {
        Ok(outcome) => outcome,
        Err(error) => return Err(refused(container, &key, body, &error).await),
    };
    let (range, lsn) = container.position(&key, outcome.lsn)?;
    let Some(result) = outcome.results.into_iter().next_back() else {
        let message = "the backend answered an operation without a result";
        return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message));
    };
    let (status, item) = match result {
        OperationResult::Created(item) if !is_renamed => (StatusCode::CREATED, item),
        OperationResult::Created(item)
        | OperationResult::Replaced(item)
        | OperationResult::Read(item) => (StatusCode::OK, item),
        OperationResult::Deleted | OperationResult::NotModified => {
            let reply = Reply::empty(StatusCode::NO_CONTENT).charge(charge::delete());
            return Ok(reply.session(range, lsn));
        }
    };
    let charge = charge::write(item.body.len());
    let reply = if request.wants_minimal() {
        Reply::empty(status)
    } else {
        Reply::new(status, home(container).present(&item))
    };
    Ok(reply.etag(&item.etag).session(range, lsn).charge(charge))
}

/// A refused write says what the range has seen as well: a client that saw a conflict has seen the
/// item it conflicts with.
async fn refused(
    container: &OpenContainer,
    key: &PartitionKey,
    body: Option<&Bytes>,
    error: &Error,
) -> Refusal {
    let mut refusal = refusal_of(error, container, key, body);
    if let ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::PreconditionFailed =
        error.kind()
        && !refusal.is_container_gone
        && let Ok(keys) = container.settings().partition_key.range_of(key)
    {
        refusal = with_session(refusal, container, key, &keys).await;
    }
    refusal
}

/// The refusal of a partition key that is not that of the body, or of no item of the container. The
/// words are those of Cosmos DB, because clients look for them.
fn mismatch(detail: &str) -> Refusal {
    let message = format!(
        "Partition key provided either doesn't correspond to definition in the collection or \
         doesn't match partition key field values specified in the document. ({detail})"
    );
    Refusal::bad_request(message).sub_status(sub_status::KEY_MISMATCH)
}

async fn not_found(container: &OpenContainer, key: &PartitionKey, keys: &KeyRange) -> Refusal {
    with_session(Refusal::no_item(), container, key, keys).await
}

async fn with_session(
    refusal: Refusal,
    container: &OpenContainer,
    key: &PartitionKey,
    keys: &KeyRange,
) -> Refusal {
    // Without it the client merely learns nothing new.
    let Ok(newest) = container.newest(keys).await else { return refusal };
    let Ok((range, lsn)) = container.position(key, newest) else { return refusal };
    refusal
        .header(headers::SESSION_TOKEN, &SessionToken(range, lsn).to_string())
        .header(headers::LSN, &lsn.to_string())
        .header(headers::RANGE_ID, &range.0.to_string())
}

/// The id of the item that a path names, by id or resource id.
async fn item_id(call: Call<'_>, key: &PartitionKey, id: &str) -> Result<ItemId, Refusal> {
    let Some(number) = number(call, id) else { return Ok(ItemId::new(id)?) };
    if let Some(item) = by_number(call.container, key, number).await? {
        return Ok(item.id);
    }
    let keys = call.container.settings().partition_key.range_of(key)?;
    Err(not_found(call.container, key, &keys).await)
}

/// The number of the item, if the path names things by resource id.
fn number(call: Call<'_>, id: &str) -> Option<u64> {
    match Rid::decode(id).filter(|_| call.is_by_rid) {
        Some(Rid::Item(owner, number)) if owner == call.container.info().resource_id => {
            Some(number)
        }
        Some(Rid::Item(..) | Rid::Database(_) | Rid::Container(_) | Rid::Range(..)) | None => None,
    }
}

/// Looks through the logical partition: a resource id is a hash, and nothing is filed under it.
async fn by_number(
    container: &OpenContainer,
    key: &PartitionKey,
    number: u64,
) -> Result<Option<Item>, Refusal> {
    let scope = ScanScope::Partition(key.clone());
    let mut after = None;
    loop {
        let size = PageSize::items(LOOK_UP_PAGE);
        let page = container.documents().scan(&scope, after.as_ref(), size).await?;
        let wanted = |it: &Item| rid::item_number(&it.partition_key, &it.id) == number;
        if let Some(item) = page.items.into_iter().find(wanted) {
            return Ok(Some(item));
        }
        after = page.continuation;
        if after.is_none() {
            return Ok(None);
        }
    }
}
